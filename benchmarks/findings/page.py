"""docs/findings.md and its plot, written from benchmarks/results/findings.json alone.

findings.json, page.md (the text) -> scores, verdicts, how it was done; findings.svg
"""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.findings.claims import CLAIMS, CONTROLS, FILE, RETRIEVAL, STS, Claim
from benchmarks.findings.systems import TITLES, Scale, systems
from benchmarks.findings.verdicts import NOISE, OPPOSITE, REPRODUCED
from clearspan.common.files import write_text

COLUMNS = (*STS.values(), "STS average", "transfer average", *RETRIEVAL.values())
TRAINED = systems(Scale())
COLORS = {
    "DeCLUTR": "#1b5e9e",
    "CLEAR": "#b3440b",
    "SimCSE": "#00694a",
    "NonLing-CSE": "#7d3f98",
    "": "#3f4a5a",
}
"""Paper -> color of its systems in the plot."""
ROW, LEFT, WIDTH, MARGIN = 17, 250, 700, 14
MISSING = "not measured"
WORDS = (REPRODUCED, NOISE, OPPOSITE, MISSING)
KEY = ("better", "worse", "group")

Scores = Mapping[str, Mapping[str, Sequence[float]]]
"""System -> column -> the values of every seed."""
Verdicts = Mapping[tuple[str, ...], Mapping[str, Any]]
"""A claim's key -> its verdict."""


def title(name: str) -> str:
    return TRAINED[name].title if name in TRAINED else TITLES[name]


def cell(values: Sequence[float], strong: bool = False) -> str:
    """Return the mean and standard deviation over seeds; one value alone; "" without values."""
    if not values:
        return ""
    mean = f"{statistics.fmean(values):.1f}"
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return (f"**{mean}**" if strong else mean) + deviation


def score_table(scores: Scores, columns: Sequence[str] = COLUMNS) -> list[str]:
    """Return the lines of the table of scores; the best mean of a column is bold."""
    means = {
        column: {name: statistics.fmean(each[column]) for name, each in scores.items() if column in each}
        for column in columns
    }
    columns = [column for column in columns if means[column]]
    lines = [f"| | {' | '.join(columns)} |", "|---|" + "---|" * len(columns)]
    for name, each in scores.items():
        cells = [
            cell(each.get(column, ()), means[column].get(name) == max(means[column].values())) for column in columns
        ]
        lines.append(f"| {title(name)} | {' | '.join(cells)} |")
    return lines


def claim_list(claims: Sequence[Claim], verdicts: Verdicts) -> str:
    """Return a list of the findings or controls that have a verdict: the difference, its 95 % interval, the finding."""
    lines = []
    for claim in claims:
        if verdict := verdicts.get(claim.key):
            margin = f" (within {claim.margin:g})" if claim.margin is not None else ""
            difference = "{difference:+.1f} [{low:+.1f}, {high:+.1f}]".format_map(verdict)
            lines.append(f"- {difference}: {claim.paper}, {claim.source}: {claim.text}{margin}")
    return "\n".join(lines)


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


def page(result: Mapping[str, Any]) -> str:
    """Return docs/findings.md."""
    scores, verdicts = result["systems"], {tuple(row[key] for key in KEY): row for row in result["verdicts"]}
    words = [verdicts[claim.key]["word"] if claim.key in verdicts else MISSING for claim in CLAIMS]
    claims = {word: [claim for claim, each in zip(CLAIMS, words, strict=True) if each == word] for word in WORDS}
    opposite = [claim.text for claim in claims[OPPOSITE]]
    sts = defaultdict(str, {name: cell(each["STS average"]) for name, each in scores.items()})
    reasons = [reason for words, reason in FILE["reasons"].items() if any(words in text for text in opposite)]
    parts = {
        "num_claims": len(CLAIMS),
        "num_seeds": max(len(each["STS average"]) for each in scores.values()),
        "counts": ", ".join(f"{len(judged)} {word}" for word, judged in claims.items() if judged),
        "scores": "\n".join(
            score_table({name: scores[name] for name in FILE["table"] if name in scores}, COLUMNS[-3:])
        ),
        "claims": "\n\n".join(
            f"**{word.capitalize()}**\n\n{listed}" for word in WORDS if (listed := claim_list(claims[word], verdicts))
        ),
        "controls": claim_list(CONTROLS, verdicts),
        "reasons": "\n".join(f"- {reason.format_map(sts)}." for reason in reasons),
        "not_measured": "\n".join(f"- {finding}: {why}." for finding, why in FILE["not_measured"].items()),
        "sizes": ", ".join(f"{name} {each['examples']:,}" for name, each in result["data"].items()),
    }
    return Path(__file__).with_suffix(".md").read_text(encoding="utf-8").format_map({**result, **parts})


def write(result: Mapping[str, Any], docs: Path) -> None:
    """Write findings.md and findings.svg, or neither if the result lacks a part."""
    text, drawing = page(result), plot(result["systems"])
    write_text(docs / "findings.md", text)
    write_text(docs / "findings.svg", drawing)
