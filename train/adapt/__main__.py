"""Adapt a model to texts of your own, and measure whether that helped: `clearspan adapt`.

    texts ──> documents or pairs ──> DIR/texts ──> train ──> DIR/run ──> eval --tasks heldout ──> DIR/report.html
                                             better, worse or no difference ──> DIR/model, DIR/adapt.json

Where a text has a title, the two are a pair: training contrasts the pairs, and crops of the texts, and the verdict is
on finding the text of a held-out title. Without titles it trains on crops, and finds one crop of a held-out text by
another. Without --model it trains a static encoder from the texts alone, with `--model static:DIR` one that begins with
the vectors that the encoder in DIR gives to single tokens.

A model that has prompts, such as E5, gets its own in every step: that of queries before a title, that of documents
before a text. Crops of texts, and static encoders, have none.

Each step is a command of this project, printed before it runs. A part of the texts is held out: one half of it picks
the checkpoint, with the model before training as the first candidate, and the verdict is reached on the other half.
DIR/model is the trained model if it is better, otherwise the given one. The same command continues where it stopped,
unless a text or the model has changed: DIR/adapt.json holds the finished commands and a hash of the model. What a
finished command left is checked before it is used again, and made again if it is damaged or gone.
"""

import functools
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from annotated_types import Ge, Gt, Lt

from clearspan.common import files, terminal
from clearspan.common.commands import CommandError, Option, UsageError, run_module, words
from clearspan.common.encoder.prompts import DOCUMENT, NONE, QUERY, Prompts, Sides, check_two, shown
from clearspan.common.model_forms import STATIC, misnamed
from clearspan.common.options import Flag, Options
from clearspan.common.options import run as run_command
from clearspan.common.sealed import seal, unseal
from clearspan.common.sealed_folder import DamageError, set_aside
from clearspan.train.adapt.recipe import EVALUATED, Choice, planned

if TYPE_CHECKING:
    from clearspan.train.adapt.fields import Titles

PROG = "python -m train.adapt"
EXAMPLE = """examples:
  clearspan adapt --input articles.csv --output adapted
  clearspan adapt --input articles.csv --fields title,abstract --model all-MiniLM-L6-v2 --output adapted
  clearspan adapt --input texts.csv --text-field body --model static:all-MiniLM-L6-v2 --output adapted
  clearspan adapt --input 'corpus/*.jsonl' --model MODEL --output adapted training.epochs=3 model.train=last-2
"""
STATE = "adapt.json"
PIPELINES, TRAIN = ("clearspan.pipelines", "pipelines"), ("clearspan.train", "train")
DISTILL = ("clearspan.train.distill", "distill")
EVAL = ("clearspan.eval", "python -m clearspan.eval")
"""Modules of the steps, each with the start of its error lines."""
BEFORE, AFTER, BASELINES = "before", "after", ("tfidf", "bm25")
HYBRID = "hybrid"
"""The model after training, beside BM25."""
SCORED = (BEFORE, AFTER, HYBRID, *BASELINES)
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
    """

    name: str
    about: str
    module: str
    prefix: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return shlex.join(["python", "-m", self.module, *self.words])


BOTH = "fields or columns of title and text (default: by usual names, e.g. title,text or question,answer)"
WHICH = "folder of a sentence-transformers model, or static:DIR (default: a static encoder from the texts alone)"
ENCODING = "encoding of text files, e.g. cp1252, or auto: that of each (default utf-8)"
PROMPTS = "the model's prompt before titles and texts, or TITLES,TEXTS, by name, or none (default: its own for each)"


@dataclass(frozen=True, kw_only=True)
class Adapt(Options):
    """The command `adapt`."""

    overrides: Annotated[
        tuple[str, ...], Flag("recipe keys to change, e.g. optimizer.learning_rate=2e-5", "key=value", positional=True)
    ] = ()
    inputs: Annotated[tuple[str, ...], Flag("csv, jsonl, txt, parquet, tars", "GLOB", name="--input", many=True)]
    output: Annotated[Path, Flag("new or empty folder, or that of a call to continue", "DIR", output=True)]
    fields: Annotated[tuple[str, ...], Flag(BOTH, "A,B", commas=True)] = ()
    text_field: Annotated[str | None, Flag("field or column of texts without titles (default: text)", "NAME")] = None
    text_per: Annotated[Literal["file", "line"], Flag("the record of a plain text")] = "file"
    encoding: Annotated[str | None, Flag(ENCODING, "NAME")] = None
    model: Annotated[str | None, Flag(WHICH, "DIR")] = None
    prompt_name: Annotated[tuple[str, ...], Flag(PROMPTS, "NAME", commas=True)] = ()
    recipe: Annotated[str | None, Flag("with a dataset `text` (default: by the texts)", "NAME-or-FILE")] = None
    holdout_fraction: Annotated[float, Flag("texts not trained on", "F"), Gt(0), Lt(1)] = 0.1
    min_tokens: Annotated[int | None, Flag("drop shorter texts without titles (default 16)", "N"), Ge(1)] = None
    dry_run: Annotated[bool, Flag("print the commands; run none")] = False
    quiet: Annotated[bool, Flag("print only the commands and the verdict")] = False

    def check(self) -> None:
        """Raise UsageError for options that do not fit together, with each other or with the texts."""
        if self.fields and self.alone:
            raise UsageError(f"--fields and {self.alone}: a text with a title, or texts alone: leave one of them out")
        if self.fields and len(self.fields) != 2:
            raise UsageError("--fields must name two different fields, e.g. title,text")
        if self.titles and self.min_tokens is not None:
            named = "as given" if self.fields else "found by their names: --text-field NAME takes the texts alone"
            raise UsageError(f"--min-tokens has no effect on texts with titles ({named}): leave it out")
        try:
            check_two(self.prompt_name)
            self.known_prompts.sides(self.prompt_name)
        except ValueError as error:
            raise UsageError(str(error)) from None
        if self.prompt_name and (self.starts or not self.titles):
            without = "a static encoder has" if self.starts else "crops of texts without titles have"
            raise UsageError(f"--prompt-name has no effect, since {without} no prompts: leave it out")

    @functools.cached_property
    def known_prompts(self) -> Prompts:
        """The prompts of the model that --model names."""
        return Prompts() if self.encoder is None else Prompts.read(self.encoder)

    @property
    def prompts(self) -> Sides:
        """The prompts that training puts before titles and texts."""
        return Sides() if self.starts or not self.titles else self.known_prompts.sides(self.prompt_name)

    @property
    def alone(self) -> str:
        """The option by which the texts have no titles; "": none."""
        return "--text-field" if self.text_field else "--text-per line" if self.text_per == "line" else ""

    @functools.cached_property
    def found(self) -> "Titles":
        """The titles that the inputs have under usual names; none if an option names the fields.

        Raises:
            UsageError: some of the inputs have titles, and others have not.
        """
        from clearspan.train.adapt.fields import Titles, find_titles

        return Titles(None) if self.fields or self.alone else find_titles(self.inputs, self.encoding)

    @property
    def titles(self) -> tuple[str, ...] | None:
        """The names of title and text: the given ones, or those of the inputs if they are usual; None: texts alone."""
        return self.fields or self.found.names

    @property
    def encoder(self) -> Path | None:
        """The folder that `--model` names, None without it."""
        return None if self.model is None else Path(self.model.removeprefix(STATIC))

    @property
    def starts(self) -> bool:
        """Whether a static encoder is made here, in DIR/start."""
        return self.model is None or self.model.startswith(STATIC)

    @property
    def base(self) -> Path:
        """The folder of the model that is trained."""
        return self.output / "start" if self.starts or self.encoder is None else self.encoder


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    frame = {"name": "adapt", "description": __doc__, "epilog": EXAMPLE}
    return run_command(Adapt, work, argv, prog, (ValueError, OSError), **frame)


def work(options: Adapt) -> int:
    """Run the steps; return the exit code: that of a command that failed, 2 for bad usage, 130 if interrupted."""
    from clearspan.train.api import load_recipe

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the command that runs saves its work
    try:
        state = read_state(options)
        options.check()
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
    except CommandError as error:
        print(f"adapt: {terminal.one_line(error)}", file=sys.stderr)
        return error.code
    return 0


def read_state(options: Adapt) -> dict[str, Any]:
    """Return the content of `adapt.json`: the commands of the finished steps by name, the hash of the given model, and
    the verdict once there is one.

    Raises:
        UsageError: the model is no folder, or is another one than that of the finished steps, or the output is in it or
            holds something else.
    """
    from clearspan.common.encoder.fingerprint import model_sha256

    given, path = options.encoder, options.output / STATE
    if options.model is not None and (problem := misnamed(options.model, STATIC)):
        raise UsageError(f"--model {options.model!r}: {problem}")
    if given is not None and not given.is_dir():
        raise UsageError(f"--model {given}: no such folder; give that of a sentence-transformers model")
    if given is not None and options.output.resolve().is_relative_to(given.resolve()):
        raise UsageError(f"--output {options.output}: is in --model, which is copied: name a folder outside of it")
    state: dict[str, Any] = {"steps": {}, "given": given and model_sha256(given)}
    if not path.is_file():
        if options.output.exists() and (not options.output.is_dir() or any(options.output.iterdir())):
            raise UsageError(f"--output {options.output}: holds something else: name a new or an empty folder")
        return state
    try:
        saved = unseal(path.read_bytes(), optional=True)
        same, state = saved["given"] == state["given"], {**saved, "steps": dict(saved["steps"])}
    except (ValueError, KeyError, TypeError) as error:
        reason = f"lacks {error}" if isinstance(error, KeyError) else error
        raise UsageError(f"{path}: is not a file of this command ({reason}): name another --output") from None
    if not same:
        raise UsageError(f"--model {given}: is not, or no longer, the model of {path}: name another --output")
    return state


def steps(options: Adapt) -> Iterator[Step]:
    """Yield the commands in order; the training's depends on the dataset that earlier ones wrote."""
    folder, texts, given, base = options.output, options.output / "texts", options.encoder, options.base
    tokenizer = given or folder / "tokenizer"
    line: dict[str, Option] = {"input": options.inputs, "encoding": options.encoding}
    reading: dict[str, Option] = {"text_field": options.text_field, "text_per": options.text_per}
    if given is None:
        reads: dict[str, Option] = {"text_field": options.titles[1]} if options.titles else reading
        command = ("vocabulary", *words({**line, **reads, "size": VOCABULARY, "output": tokenizer}))
        yield Step("tokenizer", f"a tokenizer of {VOCABULARY:,} tokens, from the texts", *PIPELINES, command)
    line |= {"holdout_fraction": options.holdout_fraction, "tokenizer": tokenizer, "output": texts, "dedup": True}
    if options.titles:
        named = f"pairs of {' and '.join(options.titles)}"
        if not options.fields:
            where = ", ".join(filter(None, ["found by their names", options.found.note]))
            named += f" ({where}; --text-field NAME takes texts without titles)"
        chosen = ",".join(options.prompt_name) or None
        if options.starts and any(options.known_prompts.texts.values()):
            chosen = NONE
        command = ("pairs", *words({**line, "fields": ",".join(options.titles), "prompt_name": chosen}))
    else:
        named = "texts" if options.alone else "texts (no columns of title and text found)"
        least = MIN_TOKENS if options.min_tokens is None else options.min_tokens
        command = ("documents", *words({**line, **reading, "min_tokens": least}))
    about = f"{named} to tokens, {options.holdout_fraction:.0%} held out"
    if any(options.known_prompts.texts.values()):
        about += f"; {prompts_in_words(options)}"
    yield Step("texts", about, *PIPELINES, command)
    if options.starts:
        source = {"tokenizer": tokenizer} if given is None else {"model": given}
        command = tuple(words({**source, "shards": texts, "dims": DIMS, "output": base}))
        about = f"a static encoder of {DIMS:,} dimensions, {'random' if given is None else f'from {given}'}"
        yield Step("start", about, *DISTILL, command)
    unknown = Choice("RECIPE", ("KEYS",), "RECIPE and KEYS depend on the lengths and the number of the texts")
    keys, choice = recipe_keys(options, texts), unknown
    if (texts / "manifest.json").is_file() and base.is_dir():
        titled = options.titles is not None
        choice = planned(texts, base, keys, options.overrides, titled, options.starts, options.recipe)
    keys += [*choice.changes, *options.overrides]
    command = (*words({"recipe": choice.recipe, "resume": True}), *keys)
    trained = folder / "run" / "model"
    yield Step("train", choice.reason, *TRAIN, command)
    of_run = {BEFORE: str(base), AFTER: str(trained), HYBRID: f"hybrid:{trained}"}
    models = of_run | {name: name for name in BASELINES}
    scored: dict[str, Option] = {"tasks": "heldout", "data": texts, "model": [*models.values()], "name": [*models]}
    scored["prompt_name"] = ",".join(options.prompt_name) or None
    about = f"{', '.join(models)} on the half of the held-out texts that picked no checkpoint"
    yield Step("eval", about, *EVAL, tuple(words({**scored, "output": folder})))


def prompts_in_words(options: Adapt) -> str:
    """Return what training puts before titles and texts, of a model that has prompts."""
    prompts = options.prompts
    if options.starts:
        return "no prompts, since a static encoder has none"
    if not options.titles:
        return "no prompts, since crops have none: the trained model is used without"
    line = f"{shown(prompts.query)} before titles, {shown(prompts.document)} before texts"
    unused = "" if options.prompt_name else options.known_prompts.unused(QUERY, DOCUMENT)
    return f"{line} ({unused})" if unused else line


def recipe_keys(options: Adapt, texts: Path) -> list[str]:
    """Return the keys that any recipe needs here, as key=value."""
    paths = {"data.text.path": texts, "data.text.validation": texts / "validation", "model.path": options.base}
    keys = {**paths, "output": options.output / "run", "training.eval_data": "heldout"}
    return [f"{key}={value}" for key, value in keys.items()]


def title(number: int, step: Step, options: Adapt) -> str:
    """Return the line before a step's command."""
    return f"{number}/{3 + options.starts + (options.model is None)} {step.name}: {step.about}"


def run(number: int, step: Step, state: dict[str, Any], options: Adapt) -> None:
    """Run a command unless an earlier call has finished it, and what it left is whole; add it to `adapt.json` when it
    has finished. The pipelines run in any case: they compare their inputs and outputs with those of the earlier call.

    Raises:
        UsageError: the earlier call's command was another one, or the command refused an option.
        CommandError: the command failed.
    """
    done, compares = state["steps"].get(step.name), step.module == PIPELINES[0]
    if done not in (None, str(step)):
        raise UsageError(
            f"--output {options.output}: its step {step.name} is that of another command; name another folder: {done}"
        )
    if done and (problem := damage(step, options)):
        terminal.notice(f"{problem}: step {step.name} is run again")
        done = None
    comment = f"  # finished{': compares its inputs' * compares}" if done else ""
    terminal.notice(f"{title(number, step, options)}\n$ {step}{comment}")
    if not done:
        save(options.output, state)
    if not done or compares:
        run_module(step.module, step.words, step.prefix, options.quiet or bool(done))
        state["steps"][step.name] = str(step)
        save(options.output, state)


def save(folder: Path, state: Mapping[str, Any]) -> None:
    files.write_bytes(folder / STATE, seal(state, indent=2))


def damage(step: Step, options: Adapt) -> str:
    """Return what is wrong with the files that a finished command left, "" if they are whole or the command checks them
    itself. A damaged folder that the command would not replace is moved out of the way.
    """
    from clearspan.eval import results
    from clearspan.eval.files import DataError
    from clearspan.train.run_folder import check_model

    folder: Path = options.output
    try:
        if step.name == "start":
            check_model(options.base)
        elif step.name == "train":
            check_model(folder / "run" / "model")
        elif step.name == "eval":
            for name in SCORED:
                results.check(folder / name)
    except (DamageError, DataError) as error:
        mine = {"start": [options.base], "eval": [folder / name for name in SCORED]}.get(step.name, [])
        moved = [set_aside(path) for path in mine if path.exists()]
        return f"{error}{f' (moved to {moved[0]})' if len(moved) == 1 else ''}"
    return ""


def deliver(model: Path, folder: Path) -> None:
    """Copy a model folder to another one, unless the copy is there already; move a copy that differs out of the way."""
    from clearspan.common.encoder.fingerprint import model_files
    from clearspan.common.model_folder import EncoderError

    if folder.exists():
        try:
            is_whole = model_files(folder) == model_files(model)
        except (EncoderError, OSError):
            is_whole = False
        if is_whole:
            return
        problem = f"{folder}: differs from {model}, of which it was a copy"
        terminal.notice(f"{problem}: moved to {set_aside(folder)}, and copied again")
    files.remove_temporaries(folder.parent)
    copy = folder.with_name(files.temporary_name(folder.name))
    shutil.copytree(model, copy)
    copy.rename(folder)


def verdict(low: float, high: float) -> str:
    """Return what the 95 % interval of the difference after - before says; one that is undefined says nothing."""
    return "better" if low > 0 else "worse" if high < 0 else "no difference"


def finish(options: Adapt, state: dict[str, Any]) -> None:
    """Compare the two models, copy the better one to DIR/model, and print and save the verdict."""
    from clearspan.eval import results
    from clearspan.eval.compare import compare_folders

    folder: Path = options.output
    base = options.base
    row = next(row for row in compare_folders(folder / BEFORE, folder / AFTER).rows if row.metric == FIGURE)
    scores = {name: results.read(folder / name).scores[row.task][FIGURE] for name in SCORED}
    word = verdict(row.low, row.high)
    better = folder / "run" / "model" if word == "better" else base
    deliver(better, folder / "model")
    figures = {"difference": row.difference, "low": row.low, "high": row.high, "mrr": scores, "model": str(better)}
    prompts = {name: results.read(folder / name).environment.get("prompts") for name in (BEFORE, AFTER)}
    save(folder, {**state, "verdict": word, **figures, "prompts": prompts})
    each = ", ".join(f"{name} {score:.2f}" for name, score in scores.items())
    interval = f"{row.difference:+.2f} [{row.low:+.2f}, {row.high:+.2f}] (95 % interval)"
    terminal.say(f"{word}: MRR {'of held-out titles' if options.titles else 'on held-out texts'} {interval}; {each}")
    origin = "the trained model" if word == "better" else f"{base}, unchanged"
    if sides := prompts[AFTER if word == "better" else BEFORE]:
        terminal.say(f"its prompts: {Sides(**sides)}")
    terminal.say(f"{folder / 'model'} is {origin}; report: {folder / 'report.html'}")


if __name__ == "__main__":
    raise SystemExit(main())
