"""Charts: their descriptions in words, and names and values of any form."""

import io
import itertools

import numpy as np
import pytest
from matplotlib.figure import Figure

from clearspan.eval.details import Scatter
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


def test_an_interval_is_a_line_from_its_low_to_its_high_and_none_where_undefined() -> None:
    figure = plots.grouped_bars(["MR", "CR"], {"one": [80.0, NAN]}, "x", {"one": [(78.5, 82.0), (1.0, 2.0)]})
    lines = [line.get_xdata() for line in figure.axes[0].lines]
    assert [list(x) for x in lines if len(x) == 2 and x[0] > 0] == [[78.5, 82.0]]


def test_bars_of_one_series_have_no_legend() -> None:
    assert plots.grouped_bars(["MR"], {"one": [80.0]}, "x").legends == []


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


def test_points_of_models_and_published_ones_are_named_and_undefined_ones_left_out() -> None:
    figure = plots.plane(
        {"one": (-2.5, 0.2), "broken": (NAN, 0.1)}, "uniformity", "alignment", {"SimCSE": (-2.6, 0.25)}
    )
    shown = drawn(figure)
    assert ">one<" in shown and ">SimCSE<" in shown and ">broken<" not in shown
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.texts] == ["one", "SimCSE"]
    assert [text.xy for text in axes.texts] == [(-2.5, 0.2), (-2.6, 0.25)] and figure.legends == []
    assert "SimCSE: uniformity -2.60, alignment 0.25" in str(figure.get_label())


def test_names_of_points_that_are_close_together_do_not_overlap() -> None:
    names = ["a model of a very long name that is cut", "b", "c", "d"]
    figure = plots.plane({name: (-2.5 + number / 1000, 0.2) for number, name in enumerate(names)}, "x", "y")
    figure.savefig(io.BytesIO(), format="svg")
    (axes,) = figure.axes
    boxes = sorted((text.get_window_extent() for text in axes.texts), key=lambda box: box.y0)
    assert all(lower.y1 <= upper.y0 + 1 for lower, upper in itertools.pairwise(boxes))


@pytest.mark.slow
def test_names_may_hold_anything() -> None:
    x = np.arange(3.0)
    drawn(plots.grouped_bars([ODD, "a" * 90], {ODD: [1.0, 2.0], "b" * 90: [3.0, 4.0]}, "x", marks={ODD: [1.0, 2.0]}))
    drawn(plots.titled(plots.draw(Scatter({ODD: (x, x)}, "x", "y")), ODD))
    assert drawn(plots.plane({ODD: (0.0, 0.0)}, "x", "y")).count("$_{") == 1
