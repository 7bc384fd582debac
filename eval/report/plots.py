"""Charts of a report, as matplotlib figures, which `report.html` inlines as images.

Built without pyplot: no global state, no backend, nothing to close. A chart is half a page wide, which a phone can show
too, and its label describes it in words.
"""

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from clearspan.common.terminal import printable
from clearspan.eval.details import RankCurve, Scatter

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 4.8
"""Width of a chart in inches."""
COLORS = ("#1b5e9e", "#b3440b", "#00694a", "#7d3f98", "#7a5900", "#3f4a5a", "#a3195b", "#1f6f78")
"""Colors of the models, in their order, in every chart; dark enough for white text on them."""
_MARKERS = "DovsP^X*"
_GRAY = "#555555"
_LABEL_CHARACTERS = 24
_POINT_CHARACTERS = 40
_LINE_POINTS = 10.0  # line height of a point's name
_PLANE_LINES = 20  # lines of that height along a plane's vertical axis
_AXIS_CHARACTERS = 48
_INSIDE_FROM = 16.0  # a bar shorter than this has its value after it


def grouped_bars(
    labels: Sequence[str],
    values: Mapping[str, Sequence[float]],
    xlabel: str,
    intervals: Mapping[str, Sequence[tuple[float, float]]] | None = None,
    marks: Mapping[str, Sequence[float]] | None = None,
) -> "Figure":
    """Draw horizontal bars, one group per label, each with its value in percent; a NaN is shown as `undefined`.

    Args:
        values: series -> its value for each label.
        intervals: series -> (low, high) for each label, drawn as whiskers; NaN for none.
        marks: reference values: name -> a value for each label, drawn as a point on the group; NaN for none.
    """
    lines = [textwrap.wrap(printable(label), _LABEL_CHARACTERS) or [""] for label in labels]
    thickness = 0.8 / len(values)
    inches = max(0.17 * len(values) + 0.12, 0.16 * max(map(len, lines), default=1) + 0.06)
    legend = len(marks or {}) + (len(values) if len(values) > 1 else 0)
    figure, axes = _figure(0.75 + inches * len(labels) + 0.2 * ((legend + 1) // 2))
    for series, (name, row) in enumerate(values.items()):
        heights = np.nan_to_num(np.asarray(row, dtype=float))
        places = np.arange(len(labels)) + (series - (len(values) - 1) / 2) * thickness
        axes.barh(
            places,
            heights,
            height=0.92 * thickness,
            color=COLORS[series % len(COLORS)],
            label=_legend_text(name) or None,
        )
        bounds = np.array(intervals[name] if intervals and name in intervals else [(np.nan, np.nan)] * len(labels))
        for place, value, (low, high) in zip(places, row, bounds.reshape(-1, 2), strict=True):
            if np.isfinite([value, low, high]).all():
                axes.plot([low, high], [place, place], color="#222222", linewidth=1, solid_capstyle="butt")
            text = "undefined" if np.isnan(value) else f"{value:.2f}"
            inside = value >= _INSIDE_FROM
            after = 0.0 if np.isnan(value) else np.nanmax([value, high, 0.0])
            axes.annotate(
                text, (0 if inside else after, place), xytext=(4, 0), textcoords="offset points", va="center",
                size=7.5, color="white" if inside else "black",
            )  # fmt: skip
    for number, (name, row) in enumerate((marks or {}).items()):
        axes.plot(
            row, np.arange(len(labels)), _MARKERS[number % len(_MARKERS)], color="white", markeredgecolor="black",
            markersize=5.5, markeredgewidth=1, label=_legend_text(name), zorder=3,
        )  # fmt: skip
    axes.set_yticks(range(len(labels)), ["\n".join(wrapped) for wrapped in lines], parse_math=False, size=8.5)
    axes.set_ylim(len(labels) - 0.45, -0.55)
    lowest = min([0.0, *(float(value) for row in values.values() for value in row if np.isfinite(value))])
    axes.set_xlim(lowest * 1.1, 108)
    axes.axvline(0, color="black", linewidth=0.8)
    _name_axes(axes, xlabel)
    if legend:
        _legend(figure)
    figure.set_label(f"Bars, {xlabel}. " + _in_words(labels, values, marks or {}))
    return figure


def plane(
    points: Mapping[str, tuple[float, float]],
    xlabel: str,
    ylabel: str,
    marks: Mapping[str, tuple[float, float]] | None = None,
) -> "Figure":
    """Draw points on a plane, each with its name beside it: alignment against uniformity, where low is good.

    Args:
        points: name -> (x, y), in the models' colors; points that are not finite are left out.
        marks: reference points: name -> (x, y), in gray.
    """
    figure, axes = _figure(3.6)
    shown = [(name, xy, COLORS[i % len(COLORS)]) for i, (name, xy) in enumerate(points.items())]
    shown += [(name, xy, _GRAY) for name, xy in (marks or {}).items()]
    shown = [point for point in shown if np.isfinite(point[1]).all()]
    for _, (x, y), color in shown:
        axes.plot([x], [y], "o" if color != _GRAY else "D", color=color, markersize=7)
    axes.margins(0.25)
    _name_points(axes, shown)
    _name_axes(axes, f"{xlabel} (lower is better)", f"{ylabel} (lower is better)")
    axes.grid(alpha=0.3)
    words = "; ".join(f"{printable(name)}: {xlabel} {x:.2f}, {ylabel} {y:.2f}" for name, (x, y), _ in shown)
    figure.set_label(f"A point for each model, {ylabel} over {xlabel}. {words}")
    return figure


def _name_points(axes: "Axes", points: Sequence[tuple[str, tuple[float, float], str]]) -> None:
    """Write each point's name beside it: toward the middle, shifted up where it would overlap the name below."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    lines: list[float] = []
    for name, (x, y), color in sorted(points, key=lambda point: point[1][1]):
        height = (y - bottom) / (top - bottom) * _PLANE_LINES
        line = max(height, lines[-1] + 1) if lines else height
        lines.append(line)
        on_the_left = x > (left + right) / 2
        text = printable(name)
        text = text if len(text) <= _POINT_CHARACTERS else text[: _POINT_CHARACTERS - 1] + "…"
        axes.annotate(
            text, (x, y), xytext=(-7 if on_the_left else 7, (line - height) * _LINE_POINTS), size=7.5, color=color,
            textcoords="offset points", ha="right" if on_the_left else "left", va="center", parse_math=False,
        )  # fmt: skip


def draw(chart: Scatter | RankCurve) -> "Figure":
    """Draw the chart of a task's details."""
    return scatter(chart) if isinstance(chart, Scatter) else rank_curve(chart)


def scatter(chart: Scatter) -> "Figure":
    """Draw one point cloud with a color per group."""
    groups, xlabel, ylabel = chart.groups, chart.xlabel, chart.ylabel
    figure, axes = _figure(3.2 + 0.2 * ((len(groups) + 1) // 2))
    for name, (x, y) in groups.items():
        # Rasterized, since thousands of points as vector shapes would take megabytes.
        axes.plot(x, y, ".", markersize=3, alpha=0.45, label=_legend_text(name), rasterized=True)
    _name_axes(axes, xlabel, ylabel)
    _legend(figure, markerscale=3)
    sizes = ", ".join(f"{printable(name)} ({len(x)})" for name, (x, _) in groups.items())
    figure.set_label(f"A point cloud, {ylabel} over {xlabel}, of {sizes}")
    return figure


def lines(series: Mapping[str, tuple[Sequence[float], Sequence[float]]], xlabel: str, ylabel: str) -> "Figure":
    """Draw one line per series, (x, y), such as learning curves."""
    figure, axes = _figure(2.6)
    for number, (name, (x, y)) in enumerate(series.items()):
        axes.plot(x, y, marker=".", color=COLORS[number % len(COLORS)], label=_legend_text(name))
    _name_axes(axes, xlabel, ylabel)
    axes.grid(alpha=0.3)
    _legend(figure)
    ends = ", ".join(f"{printable(name)} from {y[0]:.1f} to {y[-1]:.1f}" for name, (_, y) in series.items() if len(y))
    figure.set_label(f"Lines, {ylabel} over {xlabel}: {ends}")
    return figure


def rank_curve(chart: RankCurve) -> "Figure":
    """Draw the share of queries whose first relevant document is within rank k, over k on a logarithmic axis."""
    num_documents = chart.num_documents
    figure, axes = _figure(3.0)
    ranks = np.sort(chart.first_ranks)
    percent = 100 * np.arange(1, len(ranks) + 1) / len(ranks)
    axes.step([*ranks, num_documents], [*percent, 100], where="post", color=COLORS[0])
    axes.set_xscale("log")
    axes.set_xlim(1, max(num_documents, 2))
    axes.set_ylim(0, 101)
    axes.xaxis.set_major_formatter(lambda k, _: f"{k:g}")
    _name_axes(axes, "rank k", "queries answered within k, %")
    axes.grid(alpha=0.3)
    within = ", ".join(f"{100 * np.mean(ranks <= k):.0f} % within {k}" for k in (1, 10, 100) if k < num_documents)
    figure.set_label(f"Share of queries answered within rank k of {num_documents}, a rising curve: {within}")
    return figure


def titled(figure: "Figure", title: str) -> "Figure":
    """Put a title over the figure and at the start of its label; return the figure."""
    figure.suptitle(printable(title), size=10, parse_math=False)
    figure.set_label(f"{title}: {figure.get_label()}")
    return figure


def _figure(inches: float) -> "tuple[Figure, Axes]":
    """Return an empty chart of this height, without a box around it."""
    from matplotlib.figure import Figure  # takes half a second to import, which --help must not

    figure = Figure(figsize=(WIDTH, inches), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _name_axes(axes: "Axes", xlabel: str, ylabel: str = "") -> None:
    """Name the axes, the vertical one in lines above it: beside it a long name would be cut."""
    xlabel, ylabel = ("\n".join(textwrap.wrap(printable(label), _AXIS_CHARACTERS)) for label in (xlabel, ylabel))
    axes.set_xlabel(xlabel)
    axes.set_title(ylabel, loc="left", size="medium")


def _legend_text(name: str) -> str:
    """Return the name for a legend: matplotlib leaves out names that begin with an underscore."""
    return f" {printable(name)}" if name.startswith("_") else printable(name)


def _legend(figure: "Figure", **options: float) -> None:
    legend = figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8, **options)
    for text in legend.get_texts():
        text.set_parse_math(False)


def _in_words(labels: Sequence[str], *series: Mapping[str, Sequence[float]]) -> str:
    """Return the values of a chart in words, one clause per label."""
    named = {name: row for group in series for name, row in group.items()}

    def value(name: str, number: float) -> str:
        text = "undefined" if np.isnan(number) else f"{number:.2f}"
        return f"{name} {text}".strip()

    return "; ".join(
        f"{label}: " + ", ".join(value(name, row[i]) for name, row in named.items()) for i, label in enumerate(labels)
    )
