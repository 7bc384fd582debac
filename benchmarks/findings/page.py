"""docs/findings.md and its plots, written from the results of all scales, benchmarks/results/findings*.json, alone.

results, page.md (the text) -> scores, differences from the base, verdicts, how it was done; a plot for each scale
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.findings.claims import CLAIMS, CONTROLS, FILE, RETRIEVAL, SEPARATE, STS, Claim, from_base
from benchmarks.findings.plot import TRAINED, Scores, plot, title
from benchmarks.findings.scales import SCALES, SMALL
from benchmarks.findings.systems import PRETRAINED
from benchmarks.findings.verdicts import NOISE, OPPOSITE, REPRODUCED
from clearspan.common.files import write_text

COLUMNS = (*STS.values(), "STS average", "transfer average", *RETRIEVAL.values())
MISSING = "not measured"
WORDS = {REPRODUCED: "reproduced", NOISE: NOISE, OPPOSITE: OPPOSITE}
"""Word of a verdict -> its word in a column of one scale."""
KEY = ("better", "worse", "group")

Result = Mapping[str, Any]
Results = Mapping[str, Result]
"""Scale -> the content of its findings.json."""
Verdicts = Mapping[tuple[str, ...], Mapping[str, Any]]
"""A claim's key -> its verdict."""


def cell(values: Sequence[float], strong: bool = False) -> str:
    """Return the mean and standard deviation over seeds; one value alone; "" without values."""
    if not values:
        return ""
    mean = f"{statistics.fmean(values):.1f}"
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return (f"**{mean}**" if strong else mean) + deviation


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def score_table(scores: Scores, columns: Sequence[str] = COLUMNS) -> str:
    """Return the table of scores; the best mean of a column is bold."""
    means = {
        column: {name: statistics.fmean(each[column]) for name, each in scores.items() if column in each}
        for column in columns
    }
    columns = [column for column in columns if means[column]]
    rows = [
        [title(name), *(cell(each.get(c, ()), means[c].get(name) == max(means[c].values())) for c in columns)]
        for name, each in scores.items()
    ]
    return table(["", *columns], rows)


def all_scores(results: Results) -> str:
    """Return the table of the scores of all scales, of the systems that the page shows."""
    scores: dict[str, dict[str, Sequence[float]]] = {}
    for name in FILE["table"]:
        columns = {
            f"{column}, {scale}": result["systems"][name][column]
            for scale, result in results.items()
            for column in COLUMNS
            if column in result["systems"].get(name, {})
        }
        if columns:
            scores[name] = columns
    return score_table(scores, [f"{column}, {scale}" for scale in results for column in COLUMNS[-3:]])


def verdicts_of(result: Result) -> Verdicts:
    return {tuple(row[key] for key in KEY): row for row in result["verdicts"]}


def interval(verdict: Mapping[str, Any]) -> str:
    return "{difference:+.1f} [{low:+.1f}, {high:+.1f}]".format_map(verdict)


def difference(result: Result, name: str, group: str) -> str:
    """Return a system's difference from the base encoder: with its interval, without one, or "" if it has no score."""
    if verdict := verdicts_of(result).get(from_base(name).on(group).key):
        return f"**{interval(verdict)}**" if verdict["low"] > 0 or verdict["high"] < 0 else interval(verdict)
    values, base = (result["systems"].get(each, {}).get(f"{group} average") for each in (name, PRETRAINED))
    return f"{statistics.fmean(values) - statistics.fmean(base):+.1f}" if values and base else ""


def base_table(results: Results) -> str:
    """Return the table of each system's difference from the base encoder, on STS and on transfer, at each scale."""
    columns = [(scale, group) for scale in results for group in SEPARATE]
    rows = [[title(name), *(difference(results[scale], name, group) for scale, group in columns)] for name in TRAINED]
    return table(["", *(f"{group}, {scale}" for scale, group in columns)], (row for row in rows if any(row[1:])))


def judged(verdict: Mapping[str, Any], word: bool) -> str:
    """Return a verdict's word, unless it is left out, and its difference."""
    return f"{WORDS[verdict['word']]}: {interval(verdict)}" if word else interval(verdict)


def claim_table(claims: Sequence[Claim], results: Results, words: bool = True) -> str:
    """Return the table of findings or controls that have a verdict: on their own scores, then on STS, on transfer.

    Args:
        words: whether the word of the verdict is shown beside the difference.
    """
    verdicts = {scale: verdicts_of(result) for scale, result in results.items()}
    shown, rows = {claim.key for claim in claims}, []
    for claim in claims:
        if not any(claim.key in known for known in verdicts.values()):
            continue
        named = f"{claim.paper}, {claim.source}: {claim.text}"
        named += f" (within {claim.margin:g})" if claim.margin is not None else ""
        others = [each for group in SEPARATE if (each := claim.on(group)).key not in shown]
        for each in (claim, *others):
            shown.add(each.key)
            cells = [judged(known[each.key], words) if each.key in known else "" for known in verdicts.values()]
            if any(cells):
                rows.append([named, each.group, *cells])
                named = ""
    return table(["", "scores", *results], rows)


def counts(result: Result) -> str:
    """Return how many findings have which verdict."""
    verdicts = verdicts_of(result)
    words = Counter(verdicts[claim.key]["word"] if claim.key in verdicts else MISSING for claim in CLAIMS)
    shown = ", ".join(f"{words[word]} {word}" for word in (*WORDS, MISSING) if words[word])
    return f"of {len(CLAIMS)} findings {shown}"


def num_seeds(result: Result) -> int:
    return max(len(each["STS average"]) for each in result["systems"].values())


def scale_list(results: Results) -> str:
    """Return the list of the scales: sizes, and the count of verdicts or that there is no result."""
    lines = []
    for name, scale in SCALES.items():
        sizes = results[name]["scale"] if name in results else vars(scale)
        size = "an encoder of {layers} layers of {hidden}, pretrained on {pretraining_tokens:,} tokens and trained on "
        found = f"{num_seeds(results[name])} seeds; {counts(results[name])}" if name in results else "not run yet"
        lines.append(f"- **{name}**: {(size + '{tokens:,} more').format_map(sizes)}: {found}.")
    return "\n".join(lines)


def how(name: str, result: Result) -> str:
    """Return how a scale's result was measured."""
    machine = "{cpu}, {cores} cores".format_map(result["machine"])
    device = result["machine"].get("device", "CPU")
    sizes = ", ".join(f"{data} {each['examples']:,}" for data, each in result["data"].items())
    return (
        "- {name}: {scale[tokens]:,} tokens a system by the estimate, {tokens_read[0]:,} to {tokens_read[1]:,} "
        "counted; examples: {sizes}; {hours:.2f} hours on {machine}; commit {commit}, {date}."
    ).format_map({**result, "name": name, "sizes": sizes, "machine": machine if device == "CPU" else device})


def picture(name: str) -> str:
    """Return the file name of a scale's plot."""
    return "findings.svg" if name == SMALL else f"findings-{name}.svg"


def page(results: Results) -> str:
    """Return docs/findings.md."""
    small = results[SMALL]
    verdicts = verdicts_of(small)
    opposite = [claim.text for claim in CLAIMS if verdicts.get(claim.key, {}).get("word") == OPPOSITE]
    sts = defaultdict(str, {name: cell(each["STS average"]) for name, each in small["systems"].items()})
    reasons = [reason for words, reason in FILE["reasons"].items() if any(words in text for text in opposite)]
    tasks = [f"; {name}: {', '.join(each['transfer'])}" for name, each in results.items() if each.get("transfer")]
    parts = {
        "scales": scale_list(results),
        "plots": "\n\n".join(f"![STS average of each system, {name}]({picture(name)})" for name in results),
        "transfer": "".join(tasks),
        "held_out": small["data"]["held-out documents"]["examples"],
        "scores": all_scores(results),
        "from_base": base_table(results),
        "claims": claim_table(CLAIMS, results),
        "controls": claim_table(CONTROLS, results, words=False),
        "reasons": "\n".join(f"- {reason.format_map(sts)}." for reason in reasons),
        "not_measured": "\n".join(f"- {finding}: {why}." for finding, why in FILE["not_measured"].items()),
        "how": "\n".join(how(name, result) for name, result in results.items()),
    }
    return Path(__file__).with_suffix(".md").read_text(encoding="utf-8").format_map(parts)


def write(results: Results, docs: Path) -> None:
    """Write findings.md and the plots, or nothing if a result lacks a part."""
    text, drawings = page(results), {picture(name): plot(result["systems"]) for name, result in results.items()}
    write_text(docs / "findings.md", text)
    for name, drawing in drawings.items():
        write_text(docs / name, drawing)
