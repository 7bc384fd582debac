"""Charts: their descriptions in words, and names and values of any form."""

import io

import pytest
from matplotlib.figure import Figure

from clearspan.eval.report import plots

NAN = float("nan")
ODD = "_é$_{\x1b"


def drawn(figure: Figure) -> str:
    """Return the chart as SVG, with its words as text."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg")
    return buffer.getvalue()


def test_a_group_of_bars_shows_each_models_value_and_the_published_in_its_legend() -> None:
    figure = plots.grouped_bars(
        ["MR", "CR"], {"one": [81.2, 5.5], "other": [NAN, -3.0]}, "acc, %", marks={"GloVe": [77.2, NAN]}
    )
    shown = drawn(figure)
    for text in ("81.20", "5.50", "-3.00", "undefined", "one", "other", "GloVe", "acc, %"):
        assert f">{text}<" in shown, text
    assert figure.get_label() == (
        "Bars, acc, %. MR: one 81.20, other undefined, GloVe 77.20; CR: one 5.50, other -3.00, GloVe undefined"
    )


def test_a_learning_curve_is_a_line_through_its_points_and_is_described() -> None:
    figure = plots.lines({"static": ([0, 25, 50], [24.0, 42.5, 50.0])}, "step", "MRR, %")
    (line,) = figure.axes[0].lines
    assert line.get_xydata().tolist() == [[0, 24.0], [25, 42.5], [50, 50.0]]
    assert figure.get_label() == "Lines, MRR, % over step: static from 24.0 to 50.0"


def test_long_names_of_axes_are_whole_inside_the_chart() -> None:
    name = "MRR on texts of the corpus that training left out, in percent of all"
    figure = plots.lines({"static": ([0, 25], [24.0, 42.5])}, name, name)
    figure.savefig(io.BytesIO(), format="png", dpi=figure.dpi)
    for text in (figure.axes[0].xaxis.label, figure.axes[0]._left_title):
        box = text.get_window_extent()
        assert " ".join(text.get_text().split()) == name
        assert 0 <= box.x0 < box.x1 <= figure.bbox.width and 0 <= box.y0 < box.y1 <= figure.bbox.height


def test_points_are_named_and_undefined_ones_left_out() -> None:
    figure = plots.plane({"one": (-2.5, 0.2), "broken": (NAN, 0.1), "SimCSE": (-2.6, 0.25)}, "uniformity", "alignment")
    shown = drawn(figure)
    assert ">one<" in shown and ">SimCSE<" in shown and ">broken<" not in shown
    assert [line.get_xydata().tolist() for line in figure.axes[0].lines] == [[[-2.5, 0.2]], [[-2.6, 0.25]]]
    assert "SimCSE: uniformity -2.60, alignment 0.25" in str(figure.get_label())


@pytest.mark.slow
def test_names_may_hold_anything() -> None:
    drawn(plots.grouped_bars([ODD, "a" * 90], {ODD: [1.0, 2.0], "b" * 90: [3.0, 4.0]}, "x", marks={ODD: [1.0, 2.0]}))
    assert drawn(plots.plane({ODD: (0.0, 0.0)}, "x", "y")).count("$_{") == 1
