"""The steps of `clearspan adapt`: commands of this project, in their order."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from clearspan.adapt.options import Adapt
from clearspan.adapt.recipe import Choice, planned
from clearspan.common.commands import Option, words
from clearspan.common.encoder.prompts import DOCUMENT, NONE, QUERY, shown

PIPELINES, TRAIN = ("clearspan.pipelines", "pipelines"), ("clearspan.train", "train")
DISTILL = ("clearspan.train.distill", "distill")
EVAL = ("clearspan.eval", "python -m clearspan.eval")
"""Modules of the steps, each with the start of its error lines."""
BEFORE, AFTER, BASELINES = "before", "after", ("tfidf", "bm25")
HYBRID = "hybrid"
"""The model after training, beside BM25."""
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
