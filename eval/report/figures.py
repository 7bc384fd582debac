"""Draw figures as SVG for a page or a file, and as characters for a terminal.

    Bars     one score for each system, with its interval   ┐
    Curves   scores over the steps of training              ┴──> templates/figure.svg ──> report.html or an SVG file

Horizontal positions in the SVG are in percent of the figure's width, so that a narrow page does not shrink the text.
The name and the score of a bar are above the bar. Colors are CSS variables, with values for light pages, dark pages and
print. The same input gives the same bytes.
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
"""The most characters of a name that fit beside the score on a page of 400 pixels. A longer name is shortened, and a
tooltip shows the whole name."""
_MOST_TICKS = 6
_ROW, _LABEL, _AXIS, _PLOT = 40, 20, 24, 180
"""Heights in pixels of a bar with its name, of a line of text, of an axis, and of the area of curves."""
_COLORS = 6


class ScoreBar(NamedTuple):
    """A score that is drawn as a bar.

    Attributes:
        name: the name of the model or task that has the score.
        value: the score, in the unit of the chart (`Bars.unit`). NaN is shown as `undefined`, without a bar.
        low, high: the ends of the score's interval; NaN if there is none.
        note: a few words in small print after the name; "" for none.
        is_strong: whether the bar is emphasized, as the bar of the best model is.
    """

    name: str
    value: float
    low: float = math.nan
    high: float = math.nan
    note: str = ""
    is_strong: bool = False


@dataclass(frozen=True)
class Bars:
    """A bar chart.

    Attributes:
        rows: the bars, in the order in which they are drawn from top to bottom.
        unit: the label of the axis, with the metric and its unit, such as `MRR, %, among 26,108 texts`; "" for none.
        caption: the line above the bars; "" for none.
    """

    rows: Sequence[ScoreBar]
    unit: str = ""
    caption: str = ""


class Curve(NamedTuple):
    """A line in a plot.

    Attributes:
        name: the name of the line in the legend.
        points: the points (x, y) of the line, in ascending order of x.
        marked: the index in `points` of the best point, which is emphasized and named in the legend; -1 for none.
    """

    name: str
    points: Sequence[tuple[float, float]]
    marked: int = -1


@dataclass(frozen=True)
class Curves:
    """A plot with one or more lines. Points with a coordinate that is not finite are left out.

    Attributes:
        series: the lines.
        x, y: the labels of the two axes; "" for none.
        caption: the line above the plot; "" for none.
    """

    series: Sequence[Curve]
    x: str = "step"
    y: str = ""
    caption: str = ""


Figure = Bars | Curves


def best_first(rows: Iterable[ScoreBar], more_is_better: bool = True) -> list[ScoreBar]:
    """Return the bars sorted by value, best first, with undefined values last. Equal values keep their order.

    Args:
        more_is_better: True to put the highest value first, False to put the lowest value first.
    """
    sign = -1 if more_is_better else 1

    def order(row: ScoreBar) -> tuple[bool, float]:
        is_undefined = math.isnan(row.value)
        return is_undefined, 0 if is_undefined else sign * row.value

    return sorted(rows, key=order)


def drawn(figure: Figure) -> dict[str, Any]:
    """Return the texts and positions of a figure, by the names under which the template figure.svg uses them.

    Horizontal positions are in percent of the figure's width, vertical positions in pixels.
    """
    return _bars(figure) if isinstance(figure, Bars) else _curves(figure)


def write_svg(path: Path, figure: Figure, width: int = 640) -> None:
    """Write a figure as an SVG file, which has light and dark colors. An existing file is replaced atomically.

    Args:
        width: the width of the figure in pixels.

    Raises:
        OSError: the file cannot be written.
    """
    from markupsafe import Markup

    macro = environment().get_template("figure.svg").module.svg  # type: ignore[attr-defined]
    write_text(path, str(macro(drawn(figure), Markup(_style()), width)).strip() + "\n")


@functools.cache
def environment() -> "jinja2.Environment":
    """Return the Jinja environment that loads the templates of the report. It escapes values for HTML."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("clearspan.eval.report"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip


def _style() -> str:
    return (Path(__file__).parent / "templates" / "figure.css").read_text(encoding="utf-8")


def ticks(low: float, high: float) -> list[float]:
    """Return at most six round numbers in the range from `low` to `high`, for the ticks of an axis.

    The numbers are multiples of a step that is 1, 2 or 5 times a power of 10. If `high` is not above `low`, the only
    tick is `low`, even if it is not round.
    """
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
        """Return the scale of an axis that goes from the lowest to the highest of the finite values.

        If all of them are equal, the axis ends 1 above them. If there is none, the axis goes from 0 to 1.

        Args:
            values: the values to draw. Infinite values and NaN are ignored.
            zero: True to extend the axis so that it includes 0.
        """
        finite = [value for value in values if math.isfinite(value)]
        if zero:
            finite.append(0.0)
        low, high = min(finite, default=0.0), max(finite, default=0.0)
        return cls(low, high if high > low else low + 1)

    def at(self, value: float) -> float:
        """Return the position of a value on the axis, from 0 at the low end to 100 at the high end."""
        return round(100 * (value - self.low) / (self.high - self.low), 2)

    def ticks(self) -> list[dict[str, Any]]:
        places = [(tick, self.at(tick)) for tick in ticks(self.low, self.high)]
        return [{"text": f"{tick:.6g}", "at": at, "anchor": _anchor(at)} for tick, at in places]


def _anchor(at: float) -> str:
    """Return the SVG `text-anchor` that keeps a text within the figure, by its position in percent of the width."""
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
    """Return the value of a bar with two decimals, or `undefined`."""
    return f"{row.value:.2f}" if math.isfinite(row.value) else "undefined"


def interval_text(row: ScoreBar) -> str:
    """Return the interval of a bar, such as `[3.1, 5.3]`; "" if it has none."""
    return f"[{row.low:.1f}, {row.high:.1f}]" if math.isfinite(row.low) and math.isfinite(row.high) else ""


def score_text(row: ScoreBar) -> str:
    """Return a bar as one line of text: the unshortened name, the note, the value and the interval."""
    noted = f"{row.name} ({row.note})" if row.note else row.name
    return printable(" ".join(filter(None, (noted, value_text(row), interval_text(row)))))


def shortened(text: str, max_characters: int = _MOST_CHARACTERS) -> str:
    """Return a text, shortened to `max_characters` characters if it is longer, with `…` in place of its middle.

    The beginning and the end stay, because names often differ there. If `max_characters` is below 5, a longer text
    becomes "".
    """
    if len(text) <= max_characters:
        return text
    if max_characters < 5:
        return ""
    head = (max_characters - 1) // 2
    return f"{text[:head]}…{text[len(text) - (max_characters - 1 - head) :]}"


def text_bars(figure: Bars, width: int) -> list[str]:
    """Return a bar chart as lines of text, one for each bar; [] if `width` terminal columns are too few for it.

    A line has the name, the bar, the value and the interval. A bar is drawn as ━━━ and its interval as ├──┤, or as ===
    and |--| if the encoding of standard output lacks these characters.
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
    """Return a bar and its interval as a text of `cells` characters, which stand for the whole length of the axis."""
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
