"""Adapt a model to texts of your own, and measure whether that helped: `clearspan adapt`.

    texts ──> documents or pairs ──> DIR/texts ──> train ──> DIR/run ──> eval --tasks heldout ──> DIR/report.html
                                             better, worse or no difference ──> DIR/model, DIR/adapt.json

Where a text has a title, the two are a pair: training contrasts the pairs, and crops of the texts, and the verdict is
on finding the text of a held-out title. Without titles it trains on crops, and finds one crop of a held-out text by
another. Without --model it trains a static encoder from the texts alone, with `--model static:DIR` one that begins with
the vectors that the encoder in DIR gives to single tokens.

Each step is a command of this project, printed before it runs. A part of the texts is held out: one half of it picks
the checkpoint, with the model before training as the first candidate, and the verdict is reached on the other half.
DIR/model is the trained model if it is better, otherwise the given one. The same command continues where it stopped,
unless a text or the model has changed: DIR/adapt.json holds hashes of what the finished steps read.
"""

import argparse
import contextlib
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
from clearspan.train.adapt_recipe import EVALUATED, Choice, planned

PROG = "python -m train.adapt"
EXAMPLE = """examples:
  clearspan adapt --input articles.csv --output adapted
  clearspan adapt --input articles.csv --fields title,abstract --model all-MiniLM-L6-v2 --output adapted
  clearspan adapt --input texts.csv --text-field body --model static:all-MiniLM-L6-v2 --output adapted
  clearspan adapt --input 'corpus/*.jsonl' --model MODEL --output adapted training.epochs=3 model.train=last-2
"""
STATE = "adapt.json"
PASSED = ("input", "encoding", "holdout_fraction")
"""Options of `clearspan documents` and `clearspan pairs`."""
STATIC_FROM = "static:"
"""The start of a `--model` from which a static encoder is made."""
PIPELINES, TRAIN = ("clearspan.pipelines", "pipelines"), ("clearspan.train", "train")
DISTILL = ("clearspan.train.distill", "distill")
EVAL = ("clearspan.eval", "python -m clearspan.eval")
"""Modules of the steps, each with the start of its error lines."""
BEFORE, AFTER, BASELINES = "before", "after", ("tfidf", "bm25")
HYBRID = "hybrid"
"""The model after training, beside BM25."""
FIGURE = "mrr"
MIN_TOKENS = 16
VOCABULARY, DIMS = 8192, 1024
"""The sizes of a static encoder that is made here."""


class Step(NamedTuple):
    """A command of this project.

    Attributes:
        name: its key in `adapt.json`.
        about: what it does, for the line before it.
        prefix: the start of its error lines.
        datasets, models: the folders that it reads, and does not check itself.
    """

    name: str
    about: str
    module: str
    prefix: str
    words: tuple[str, ...]
    datasets: tuple[Path, ...] = ()
    models: tuple[Path, ...] = ()

    @property
    def checks_its_inputs(self) -> bool:
        """Return whether the finished command, run again, compares its inputs and does nothing else."""
        return not self.datasets

    def __str__(self) -> str:
        return shlex.join(["python", "-m", self.module, *self.words])


def parser(prog: str = PROG) -> terminal.Parser:
    root = terminal.Parser(prog=prog, description=__doc__, epilog=EXAMPLE)
    add = root.add_argument
    add("overrides", nargs="*", metavar="key=value", help="recipe keys to change, e.g. optimizer.learning_rate=2e-5")
    add("--input", nargs="+", action="extend", required=True, metavar="GLOB", help="csv, jsonl, txt, parquet, tars")
    both = "fields or columns of title and text (default: by usual names, e.g. title,text or question,answer)"
    add("--fields", metavar="A,B", help=both)
    add("--text-field", metavar="NAME", help="field or column of texts without titles (default: text, or the only one)")
    add("--text-per", choices=("file", "line"), default="file", help="the record of a plain text (default file)")
    add("--encoding", metavar="NAME", help="encoding of text files, e.g. cp1252 or shift_jis (default utf-8)")
    which = "folder of a sentence-transformers model, or static:DIR (default: a static encoder from the texts alone)"
    add("--model", metavar="DIR", help=which)
    add("--output", required=True, type=Path, metavar="DIR", help="new or empty folder, or that of a call to continue")
    add("--recipe", metavar="NAME-or-FILE", help="recipe with a dataset `text` (default: chosen by the texts)")
    add("--holdout-fraction", type=float, default=0.1, metavar="F", help="texts not trained on (default %(default)s)")
    add(
        "--min-tokens",
        type=int,
        metavar="N",
        help="drop texts without titles that are too short to crop (default 16)",
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
    from clearspan.train.api import load_recipe
    from clearspan.train.options import RecipeError

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the command that runs saves its work
    try:
        state = read_state(options)
        settle(options)
        check_titles(options)
        if options.recipe:
            keys = [*recipe_keys(options, options.output / "texts"), EVALUATED, *options.overrides]
            load_recipe(options.recipe, keys)
        if options.dry_run:
            lines = [f"{title(number, step, options)}\n$ {step}" for number, step in enumerate(steps(options), 1)]
            terminal.say("\n".join(lines))
            return 0
        with files.locked(options.output):
            for number, step in enumerate(steps(options), 1):
                run(number, step, state, options)
            finish(options, state)
    except (UsageError, RecipeError, CommandError) as error:
        print(f"adapt: {terminal.one_line(error)}", file=sys.stderr)
        return error.code if isinstance(error, CommandError) else 2
    except KeyboardInterrupt:
        print("adapt: stopped: run the same command again to continue", file=sys.stderr)
        return 130
    return 0


def read_state(options: argparse.Namespace) -> dict[str, Any]:
    """Return the content of `adapt.json`: the finished steps by name, each with the command and the hashes of what it
    read, and the verdict once there is one.

    Raises:
        UsageError: the model is no folder, or the output is in it or holds something else.
    """
    if (given := encoder_of(options)) is not None:
        if not given.is_dir():
            raise UsageError(f"--model {given}: no such folder; give that of a sentence-transformers model")
        if options.output.resolve().is_relative_to(given.resolve()):
            raise UsageError(f"--output {options.output}: is in --model, which is copied: name a folder outside of it")
    path = options.output / STATE
    if path.is_file():
        with contextlib.suppress(ValueError):
            state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            steps = state.get("steps") if isinstance(state, dict) else None
            if isinstance(steps, dict) and all(
                isinstance(done, dict) and {"command", "read"} <= done.keys() for done in steps.values()
            ):
                return state
        raise UsageError(f"{path}: is not a file of this command: name another --output")
    if options.output.exists() and (not options.output.is_dir() or any(options.output.iterdir())):
        raise UsageError(f"--output {options.output}: holds something else: name a new or an empty folder")
    return {"steps": {}}


def encoder_of(options: argparse.Namespace) -> Path | None:
    """Return the folder that `--model` names, None without it."""
    return None if options.model is None else Path(options.model.removeprefix(STATIC_FROM))


def starts(options: argparse.Namespace) -> bool:
    """Return whether a static encoder is made here, in DIR/start."""
    return options.model is None or options.model.startswith(STATIC_FROM)


def base_model(options: argparse.Namespace) -> Path:
    """Return the folder of the model that is trained."""
    given = encoder_of(options)
    return options.output / "start" if starts(options) or given is None else given


def settle(options: argparse.Namespace) -> None:
    """Replace `--fields` by the two names, those of the inputs if they are usual ones; None: texts without titles.

    Raises:
        UsageError: the names are not two, or other options say that there are no titles.
    """
    from clearspan.pipelines.fields import usual_fields

    apart = ["--text-field"] if options.text_field else []
    apart += ["--text-per line"] if options.text_per == "line" else []
    if options.fields and apart:
        raise UsageError(f"--fields and {apart[0]}: a text with a title, or texts alone: leave one of them out")
    options.recognized = not options.fields
    if options.model == STATIC_FROM:
        raise UsageError(f"--model {STATIC_FROM}: names no folder; give that of an encoder, {STATIC_FROM}DIR")
    if options.fields:
        options.fields = tuple(name.strip() for name in options.fields.split(","))
        if len(set(options.fields)) != 2 or not all(options.fields):
            raise UsageError("--fields must name two different fields, e.g. title,text")
        return
    options.fields = None if apart else usual_fields(options.input, options.encoding)


def check_titles(options: argparse.Namespace) -> None:
    """Raise UsageError for an option that has no effect on texts with titles."""
    if options.fields and options.min_tokens is not None:
        named = "found by their names: --text-field NAME takes the texts alone" if options.recognized else "as given"
        raise UsageError(f"--min-tokens has no effect on texts with titles ({named}): leave it out")


def steps(options: argparse.Namespace) -> Iterator[Step]:
    """Yield the commands in order; the training's depends on the dataset that earlier ones wrote."""
    folder, texts, given, base = options.output, options.output / "texts", encoder_of(options), base_model(options)
    tokenizer = given or folder / "tokenizer"
    line = {name: getattr(options, name) for name in PASSED}
    reading = {"text_field": options.text_field, "text_per": options.text_per}
    if given is None:
        reads = {"text_field": options.fields[1]} if options.fields else reading
        learned = {"input": options.input, "encoding": options.encoding, **reads, "size": VOCABULARY}
        about = f"a tokenizer of {VOCABULARY:,} tokens, from the texts"
        yield Step("tokenizer", about, *PIPELINES, ("vocabulary", *words({**learned, "output": tokenizer})))
    line |= {"tokenizer": tokenizer, "output": texts, "dedup": True}
    if options.fields:
        named = f"pairs of {' and '.join(options.fields)}"
        named += " (found by their names; --text-field NAME takes texts without titles)" if options.recognized else ""
        command = ("pairs", *words({**line, "fields": ",".join(options.fields)}))
    else:
        named = (
            "texts"
            if options.text_field or options.text_per == "line"
            else "texts (no columns of title and text found)"
        )
        least = MIN_TOKENS if options.min_tokens is None else options.min_tokens
        command = ("documents", *words({**line, **reading, "min_tokens": least}))
    yield Step("texts", f"{named} to tokens, {options.holdout_fraction:.0%} held out", *PIPELINES, command)
    datasets = (texts, texts / "validation")
    if starts(options):
        source = {"tokenizer": tokenizer} if given is None else {"model": given}
        command = tuple(words({**source, "shards": texts, "dims": DIMS, "output": base}))
        about = f"a static encoder of {DIMS:,} dimensions, {'random' if given is None else f'from {given}'}"
        yield Step("start", about, *DISTILL, command, datasets, () if given is None else (given,))
    unknown = Choice("RECIPE", ("KEYS",), "RECIPE and KEYS depend on the lengths and the number of the texts")
    keys, choice = recipe_keys(options, texts), unknown
    if (texts / "manifest.json").is_file() and base.is_dir():
        titled = options.fields is not None
        choice = planned(texts, base, keys, options.overrides, titled, starts(options), options.recipe)
    keys += [*choice.changes, *options.overrides]
    command = (*words({"recipe": choice.recipe, "resume": True}), *keys)
    trained = folder / "run" / "model"
    yield Step("train", choice.reason, *TRAIN, command, datasets, (base,))
    models = {BEFORE: base, AFTER: trained, HYBRID: f"hybrid:{trained}", **{name: name for name in BASELINES}}
    scored = {"tasks": "heldout", "data": texts, "model": list(models.values()), "name": list(models)}
    about = f"{', '.join(models)} on the half of the held-out texts that picked no checkpoint"
    yield Step("eval", about, *EVAL, tuple(words({**scored, "output": folder})), datasets, (base, trained))


def recipe_keys(options: argparse.Namespace, texts: Path) -> list[str]:
    """Return the keys that any recipe needs here, as key=value."""
    paths = {"data.text.path": texts, "data.text.validation": texts / "validation", "model.path": base_model(options)}
    keys = {**paths, "output": options.output / "run", "training.eval_data": "heldout"}
    return [f"{key}={value}" for key, value in keys.items()]


def title(number: int, step: Step, options: argparse.Namespace) -> str:
    """Return the line before a step's command."""
    return f"{number}/{3 + starts(options) + (options.model is None)} {step.name}: {step.about}"


def run(number: int, step: Step, state: dict[str, Any], options: argparse.Namespace) -> None:
    """Run a command unless an earlier call has finished it; add it to `adapt.json` when it has finished. One that
    checks its inputs itself runs in any case.

    Raises:
        UsageError: the earlier call's command was another one or read other data, or the command refused an option.
        CommandError: the command failed.
    """
    from clearspan.common.encoder.fingerprint import model_sha256
    from clearspan.train.run_folder import dataset_sha256

    done = state["steps"].get(step.name)
    if done and done["command"] != str(step):
        raise UsageError(
            f"--output {options.output}: its step {step.name} is that of another command; name another folder: "
            f"{done['command']}"
        )
    if gone := [path for path in step.models if not path.is_dir()]:
        raise UsageError(f"--output {options.output}: {gone[0]} is gone: put it back, or name another folder")
    read = {str(path): dataset_sha256(path) for path in step.datasets}
    read |= {str(path): model_sha256(path) for path in step.models}
    if done and (changed := [path for path in read if done["read"].get(path) != read[path]]):
        raise UsageError(
            f"--output {options.output}: {changed[0]} is no longer what its step {step.name} read: put it back, or "
            "name another folder"
        )
    comment = "  # finished: compares its inputs" if step.checks_its_inputs else "  # finished"
    terminal.notice(f"{title(number, step, options)}\n$ {step}{comment if done else ''}")
    if not done or step.checks_its_inputs:
        if not done:
            save(options.output, state)
        run_module(step.module, step.words, step.prefix, options.quiet or bool(done))
        if not done:
            state["steps"][step.name] = {"command": str(step), "read": read}
            save(options.output, state)


def save(folder: Path, state: Mapping[str, Any]) -> None:
    files.write_text(folder / STATE, json.dumps(state, indent=2) + "\n")


def verdict(low: float, high: float) -> str:
    """Return what the 95 % interval of the difference after - before says; one that is undefined says nothing."""
    return "better" if low > 0 else "worse" if high < 0 else "no difference"


def finish(options: argparse.Namespace, state: dict[str, Any]) -> None:
    """Compare the two models, copy the better one to DIR/model, and print and save the verdict."""
    from clearspan.common.encoder.fingerprint import model_sha256
    from clearspan.eval import saved
    from clearspan.eval.compare import compare_folders

    folder: Path = options.output
    base, named = base_model(options), (BEFORE, AFTER, HYBRID, *BASELINES)
    row, *passages = (row for row in compare_folders(folder / BEFORE, folder / AFTER).rows if row.metric == FIGURE)
    scores = {name: saved.read(folder / name).scores[row.task][FIGURE] for name in named}
    word = verdict(row.low, row.high)
    better = folder / "run" / "model" if word == "better" else base
    if not (folder / "model").exists():
        files.remove_temporaries(folder)
        copy = folder / files.temporary_name("model")
        shutil.copytree(better, copy)
        copy.rename(folder / "model")
    elif model_sha256(folder / "model") != model_sha256(better):
        raise UsageError(f"{folder / 'model'}: is no longer a copy of {better}: delete it to copy it again")
    figures = {"difference": row.difference, "low": row.low, "high": row.high, "mrr": scores, "model": str(better)}
    save(folder, {**state, "verdict": word, **figures})
    each = ", ".join(f"{name} {score:.2f}" for name, score in scores.items())
    interval = f"{row.difference:+.2f} [{row.low:+.2f}, {row.high:+.2f}] (95 % interval)"
    terminal.say(f"{word}: MRR {'of held-out titles' if options.fields else 'on held-out texts'} {interval}; {each}")
    for other in passages:
        interval = f"{other.difference:+.2f} [{other.low:+.2f}, {other.high:+.2f}]"
        terminal.say(f"crops of the held-out texts: {verdict(other.low, other.high)}, MRR {interval}")
    origin = "the trained model" if word == "better" else f"{base}, unchanged"
    terminal.say(f"{folder / 'model'} is {origin}; report: {folder / 'report.html'}")


if __name__ == "__main__":
    raise SystemExit(main())
