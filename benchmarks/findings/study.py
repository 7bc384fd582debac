"""The study: pretrain a base encoder, sweep over every system's recipe and the seeds, score, and compare.

    datasets -> pretrained, untrained -> WORK/recipes/NAME.yaml (steps for equal tokens)
             -> for each seed: `clearspan sweep` -> WORK/runs -> scores -> verdicts -> findings.json

Every part is a command that goes on where it was stopped. After a stop by `--minutes` the result is that of the seeds
with which every system has finished.
"""

import argparse
import contextlib
import json
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
import yaml

from benchmarks.commands import run_module
from benchmarks.findings import datasets
from benchmarks.findings.claims import needs_transfer
from benchmarks.findings.collected import Trained, collect
from benchmarks.findings.scales import SMALL, Scale
from benchmarks.findings.systems import PRETRAINED, UNTRAINED, System, encoder, pretraining, recipe, systems
from benchmarks.synthetic import export_untrained
from clearspan.common import terminal
from clearspan.common.files import write_text
from clearspan.common.spawned import CommandError, parallel_map
from clearspan.common.terminal import UsageError
from clearspan.eval import results
from clearspan.eval.data.senteval import find_downstream
from clearspan.shards import Dataset
from clearspan.train.recipe import load_recipe
from clearspan.train.start.build_learner import build_learner
from clearspan.train.sweeps.grid import RECIPE, Grid, GridRun, parse_axis

FROZEN = "sts,heldout"
SPENT = "hours.json"
"""The file of the work folder that adds up the hours of all calls."""
SCALE = "scale.txt"
"""The file of the work folder that names the scale of its study."""


class TimeUpError(KeyboardInterrupt):
    """The minutes of a call have passed. It ends commands as Ctrl-C does: they save their work."""


@contextlib.contextmanager
def time_limit(minutes: float) -> Iterator[None]:
    """Raise TimeUpError in the `with` statement after this many minutes; 0: never."""

    def end(*_: object) -> NoReturn:
        raise TimeUpError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, 60 * minutes)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Study:
    """One run in its work folder.

    Attributes:
        systems: the systems to train: those whose data is given.
        at_once: the number of systems to train, and of models to score, at the same time.
        patches: rows of patches in a step, by system whose recipe is written.
        is_stopped: whether the minutes passed before the end of `run`.
    """

    def __init__(self, options: argparse.Namespace, scale: Scale, held_out: float = datasets.HELD_OUT):
        self.options, self.scale, self.work = options, scale, options.work.resolve()
        self.at_once = options.at_once or (scale.at_once if torch.accelerator.is_available() else 1)
        self.check_scale()
        self.shards = self.work / "shards"
        if options.text:
            datasets.make(options, scale, held_out)
        known = systems(scale, options.synonyms and options.synonyms.resolve())
        made = {path.parent.name for path in self.shards.glob("*/manifest.json")}
        chosen = options.systems.split(",") if options.systems else list(scale.systems or known)
        if unknown := sorted(set(chosen) - known.keys()):
            raise UsageError(f"--systems {unknown[0]}: there is no such system; there are {', '.join(known)}")
        self.systems = {name: known[name] for name in chosen if made.issuperset(known[name].batches)}
        if not options.synonyms:
            self.systems = {name: system for name, system in self.systems.items() if "subs" not in name.split("-")}
        if left := [name for name in chosen if name not in self.systems]:
            terminal.notice(f"without their data, these are left out: {', '.join(left)}")
        if not self.systems:
            raise UsageError("no system has its data")
        self.patches: dict[str, int] = {}
        self.is_stopped = False

    def run(self) -> dict[str, Any]:
        """Do what is missing; return the content of findings.json.

        Raises:
            CommandError: a part failed, or the minutes have passed before all systems were scored with one seed.
        """
        start = time.time()
        try:
            with time_limit(self.options.minutes):
                self.train_and_score()
        except TimeUpError:
            self.is_stopped = True
        finally:
            hours = self.add_hours((time.time() - start) / 3600)
        scored = {name: self.finished(name) for name in self.systems}
        num_seeds = min(map(len, scored.values()))
        if self.is_stopped:
            done = f"{sum(map(len, scored.values()))} of {self.options.seeds * len(scored)} runs are finished"
            terminal.notice(f"stopped after {self.options.minutes:g} minutes: {done}; the same command continues")
            if not num_seeds:
                raise CommandError("no seed is finished for all systems yet: no result", 1)
        baselines = {name: [self.work / "scores" / name] for name in self.baselines()}
        each = {name: Trained(runs[:num_seeds], self.patches_of(name)) for name, runs in scored.items()}
        return {"hours": round(hours, 4), **collect(self.scale, self.shards, baselines, each)}

    def check_scale(self) -> None:
        """Refuse a work folder of another scale, whose encoder would be taken; a folder without the file is small."""
        path = self.work / SCALE
        known = path.read_text().strip() if path.is_file() else SMALL if self.base.exists() else self.options.scale
        if known != self.options.scale:
            raise UsageError(f"--work {self.options.work} holds a study at the scale {known}: name another folder")
        write_text(path, f"{known}\n")

    def patches_of(self, name: str) -> int:
        """Return the rows of patches of images and clips in a step of a system: no text tokens."""
        if name not in self.patches:  # the call was stopped before it came to the system
            self.write_recipe(name, self.systems[name], {"path": str(self.base)})
        return self.patches[name]

    def add_hours(self, hours: float) -> float:
        """Add the hours of this call to those of the calls before; return the sum."""
        path = self.work / SPENT
        spent: float = hours + (json.loads(path.read_text()) if path.is_file() else 0)
        write_text(path, json.dumps(spent))
        return spent

    @property
    def base(self) -> Path:
        """Return the folder of the pretrained encoder."""
        return self.work / PRETRAINED / "model"

    def baselines(self) -> dict[str, str]:
        """Return the models that are scored but not trained here, by name, in the order of the table."""
        vectors = {"glove": str(self.options.vectors)} if self.options.vectors else {}
        own = {UNTRAINED: str(self.work / UNTRAINED / "model"), PRETRAINED: str(self.base)}
        return {**vectors, "tfidf": "tfidf", "bm25": "bm25", **own}

    def train_and_score(self) -> None:
        """Do what is missing."""
        base = self.write_recipe(PRETRAINED, pretraining(self.scale), {"config": encoder(self.scale)})
        line = [f"--recipe={base}", "training.seed=1", f"output={self.base.parent}", "--resume", "--quiet"]
        if not (self.base / "model.safetensors").is_file():
            run_module("clearspan.train", line)
        export_untrained(load_recipe(str(base), ["training.seed=1", f"output={self.work / UNTRAINED}"]))
        data = self.link_data()
        parallel_map(lambda each: self.score(*each, data), list(self.baselines().items()), self.at_once)
        for name, system in self.systems.items():
            self.write_recipe(name, system, {"path": str(self.base)})
        failed: list[Exception] = []
        for num_seeds in range(1, self.options.seeds + 1):
            for names in self.sweeps(num_seeds - 1):
                try:
                    self.sweep(names, num_seeds, data)
                except (CommandError, UsageError) as error:
                    failed.append(error)
        if failed:
            raise CommandError(f"{'; '.join(map(str, failed))}; --systems can leave a system out", 1)

    def transfers(self, name: str) -> bool:
        return self.scale.transfers or needs_transfer(name)

    def sweeps(self, num_scored: int) -> list[list[str]]:
        """Return the names of the systems that are swept over together: those with transfer tasks, and the others.

        Args:
            num_scored: the seeds before this one; a system that failed with one of them is left out.
        """
        names = [name for name in self.systems if len(self.finished(name)) >= num_scored]
        parts = [[name for name in names if self.transfers(name) == each] for each in (True, False)]
        return [names for names in parts if names]

    def recipe_file(self, name: str) -> Path:
        return self.work / "recipes" / f"{name}.yaml"

    def grid(self, names: Sequence[str], num_seeds: int) -> list[str]:
        """Return the axes of a sweep, as `--grid` takes them."""
        recipes = ",".join(str(self.recipe_file(name)) for name in names)
        return [f"{RECIPE}={recipes}", f"training.seed={','.join(map(str, range(1, num_seeds + 1)))}"]

    def output(self, names: Sequence[str]) -> Path:
        """Return the folder of a sweep."""
        return self.work / "runs" / ("transfer" if self.transfers(names[0]) else "sts")

    def finished(self, name: str) -> list[Path]:
        """Return the folders of a system's scored runs: those of the first seeds, without a gap."""
        runs: list[GridRun] = Grid([parse_axis(axis) for axis in self.grid([name], self.options.seeds)]).runs()
        folders = [self.output([name]) / run.name for run in runs]
        scored = [any((folder / "eval").rglob(results.RESULTS)) for folder in folders]
        return folders[: scored.index(False) if False in scored else None]

    def write_recipe(self, name: str, system: System, model: Mapping[str, Any]) -> Path:
        """Write a system's recipe, with as many steps as its tokens take.

        The trainer's own estimate of a step's tokens, from the shards' statistics, gives the number of steps.
        """
        base, scale = name == PRETRAINED, self.scale
        options = recipe(system, dict(model), scale.pretraining_rate if base else scale.rate, self.shards)
        path = self.recipe_file(name)
        write_text(
            path, yaml.safe_dump({**options, "training": {**options["training"], "max_steps": 1}}, sort_keys=False)
        )
        loaded = load_recipe(str(path), ["output=unused"])
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
        folder, downstream = self.work / "data", find_downstream(self.options.data)
        sets = {f"downstream/{name}": downstream / name for name in self.scale.sets} or {"downstream": downstream}
        for name, source in {**sets, "heldout/documents": self.shards / "documents"}.items():
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
            run_module("clearspan.eval", line, quiet=self.at_once > 1)

    def sweep(self, names: Sequence[str], num_seeds: int, data: Path) -> None:
        """Train and score systems with the first seeds; those that are finished stay as they are."""
        line: list[str] = []
        for axis in self.grid(names, num_seeds):
            line += ["--grid", axis]
        line += ["--output", str(self.output(names)), "--data", str(data), "--at-once", str(self.at_once)]
        line += ["--tasks", f"transfer,{FROZEN}" if self.transfers(names[0]) else FROZEN]
        run_module("clearspan.train.sweep", [*line, "--protocol", "fast", "--quiet"])
