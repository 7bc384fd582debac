"""Read what the stages left: scores of every seed, counted tokens, and the verdict on each claim.

runs/NAME/seed-N/metrics.jsonl                      -> tokens, steps
scores/{frozen,glue}/NAME/seed-N/results.json       -> scores
                                /examples.npz       -> bootstrap over examples -> verdicts
"""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.findings.claims import CLAIMS, COLUMNS, COMPARED, CONTROLS, GROUPS, NOT_MEASURED, Claim, Score
from benchmarks.findings.plan import PRETRAINED, ROOT, UNTRAINED, Plan
from benchmarks.findings.preparation import patches_of_a_step
from benchmarks.findings.verdicts import Run, Sampled, compare
from benchmarks.report import machine
from clearspan.eval import saved
from clearspan.eval.scores import resampled
from clearspan.shards import Dataset

TITLES = {
    "glove": "GloVe, mean of word vectors",
    "tfidf": "tf-idf",
    "bm25": "BM25",
    UNTRAINED: "the encoder, untrained",
    PRETRAINED: "the encoder, pretrained by MLM",
}
PACKAGES = ("torch", "transformers", "sentence-transformers", "deepspeed", "numpy", "scipy")


def collect(plan: Plan) -> dict[str, Any]:
    """Return the content of findings.json."""
    sampled = {name: [_sampled(plan, name, seed) for seed in seeds] for name, seeds in plan.runs().items()}
    return {
        "commit": _commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "versions": {name: version(name) for name in PACKAGES},
        "hours": json.loads((plan.work / "hours.json").read_text())["hours"],
        "scale": {"name": plan.scale_name, **_sizes(plan), "precision": _precision(plan)},
        "data": _data(plan),
        "systems": {name: _system(plan, name, seeds) for name, seeds in plan.runs().items()},
        "left_out": plan.skipped,
        "claims": [_claim(claim, sampled) for claim in CLAIMS],
        "controls": [_claim(claim, sampled) for claim in CONTROLS],
        "not_measured": NOT_MEASURED,
    }


def _sizes(plan: Plan) -> dict[str, Any]:
    return {key: value for key, value in asdict(plan.scale).items() if key != "rates"}


def _precision(plan: Plan) -> str:
    """Return the precision in which the systems were evaluated; two if a run went on on another machine."""
    folders = [plan.scores(name, seed, "frozen") for name, seeds in plan.runs().items() for seed in seeds]
    return " and ".join(sorted({saved.read(folder).environment["precision"] for folder in folders}))


def _commit() -> str:
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=10"]
    process = subprocess.run(words, capture_output=True, text=True)
    return process.stdout.strip() if process.returncode == 0 else "unknown"


def _data(plan: Plan) -> dict[str, dict[str, int]]:
    """Return the examples and tokens of each dataset, and the pairs of held-out retrieval."""
    shards = sorted(path.parent for path in (plan.work / "shards").glob("*/manifest.json"))
    totals = {folder.name: Dataset(folder).manifest.totals for folder in shards}
    counts: dict[str, dict[str, int]] = {
        name: {key: value for key, value in each.items() if key in ("examples", "tokens")}
        for name, each in totals.items()
    }
    held_out = Dataset(plan.work / "shards" / "documents" / "validation")
    return {**counts, "held-out documents": {"examples": held_out.num_examples}}


def _evaluations(plan: Plan, name: str, seed: int) -> list[saved.Saved]:
    folders = [plan.scores(name, seed, tasks) for tasks in ("frozen", "glue")]
    return [saved.read(folder) for folder in folders if (folder / saved.RESULTS).is_file()]


def _system(plan: Plan, name: str, seeds: Sequence[int]) -> dict[str, Any]:
    """Return a system's titles, its scores of each seed, and what its training took."""
    known = plan.systems
    scores: dict[str, dict[str, list[float]]] = {}
    for seed in seeds:
        for evaluation in _evaluations(plan, name, seed):
            for task, metrics in evaluation.scores.items():
                for metric, value in metrics.items():
                    scores.setdefault(task, {}).setdefault(metric, []).append(value)
    averages = {column: _averages(scores, GROUPS[column], len(seeds)) for column in COLUMNS}
    trained = [_training(plan, name, seed) for seed in seeds if (plan.run(name, seed) / "metrics.jsonl").is_file()]
    return {
        "title": known[name].title if name in known else TITLES.get(name, name),
        "paper": known[name].paper if name in known else "",
        "seeds": list(seeds),
        "equal_tokens": name in known and not known[name].scratch,
        "training": trained,
        "averages": averages,
        "scores": scores,
    }


def _averages(scores: dict[str, dict[str, list[float]]], group: Sequence[Score], num_seeds: int) -> list[float]:
    """Return each seed's average over a group's scores; [] if there is none."""
    columns = [scores[task][metric] for task, metric in group if metric in scores.get(task, {})]
    columns = [column for column in columns if len(column) == num_seeds]
    return [float(np.mean(values)) for values in zip(*columns, strict=True)]


def _training(plan: Plan, name: str, seed: int) -> dict[str, float]:
    """Return the steps of a training, the text tokens that were counted, and the last contrastive accuracies."""
    lines = [json.loads(line) for line in (plan.run(name, seed) / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "tokens" in line]
    tokens = sum(line["tokens"] for line in steps) - len(steps) * patches_of_a_step(plan, name)
    accuracies = {key: round(value, 4) for key, value in steps[-1].items() if key.endswith("/accuracy")}
    return {"steps": len(steps), "tokens": int(tokens), **accuracies}


def _sampled(plan: Plan, name: str, seed: int) -> Run:
    """Return a run's scores with their bootstrap over examples, of the scores that a claim uses."""
    wanted = {score for claim in COMPARED if name in (claim.better, claim.worse) for score in GROUPS[claim.group]}
    run: dict[Score, Sampled] = {}
    for evaluation in _evaluations(plan, name, seed):
        examples = saved.read_examples(evaluation.folder / saved.EXAMPLES)
        for task, metric in wanted:
            if metric in examples.get(task, {}):
                figures = resampled(examples[task][metric])
                run[task, metric] = Sampled(evaluation.scores[task][metric], figures)
    return run


def _claim(claim: Claim, sampled: dict[str, list[Run]]) -> dict[str, Any]:
    verdict = compare(sampled.get(claim.better, []), sampled.get(claim.worse, []), GROUPS[claim.group], claim.margin)
    return {**asdict(claim), "verdict": asdict(verdict) if verdict else None}


def write(plan: Plan, path: Path) -> dict[str, Any]:
    """Collect the results and write them as JSON; return them."""
    result = collect(plan)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result
