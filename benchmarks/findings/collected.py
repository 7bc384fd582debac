"""The result of a study: the scores of every system and seed, and the verdicts on all pairs, as findings.json holds.

folders of evaluations -> columns of the table; bootstrap -> better - worse: of each finding, control, system - base
"""

import functools
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.findings.claims import CLAIMS, CONTROLS, GROUPS, RETRIEVAL, SEPARATE, STS, TRANSFER, Claim, from_base
from benchmarks.findings.scales import Scale
from benchmarks.findings.systems import PRETRAINED
from benchmarks.findings.verdicts import Run, Sampled, compare
from benchmarks.report import machine
from clearspan.eval import results
from clearspan.eval.scores import resampled
from clearspan.shards import Dataset

PACKAGES = ("torch", "transformers", "sentence-transformers", "deepspeed", "numpy", "scipy")
ROOT = Path(__file__).parents[2]

Folders = Mapping[str, Sequence[Path]]
"""System -> the folder of each seed's evaluation."""


class Trained(NamedTuple):
    """The folders of a system's scored runs, and the rows of patches in each of their steps."""

    runs: Sequence[Path]
    patches: int


def collect(scale: Scale, shards: Path, baselines: Folders, systems: Mapping[str, Trained]) -> dict[str, Any]:
    """Return the content of findings.json but for the hours.

    Args:
        shards: the folder of the datasets' folders.
        baselines: the evaluations of models that are not trained here.
    """
    folders = {**baselines, **{name: each.runs for name, each in systems.items()}}
    read = {name: [next(folder.rglob(results.RESULTS)).parent for folder in each] for name, each in folders.items()}
    tokens = [tokens_read(run, each.patches) for each in systems.values() for run in each.runs]
    base = results.read(read[PRETRAINED][0])
    sizes = {key: getattr(scale, key) for key in ("layers", "hidden", "pretraining_tokens", "tokens")}
    return {
        "commit": commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {**machine(), "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"},
        "versions": {name: version(name) for name in PACKAGES},
        "scale": {**sizes, "precision": base.environment["precision"]},
        "data": data_sizes(shards),
        "tokens_read": [min(tokens), max(tokens)],
        "transfer": [task for task, metric in TRANSFER if task in base.scores],
        "systems": {name: columns(evaluations) for name, evaluations in read.items()},
        "verdicts": [row for claim in pairs(systems) if (row := judged(claim, read))],
    }


def pairs(systems: Mapping[str, object]) -> Iterator[Claim]:
    """Return what is judged: findings and controls on their own scores, then on STS and on transfer alone, as is each
    system's difference from the base encoder.
    """
    known: set[tuple[str, str, str]] = set()
    for claim in (*CLAIMS, *CONTROLS, *map(from_base, systems)):
        for each in (claim, *(claim.on(group) for group in SEPARATE)):
            if each.key not in known:
                known.add(each.key)
                yield each


def tokens_read(run: Path, patches: int) -> int:
    """Return the text tokens that the encoder read in a training, as counted in each step."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return int(sum(line["tokens"] - patches for line in lines if "tokens" in line))


def data_sizes(shards: Path) -> dict[str, dict[str, int]]:
    """Return the examples and tokens of each dataset, and the documents of held-out retrieval."""
    held_out = Dataset(shards / "documents" / "validation")
    counts = {}
    for path in sorted(shards.glob("*/manifest.json")):
        totals = Dataset(path.parent).manifest.totals
        counts[path.parent.name] = {key: totals[key] for key in ("examples", "tokens") if totals[key]}
    return {**counts, "held-out documents": {"examples": held_out.num_examples}}


def commit() -> str:
    """Return the commit of the checkout."""
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=10"]
    return subprocess.run(words, capture_output=True, text=True).stdout.strip() or "unknown"


def columns(folders: Sequence[Path]) -> dict[str, list[float]]:
    """Return a system's values of every seed, by the columns of the table of scores."""
    scores = [results.read(folder).scores for folder in folders]
    result: dict[str, list[float]] = {}
    for (task, metric), column in (STS | RETRIEVAL).items():
        if all(task in each for each in scores):
            result[column] = [round(each[task][metric], 4) for each in scores]
    for name in ("STS", "transfer"):
        means = [[each[task][metric] for task, metric in GROUPS[name] if task in each] for each in scores]
        if all(means):
            result[f"{name} average"] = [round(float(np.mean(values)), 4) for values in means]
    return result


def judged(claim: Claim, folders: Mapping[str, Sequence[Path]]) -> dict[str, Any] | None:
    """Return a claim's systems and its verdict; None if one of them has no score of its group."""
    runs = [[sampled(folder) for folder in folders.get(name, [])] for name in (claim.better, claim.worse)]
    verdict = compare(*runs, GROUPS[claim.group], claim.margin)
    if verdict is None:
        return None
    figures = {key: round(getattr(verdict, key), 4) for key in ("difference", "low", "high")}
    return {"better": claim.better, "worse": claim.worse, "group": claim.group, **figures, "word": verdict.word}


@functools.cache
def sampled(folder: Path) -> Run:
    """Return an evaluation's scores with their bootstrap over examples."""
    scores, examples = (read := results.read(folder)).scores, results.read_examples(read)
    return {
        (task, metric): Sampled(scores[task][metric], resampled(examples[task][metric]))
        for task, metric in GROUPS["STS + transfer"]
        if metric in examples.get(task, {})
    }
