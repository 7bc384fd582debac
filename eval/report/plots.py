"""Charts of a report, as matplotlib figures, which `report.html` inlines as images.

Built without pyplot: no global state, no backend, nothing to close. A chart is half a page wide, which a phone can show
too, and its label describes it in words.
"""

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from clearspan.common.terminal import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 4.8
"""Width of a chart in inches."""
COLORS = ("#1b5e9e", "#b3440b", "#00694a", "#7d3f98", "#7a5900", "#3f4a5a", "#a3195b", "#1f6f78")
"""Colors of the models, in their order, in every chart."""
_MARKERS = "DovsP^X*"
_LABEL_CHARACTERS, _AXIS_CHARACTERS = 24, 48


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
    names = [textwrap.fill(printable(label), _LABEL_CHARACTERS) for label in labels]
    thickness = 0.8 / len(values)
    inches = max(0.17 * len(values) + 0.12, 0.16 * max((name.count("\n") for name in names), default=0) + 0.22)
    num_named = len(marks or {}) + (len(values) if len(values) > 1 else 0)
    figure, axes = _figure(0.75 + inches * len(labels) + 0.2 * ((num_named + 1) // 2))
    lowest = 0.0
    for series, (name, row) in enumerate(values.items()):
        heights = np.asarray(row, dtype=float)
        bounds = np.array(intervals[name] if intervals else np.full((len(labels), 2), np.nan)).reshape(-1, 2)
        bars = axes.barh(
            np.arange(len(labels)) + (series - (len(values) - 1) / 2) * thickness,
            np.nan_to_num(heights),
            height=0.92 * thickness,
            xerr=np.nan_to_num(np.maximum([heights - bounds[:, 0], bounds[:, 1] - heights], 0)),
            error_kw={"elinewidth": 1},
            color=COLORS[series % len(COLORS)],
            label=_legend_text(name),
        )
        axes.bar_label(bars, [_number(value) for value in heights], padding=4, size=7.5)
        lowest = min(lowest, *np.nan_to_num(heights))
    for number, (name, row) in enumerate((marks or {}).items()):
        axes.plot(
            row, np.arange(len(labels)), _MARKERS[number % len(_MARKERS)], color="white", markeredgecolor="black",
            markersize=5.5, label=_legend_text(name), zorder=3,
        )  # fmt: skip
    axes.set_yticks(range(len(labels)), names, parse_math=False, size=8.5)
    axes.set_ylim(len(labels) - 0.45, -0.55)
    axes.set_xlim(lowest * 1.1, 118)
    axes.axvline(0, color="black", linewidth=0.8)
    _name_axes(axes, xlabel)
    if num_named:
        _legend(figure)
    series_named = {**values, **(marks or {})}
    words = [
        f"{label}: " + ", ".join(f"{name} {_number(row[i])}".strip() for name, row in series_named.items())
        for i, label in enumerate(labels)
    ]
    figure.set_label(f"Bars, {xlabel}. {'; '.join(words)}")
    return figure


def plane(points: Mapping[str, tuple[float, float]], xlabel: str, ylabel: str) -> "Figure":
    """Draw named points (x, y) on a plane: alignment against uniformity, where low is good.

    Points that are not finite are left out.
    """
    shown = {name: point for name, point in points.items() if np.isfinite(point).all()}
    figure, axes = _figure(3.2 + 0.2 * ((len(shown) + 1) // 2))
    for number, (name, (x, y)) in enumerate(shown.items()):
        marker = _MARKERS[number // len(COLORS) % len(_MARKERS)]
        axes.plot([x], [y], marker, color=COLORS[number % len(COLORS)], markersize=7, label=_legend_text(name))
    axes.margins(0.25)
    _name_axes(axes, f"{xlabel} (lower is better)", f"{ylabel} (lower is better)")
    axes.grid(alpha=0.3)
    _legend(figure)
    words = "; ".join(f"{printable(name)}: {xlabel} {x:.2f}, {ylabel} {y:.2f}" for name, (x, y) in shown.items())
    figure.set_label(f"A point for each model, {ylabel} over {xlabel}. {words}")
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


def _figure(inches: float) -> "tuple[Figure, Axes]":
    """Return an empty chart of this height, without a box around it."""
    from matplotlib.figure import Figure  # takes half a second to import, which --help must not

    figure = Figure(figsize=(WIDTH, inches), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _name_axes(axes: "Axes", xlabel: str, ylabel: str = "") -> None:
    """Name the axes, the vertical one in lines above it: beside it a long name would be cut."""
    axes.set_xlabel(textwrap.fill(printable(xlabel), _AXIS_CHARACTERS))
    axes.set_title(textwrap.fill(printable(ylabel), _AXIS_CHARACTERS), loc="left", size="medium")


def _legend_text(name: str) -> str:
    """Return the name for a legend: matplotlib leaves out names that begin with an underscore."""
    return f" {printable(name)}" if name.startswith("_") else printable(name)


def _legend(figure: "Figure") -> None:
    legend = figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    for text in legend.get_texts():
        text.set_parse_math(False)


def _number(value: float) -> str:
    return "undefined" if np.isnan(value) else f"{value:.2f}"
