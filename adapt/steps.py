"""The steps of `clearspan adapt`: commands of this project, in their order."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from clearspan.adapt.enough import check_held_out
from clearspan.adapt.judging import Judging
from clearspan.adapt.options import Adapt
from clearspan.adapt.questions import Questions, answered
from clearspan.adapt.recipe import Choice, planned
from clearspan.common.child_commands import CommandError, Option
from clearspan.common.encoder.prompts import DOCUMENT, NONE, QUERY, quoted_prompt
from clearspan.common.errors import PipelineError
from clearspan.common.options import from_keywords, words
from clearspan.common.terminal import one_line
from clearspan.eval.data.questions import read_questions
from clearspan.pipelines.__main__ import COMMANDS
from clearspan.shards import held_out
from clearspan.train.distill import Distill
from clearspan.train.request import TrainOptions

PIPELINES, TRAIN, DISTILL = "clearspan.pipelines", "clearspan.train", "clearspan.train.distill"
QUESTIONS, JUDGE = "clearspan.adapt.questions", "clearspan.adapt.judging"
"""Modules of the steps."""
COMPARING = (PIPELINES, QUESTIONS, JUDGE)
"""Modules whose commands compare inputs and outputs with an earlier call, and redo only the work that has changed."""
VERDICT, QUESTIONS_FILE, TEXTS, VECTORS = "verdict.json", "questions.jsonl", "texts", "vectors"
"""Names in the output folder."""
INPUT, CHUNK_TOKENS = "--input=", "--chunk-tokens="
"""Beginnings of the words of a step's command that name the inputs, and the length of chunks."""
MINED, NEAREST = 8, 128
"""Number of hard negatives for each title, and number of nearest texts from which the negatives are taken."""
MIN_TOKENS = 16
VOCABULARY, DIMS = 8192, 1024
"""The sizes of a static encoder that is made here."""


class Step(NamedTuple):
    """A step of `clearspan adapt`: a command of this project with its arguments.

    Attributes:
        name: the step's key in `adapt.json`.
        about: description of the step, which is printed before the command.
        module: the module that `python -m` runs.
        words: the arguments of the command line.
        is_known: False if the arguments depend on outputs that do not exist yet; some are then placeholders.
        of_call: arguments of this call alone, which adapt.json does not record.
    """

    name: str
    about: str
    module: str
    words: tuple[str, ...]
    is_known: bool = True
    of_call: tuple[str, ...] = ()

    def __str__(self) -> str:
        return shlex.join(["python", "-m", self.module, *self.words, *self.of_call])

    @property
    def recorded(self) -> str:
        """The command as adapt.json records it."""
        return str(self._replace(of_call=()))

    @property
    def checks_inputs(self) -> bool:
        """Return whether the step runs on every call of `clearspan adapt`, even if an earlier call has finished it.

        These are the steps whose commands themselves check which of their inputs have changed.
        """
        return self.module in COMPARING


def without_inputs(command: str) -> list[str]:
    """Return the words of a step's command without those that name the inputs."""
    return [word for word in shlex.split(command) if not word.startswith(INPUT)]


def without_chunks(command: str) -> str:
    """Return a step's command without the length of chunks."""
    return shlex.join(word for word in shlex.split(command) if not word.startswith(CHUNK_TOKENS))


def names(options: Adapt) -> list[str]:
    """Return the names of all steps that these options need, in order."""
    of_model = {"tokenizer": options.model is None, "start": options.makes_static}
    needed = of_model | {"mine": options.titles is not None, "questions": options.queries is not None}
    every = ("questions", "tokenizer", "texts", "start", "mine", "train", "judge", "embed")
    return [name for name in every if needed.get(name, True)]


def title(step: Step, options: Adapt) -> str:
    """Return the line that is printed before a step's command: the step's number, name and description."""
    every = names(options)
    return f"{every.index(step.name) + 1}/{len(every)} {step.name}: {step.about}"


def steps(options: Adapt, runs: bool = True) -> Iterator[Step]:
    """Yield the steps up to the verdict, in order.

    The caller must run each step before it requests the next one, since the command of the training depends on the
    output of earlier steps. If that output does not exist, as in a dry run, the command has placeholders.

    Args:
        options: the options of the call.
        runs: whether the caller runs the steps; the texts are then checked before the steps that train with them.

    Raises:
        DataError: the dataset of the texts, once it is written, has too few held-out texts, or the text of no question.
    """
    folder, texts, given, base = options.output, options.output / TEXTS, options.encoder, options.base
    tokenizer = given or folder / "tokenizer"
    questions = folder / QUESTIONS_FILE if options.queries else None
    if options.queries:  # before any work, since a mistake in the file would show only after training
        about = f"the questions of {options.queries}, each with its text"
        yield Step("questions", about, QUESTIONS, _questions(options))
    if given is None:
        about = f"a tokenizer of {VOCABULARY:,} tokens, from the texts"
        yield Step("tokenizer", about, PIPELINES, _line("vocabulary", options, size=VOCABULARY, output=tokenizer))
    yield _texts(options, texts, tokenizer)
    if runs:
        check_held_out(texts)
        if questions and not options.trained.is_dir():
            read_questions(questions, texts)
    if options.makes_static:
        source = {"tokenizer": tokenizer} if given is None else {"model": given}
        command = tuple(words(Distill, {**source, "shards": texts, "dims": DIMS, "output": base}))
        about = f"a static encoder of {DIMS:,} dimensions, {'random' if given is None else f'from {given}'}"
        yield Step("start", about, DISTILL, command)
    dataset = texts
    if options.titles:
        dataset = folder / "mined"
        about = "for each title, texts that the base model takes for its own"
        yield Step("mine", about, PIPELINES, _mine(options, texts, dataset))
    yield _train(options, dataset)
    yield _judge(options, texts, questions)


def _texts(options: Adapt, texts: Path, tokenizer: Path) -> Step:
    line: dict[str, Option] = {"holdout_fraction": options.holdout_fraction, "tokenizer": tokenizer, "output": texts}
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
        command = _pipeline("pairs", line)
    else:
        named = "texts" if options.option_without_titles else "texts (no columns of title and text found)"
        least = MIN_TOKENS if options.min_tokens is None else options.min_tokens
        reading: dict[str, Option] = {"text_field": options.text_field, "text_per": options.text_per}
        command = _pipeline("documents", {**line, **reading, "min_tokens": least})
    about = f"{named} to tokens, {options.holdout_fraction:.0%} held out"
    if options.group_field is not None:
        about += f", those of one {options.group_field} together"
    if any(options.known_prompts.texts.values()):
        about += f"; {prompts_in_words(options)}"
    return Step("texts", about, PIPELINES, command)


def _mine(options: Adapt, texts: Path, dataset: Path) -> tuple[str, ...]:
    chosen = ",".join(options.prompt_name) or None
    line: dict[str, Option] = {"folder": texts, "model": options.base, "prompt_name": chosen, "negatives": MINED}
    line |= {"range_max": NEAREST, "precision": options.precision_of(options.base), "output": dataset}
    return _pipeline("mine", line)


def _train(options: Adapt, dataset: Path) -> Step:
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
    command = words(TrainOptions, {"recipe": choice.recipe, "resume": True, "overrides": keys})
    return Step("train", choice.reason, TRAIN, tuple(command), choice is not unknown)


def check_questions(options: Adapt) -> None:
    """Check the file of questions as the step `questions` does, if there is such a file; write nothing.

    Raises:
        UsageError, DataError: a question cannot be used.
        CommandError: an input in which texts are looked up by their ids cannot be read.
    """
    if options.queries:
        try:
            answered(from_keywords(Questions, _asked(options)))
        except PipelineError as error:
            raise CommandError(one_line(error)) from None


def _questions(options: Adapt) -> tuple[str, ...]:
    return tuple(words(Questions, _asked(options)))


def _asked(options: Adapt) -> dict[str, Option]:
    """Return the options of the step `questions`: keyword argument -> value."""
    text = options.titles[1] if options.titles else options.text_field
    line: dict[str, Option] = {"queries": options.queries, "input": options.inputs, "encoding": options.encoding}
    return {**line, "id_field": options.id_field, "text_field": text, "output": options.output / QUESTIONS_FILE}


def _judge(options: Adapt, texts: Path, questions: Path | None) -> Step:
    untrained = [f"{name}={path}" for name, path in options.untrained.items()]
    line: dict[str, Option] = {"data": texts, "trained": options.trained, "untrained": untrained}
    line["stemmer"] = options.stemmer
    line |= {"queries": questions, "prompt_name": ",".join(options.prompt_name) or None}
    line["chunk_tokens"] = options.chunk_tokens
    line["precision"] = next(filter(None, map(options.precision_of, options.untrained.values())), None)
    what = "held-out titles" if options.titles else "crops of held-out texts"
    about = f"which of BM25, {', '.join(options.untrained)}, trained, and these with BM25 finds the text of {what}"
    about += f"{' and of your questions' if questions else ''} among all texts"
    if options.makes_static and line["precision"]:
        about += f" ({options.encoder} itself embeds them all, which may take longest: `skip_given` leaves it out)"
    return Step("judge", about, JUDGE, tuple(words(Judging, {**line, "output": options.output / VERDICT})))


def embedding(options: Adapt, source: Path | None = None, updates: bool = False) -> Step:
    """Return the last step, which embeds all texts with the model in the folder `model` of the output.

    Args:
        options: the options of the call.
        source: the folder of which `model` is a copy, or will be; None if that is not known before the verdict.
        updates: whether the step brings vectors of an earlier call up to date.
    """
    model = options.output / "model"
    line: dict[str, Option] = {"model": model, "title_field": options.titles[0] if options.titles else None}
    line |= {"keep_text": True, "keep_fields": ",".join(options.shown_fields) or None}
    line["prompt_name"] = options.prompt_name[-1] if options.prompt_name else None
    line["chunk_tokens"] = options.chunk_tokens
    line["precision"] = options.precision_of(source or options.base)
    command = _line("embed", options, **line, output=options.output / VECTORS)
    about = "the vectors of all texts, by the model of the verdict, to search"
    return Step("embed", about, PIPELINES, command, of_call=("--update",) if updates else ())


def _line(command: str, options: Adapt, **extra_options: Option) -> tuple[str, ...]:
    """Return the arguments of the command `vocabulary` or `embed`, with the options that say where the texts are.

    Args:
        command: `vocabulary` or `embed`.
        extra_options: further options of the command.
    """
    line: dict[str, Option] = {"input": options.inputs, "encoding": options.encoding}
    if options.titles:
        line["text_field"] = options.titles[1]
    else:
        line |= {"text_field": options.text_field, "text_per": options.text_per}
    return _pipeline(command, {**line, **extra_options})


def _pipeline(command: str, line: dict[str, Option]) -> tuple[str, ...]:
    """Return the name of a command of `pipelines`, followed by its options in the form of a command line.

    Args:
        line: the options: keyword argument -> value.
    """
    return (command, *words(COMMANDS[command], line))


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
    keys = {**paths, "model.path": options.base, "output": options.output / "run", "training.eval_data": "heldout"}
    return [f"{key}={value}" for key, value in keys.items()]
