"""The plan of a run: its stages, what each needs, the command that does it, and how to see that it is done.

    tokenizer -> sentences -> documents, triplets    images    audio
              -> recipes (steps for equal tokens) -> untrained, pretrained -> each system and seed -> scores

A stage's result in the work folder says that it is done; nothing else is recorded, so that a plan can be made again at
any time.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import yaml

from benchmarks.findings.positives import CHANGES, write_pairs
from benchmarks.findings.scales import SCALES, Scale
from benchmarks.findings.systems import System, encoder, pretraining, recipe, systems
from clearspan.common.commands import UsageError
from clearspan.common.cores import num_cores
from clearspan.common.files import write_text
from clearspan.eval.data.senteval import find_downstream
from clearspan.eval.files import MissingDataError
from clearspan.eval.saved import RESULTS

ROOT = Path(__file__).parents[2]
PRETRAINED, UNTRAINED = "pretrained", "untrained"
GLUE_FOLDERS = ("RTE", "MRPC")
OPTIONAL = {"triplets": "nli", "images": "images", "audio": "audio"}
"""Dataset -> the option that gives its files."""


@dataclass(frozen=True)
class Inputs:
    """The user's files.

    Attributes:
        text: documents; sentences: one a line; nli: rows as in SimCSE's file; images, audio: labeled files.
        data: folder of evaluation sets; vectors: word vectors; synonyms: a list of synonyms.
    """

    text: tuple[str, ...]
    sentences: tuple[str, ...]
    data: Path
    nli: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    audio: tuple[str, ...] = ()
    vectors: Path | None = None
    synonyms: Path | None = None


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


@dataclass(frozen=True)
class Plan:
    """A run of the benchmark.

    Attributes:
        work: folder of all results.
        names: the systems to train; skipped: system -> the reason why it is left out.
        seeds: number of seeds of each system.
    """

    scale_name: str
    inputs: Inputs
    work: Path
    seeds: int
    names: tuple[str, ...]
    skipped: dict[str, str]

    @property
    def scale(self) -> Scale:
        return SCALES[self.scale_name]

    @property
    def systems(self) -> dict[str, System]:
        known = systems(self.scale, self.inputs.synonyms)
        return {name: known[name] for name in self.names}

    @property
    def jobs(self) -> int:
        """The number of stages at a time."""
        return max(1, num_cores() // self.scale.threads) if self.scale.threads else 1

    @property
    def words(self) -> dict[str, str]:
        """The systems that are not trained here: name -> what `python -m eval --model` takes."""
        vectors = {"glove": str(self.inputs.vectors)} if self.inputs.vectors else {}
        return {**vectors, "tfidf": "tfidf", "bm25": "bm25"}

    def run(self, name: str, seed: int) -> Path:
        """Return the folder of a system's training."""
        return self.work / "runs" / name / f"seed-{seed}"

    def model(self, name: str, seed: int) -> Path:
        return self.run(name, seed) / "model"

    def exported(self, name: str, seed: int) -> Path:
        """Return the last file of an export."""
        return self.model(name, seed) / "model.safetensors"

    def scores(self, name: str, seed: int, tasks: str = "frozen") -> Path:
        """Return the folder of an evaluation: `frozen` embeddings, or `glue`."""
        return self.work / "scores" / tasks / name / f"seed-{seed}"

    def runs(self) -> dict[str, range]:
        """Return every system that is scored and its seeds, in the table's order."""
        once = range(1, 2)
        return {
            **dict.fromkeys((*self.words, UNTRAINED, PRETRAINED), once),
            **dict.fromkeys(self.names, range(1, self.seeds + 1)),
        }


def make(scale: str, inputs: Inputs, work: Path, seeds: int, chosen: Sequence[str] = ()) -> Plan:
    """Return the plan of a run; systems without their input are skipped with the reason.

    Args:
        chosen: names of systems; (): all of them.

    Raises:
        UsageError: a system is unknown, nothing is left to train, or the evaluation sets are not there.
    """
    try:
        find_downstream(inputs.data)
    except MissingDataError as error:
        raise UsageError(f"--data: {error}") from None
    known = systems(SCALES[scale], inputs.synonyms)
    if unknown := [name for name in chosen if name not in known]:
        raise UsageError(f"--systems {unknown[0]}: no such system; choose from {', '.join(known)}")
    skipped: dict[str, str] = {}
    for name in chosen or known:
        missing = [f"--{option}" for kind, option in OPTIONAL.items() if kind in known[name].datasets
                   and not getattr(inputs, option)]  # fmt: skip
        missing += ["--synonyms"] if known[name].synonyms and not inputs.synonyms else []
        if missing:
            skipped[name] = f"needs {' and '.join(missing)}"
    names = tuple(name for name in chosen or known if name not in skipped)
    if not names:
        raise UsageError(f"--systems: none can be trained: {'; '.join(skipped.values())}")
    return Plan(scale, inputs, work, seeds, names, skipped)


def fix(plan: Plan) -> None:
    """Record in the work folder what shapes its results, or check that it is the same.

    Raises:
        UsageError: the folder is of a run with other options, or of something else.
    """
    path = plan.work / "plan.json"
    given = {**{key: str(value) for key, value in vars(plan.inputs).items()}, "scale": plan.scale_name}
    if path.is_file():
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            before = None
        if not isinstance(before, dict):
            raise UsageError(f"{path}: is not a file of this benchmark: name another --work")
        if changed := sorted(key for key in given if given[key] != before.get(key)):
            raise UsageError(f"--work {plan.work}: its run has another --{changed[0]}: name another folder")
    elif plan.work.is_dir() and any(plan.work.iterdir()):
        raise UsageError(f"--work {plan.work}: holds something else: name a new or an empty folder")
    else:
        write_text(path, json.dumps(given, indent=1) + "\n")


def stages(plan: Plan) -> list[Stage]:
    """Return the stages in an order that respects what they need."""
    rates, scale = plan.scale.rates, plan.scale
    result = _data_stages(plan)
    datasets = tuple(stage.name for stage in result if stage.name != "evaluation data")
    recipes = Stage("recipes", lambda: write_recipes(plan), lambda: _recipes_done(plan), datasets, 5)
    untrained = Stage(UNTRAINED, lambda: export_untrained(plan), plan.exported(UNTRAINED, 1).is_file, ("recipes",), 3)
    base = _training(plan, PRETRAINED, 1, scale.pretraining_tokens / rates.pretraining_tokens_per_s, ("recipes",), True)
    result += [recipes, untrained, base]
    data = "evaluation data"
    has_glue = any((plan.inputs.data / "glue" / name).is_dir() for name in GLUE_FOLDERS)
    result += [_evaluation(plan, name, 1, (data,)) for name in plan.words]
    result += [_evaluation(plan, name, 1, (data, name)) for name in (UNTRAINED, PRETRAINED)]
    for seed in range(1, plan.seeds + 1):
        for name, system in plan.systems.items():
            needs = "recipes" if system.scratch else PRETRAINED
            training = _training(plan, name, seed, _seconds(plan, system), (needs,))
            result += [training, _evaluation(plan, name, seed, (data, training.name))]
            if (scale.glue is None or name in scale.glue) and has_glue:
                result.append(_evaluation(plan, name, seed, (data, training.name), "glue"))
    return result


def tokens_of(plan: Plan, name: str) -> int:
    """Return the tokens that the training of a system or of the base encoder reads."""
    if name == PRETRAINED:
        return plan.scale.pretraining_tokens
    return plan.scale.tokens + (plan.scale.pretraining_tokens if plan.systems[name].scratch else 0)


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
    words += ("--tasks", "glue" if tasks == "glue" else "sts,transfer,heldout", "--data", str(plan.work / "data"))
    words += ("--output", str(scores), "--protocol", "fast", "--cache", "none", "--quiet")
    words += ("--dtype", plan.scale.dtype) if tasks == "frozen" else ()
    seconds = rates.glue_s if tasks == "glue" else rates.words_s if name in plan.words else rates.evaluation_s
    title = f"{'GLUE' if tasks == 'glue' else 'scores'} of {name}, seed {seed}"
    return Stage(title, ("-m", "eval", *words), (scores / RESULTS).is_file, needs, seconds)


def link_data(plan: Plan) -> None:
    """Make the folder of evaluation sets: links to the user's, and to the documents, of which a part is held out."""
    folder, source = plan.work / "data", plan.inputs.data
    shutil.rmtree(folder, ignore_errors=True)
    downstream = find_downstream(source)
    for name in plan.scale.sets:
        _link(downstream / name, folder / "downstream" / name)
    for name in GLUE_FOLDERS:
        _link(source / "glue" / name, folder / "glue" / name)
    _link(plan.work / "shards" / "documents", folder / "heldout" / "documents")


def _link(source: Path, target: Path) -> None:
    if source.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source.resolve())


def recipe_file(plan: Plan, name: str) -> Path:
    return plan.work / "recipes" / f"{name}.yaml"


def _all_recipes(plan: Plan) -> dict[str, System]:
    return {PRETRAINED: pretraining(plan.scale), **plan.systems}


def _recipes_done(plan: Plan) -> bool:
    return all(recipe_file(plan, name).is_file() for name in _all_recipes(plan))


def write_recipes(plan: Plan) -> None:
    """Write the recipe of every system, with as many steps as its share of tokens takes.

    The trainer's own estimate of a step's tokens, from the shards' statistics, gives the number of steps. Patches of
    images and clips are not text: their rows are left out.
    """
    from clearspan.train.engine.ranks import name_accelerator

    name_accelerator()
    from clearspan.shards import Dataset
    from clearspan.train.build import build_learner
    from clearspan.train.config.recipe import load

    shards, base = plan.work / "shards", plan.model(PRETRAINED, 1)
    for name, system in _all_recipes(plan).items():
        path = recipe_file(plan, name)
        rate = plan.scale.pretraining_rate if name == PRETRAINED else plan.scale.rate
        options = recipe(system, plan.scale, shards, base, 1, rate)
        trial = {**options, "model": {"config": encoder(plan.scale), "pooling": "mean", **system.model}}
        with_one_step = path.with_suffix(".trial.yaml")
        write_text(with_one_step, yaml.safe_dump(trial, sort_keys=False))
        loaded = load(str(with_one_step), ["output=unused"])
        with_one_step.unlink()
        datasets = {key: Dataset(data.path) for key, data in loaded.data.items()}
        _, _, sizes = build_learner(loaded, datasets, 1, False)
        steps = max(2, round(tokens_of(plan, name) / sum(size.mean_tokens for size in sizes.values())))
        options["training"]["max_steps"] = steps
        options["training"]["save_steps"] = max(1, min(100, steps // 2))
        patches = sum(size.patches for size in sizes.values())
        head = f"# {system.title}. Patches of images and clips in a step, besides tokens: {patches}\n"
        write_text(path, head + yaml.safe_dump(options, sort_keys=False))


def patches_of_a_step(plan: Plan, name: str) -> int:
    """Return the rows of patches in a step of a system, which its recipe's first line states."""
    first = recipe_file(plan, name).read_text(encoding="utf-8").splitlines()[0]
    return int(first.rpartition(" ")[2])


def export_untrained(plan: Plan) -> None:
    """Export the encoder as it is before pretraining."""
    from clearspan.train.engine.ranks import name_accelerator

    name_accelerator()
    from clearspan.shards import Dataset
    from clearspan.train.build import build_encoder
    from clearspan.train.config.recipe import load, to_yaml
    from clearspan.train.export import save_model
    from clearspan.train.model.tokenizer import load_shards_tokenizer

    shutil.rmtree(plan.run(UNTRAINED, 1), ignore_errors=True)
    loaded = load(str(recipe_file(plan, PRETRAINED)), ["training.seed=1", f"output={plan.run(UNTRAINED, 1)}"])
    tokenizer = load_shards_tokenizer(Dataset(loaded.data["documents"].path).local_tokenizer())
    built = build_encoder(loaded, tokenizer)
    built.drop_mlm_head()
    save_model(built, tokenizer, plan.model(UNTRAINED, 1), to_yaml(loaded))


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
