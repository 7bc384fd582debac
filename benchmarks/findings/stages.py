"""The stages of a plan: what each needs, the command that does it, and how to see that it is done.

    tokenizer -> sentences -> documents, triplets    images    audio
              -> recipes (steps for equal tokens) -> untrained, pretrained -> each system and seed -> scores

A stage's result in the work folder says that it is done; nothing else is recorded, so that a plan can be made again at
any time.
"""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.findings.claims import needs_transfer
from benchmarks.findings.plan import PRETRAINED, UNTRAINED, Plan
from benchmarks.findings.positives import CHANGES, write_pairs
from benchmarks.findings.preparation import (
    GLUE_FOLDERS,
    export_untrained,
    link_data,
    recipe_file,
    recipes_done,
    write_recipes,
)
from benchmarks.findings.systems import System
from clearspan.common.cores import num_cores
from clearspan.eval.data.senteval import find_downstream
from clearspan.eval.saved import RESULTS


@dataclass(frozen=True)
class Stage:
    """A piece of work.

    Attributes:
        work: a command, or a function of this process.
        done: returns whether its result is there.
        needs: names of stages.
        seconds: estimate of its time.
        alone: whether it takes all cores.
        before: called before the command, to prepare its folder.
    """

    name: str
    work: tuple[str, ...] | Callable[[], None]
    done: Callable[[], bool]
    needs: tuple[str, ...] = ()
    seconds: float = 1.0
    alone: bool = False
    before: Callable[[], None] = field(default=lambda: None)


def stages(plan: Plan) -> list[Stage]:
    """Return the stages in an order that respects what they need."""
    rates, scale = plan.scale.rates, plan.scale
    result = _data_stages(plan)
    datasets = tuple(stage.name for stage in result if stage.name != "evaluation data")
    recipes = Stage("recipes", lambda: write_recipes(plan), lambda: recipes_done(plan), datasets, 5)
    untrained = Stage(UNTRAINED, lambda: export_untrained(plan), plan.exported(UNTRAINED, 1).is_file, ("recipes",), 3)
    base = _training(plan, PRETRAINED, 1, scale.pretraining_tokens / rates.pretraining_tokens_per_s, ("recipes",), True)
    result += [recipes, untrained, base]
    data = "evaluation data"
    has_glue = any((plan.inputs.data / "glue" / name).is_dir() for name in GLUE_FOLDERS)
    tuned: list[Stage] = []  # takes longest for the fewest findings: last
    result += [_evaluation(plan, name, 1, (data,)) for name in plan.words]
    result += [_evaluation(plan, name, 1, (data, name)) for name in (UNTRAINED, PRETRAINED)]
    for seed in range(1, plan.seeds + 1):
        for name, system in plan.systems.items():
            needs = "recipes" if system.scratch else PRETRAINED
            training = _training(plan, name, seed, _seconds(plan, system), (needs,))
            result += [training, _evaluation(plan, name, seed, (data, training.name))]
            if (scale.glue is None or name in scale.glue) and has_glue:
                tuned.append(_evaluation(plan, name, seed, (data, training.name), "glue"))
    return [*result, *tuned]


def _seconds(plan: Plan, system: System) -> float:
    """Return the estimated seconds of a system's steps: without layers they are cheap, patches cost more."""
    scale, rates = plan.scale, plan.scale.rates
    if system.scratch:
        return scale.pretraining_tokens / (20 * rates.tokens_per_s)
    modalities = len({"images", "audio"} & set(system.datasets))
    return scale.tokens / rates.tokens_per_s * (1 + 0.4 * modalities)


def _data_stages(plan: Plan) -> list[Stage]:
    inputs, scale, shards = plan.inputs, plan.scale, plan.work / "shards"
    learned, tokenizer, data = plan.work / "tokenizer", shards / "sentences" / "tokenizer", plan.work / "data"
    lines = ("--text-per", "line", "--no-split")
    exclude = [str(folder) for name in ("STS", "SICK") if (folder := find_downstream(inputs.data) / name).is_dir()]
    longest = scale.positions - 2
    limit = ("--limit", str(scale.limit)) if scale.limit else ()

    def pipeline(kind: str, files: Sequence[str], *words: str, needs: tuple[str, ...] = (), name: str = "") -> Stage:
        output = shards / (name or kind)
        command = ("-m", "pipelines", kind, "--input", *files, *words, *limit, "--output", str(output), "--quiet")
        return Stage(name or kind, command, (output / "manifest.json").is_file, needs, scale.rates.shards_s, alone=True)

    def text(*words: str) -> tuple[str, ...]:
        return (*words, *(("--exclude", *exclude) if exclude else ()))

    vocabulary = ("-m", "pipelines", "vocabulary", "--input", *inputs.text, "--size", str(scale.vocabulary))
    result = [
        Stage("evaluation data", lambda: link_data(plan), (data / "heldout" / "documents").is_dir, ("documents",)),
        Stage(
            "tokenizer", (*vocabulary, "--output", str(learned), "--quiet"), (learned / "tokenizer.json").is_file,
            seconds=scale.rates.shards_s, before=lambda: shutil.rmtree(learned, ignore_errors=True),
        ),
        pipeline(
            "sentences", inputs.sentences, *lines, "--del-token", "--tokenizer", str(learned),
            *text("--max-tokens", str(min(62, longest))), needs=("tokenizer",),
        ),
        pipeline(
            "documents", inputs.text, "--tokenizer", str(tokenizer), "--min-tokens", str(scale.min_tokens),
            *text("--unit-bytes", "2000000", "--holdout-fraction", str(scale.held_out)), needs=("sentences",),
        ),
    ]  # fmt: skip
    words = text("--tokenizer", str(tokenizer), "--max-tokens", str(min(62, longest)))
    for name in (name for name in CHANGES if any(name in system.datasets for system in plan.systems.values())):
        pairs, file = f"pairs, {name}", plan.work / "pairs" / f"{name}.csv"
        write = partial(write_pairs, shards / "sentences", name, file)
        result.append(Stage(pairs, write, file.is_file, ("sentences",), 5))
        result.append(pipeline("triplets", (str(file),), *words, needs=(pairs,), name=name))
    if inputs.nli:
        result.append(pipeline("triplets", inputs.nli, *words, needs=("sentences",)))
    if inputs.images:
        result.append(pipeline("images", inputs.images))
    if inputs.audio:
        result.append(pipeline("audio", inputs.audio))
    return result


def _training(plan: Plan, name: str, seed: int, seconds: float, needs: tuple[str, ...], alone: bool = False) -> Stage:
    run = plan.run(name, seed)
    words = ("--recipe", str(recipe_file(plan, name)), f"training.seed={seed}", f"output={run}", "--resume", "--quiet")
    return Stage(
        name if name == PRETRAINED else f"{name}, seed {seed}", ("train/run.py", *words),
        plan.exported(name, seed).is_file, needs, seconds + plan.scale.rates.start_s, alone,
        before=lambda: _wait_for(run),
    )  # fmt: skip


def _wait_for(run: Path) -> None:
    """Wait for a training that a killed call left behind."""
    from clearspan.train.sweeps.running import wait_for  # takes seconds to import

    wait_for(run)


def _evaluation(plan: Plan, name: str, seed: int, needs: tuple[str, ...], tasks: str = "frozen") -> Stage:
    scores, rates = plan.scores(name, seed, tasks), plan.scale.rates
    words: tuple[str, ...] = ("--model", plan.words.get(name, str(plan.model(name, seed))), "--name", name)
    frozen = "sts,transfer,heldout" if name not in plan.names or needs_transfer(name) else "sts,heldout"
    words += ("--tasks", "glue" if tasks == "glue" else frozen, "--data", str(plan.work / "data"))
    words += ("--output", str(scores), "--protocol", "fast", "--cache", "none", "--quiet")
    words += ("--precision", plan.scale.precision) if tasks == "frozen" else ()
    words += ("--allow-missing",) if plan.scale.limit else ()
    seconds = rates.glue_s if tasks == "glue" else rates.words_s if name in plan.words else rates.evaluation_s
    title = f"{'GLUE' if tasks == 'glue' else 'scores'} of {name}, seed {seed}"
    return Stage(title, ("-m", "eval", *words), (scores / RESULTS).is_file, needs, seconds)


def minutes(plan: Plan, missing: Sequence[Stage]) -> float:
    """Return the estimated minutes of stages: those that take all cores, and the others side by side."""
    together = sum(stage.seconds for stage in missing if not stage.alone)
    return (sum(stage.seconds for stage in missing if stage.alone) + together / plan.jobs) / 60


def describe(plan: Plan) -> str:
    """Return what `--dry-run` prints."""
    from clearspan.common import terminal

    planned = stages(plan)
    missing = [stage for stage in planned if not stage.done()]
    groups: dict[str, list[Stage]] = {}
    for stage in planned:
        kind = stage.name.partition(" of ")[0] if " of " in stage.name else "training" if ", seed" in stage.name else ""
        groups.setdefault(kind or stage.name, []).append(stage)
    rows = [
        [
            name,
            str(len(group)),
            str(sum(stage not in missing for stage in group)),
            f"{sum(stage.seconds for stage in group if stage in missing) / 60:.1f}",
        ]
        for name, group in groups.items()
    ]
    lines = [
        f"{len(plan.names)} systems, {plan.seeds} seeds each, {plan.scale.tokens:,} tokens each:",
        f"  {', '.join(plan.names)}",
        *(f"left out: {name}: {reason}" for name, reason in plan.skipped.items()),
        terminal.table(["stage", "number", "done", "minutes of one process"], rows, right=range(1, 4), indent=0),
        f"about {minutes(plan, missing):.0f} minutes with {plan.jobs} processes at a time",
    ]
    return "\n".join(lines)


def environment(plan: Plan, alone: bool) -> dict[str, str]:
    """Return the environment of a stage's command."""
    threads = {"OMP_NUM_THREADS": str(num_cores() if alone else plan.scale.threads)} if plan.scale.threads else {}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PATH": path, **threads}
