"""Figures as plain values, drawn as SVG for a page or a file, and as characters for a terminal.

    Bars     a score of each system with its interval   ┐
    Curves   scores over the steps of training          ┴──> templates/figure.svg ──> inline in report.html, or a file

Horizontal positions are in percent of the width, so text keeps its size where the page is narrow. A name and its score
stand above their bar. Colors are CSS variables: light, dark, and on paper. The same input gives the same bytes.
"""

import functools
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from clearspan.common.files import write_text
from clearspan.common.terminal import printable

if TYPE_CHECKING:  # takes a fraction of a second to import, which --help must not
    import jinja2

_MOST_CHARACTERS = 32
"""Characters of a name beside its score on a page of 400 pixels; a longer name is cut and is whole in a tooltip."""
_MOST_TICKS = 6
_ROW, _LABEL, _AXIS, _PLOT = 40, 20, 24, 180
"""Heights in pixels: a bar with its name, a line of text, an axis, the area of curves."""
_COLORS = 6


class ScoreBar(NamedTuple):
    """A score.

    Attributes:
        value: NaN is shown as undefined, without a bar.
        low, high: its interval; NaN: none.
        note: small print after the name, a few words.
        is_strong: whether the bar stands out.
    """

    name: str
    value: float
    low: float = math.nan
    high: float = math.nan
    note: str = ""
    is_strong: bool = False


@dataclass(frozen=True)
class Bars:
    """Scores from top to bottom; see `best_first`.

    Attributes:
        unit: label of the numbers, such as `MRR, % (among 26,108 texts)`.
        caption: line above the bars.
    """

    rows: Sequence[ScoreBar]
    unit: str = ""
    caption: str = ""


class Curve(NamedTuple):
    """A line through points (x, y), in ascending order of x. `marked`: the index of a point that stands out, or -1."""

    name: str
    points: Sequence[tuple[float, float]]
    marked: int = -1


@dataclass(frozen=True)
class Curves:
    """Lines in one plot. `x`, `y`: labels of the axes. Points that are not finite are left out."""

    series: Sequence[Curve]
    x: str = "step"
    y: str = ""
    caption: str = ""


Figure = Bars | Curves


def best_first(rows: Iterable[ScoreBar], more_is_better: bool = True) -> list[ScoreBar]:
    """Return rows sorted by value, best first and undefined values last; rows with equal values keep their order."""
    sign = -1 if more_is_better else 1

    def order(row: ScoreBar) -> tuple[bool, float]:
        is_undefined = math.isnan(row.value)
        return is_undefined, 0 if is_undefined else sign * row.value

    return sorted(rows, key=order)


def drawn(figure: Figure) -> dict[str, Any]:
    """Return a figure as templates/figure.svg reads it: texts, and positions in percent of the width or in pixels."""
    return _bars(figure) if isinstance(figure, Bars) else _curves(figure)


def write_svg(path: Path, figure: Figure, width: int = 640) -> None:
    """Write a figure as an SVG file, with a light and a dark style, replacing `path` atomically.

    Raises:
        OSError: the file cannot be written.
    """
    from markupsafe import Markup

    macro = environment().get_template("figure.svg").module.svg  # type: ignore[attr-defined]
    write_text(path, str(macro(drawn(figure), Markup(_style()), width)).strip() + "\n")


@functools.cache
def environment() -> "jinja2.Environment":
    """Return the Jinja environment of the report templates, which escapes every value."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("clearspan.eval.report"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip


def _style() -> str:
    return (Path(__file__).parent / "templates" / "figure.css").read_text(encoding="utf-8")


def ticks(low: float, high: float) -> list[float]:
    """Return the multiples of 1, 2 or 5 times a power of 10 from low to high, at most six."""
    span = high - low
    if not span > 0:
        return [low]
    least = span / (_MOST_TICKS - 1)
    power = 10.0 ** math.floor(math.log10(least))
    step = next((power * factor for factor in (1, 2, 5) if power * factor >= least), power * 10)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


class _Scale(NamedTuple):
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float], zero: bool) -> "_Scale":
        """Return the range of the finite values, which includes zero if `zero` is set, and is never empty."""
        finite = [value for value in values if math.isfinite(value)]
        if zero:
            finite.append(0.0)
        low, high = min(finite, default=0.0), max(finite, default=0.0)
        return cls(low, high if high > low else low + 1)

    def at(self, value: float) -> float:
        """Return a value's position from 0 to 100."""
        return round(100 * (value - self.low) / (self.high - self.low), 2)

    def ticks(self) -> list[dict[str, Any]]:
        places = [(tick, self.at(tick)) for tick in ticks(self.low, self.high)]
        return [{"text": f"{tick:.6g}", "at": at, "anchor": _anchor(at)} for tick, at in places]


def _anchor(at: float) -> str:
    """Return the SVG text anchor for a position in percent, so that the text stays within the figure."""
    if at < 4:
        return "start"
    if at > 96:
        return "end"
    return "middle"


def _bars(figure: Bars) -> dict[str, Any]:
    scale = _Scale.of((number for row in figure.rows for number in (row.value, row.low, row.high)), zero=True)
    rows = []
    for number, row in enumerate(figure.rows):
        is_known = math.isfinite(row.value)
        has_interval = math.isfinite(row.low) and math.isfinite(row.high)
        start, end = sorted((scale.at(0), scale.at(row.value if is_known else 0)))
        name = shortened(printable(row.name))
        rows.append(
            {
                "y": number * _ROW, "name": name,
                "note": shortened(printable(row.note), _MOST_CHARACTERS + 4 - len(name)),
                "title": score_text(row), "value": value_text(row), "interval": interval_text(row),
                "is_strong": row.is_strong, "start": start, "length": round(end - start, 2),
                "interval_at": (scale.at(row.low), scale.at(row.high)) if has_interval else (),
            }
        )  # fmt: skip
    height = len(rows) * _ROW
    label_height = _LABEL if figure.unit else 0
    summary = "; ".join(score_text(row) for row in figure.rows)
    return {
        "kind": "bars", "rows": rows, "ticks": scale.ticks(), "unit": figure.unit, "plot": height,
        "height": height + _AXIS + label_height, "caption": figure.caption,
        "label": ": ".join(filter(None, (figure.caption or figure.unit, summary))),
    }  # fmt: skip


def _curves(figure: Curves) -> dict[str, Any]:
    series = [
        (curve, [(x, y, i == curve.marked) for i, (x, y) in enumerate(curve.points) if math.isfinite(x + y)])
        for curve in figure.series
    ]
    across = _Scale.of((x for _, points in series for x, _, _ in points), zero=False)
    up = _Scale.of((y for _, points in series for _, y, _ in points), zero=False)
    lines: list[dict[str, Any]] = []
    for number, (curve, points) in enumerate(series):
        places = [(across.at(x), round(100 - up.at(y), 2)) for x, y, _ in points]
        marks = [(x, y) for x, y, is_marked in points if is_marked]
        lines.append(
            {
                "name": shortened(printable(curve.name), 2 * _MOST_CHARACTERS // 3), "title": printable(curve.name),
                "points": " ".join(f"{x:g},{y:g}" for x, y in places), "color": number % _COLORS + 1,
                "is_dashed": number % (2 * _COLORS) >= _COLORS, "y": (number + 1) * _LABEL - 6,
                "last": f"best {marks[0][1]:.2f} at {figure.x} {marks[0][0]:g}" if marks else "",
                "marks": [(across.at(x), round(_PLOT * (1 - up.at(y) / 100), 2)) for x, y in marks],
                "only": [(at, round(_PLOT * y / 100, 2)) for at, y in places] if len(places) == 1 else [],
            }
        )  # fmt: skip
    legend = len(lines) * _LABEL + 10
    levels = [{**tick, "y": round(_PLOT * (1 - tick["at"] / 100), 2)} for tick in up.ticks()]
    names = "; ".join(": ".join(filter(None, (line["title"], line["last"]))) for line in lines)
    return {
        "kind": "curves", "lines": lines, "ticks": across.ticks(), "levels": levels, "unit": figure.x, "y": figure.y,
        "legend": legend, "plot": _PLOT, "height": legend + 32 + _PLOT + _AXIS + _LABEL, "caption": figure.caption,
        "label": ": ".join(filter(None, (figure.caption or figure.y, names))),
    }  # fmt: skip


def value_text(row: ScoreBar) -> str:
    """Return the text of a value."""
    return f"{row.value:.2f}" if math.isfinite(row.value) else "undefined"


def interval_text(row: ScoreBar) -> str:
    """Return the text of an interval; "" if the score has none."""
    return f"[{row.low:.1f}, {row.high:.1f}]" if math.isfinite(row.low) and math.isfinite(row.high) else ""


def score_text(row: ScoreBar) -> str:
    """Return a row as one line of text, without cutting the name."""
    noted = f"{row.name} ({row.note})" if row.note else row.name
    return printable(" ".join(filter(None, (noted, value_text(row), interval_text(row)))))


def shortened(text: str, most: int = _MOST_CHARACTERS) -> str:
    """Return a text with its middle cut out if it is longer than `most`; names often differ at their ends."""
    if len(text) <= most:
        return text
    if most < 5:
        return ""
    head = (most - 1) // 2
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"


def text_bars(figure: Bars, width: int) -> list[str]:
    """Return bars as lines of characters, with their intervals; [] if they do not fit into `width` cells.

    ━ is the bar, ├──┤ the interval; = and |--| where the terminal's encoding lacks these.
    """
    from rich.cells import cell_len

    names = [shortened(printable(row.name), max(12, width // 3)) for row in figure.rows]
    scores = [" ".join(filter(None, (value_text(row), interval_text(row)))) for row in figure.rows]
    taken = max(map(cell_len, names), default=0) + max(map(cell_len, scores), default=0) + 4
    cells = min(60, width - taken)
    if cells < 16 or not figure.rows:
        return []
    scale = _Scale.of((number for row in figure.rows for number in (row.value, row.low, row.high)), zero=True)
    longest, widest = max(map(cell_len, names)), max(map(cell_len, scores))
    lines = []
    for name, score, row in zip(names, scores, figure.rows, strict=True):
        bar = _characters(row, scale, cells)
        lines.append(f"{name}{' ' * (longest - cell_len(name))}  {bar}  {score:>{widest}}")
    return lines


def _characters(row: ScoreBar, scale: _Scale, cells: int) -> str:
    """Return a row's bar and interval, a character for each cell."""
    marks = [" "] * cells
    zero, value, low, high = (
        round(scale.at(number) * (cells - 1) / 100) if math.isfinite(number) else -1
        for number in (0.0, row.value, row.low, row.high)
    )
    if value >= 0:
        start, end = sorted((zero, value))
        marks[start : end + 1] = "━" * (end + 1 - start)
    if low >= 0 and high >= 0:
        marks[low : high + 1] = "─" * (high + 1 - low)
        marks[low], marks[high] = "├", "┤"
    drawn = "".join(marks)
    try:
        drawn.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return drawn.translate(str.maketrans("━─├┤", "=-||"))
    return drawn
