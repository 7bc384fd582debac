"""The stages of `clearspan adapt`: each is a command of this project with its options.

stage.run(quiet)   call the command with these options
str(stage)         the same call as a command line, which a user can run by hand
"""

import dataclasses
import functools
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from clearspan.adapt.interpolation import Interpolation
from clearspan.adapt.judging import Judging
from clearspan.adapt.options import Adapt
from clearspan.adapt.preflight import check_held_out
from clearspan.adapt.questions import Questions, answered
from clearspan.adapt.recipe import Choice, planned
from clearspan.cli.command import Command
from clearspan.cli.words import words
from clearspan.common import terminal
from clearspan.common.encoder.prompts import DOCUMENT, NONE, QUERY, quoted_prompt
from clearspan.common.errors import PipelineError
from clearspan.common.hub import reference
from clearspan.common.options import from_keywords
from clearspan.common.plain_json import Option
from clearspan.common.spawned import CommandError, call
from clearspan.common.terminal import UsageError
from clearspan.eval.data.questions import read_questions
from clearspan.eval.tasks.queries import FEW
from clearspan.pipelines.__main__ import COMMANDS
from clearspan.pipelines.vocabulary_command import Vocabulary
from clearspan.shards import held_out
from clearspan.train.__main__ import Train
from clearspan.train.distill import Distill

PIPELINES = "clearspan.pipelines"
VERDICT, QUESTIONS_FILE, TOKENIZER = "verdict.json", "questions.jsonl", "tokenizer"
TEXTS, MINED_TEXTS, VECTORS, INTERPOLATED = "texts", "mined", "vectors", "interpolated"
"""Names in the output folder."""
INPUT, CHUNK_TOKENS = "--input=", "--chunk-tokens="
"""Beginnings of the arguments of a stage's command that name the inputs, and the length of chunks."""
EVALUATIONS = "training.eval_steps="
"""Beginning of the recipe key that says how often a training evaluates; versions choose it differently."""
MINED, NEAREST = 8, 128
"""Number of hard negatives for each title, and number of nearest texts from which the negatives are taken."""
MIN_TOKENS = 16
VOCABULARY, DIMS = 8192, 1024
"""The sizes of a static encoder that is made here."""


class Stage(NamedTuple):
    """A stage of `clearspan adapt`: a command of this project with its options.

    Attributes:
        name: the stage's key in `adapt.json`.
        about: description of the stage, which is printed before the command.
        called: the words that call the command: a module and, for a command of `pipelines`, its name.
        command: the class of the command.
        options: the options: keyword argument -> value.
        is_known: False if the options depend on outputs that do not exist yet; some are then placeholders.
        of_call: options of this call alone, which adapt.json does not record.
        check: check the output, so that no later stage begins if it cannot be used.
    """

    name: str
    about: str
    called: tuple[str, ...]
    command: type[Command]
    options: Mapping[str, Option]
    is_known: bool = True
    of_call: Mapping[str, Option] = MappingProxyType({})
    check: Callable[[], object] = lambda: None

    def __str__(self) -> str:
        given = {name: _recorded(value) for name, value in {**self.options, **self.of_call}.items()}
        return shlex.join(["python", "-m", *self.called, *words(self.command, given)])

    @property
    def recorded(self) -> str:
        """The command as adapt.json records it."""
        return str(self._replace(of_call={}))

    @property
    def checks_inputs(self) -> bool:
        """Return whether the stage runs on every call of `clearspan adapt`, even if an earlier call has finished it.

        These are the stages that themselves check which of their inputs have changed.
        """
        return self.name not in ("start", "train")

    def run(self, quiet: bool) -> None:
        """Run the command: in a process of its own if it starts Beam or loads a model, otherwise in this one.

        Such a process frees its threads, its memory and the GPU for the next stage.

        Args:
            quiet: print nothing.

        Raises:
            UsageError: the command refuses an option.
            CommandError: the command failed.
        """
        command = from_keywords(self.command, {**self.options, **self.of_call})
        try:
            if isinstance(command, Vocabulary | Questions):  # neither Beam nor a model
                _run_here(command, quiet)
            else:
                call(*command.request(), expected=command.expected, quiet=quiet)
        except (UsageError, CommandError):
            raise
        except command.expected as error:
            raise CommandError(terminal.one_line(error)) from None


def _recorded(value: Option) -> Option:
    """Return the value of an option as a command line on any machine names it: a model of the hub by its reference."""
    return reference(value) if isinstance(value, str | Path) else value


def _run_here(command: Vocabulary | Questions, quiet: bool) -> None:
    """Run a command in this process, and print its result, or nothing if `quiet` is true."""
    if isinstance(command, Vocabulary):
        command = dataclasses.replace(command, quiet=quiet)
    if (result := str(command.run())) and not quiet:
        terminal.notice(result)


def without_inputs(command: str) -> list[str]:
    """Return the arguments of a stage's command without those that name the inputs."""
    return [word for word in shlex.split(command) if not word.startswith(INPUT)]


def without_evaluations(command: str) -> str:
    """Return a stage's command without the interval of evaluations, which changes no step of a training."""
    return shlex.join(word for word in shlex.split(command) if not word.startswith(EVALUATIONS))


def without_chunks(command: str) -> str:
    """Return a stage's command without the length of chunks."""
    return shlex.join(word for word in shlex.split(command) if not word.startswith(CHUNK_TOKENS))


def names(options: Adapt) -> list[str]:
    """Return the names of all stages that these options need, in order."""
    of_model = {"tokenizer": options.model is None, "start": options.makes_static}
    needed = of_model | {"mine": options.titles is not None, "questions": options.queries is not None}
    needed["interpolate"] = options.interpolates
    every = ("questions", "tokenizer", "texts", "start", "mine", "train", "interpolate", "judge", "embed")
    return [name for name in every if needed.get(name, True)]


def title(stage: Stage, options: Adapt) -> str:
    """Return the line that is printed before a stage's command: the stage's number, name and description."""
    every = names(options)
    return f"{every.index(stage.name) + 1}/{len(every)} {stage.name}: {stage.about}"


def questions(options: Adapt) -> Stage:
    """Return the stage that finds the text of each question: the first, since a mistake in the file would show late."""
    about = f"the questions of {options.queries}, each with its text"
    return Stage("questions", about, ("clearspan.adapt.questions",), Questions, _asked(options))


def tokenizer(options: Adapt) -> Stage:
    about = f"a tokenizer of {VOCABULARY:,} tokens, from the texts"
    line = _reading(options) | {"size": VOCABULARY, "output": options.output / TOKENIZER}
    return _pipeline("tokenizer", about, "vocabulary", line)


def start(options: Adapt) -> Stage:
    """Return the stage that makes the static encoder from which training starts."""
    given = options.encoder
    source: dict[str, Option] = {"tokenizer": options.output / TOKENIZER} if given is None else {"model": given}
    about = f"a static encoder of {DIMS:,} dimensions, {'random' if given is None else f'from {reference(given)}'}"
    line = {**source, "shards": options.output / TEXTS, "dims": DIMS, "output": options.base}
    return Stage("start", about, ("clearspan.train.distill",), Distill, line)


def texts(options: Adapt) -> Stage:
    """Return the stage that makes the dataset, of pairs if the texts have titles."""
    line: dict[str, Option] = {"holdout_fraction": options.holdout_fraction}
    line |= {"tokenizer": options.encoder or options.output / TOKENIZER, "output": options.output / TEXTS}
    line |= {"dedup": True, "input": options.inputs, "encoding": options.encoding}
    if options.titles:
        named = f"pairs of {' and '.join(options.titles)}"
        if not options.fields:
            where = ", ".join(filter(None, ["found by their names", options.fields_found.note]))
            named += f" ({where}; `text_field` NAME takes texts without titles)"
        chosen = ",".join(options.prompt_name) or None
        if options.makes_static and any(options.known_prompts.texts.values()):
            chosen = NONE
        line |= {"fields": ",".join(options.titles), "prompt_name": chosen, "group_field": options.group_field}
        kind = "pairs"
    else:
        named = "texts" if options.option_without_titles else "texts (no columns of title and text found)"
        min_tokens = MIN_TOKENS if options.min_tokens is None else options.min_tokens
        line |= {"text_field": options.text_field, "text_per": options.text_per, "min_tokens": min_tokens}
        kind = "documents"
    about = f"{named} to tokens, {options.holdout_fraction:.0%} held out"
    if options.group_field is not None:
        about += f", those of one {options.group_field} together"
    if any(options.known_prompts.texts.values()):
        about += f"; {prompts_in_words(options)}"
    return _pipeline("texts", about, kind, line)._replace(check=functools.partial(_check_texts, options))


def _check_texts(options: Adapt) -> None:
    """Check the dataset before a model is made.

    Raises:
        DataError: the dataset has too few held-out texts, or the text of no question.
    """
    check_held_out(options.output / TEXTS)
    if options.queries and not options.exported.is_dir():
        read_questions(options.output / QUESTIONS_FILE, options.output / TEXTS)


def mine(options: Adapt) -> Stage:
    about = "for each title, texts that the base model takes for its own"
    chosen = ",".join(options.prompt_name) or None
    line: dict[str, Option] = {"folder": options.output / TEXTS, "model": options.base, "prompt_name": chosen}
    line |= {"negatives": MINED, "range_max": NEAREST, "precision": options.precision_of(options.base)}
    return _pipeline("mine", about, "mine", {**line, "output": options.output / MINED_TEXTS})


def train(options: Adapt) -> Stage:
    """Return the stage that trains on the texts, which have mined negatives if they have titles."""
    dataset = options.output / (MINED_TEXTS if options.titles else TEXTS)
    unknown = Choice("RECIPE", ("KEYS",), "RECIPE and KEYS depend on the lengths and the number of the texts")
    keys, choice = recipe_keys(options, dataset), unknown
    if (dataset / "manifest.json").is_file() and options.base.is_dir():
        titled = options.titles is not None
        choice = planned(
            dataset,
            options.output / "texts",
            options.base,
            keys,
            options.overrides,
            titled,
            options.makes_static,
            options.recipe,
        )
    keys += [*choice.changes, *options.overrides]
    line: dict[str, Option] = {"recipe": choice.recipe, "resume": True, "overrides": keys}
    return Stage("train", choice.reason, ("clearspan.train",), Train, line, choice is not unknown)


def interpolate(options: Adapt) -> Stage:
    """Return the stage that mixes the weights of the trained model with those before training."""
    line: dict[str, Option] = {"data": options.output / TEXTS, "start": options.base, "trained": options.exported}
    line |= {"share": options.share, "stemmer": options.bm25_stemmer}
    line |= {"prompt_name": ",".join(options.prompt_name) or None, "precision": options.precision_of(options.base)}
    about = "how much of the training the held-out texts need; the rest of the weights are those before it"
    if options.share is not None:
        about = (
            f"{options.share:g} of the trained weights, as given, and {1 - options.share:g} of those before training"
        )
    folder = options.output / INTERPOLATED
    return Stage("interpolate", about, ("clearspan.adapt.interpolation",), Interpolation, {**line, "output": folder})


def check_questions(options: Adapt) -> None:
    """Check the file of questions as the stage `questions` does, if there is such a file; write nothing.

    Raises:
        UsageError, DataError: a question cannot be used.
        CommandError: an input in which texts are looked up by their ids cannot be read.
    """
    if options.queries:
        try:
            answered(from_keywords(Questions, _asked(options)))
        except PipelineError as error:
            raise CommandError(terminal.one_line(error)) from None


def _asked(options: Adapt) -> dict[str, Option]:
    """Return the options of the stage `questions`: keyword argument -> value."""
    text = options.titles[1] if options.titles else options.text_field
    line: dict[str, Option] = {"queries": options.queries, "input": options.inputs, "encoding": options.encoding}
    return {**line, "id_field": options.id_field, "text_field": text, "output": options.output / QUESTIONS_FILE}


def judge(options: Adapt) -> Stage:
    """Return the stage that ranks the texts with each system, and writes the verdict."""
    questions = options.output / QUESTIONS_FILE if options.queries else None
    untrained = [f"{name}={reference(path)}" for name, path in options.untrained.items()]
    line: dict[str, Option] = {"data": options.output / TEXTS, "trained": options.trained, "untrained": untrained}
    line["stemmer"] = options.bm25_stemmer
    if options.interpolates and options.share is None and questions:
        line |= {"start": reference(options.base), "exported": options.exported, "shares": options.shares}
    line |= {"queries": questions, "prompt_name": ",".join(options.prompt_name) or None}
    line["chunk_tokens"] = options.chunk_tokens
    line["precision"] = next(filter(None, map(options.precision_of, options.untrained.values())), None)
    of_language = f" (with {options.bm25_stemmer.title()} stems)" if options.bm25_stemmer else ""
    what = "held-out titles" if options.titles else "crops of held-out texts"
    about = (
        f"which of BM25{of_language}, {', '.join(options.untrained)}, trained, and these with BM25 finds the text of "
    )
    about += what
    about += f"{' and of your questions' if questions else ''} among all texts"
    if "shares" in line:
        about += f"; {FEW} questions or more choose the share of the training, for which several models embed them all"
    if options.makes_static and line["precision"]:
        given = reference(options.encoder or "")
        about += f" ({given} itself embeds them all, which may take longest: `skip_given` leaves it out)"
    return Stage("judge", about, ("clearspan.adapt.judging",), Judging, {**line, "output": options.output / VERDICT})


def embed(options: Adapt, source: Path | None = None, updates: bool = False) -> Stage:
    """Return the last stage, which embeds all texts with the model in the folder `model` of the output.

    Args:
        options: the options of the call.
        source: the folder of which `model` is a copy, or will be; None if that is not known before the verdict.
        updates: whether the stage brings vectors of an earlier call up to date.
    """
    model = options.output / "model"
    line = _reading(options) | {"model": model, "title_field": options.titles[0] if options.titles else None}
    line |= {"keep_text": True, "keep_fields": ",".join(options.shown_fields) or None}
    line["prompt_name"] = options.prompt_name[-1] if options.prompt_name else None
    line["chunk_tokens"] = options.chunk_tokens
    line["precision"] = options.precision_of(source or options.base)
    line["output"] = options.output / VECTORS
    about = "the vectors of all texts, by the model of the verdict, to search"
    return _pipeline("embed", about, "embed", line)._replace(of_call={"update": True} if updates else {})


def _reading(options: Adapt) -> dict[str, Option]:
    """Return the options that say where the texts are, for the commands `vocabulary` and `embed`."""
    line: dict[str, Option] = {"input": options.inputs, "encoding": options.encoding}
    if options.titles:
        return {**line, "text_field": options.titles[1]}
    return {**line, "text_field": options.text_field, "text_per": options.text_per}


def _pipeline(stage: str, about: str, command: str, options: Mapping[str, Option]) -> Stage:
    """Return a stage that is a command of `pipelines`."""
    return Stage(stage, about, (PIPELINES, command), COMMANDS[command], options)


def prompts_in_words(options: Adapt) -> str:
    """Return a phrase that says which prompts training puts before titles and texts.

    It is printed only if the model that `--model` names has prompts.
    """
    prompts = options.prompts
    if options.makes_static:
        return "no prompts, since a static encoder has none"
    if not options.titles:
        return "no prompts, since crops have none: the trained model is used without"
    line = f"{quoted_prompt(prompts.query)} before titles, {quoted_prompt(prompts.document)} before texts"
    unused = "" if options.prompt_name else options.known_prompts.unused(QUERY, DOCUMENT)
    return f"{line} ({unused})" if unused else line


def recipe_keys(options: Adapt, dataset: Path) -> list[str]:
    """Return the settings that `clearspan adapt` makes in every recipe, each as `key=value`.

    They set four paths (dataset, held-out part of the dataset, model to train, output folder of the run) and let the
    training evaluate on the held-out part.

    Args:
        dataset: the folder of the dataset to train on.
    """
    paths = {"data.text.path": dataset, "data.text.validation": held_out.folder_of(str(dataset))}
    keys = {
        **paths,
        "model.path": reference(options.base),
        "output": options.output / "run",
        "training.eval_data": "heldout",
    }
    return [f"{key}={value}" for key, value in keys.items()]
