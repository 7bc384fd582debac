"""The plot of a study: the STS average of each system and seed, as an SVG for light and dark pages."""

import statistics
from collections.abc import Mapping, Sequence
from html import escape

from benchmarks.findings.scales import SCALES, SMALL
from benchmarks.findings.systems import TITLES, systems

TRAINED = systems(SCALES[SMALL])
COLORS = {
    "DeCLUTR": "#1b5e9e",
    "CLEAR": "#b3440b",
    "SimCSE": "#00694a",
    "NonLing-CSE": "#7d3f98",
    "": "#3f4a5a",
}
"""Paper -> color of its systems in the plot."""
ROW, LEFT, WIDTH, MARGIN = 17, 250, 700, 14

Scores = Mapping[str, Mapping[str, Sequence[float]]]
"""System -> column -> the values of every seed."""


def title(name: str) -> str:
    return TRAINED[name].title if name in TRAINED else TITLES[name]


def plot(scores: Scores) -> str:
    """Return an SVG: each seed's STS average as a dot, the mean as a line, on a white card for light and dark pages."""
    shown = {name: each["STS average"] for name, each in scores.items()}
    values = [value for each in shown.values() for value in each]
    low, high = (int(min(values) // 5 * 5), int(-(-max(values) // 5) * 5))
    bottom = MARGIN + ROW * len(shown)

    def x(value: float) -> float:
        return LEFT + (value - low) / max(1, high - low) * (WIDTH - LEFT - 2 * MARGIN)

    heading = "STS average of each system"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + MARGIN + 34}" role="img" '
        'aria-labelledby="t" font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" '
        'font-size="11">',
        f'<title id="t">{heading}: dots are seeds, lines are means</title>',
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{bottom + MARGIN + 33}" rx="8" fill="#ffffff" '
        'stroke="#c9d1d9"/>',
    ]
    for tick in range(low, high + 1, 5):
        parts.append(f'<path d="M{x(tick):.1f} {MARGIN} V{bottom}" stroke="#e3e6ea"/>')
        parts.append(f'<text x="{x(tick):.1f}" y="{bottom + 14}" text-anchor="middle" fill="#444c56">{tick}</text>')
    for number, (name, each) in enumerate(shown.items()):
        color = COLORS[TRAINED[name].paper if name in TRAINED else ""]
        y, mean = MARGIN + ROW * (number + 0.5), x(statistics.fmean(each))
        label = f'<text x="{LEFT - 10}" y="{y + 4:.1f}" text-anchor="end" fill="{color}">{escape(title(name))}</text>'
        line = f'<path d="M{mean:.1f} {y - 6:.1f} V{y + 6:.1f}" stroke="{color}" stroke-width="2"/>'
        dots = [f'<circle cx="{x(v):.1f}" cy="{y:.1f}" r="3" fill="{color}" fill-opacity="0.55"/>' for v in each]
        parts += [label, line, *dots]
    middle = (LEFT + WIDTH) / 2
    parts.append(f'<text x="{middle:.0f}" y="{bottom + 28}" text-anchor="middle" fill="#444c56">{heading}, %</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
