"""The charts of a report, as matplotlib figures.

Built without pyplot: no global state, no backend, nothing to close. `report` turns them into inline images.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from eval.files import printable
from eval.models.embed import Floats


def bars(labels: Sequence[str], values: Sequence[float], xlabel: str) -> Figure:
    """Horizontal bars from the top down, each with its value; a NaN is shown as `undefined`."""
    figure = Figure(figsize=(7, 0.8 + 0.36 * len(labels)), layout="constrained")
    axes = figure.subplots()
    heights = np.nan_to_num(np.asarray(values, dtype=float))
    axes.barh(range(len(labels)), heights, height=0.62, color="#3b6ea5")
    for row, value in enumerate(values):
        text = "undefined" if np.isnan(value) else f"{value:.2f}"
        axes.annotate(text, (max(heights[row], 0), row), xytext=(4, 0), textcoords="offset points", va="center", size=9)
    axes.set_yticks(range(len(labels)), [printable(label) for label in labels], parse_math=False)
    axes.invert_yaxis()
    axes.set_xlim(min(0.0, heights.min() * 1.1), 108)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xlabel(xlabel)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def scatter(groups: Mapping[str, tuple[Floats, Floats]], xlabel: str, ylabel: str) -> Figure:
    """One point cloud: group -> (x (n,), y (n,)), a colour each."""
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, (x, y) in groups.items():
        # Thousands of points as vector shapes would make the report megabytes.
        axes.plot(x, y, ".", markersize=3, alpha=0.45, label=name, rasterized=True)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, markerscale=3)
    return figure


def share_within_rank(first_ranks: NDArray[np.integer], num_documents: int) -> Figure:
    """Share of queries whose first relevant document is within rank k, over k on a logarithmic axis.

    Args:
        first_ranks: 1-based rank of each query's best relevant document, (num_queries,).
    """
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.subplots()
    ranks = np.sort(first_ranks)
    percent = 100 * np.arange(1, len(ranks) + 1) / len(ranks)
    axes.step([*ranks, num_documents], [*percent, 100], where="post", color="#3b6ea5")
    axes.set_xscale("log")
    axes.set_xlim(1, max(num_documents, 2))
    axes.set_ylim(0, 101)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda k, _: f"{k:g}"))
    axes.set_xlabel("rank k")
    axes.set_ylabel("queries answered within k, %")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure
