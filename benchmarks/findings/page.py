"""docs/findings.md and its plot, written from benchmarks/results/findings.json alone.

findings.json -> counts of verdicts, plot (findings.svg), one table of scores, one table of verdicts, how it was done
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.findings.claims import CLAIMS, GLUE, REASONS, RETRIEVAL, STS, Score
from benchmarks.findings.verdicts import NOISE, OPPOSITE, REPRODUCED
from clearspan.common.files import write_text

HEADINGS: dict[Score, str] = {
    **dict(zip(STS, ("STS12", "STS14", "STS16", "STS-B", "SICK-R"), strict=True)),
    **dict(zip(GLUE, ("RTE", "MRPC"), strict=True)),
    **dict.fromkeys(RETRIEVAL, "held-out MRR"),
}
COLORS = {
    "DeCLUTR": "#1b5e9e",
    "CLEAR": "#b3440b",
    "SimCSE": "#00694a",
    "NonLing-CSE": "#7d3f98",
    "": "#3f4a5a",
}
"""Paper -> color of its systems in the plot."""
ROW, LEFT, WIDTH, MARGIN = 17, 250, 700, 14

VERDICTS = {word: word for word in (REPRODUCED, NOISE, OPPOSITE)}
CHANGES = {REPRODUCED: "better", NOISE: NOISE, OPPOSITE: "worse"}
"""Verdict -> its word in a table."""

Systems = Mapping[str, Mapping[str, Any]]


def cell(values: Sequence[float], strong: bool = False) -> str:
    """Return the mean and standard deviation over seeds; one value alone; "" without values."""
    if not values:
        return ""
    mean = f"{statistics.fmean(values):.1f}"
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return (f"**{mean}**" if strong else mean) + deviation


def score_table(systems: Systems) -> list[str]:
    """Return the lines of the table of scores; the best mean of a column is bold."""
    scored = [score for score in HEADINGS if any(_values(system, score) for system in systems.values())]
    of_sts = [score for score in scored if score in STS]
    others = [score for score in scored if score not in STS]
    names = [HEADINGS[score] for score in of_sts] + ["STS average", "transfer average"]
    names += [HEADINGS[score] for score in others]
    rows = [
        [
            *(_values(system, score) for score in of_sts),
            *(system["averages"].get(name, []) for name in ("STS", "transfer")),
            *(_values(system, score) for score in others),
        ]
        for system in systems.values()
    ]
    best = [max((statistics.fmean(row[i]) for row in rows if row[i]), default=0.0) for i in range(len(names))]
    lines = [f"| | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    for system, row in zip(systems.values(), rows, strict=True):
        cells = [cell(values, bool(values) and statistics.fmean(values) == best[i]) for i, values in enumerate(row)]
        lines.append(f"| {system['title']} | {' | '.join(cells)} |")
    return lines


def _values(system: Mapping[str, Any], score: Score) -> list[float]:
    return list(system["scores"].get(score[0], {}).get(score[1], []))


def claim_table(claims: Sequence[Mapping[str, Any]], words: Mapping[str, str] = VERDICTS) -> list[str]:
    """Return the lines of the table of verdicts, or of controls with other words for them."""
    what = "finding" if words is VERDICTS else "change"
    lines = [
        f"| paper | where | {what} | scores | difference | 95 % interval | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    for claim in claims:
        verdict = claim["verdict"]
        margin = f" (by at most {claim['margin']:g})" if claim["margin"] is not None else ""
        start = f"| {claim['paper']} | {claim['source']} | {claim['text']}{margin} | {claim['group']}"
        if verdict is None:
            lines.append(f"{start} | | | not measured at this scale |")
            continue
        interval = f"{verdict['low']:+.1f} to {verdict['high']:+.1f}"
        lines.append(f"{start} | {verdict['difference']:+.1f} | {interval} | *{words[verdict['word']]}* |")
    return lines


def plot(systems: Systems) -> str:
    """Return an SVG: each seed's STS average as a dot, the mean as a line, on a white card for light and dark pages."""
    shown = {name: system for name, system in systems.items() if system["averages"].get("STS")}
    values = [value for system in shown.values() for value in system["averages"]["STS"]]
    low, high = (int(min(values, default=0) // 5 * 5), int(-(-max(values, default=5) // 5) * 5))
    height = 2 * MARGIN + ROW * len(shown) + 34

    def x(value: float) -> float:
        return LEFT + (value - low) / max(1, high - low) * (WIDTH - LEFT - 2 * MARGIN)

    bottom = MARGIN + ROW * len(shown)
    title = "STS average of each system"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="t" '
        'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="11">',
        f'<title id="t">{title}: dots are seeds, lines are means</title>',
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8" fill="#ffffff" stroke="#c9d1d9"/>',
    ]
    for tick in range(low, high + 1, 5):
        parts.append(f'<path d="M{x(tick):.1f} {MARGIN} V{bottom}" stroke="#e3e6ea"/>')
        parts.append(f'<text x="{x(tick):.1f}" y="{bottom + 14}" text-anchor="middle" fill="#444c56">{tick}</text>')
    for number, system in enumerate(shown.values()):
        y, color = MARGIN + ROW * (number + 0.5), COLORS.get(system["paper"], COLORS[""])
        mean = x(statistics.fmean(system["averages"]["STS"]))
        parts.append(
            f'<text x="{LEFT - 10}" y="{y + 4:.1f}" text-anchor="end" fill="{color}">{escape(system["title"])}</text>'
        )
        parts.append(f'<path d="M{mean:.1f} {y - 6:.1f} V{y + 6:.1f}" stroke="{color}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{x(value):.1f}" cy="{y:.1f}" r="3" fill="{color}" fill-opacity="0.55"/>'
            for value in system["averages"]["STS"]
        ]
    parts.append(
        f'<text x="{(LEFT + WIDTH) / 2:.0f}" y="{bottom + 28}" text-anchor="middle" fill="#444c56">{title}, %</text>'
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


def page(result: Mapping[str, Any]) -> str:
    """Return docs/findings.md."""
    scale, systems, claims = result["scale"], result["systems"], result["claims"]
    counts = Counter(claim["verdict"]["word"] if claim["verdict"] else "not measured" for claim in claims)
    parts = [f"{counts[word]} {word}" for word in (REPRODUCED, NOISE, OPPOSITE, "not measured") if counts[word]]
    told = f"Of {len(claims)} findings: {', '.join(parts)}."
    trained = {name: system for name, system in systems.items() if system["equal_tokens"]}
    tokens = [run["tokens"] for system in trained.values() for run in system["training"]]
    seeds = max((len(system["seeds"]) for system in systems.values()), default=1)
    machine, data = result["machine"], result["data"]
    sizes = ", ".join(
        f"{name} {counts['examples']:,}" + (f" ({counts['tokens']:,} tokens)" if "tokens" in counts else "")
        for name, counts in data.items() if "examples" in counts
    )  # fmt: skip
    from_scratch = [
        f"- The exception is the {systems[name]['title']}: it begins from scratch, has the optimizer's options of the "
        f"recipe `static`, and reads {scale['pretraining_tokens']:,} tokens more, as many as the others' pretraining."
        for name in ("static",)
        if name in systems
    ]
    earlier = [{key: claim[key] for key in claim if key != "verdict"} for claim in claims] != list(map(asdict, CLAIMS))
    note = (
        f"The figures are those of commit {result['commit']}: the systems or findings of this benchmark have changed."
    )
    begin = (
        "- The pretrained encoder keeps its masked-LM head, with which every system with MLM begins. CLEAR's systems "
        "contrast [CLS], as in the paper, or means; in the control `1-token` a view lacks one token of its sentence."
    )
    opposite = [claim["text"] for claim in claims if claim["verdict"] and claim["verdict"]["word"] == OPPOSITE]
    sts = defaultdict(str, {name: cell(system["averages"].get("STS", [])) for name, system in systems.items()})
    reasons = [
        f"- {reason.format_map(sts)}." for words, reason in REASONS.items() if any(words in text for text in opposite)
    ]
    controls = [
        *(["Why findings come out opposite (STS averages):", "", *reasons, ""] if reasons else []),
        "Runs that change one thing; where that makes up for the difference of an opposite finding, it is the reason:",
        "",
        *claim_table(result.get("controls", []), CHANGES),
        "",
    ]
    spread = f"{min(tokens):,} to {max(tokens):,}" if tokens else "none"
    lines = [
        "# The papers' findings, measured",
        "",
        "For readers who ask whether it learns, and which of the papers' findings hold in a small encoder.",
        "",
        "Generated by `python -m benchmarks.findings --write-docs` from `benchmarks/results/findings.json`.",
        "",
        f"{told} A verdict holds at this scale only: an encoder of {scale['layers']} layers of {scale['hidden']}, "
        f"pretrained on {scale['pretraining_tokens']:,} tokens and trained on {scale['tokens']:,} more.",
        "",
        *([note, ""] if earlier else []),
        "![STS average of each system](findings.svg)",
        "",
        "## Scores",
        "",
        f"Mean and standard deviation over {seeds} seeds, in percent. STS: Spearman by cosine. Transfer: accuracy of "
        f"SentEval's classifiers, protocol `fast`, on embeddings in {scale['precision']}; RTE and MRPC: fine-tuned, "
        "CLEAR's metrics; both of systems with such a finding. Held-out MRR: given a crop of a document, find another "
        "crop of it among those of all documents in half of "
        f"the {data['held-out documents']['examples']:,} that were held out.",
        "",
        *score_table(systems),
        "",
        "## Verdicts",
        "",
        "*Reproduced at this scale*: the 95 % interval of the difference lies on the paper's side of 0 (of a finding "
        "that two systems differ little: within its margin). *Within noise*: the interval holds both. *Opposite*: it "
        "lies on the other side. The interval is a paired bootstrap over examples and seeds: 1,000 samples draw the "
        "examples of each task and the seeds with replacement, the same for both systems. With as few as "
        f"{seeds} seeds it is rather too narrow, and of many verdicts at 95 % some are wrong by chance.",
        "",
        *claim_table(claims),
        "",
        *(controls if not earlier else []),
        "Without a verdict:",
        "",
        *(f"- {finding}. Reason: {reason}." for finding, reason in result["not_measured"].items()),
        "",
        "## How",
        "",
        f"- Data: {sizes}. Texts of STS and SICK were left out (`--exclude`).",
        "- Every trained system begins with the same pretrained encoder, pools by the mean and takes the last "
        "checkpoint. The learning rate, its schedule and AdamW's options are the same; no number was tuned.",
        *([] if earlier else [begin]),
        f"- Equal tokens: steps x tokens of a step, by the trainer's estimate, is {scale['tokens']:,} for every "
        f"system; the tokens that the encoder then read were counted in each step: {spread}. Special tokens, "
        "positives, views and second passes count. Patches of images and clips do not: as in the paper, they come on "
        "top.",
        "- A step reads about as many tokens in every system, so the numbers of examples in a batch differ.",
        *from_scratch,
        f"- {result['hours']:.2f} hours on {machine['cpu']}, {machine['cores']} cores; commit {result['commit']}, "
        f"{result['date']}; {', '.join(f'{name} {number}' for name, number in result['versions'].items())}.",
        *(f"- Left out: {name}: {reason}." for name, reason in result["left_out"].items()),
        "",
        "Steps, text tokens and last contrastive accuracies of each training, and every score of every seed, are in "
        "the JSON file.",
    ]
    return "\n".join(lines) + "\n"


def write(result: Mapping[str, Any], docs: Path) -> None:
    """Write findings.md and findings.svg, or neither if the result lacks a part."""
    text, drawing = page(result), plot(result["systems"])
    write_text(docs / "findings.md", text)
    write_text(docs / "findings.svg", drawing)
