"""The study: pretrain a base encoder, sweep over every system's recipe and the seeds, score, and compare.

    datasets -> pretrained, untrained -> WORK/recipes/NAME.yaml (steps for equal tokens)
             -> `clearspan sweep` -> WORK/runs -> scores of every seed -> verdicts -> findings.json

Every part is a command that goes on where it was stopped.
"""

import argparse
import csv
import functools
import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.findings import datasets
from benchmarks.findings.claims import CLAIMS, CONTROLS, GROUPS, RETRIEVAL, STS, Claim, needs_transfer
from benchmarks.findings.systems import PRETRAINED, UNTRAINED, Scale, System, encoder, pretraining, recipe, systems
from benchmarks.findings.verdicts import Run, Sampled, compare
from benchmarks.report import machine
from benchmarks.synthetic import export_untrained
from clearspan.common import terminal
from clearspan.common.commands import UsageError, run_module
from clearspan.common.files import write_text
from clearspan.eval import results
from clearspan.eval.data.senteval import find_downstream
from clearspan.eval.scores import resampled
from clearspan.shards import Dataset
from clearspan.train.build import build_learner
from clearspan.train.config.recipe import load

PACKAGES = ("torch", "transformers", "sentence-transformers", "deepspeed", "numpy", "scipy")
FROZEN = "sts,heldout"
ROOT = Path(__file__).parents[2]


class Study:
    """One run in its work folder.

    Attributes:
        names: the systems to train: those whose data is given.
        patches: rows of patches of images and clips in a step, by system; text tokens are counted without them.
    """

    def __init__(self, options: argparse.Namespace, scale: Scale | None = None, held_out: float = datasets.HELD_OUT):
        self.options, self.scale, self.work = options, scale or Scale(), options.work.resolve()
        self.shards = datasets.make(options, self.scale, held_out)
        known = systems(self.scale, options.synonyms and options.synonyms.resolve())
        made = {path.parent.name for path in self.shards.glob("*/manifest.json")}
        chosen = options.systems.split(",") if options.systems else list(known)
        if unknown := sorted(set(chosen) - known.keys()):
            raise UsageError(f"--systems {unknown[0]}: there is no such system; there are {', '.join(known)}")
        self.systems = {name: known[name] for name in chosen if made.issuperset(known[name].batches)}
        if not options.synonyms:
            self.systems = {name: system for name, system in self.systems.items() if "subs" not in name.split("-")}
        if left := [name for name in chosen if name not in self.systems]:
            terminal.notice(f"without their data, these are left out: {', '.join(left)}")
        self.patches: dict[str, int] = {}

    def run(self) -> dict[str, Any]:
        """Do what is missing; return the content of findings.json, with the hours of this call."""
        start = time.time()
        folders = self.train_and_score()
        return {"hours": round((time.time() - start) / 3600, 4), **self.collect(folders)}

    def train_and_score(self) -> dict[str, list[Path]]:
        """Do what is missing; return the folders of every system's evaluations, in the table's order."""
        base = self.write_recipe(PRETRAINED, pretraining(self.scale), {"config": encoder(self.scale)})
        model = self.work / PRETRAINED / "model"
        line = [f"--recipe={base}", "training.seed=1", f"output={model.parent}", "--resume", "--quiet"]
        if not (model / "model.safetensors").is_file():
            run_module("clearspan.train", line, "train")
        untrained = export_untrained(load(str(base), ["training.seed=1", f"output={self.work / UNTRAINED}"]))
        data = self.link_data()
        vectors = {"glove": self.options.vectors} if self.options.vectors else {}
        beside = {**vectors, "tfidf": "tfidf", "bm25": "bm25", UNTRAINED: untrained, PRETRAINED: model}
        for name, scored in beside.items():
            self.score(name, str(scored), data)
        paths = {name: self.write_recipe(name, each, {"path": str(model)}) for name, each in self.systems.items()}
        trained: dict[str, list[Path]] = {}
        for transfer in (True, False):
            chosen = [path for name, path in paths.items() if needs_transfer(name) == transfer]
            trained |= self.sweep(chosen, transfer, data) if chosen else {}
        return {name: [self.work / "scores" / name] for name in beside} | {name: trained[name] for name in paths}

    def write_recipe(self, name: str, system: System, model: Mapping[str, Any]) -> Path:
        """Write a system's recipe, with as many steps as its tokens take.

        The trainer's own estimate of a step's tokens, from the shards' statistics, gives the number of steps.
        """
        base, scale = name == PRETRAINED, self.scale
        options = recipe(system, dict(model), scale.pretraining_rate if base else scale.rate, self.shards)
        path = self.work / "recipes" / f"{name}.yaml"
        write_text(
            path, yaml.safe_dump({**options, "training": {**options["training"], "max_steps": 1}}, sort_keys=False)
        )
        loaded = load(str(path), ["output=unused"])
        read = {key: Dataset(data.path) for key, data in loaded.data.items()}
        _, _, sizes = build_learner(loaded, read, 1, False)
        tokens = scale.pretraining_tokens if base else scale.tokens
        steps = max(2, round(tokens / sum(size.mean_tokens for size in sizes.values())))
        options["training"] |= {"max_steps": steps, "save_steps": max(1, min(100, steps // 2))}
        write_text(path, yaml.safe_dump(options, sort_keys=False))
        self.patches[name] = sum(size.patches for size in sizes.values())
        return path

    def link_data(self) -> Path:
        """Make the folder of evaluation sets: links to the user's, and to the documents with their held-out part."""
        folder = self.work / "data"
        sources = {"downstream": find_downstream(self.options.data), "heldout/documents": self.shards / "documents"}
        for name, source in sources.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            target.symlink_to(source.resolve())
        return Path(folder)

    def score(self, name: str, model: str, data: Path) -> None:
        """Score a model that is not swept over."""
        folder = self.work / "scores" / name
        line = ["--model", model, "--name", name, "--tasks", f"transfer,{FROZEN}", "--data", str(data), "--quiet"]
        line += ["--output", str(folder), "--protocol", "fast", "--allow-missing"]
        if not (folder / results.RESULTS).is_file():
            run_module("clearspan.eval", line, "python -m clearspan.eval")

    def sweep(self, recipes: Sequence[Path], transfer: bool, data: Path) -> dict[str, list[Path]]:
        """Train and score systems with every seed; return the folders of each system's runs."""
        output = self.work / "runs" / ("transfer" if transfer else "sts")
        seeds = ",".join(str(seed) for seed in range(1, self.options.seeds + 1))
        line = ["--grid", f"recipe={','.join(map(str, recipes))}", "--grid", f"training.seed={seeds}"]
        line += ["--output", str(output), "--data", str(data)]
        line += ["--tasks", f"transfer,{FROZEN}" if transfer else FROZEN, "--protocol", "fast", "--quiet"]
        run_module("clearspan.train.sweep", line, "sweep")
        folders: dict[str, list[Path]] = {path.stem: [] for path in recipes}
        with (output / "table.csv").open(newline="", encoding="utf-8") as table:
            for run in csv.DictReader(table):
                folders[Path(run.get("recipe", recipes[0])).stem].append(output / run["run"])
        return folders

    def collect(self, folders: Mapping[str, Sequence[Path]]) -> dict[str, Any]:
        """Return the content of findings.json but for the hours."""
        read = {name: [next(folder.rglob(results.RESULTS)).parent for folder in each] for name, each in folders.items()}
        tokens = [self.tokens(name, run) for name in self.systems for run in folders[name]]
        verdicts = [row for claim in (*CLAIMS, *CONTROLS) if (row := judged(claim, read))]
        sizes = {key: getattr(self.scale, key) for key in ("layers", "hidden", "pretraining_tokens", "tokens")}
        precision = results.read(read[PRETRAINED][0]).environment["precision"]
        return {
            "commit": commit(),
            "date": datetime.now(UTC).date().isoformat(),
            "machine": machine(),
            "versions": {name: version(name) for name in PACKAGES},
            "scale": {**sizes, "precision": precision},
            "data": self.sizes(),
            "tokens_read": [min(tokens), max(tokens)],
            "systems": {name: columns(evaluations) for name, evaluations in read.items()},
            "verdicts": verdicts,
        }

    def tokens(self, name: str, run: Path) -> int:
        """Return the text tokens that the encoder read in a training, as counted in each step."""
        lines = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
        return int(sum(line["tokens"] - self.patches[name] for line in lines if "tokens" in line))

    def sizes(self) -> dict[str, dict[str, int]]:
        """Return the examples and tokens of each dataset, and the documents of held-out retrieval."""
        held_out = Dataset(self.shards / "documents" / "validation")
        counts = {}
        for path in sorted(self.shards.glob("*/manifest.json")):
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
