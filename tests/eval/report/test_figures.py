"""Figures: what a reader sees in them, as SVG and as characters."""

import io
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearspan.eval.report.figures import Bars, Curve, Curves, ScoreBar, best_first, drawn, text_bars, ticks, write_svg
from clearspan.eval.report.html import Section, write_report

SVG = "{http://www.w3.org/2000/svg}"
TRAINED = ScoreBar("trained + BM25", 45.1, 43.0, 47.2, "weight 0.70", True)
BM25 = ScoreBar("BM25", 40.9, 39.0, 43.0)
BARS = Bars([TRAINED, BM25, ScoreBar("collapsed", math.nan)], "MRR, % (among 26,108 texts)", "Titles find their texts")
CURVES = Curves(
    [Curve("static", [(0, 20.0), (25, 38.5), (50, 37.0)], 1), Curve("transformer", [(0, 12.0), (50, 23.25)])],
    "step",
    "dev score, %",
)


def svg(figure: Bars | Curves, folder: Path) -> ElementTree.Element:
    write_svg(folder / "figure.svg", figure)
    return ElementTree.fromstring((folder / "figure.svg").read_text("utf-8"))


def texts(root: ElementTree.Element) -> list[str]:
    return [" ".join("".join(each.itertext()).split()) for each in root.iter(f"{SVG}text")]


def percent(element: ElementTree.Element, name: str) -> float:
    return float(element.attrib[name].removesuffix("%"))


@pytest.mark.guarantee("evaluation-charts")
def test_bars_show_each_score_with_its_interval_in_the_order_given(tmp_path: Path) -> None:
    root = svg(BARS, tmp_path)
    groups = [" | ".join(texts(group)) for group in root.iter(f"{SVG}g")]
    assert groups == [
        "trained + BM25 weight 0.70 | 45.10 [43.0, 47.2]",
        "BM25 | 40.90 [39.0, 43.0]",
        "collapsed | undefined",
    ]
    assert "MRR, % (among 26,108 texts)" in texts(root)


@pytest.mark.guarantee("evaluation-charts")
def test_bars_begin_at_zero_and_are_as_long_as_their_scores_are_large(tmp_path: Path) -> None:
    trained, bm25, collapsed = svg(BARS, tmp_path).iter(f"{SVG}rect")
    assert percent(trained, "x") == percent(bm25, "x") == percent(collapsed, "width") == 0
    assert percent(bm25, "width") / percent(trained, "width") == pytest.approx(40.9 / 45.1, abs=1e-3)
    assert ["best" in each.attrib["class"] for each in (trained, bm25, collapsed)] == [True, False, False]


@pytest.mark.guarantee("evaluation-charts")
def test_an_interval_reaches_from_its_low_to_its_high_on_the_bars_scale(tmp_path: Path) -> None:
    root = svg(BARS, tmp_path)
    group = next(root.iter(f"{SVG}g"))
    lines = [each for each in group.iter(f"{SVG}line") if each.attrib["class"] == "interval"]
    assert (percent(lines[0], "x1"), percent(lines[0], "x2")) == (round(100 * 43.0 / 47.2, 2), 100)
    assert len(lines) == 3, "the interval and its two ends"
    assert not list(list(root.iter(f"{SVG}g"))[2].iter(f"{SVG}line")), "an undefined score has no interval"


@pytest.mark.guarantee("evaluation-charts")
def test_a_negative_score_reaches_to_the_left_of_zero(tmp_path: Path) -> None:
    worse, better = svg(Bars([ScoreBar("worse", -10.0), ScoreBar("better", 30.0)]), tmp_path).iter(f"{SVG}rect")
    assert (percent(worse, "x"), percent(worse, "width")) == (0, 25)
    assert (percent(better, "x"), percent(better, "width")) == (25, 75)


@pytest.mark.guarantee("evaluation-charts")
def test_curves_pass_through_their_points_and_mark_the_best(tmp_path: Path) -> None:
    root = svg(CURVES, tmp_path)
    static, transformer = (each.attrib["points"] for each in root.iter(f"{SVG}polyline"))
    assert static == "0,69.81 50,0 100,5.66"
    assert transformer == "0,100 100,57.55"
    (mark,) = root.iter(f"{SVG}circle")
    assert (mark.attrib["cx"], mark.attrib["cy"]) == ("50.0%", "0.0")
    assert {"static", "transformer", "best 38.50 at step 25", "dev score, %", "step"} <= set(texts(root))


def test_points_that_are_not_finite_are_left_out(tmp_path: Path) -> None:
    (line,) = svg(Curves([Curve("a", [(0, 1.0), (1, math.nan), (2, 3.0)])]), tmp_path).iter(f"{SVG}polyline")
    assert line.attrib["points"] == "0,100 100,0"


@pytest.mark.parametrize("figure", [BARS, CURVES])
def test_a_figure_has_light_and_dark_colors_no_script_and_the_same_bytes(figure: Bars | Curves, tmp_path: Path) -> None:
    write_svg(tmp_path / "a.svg", figure)
    write_svg(tmp_path / "b.svg", figure)
    source = (tmp_path / "a.svg").read_text("utf-8")
    assert source == (tmp_path / "b.svg").read_text("utf-8")
    assert "@media (prefers-color-scheme: dark)" in source and "@media print" in source
    assert "script" not in source and "url(" not in source and "href" not in source
    assert set(re.findall(r"var\((--\w+)\)", source)) <= set(re.findall(r"(--\w+):", source))


def test_a_page_holds_its_figures_inline_under_their_captions(tmp_path: Path) -> None:
    write_report(tmp_path / "r.html", "t", [Section("Scores", "words", figures=[BARS, CURVES])])
    source = (tmp_path / "r.html").read_text("utf-8")
    assert source.count('<svg xmlns="http://www.w3.org/2000/svg" class="figure"') == 2
    assert source.index("<p>words</p>") < source.index("<figcaption>Titles find their texts</figcaption>")
    assert 'aria-label="Titles find their texts: trained + BM25 (weight 0.70) 45.10 [43.0, 47.2]; BM25 40.90' in source
    assert "<script" not in source and "default-src 'none'" in source


def test_a_long_name_is_cut_in_the_middle_and_whole_in_the_tooltip(tmp_path: Path) -> None:
    name = "runs/2026-11-26/all-MiniLM-L6-v2-with-hard-negatives/model"
    group = next(svg(Bars([ScoreBar(name, 1.0)]), tmp_path).iter(f"{SVG}g"))
    assert texts(group)[0] == "runs/2026-11-26…negatives/model"[:15] + "…" + name[-16:]
    assert group.findtext(f"{SVG}title") == f"{name} 1.00"


@pytest.mark.guarantee("evaluation-charts")
def test_the_best_are_first_and_undefined_ones_last() -> None:
    rows = [ScoreBar("a", math.nan), ScoreBar("b", 1.0), ScoreBar("c", 3.0), ScoreBar("d", 3.0)]
    assert "".join(row.name for row in best_first(rows)) == "cdba"
    rows.append(ScoreBar("e", math.nan))
    assert "".join(row.name for row in best_first([*rows, ScoreBar("f", -2.0)])) == "cdbfae"
    rows.pop()
    assert "".join(row.name for row in best_first(rows, more_is_better=False)) == "bcda"
    close = [ScoreBar(name, value) for name, value in zip("ghij", (71.001, 71.004, 71.002, 71.003), strict=True)]
    assert "".join(row.name for row in best_first(close)) == "hjig", "also where a page shows the same two decimals"
    assert "".join(row.name for row in best_first(close, more_is_better=False)) == "gijh"


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_few_round_and_within_the_range(low: float, span: float) -> None:
    high = low + span
    marks = ticks(low, high)
    assert 1 <= len(marks) <= 6
    assert all(low - 1e-6 * span <= mark <= high + 1e-6 * span for mark in marks)


def test_characters_show_names_bars_intervals_and_scores() -> None:
    assert text_bars(BARS, 60) == [
        "trained + BM25  ━━━━━━━━━━━━━━━━━━━━━├─┤  45.10 [43.0, 47.2]",
        "BM25            ━━━━━━━━━━━━━━━━━━━├─┤    40.90 [39.0, 43.0]",
        "collapsed                                          undefined",
    ]
    assert all(len(line) <= 44 for line in text_bars(BARS, 44))
    assert text_bars(BARS, 40) == [], "too narrow for bars: the table below has the scores"


def test_a_curve_of_one_point_is_a_mark(tmp_path: Path) -> None:
    assert len(list(svg(Curves([Curve("a", [(0, 1.0)])]), tmp_path).iter(f"{SVG}circle"))) == 1


def test_a_figure_without_rows_is_an_empty_one() -> None:
    assert drawn(Bars([]))["rows"] == [] and drawn(Curves([]))["lines"] == []


def test_characters_are_ascii_where_the_terminal_has_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), "ascii"))
    assert text_bars(Bars([BM25]), 60) == ["BM25  ==============================|--|  40.90 [39.0, 43.0]"]


@pytest.mark.guarantee("evaluation-charts")
def test_what_is_drawn_of_bars_is_all_of_them() -> None:
    """Scores, intervals and names in the order given, on one scale that has room for each of them and for zero."""
    name, note = "all-MiniLM-L6-v2-with-hard-negatives", "after 1,200 steps of training"
    rows = [
        ScoreBar("a\nb", 40.0, 30.0, 50.0, "of\n3", True),
        ScoreBar("worse", -10.0, -30.0, -5.0),
        ScoreBar("collapsed", math.nan, math.nan, math.nan),
        ScoreBar("one end", 12.3456, math.nan, 70.0, note),
        ScoreBar(name, 20.0, 10.0, math.nan, note),
        ScoreBar("a model with a name", 20.0, note=note),
    ]
    found = drawn(Bars(rows, "MRR, %", "Owls"))
    kept = ("name", "note", "title", "value", "interval", "is_strong", "start", "length", "interval_at")
    assert [tuple(row[key] for key in kept) for row in found["rows"]] == [
        (r"a\nb", r"of\n3", r"a\nb (of\n3) 40.00 [30.0, 50.0]", "40.00", "[30.0, 50.0]", True, 30.0, 40.0, (60, 80)),
        ("worse", "", "worse -10.00 [-30.0, -5.0]", "-10.00", "[-30.0, -5.0]", False, 20.0, 10.0, (0.0, 25.0)),
        ("collapsed", "", "collapsed undefined", "undefined", "", False, 30.0, 0.0, ()),
        ("one end", note, f"one end ({note}) 12.35", "12.35", "", False, 30.0, 12.35, ()),
        ("all-MiniLM-L6-v…h-hard-negatives", "", f"{name} ({note}) 20.00", "20.00", "", False, 30.0, 20.0, ()),
        (
            "a model with a name",
            "after 1,…training",
            f"a model with a name ({note}) 20.00",
            "20.00",
            "",
            False,
            30,
            20,
            (),
        ),
    ]
    assert [row["y"] for row in found["rows"]] == [0, 40, 80, 120, 160, 200] and found["plot"] == 240
    marks = [("-20", 10), ("0", 30), ("20", 50), ("40", 70), ("60", 90)]
    assert [(tick["text"], tick["at"]) for tick in found["ticks"]] == marks
    assert found["label"] == f"Owls: {'; '.join(row['title'] for row in found['rows'])}"
    assert (found["caption"], found["unit"], found["height"]) == ("Owls", "MRR, %", 284)


@pytest.mark.guarantee("evaluation-charts")
@pytest.mark.parametrize(
    ("unit", "caption", "height", "label"),
    [("MRR, %", "Owls", 84, "Owls: a 40.00"), ("MRR, %", "", 84, "MRR, %: a 40.00"), ("", "", 64, "a 40.00")],
)
def test_a_figure_is_called_by_its_caption_or_its_unit(unit: str, caption: str, height: int, label: str) -> None:
    found = drawn(Bars([ScoreBar("a", 40.0)], unit, caption))
    assert (found["height"], found["label"]) == (height, label)


@pytest.mark.guarantee("evaluation-charts")
@pytest.mark.parametrize(
    ("values", "ends"),
    [([40.0, 50.0], (0, 50)), ([10.0, 0.5], (0, 10)), ([-3.0, -1.0], (-3, 0)), ([0.0], (0, 1)), ([math.nan], (0, 1))],
)
def test_the_scale_of_bars_reaches_from_zero_to_the_farthest(values: list[float], ends: tuple[float, float]) -> None:
    rows = drawn(Bars([ScoreBar("a", value) for value in values]))["rows"]
    low, high = ends
    for row, value in zip(rows, values, strict=True):
        known = value if math.isfinite(value) else 0.0
        start, end = sorted((0.0, known))
        assert row["start"] == pytest.approx(100 * (start - low) / (high - low), abs=0.01)
        assert row["length"] == pytest.approx(100 * (end - start) / (high - low), abs=0.02)
