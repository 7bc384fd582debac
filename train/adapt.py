"""Adapt a model to texts of your own, and measure whether that helped: `clearspan adapt`.

    texts ──> pipelines documents ──> DIR/texts ──> train ──> DIR/run ──> eval --tasks heldout ──> DIR/report.html
                                             better, worse or no difference ──> DIR/model, DIR/adapt.json

Each step is a command of this project, printed before it runs. A part of the texts is held out: one half of it picks
the checkpoint, with the model before training as the first candidate, and the verdict is reached on the other half.
DIR/model is the trained model if it is better, otherwise the given one. The same command continues where it stopped.
"""

import argparse
import contextlib
import itertools
import json
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from clearspan.common import files, terminal
from clearspan.common.commands import CommandError, UsageError, run_module, words

PROG = "python -m train.adapt"
EXAMPLE = """examples:
  clearspan adapt --input texts.csv --text-field body --model all-MiniLM-L6-v2 --output adapted
  clearspan adapt --input 'corpus/*.jsonl' --model MODEL --output adapted training.epochs=3 model.train=last-2
"""
STATE = "adapt.json"
PASSED = ("input", "text_field", "text_per", "encoding", "min_tokens", "holdout_fraction")
"""Options of `clearspan documents`."""
BEFORE, AFTER, BASELINES = "before", "after", ("tfidf", "bm25")
FIGURE = "mrr"
SHORT, LONG = 32, 1024
"""Median numbers of tokens below which texts are single sentences, and from which they are long documents."""
FEW_TEXTS = 10_000
"""Below this number of texts, training reads them three times."""
NUM_EVALUATIONS = 8
STATIC = ("model.config=null", "optimizer.learning_rate=0.01")
"""Keys of the recipe `static` for a table that is trained already: it keeps its own, and moves a tenth as fast."""
SENTENCES = ("model.pooling=''",)
"""The model's own pooling, not that of BERT in SimCSE."""
LONG_TEXTS = ("data.text.short_documents=shrink",)


class Step(NamedTuple):
    """A command of this project: its key in `adapt.json`, its module, the start of its error lines, and its words."""

    name: str
    module: str
    prefix: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return shlex.join(["python", "-m", self.module, *self.words])


class Choice(NamedTuple):
    """A recipe, the keys to change in it, and the reason in words."""

    recipe: str
    changes: tuple[str, ...]
    reason: str


def parser(prog: str = PROG) -> terminal.Parser:
    root = terminal.Parser(prog=prog, description=__doc__, epilog=EXAMPLE)
    add = root.add_argument
    add("overrides", nargs="*", metavar="key=value", help="recipe keys to change, e.g. optimizer.learning_rate=2e-5")
    add("--input", nargs="+", action="extend", required=True, metavar="GLOB", help="csv, jsonl, txt, parquet, tars")
    add("--text-field", metavar="NAME", help="JSON field or table column (default: text, or a table's only text)")
    add("--text-per", choices=("file", "line"), default="file", help="the record of a plain text (default file)")
    add("--encoding", metavar="NAME", help="encoding of text files, e.g. cp1252 or shift_jis (default utf-8)")
    add("--model", required=True, type=Path, metavar="DIR", help="local folder of a sentence-transformers model")
    add("--output", required=True, type=Path, metavar="DIR", help="new or empty folder, or that of a call to continue")
    add("--recipe", metavar="NAME-or-FILE", help="recipe with a dataset `text` (default: chosen by the texts' lengths)")
    add("--holdout-fraction", type=float, default=0.1, metavar="F", help="texts not trained on (default %(default)s)")
    add(
        "--min-tokens",
        type=int,
        default=16,
        metavar="N",
        help="drop texts too short to crop (default %(default)s)",
    )
    add("--dry-run", action="store_true", help="print the commands; run none")
    add("--quiet", action="store_true", help="print only the commands and the verdict")
    add("--version", action="version", version=terminal.version())
    return root


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    options = parser(prog).parse_intermixed_args(argv)
    return terminal.run("adapt", lambda: work(options), (ValueError, OSError))


def work(options: argparse.Namespace) -> int:
    """Run the steps; return the exit code: that of a command that failed, 2 for bad usage, 130 if interrupted."""
    from clearspan.train.options import RecipeError

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the command that runs saves its work
    try:
        state = read_state(options)
        if options.dry_run:
            terminal.say("\n".join(f"$ {step}" for step in steps(options)))
            return 0
        with files.locked(options.output):
            for step in steps(options):
                run(step, state, options)
            finish(options, state)
    except (UsageError, RecipeError, CommandError) as error:
        print(f"adapt: {terminal.one_line(error)}", file=sys.stderr)
        return error.code if isinstance(error, CommandError) else 2
    except KeyboardInterrupt:
        print("adapt: stopped: run the same command again to continue", file=sys.stderr)
        return 130
    return 0


def read_state(options: argparse.Namespace) -> dict[str, Any]:
    """Return the content of `adapt.json`: the commands that have finished, by step, and the verdict if there is one.

    Raises:
        UsageError: the model is no folder, or the output is in it or holds something else.
    """
    if not options.model.is_dir():
        raise UsageError(f"--model {options.model}: no such folder; give that of a sentence-transformers model")
    if options.output.resolve().is_relative_to(options.model.resolve()):
        raise UsageError(f"--output {options.output}: is in --model, which is copied: name a folder outside of it")
    path = options.output / STATE
    if path.is_file():
        with contextlib.suppress(ValueError):
            state = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(state, dict) and isinstance(state.get("steps"), dict):
                return state
        raise UsageError(f"{path}: is not a file of this command: name another --output")
    if options.output.exists() and (not options.output.is_dir() or any(options.output.iterdir())):
        raise UsageError(f"--output {options.output}: holds something else: name a new or an empty folder")
    return {"steps": {}}


def steps(options: argparse.Namespace) -> Iterator[Step]:
    """Yield the commands in order, and print why this recipe; those after the first depend on the dataset it wrote."""
    folder, texts = options.output, options.output / "texts"
    line = {**{name: getattr(options, name) for name in PASSED}, "tokenizer": options.model, "output": texts}
    yield Step("texts", "clearspan.pipelines", "pipelines", ("documents", *words({**line, "dedup": True})))
    unknown = Choice("RECIPE", ("KEYS",), "RECIPE and KEYS depend on the lengths and the number of the texts")
    choice = planned(options, texts) if (texts / "manifest.json").is_file() else unknown
    terminal.notice(choice.reason)
    keys = [*recipe_keys(options, texts), *choice.changes, *options.overrides]
    yield Step("train", "clearspan.train", "train", (*words({"recipe": choice.recipe, "resume": True}), *keys))
    models = {BEFORE: options.model, AFTER: folder / "run" / "model", **{name: name for name in BASELINES}}
    scored = {"tasks": "heldout", "data": texts, "model": list(models.values()), "name": list(models)}
    yield Step("eval", "clearspan.eval", "python -m clearspan.eval", tuple(words({**scored, "output": folder})))


def recipe_keys(options: argparse.Namespace, texts: Path) -> list[str]:
    """Return the keys that any recipe needs here, as key=value."""
    paths = {"data.text.path": texts, "data.text.validation": texts / "validation", "model.path": options.model}
    keys = {**paths, "output": options.output / "run", "training.eval_data": "heldout"}
    return [f"{key}={value}" for key, value in keys.items()]


def planned(options: argparse.Namespace, texts: Path) -> Choice:
    """Return the recipe for a dataset, with some evaluations during training.

    Raises:
        DataError: too few texts are held out.
        RecipeError: there is no such recipe, or a key or value cannot work.
    """
    from clearspan.common.model_folder import read_modules
    from clearspan.eval.data.heldout import read_dataset
    from clearspan.shards.manifest import Manifest
    from clearspan.train.api import load_recipe

    for picking in (True, False):
        read_dataset(texts / "validation", picking=picking)
    manifest = Manifest.load(str(texts))
    is_static = any(module.kind == "StaticEmbedding" for module in read_modules(options.model))
    num_texts = manifest.totals["examples"]
    choice = choose(num_texts, median(manifest.lengths["tokens"]), is_static, options.recipe)
    # How often to evaluate follows from the number of steps, which the recipe says.
    keys = [*recipe_keys(options, texts), "training.eval_steps=1", *choice.changes, *options.overrides]
    recipe = load_recipe(choice.recipe, keys)
    num_steps = recipe.training.max_steps or recipe.training.epochs * num_texts / recipe.data["text"].batch_size
    evaluations = f"training.eval_steps={max(1, int(num_steps / NUM_EVALUATIONS))}"
    return Choice(choice.recipe, (*choice.changes, evaluations), choice.reason)


def choose(num_texts: int, median_tokens: int, is_static: bool, recipe: str | None = None) -> Choice:
    """Return the recipe for texts of which half have at least `median_tokens` tokens."""
    lengths = f"{num_texts:,} texts, half of them of at least {median_tokens:,} tokens"
    if median_tokens < SHORT:
        lengths += "; held-out crops of single sentences judge little: score labeled pairs too (docs/adapt.md)"
    epochs = ("training.epochs=3",) if num_texts < FEW_TEXTS else ()
    if recipe:
        return Choice(recipe, (), f"recipe {recipe}, as given: {lengths}")
    if is_static:
        return Choice("static", STATIC, f"recipe static, since the model is static token vectors: {lengths}")
    if median_tokens >= LONG:
        return Choice("contrastive-only", LONG_TEXTS, f"recipe contrastive-only, DeCLUTR's spans: {lengths}")
    if median_tokens < SHORT:
        return Choice("simcse-unsup-bert-base", SENTENCES, f"recipe simcse-unsup-bert-base, two dropouts: {lengths}")
    return Choice("crops", epochs, f"recipe crops, two neighboring crops of each text: {lengths}")


def median(histogram: Mapping[str, int]) -> int:
    """Return the lower edge of the bin that holds the median of a histogram of lengths, shortest first."""
    edges, counts = map(int, histogram), itertools.accumulate(histogram.values())
    return next(edge for edge, count in zip(edges, counts, strict=True) if 2 * count >= sum(histogram.values()))


def run(step: Step, state: dict[str, Any], options: argparse.Namespace) -> None:
    """Run a command unless an earlier call has finished it; add it to `adapt.json` when it has finished.

    Raises:
        UsageError: the earlier call's command was another one, or the command refused an option.
        CommandError: the command failed.
    """
    done = state["steps"].get(step.name)
    if done not in (None, str(step)):
        raise UsageError(
            f"--output {options.output}: its step {step.name} is that of another command; name another folder: {done}"
        )
    terminal.notice(f"$ {step}{'  # finished' if done else ''}")
    if not done:
        save(options.output, state)
        run_module(step.module, step.words, step.prefix, options.quiet)
        state["steps"][step.name] = str(step)
        save(options.output, state)


def save(folder: Path, state: Mapping[str, Any]) -> None:
    files.write_text(folder / STATE, json.dumps(state, indent=2) + "\n")


def verdict(low: float, high: float) -> str:
    """Return what the 95 % interval of the difference after - before says; one that is undefined says nothing."""
    return "better" if low > 0 else "worse" if high < 0 else "no difference"


def finish(options: argparse.Namespace, state: dict[str, Any]) -> None:
    """Compare the two models, copy the better one to DIR/model, and print and save the verdict."""
    from clearspan.eval import saved
    from clearspan.eval.compare import compare_folders

    folder: Path = options.output
    row = next(row for row in compare_folders(folder / BEFORE, folder / AFTER).rows if row.metric == FIGURE)
    scores = {name: saved.read(folder / name).scores[row.task][FIGURE] for name in (BEFORE, AFTER, *BASELINES)}
    word = verdict(row.low, row.high)
    better = folder / "run" / "model" if word == "better" else options.model
    if not (folder / "model").exists():
        files.remove_temporaries(folder)
        copy = folder / files.temporary_name("model")
        shutil.copytree(better, copy)
        copy.rename(folder / "model")
    figures = {"difference": row.difference, "low": row.low, "high": row.high, "mrr": scores, "model": str(better)}
    save(folder, {**state, "verdict": word, **figures})
    each = ", ".join(f"{name} {score:.2f}" for name, score in scores.items())
    interval = f"{row.difference:+.2f} [{row.low:+.2f}, {row.high:+.2f}] (95 % interval)"
    terminal.say(f"{word}: MRR on held-out texts {interval}; {each}")
    origin = "the trained model" if word == "better" else f"{options.model}, unchanged"
    terminal.say(f"{folder / 'model'} is {origin}; report: {folder / 'report.html'}")


if __name__ == "__main__":
    raise SystemExit(main())
