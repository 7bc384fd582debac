"""`clearspan adapt`, from the command line and from Python.

    texts ──> mine ──> train ──> interpolate ──> judge: DIR/verdict.json ──> decide
        decide ──> export: DIR/model ──> embed ──> DIR/search.json

Each stage is a command of another package (`adapt.stages`) that resumes and refuses by itself. It is printed as a
command line before it runs.
"""

import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from clearspan.adapt import recipe, stages
from clearspan.adapt.decision import decide
from clearspan.adapt.export import announce, export, finish, models, source
from clearspan.adapt.judging import Verdicts
from clearspan.adapt.options import Adapt
from clearspan.adapt.preflight import check_inputs, checked_fields
from clearspan.adapt.runner import (
    FIELDS,
    STATE,
    UPDATED,
    AdaptRecord,
    with_commit,
    with_fields,
    with_precision,
    with_share,
    with_stemmer,
)
from clearspan.adapt.stages import VERDICT, Stage, check_questions, recipe_keys, title
from clearspan.adapt.updating import check_update
from clearspan.cli.command import Printed, Result
from clearspan.common import files
from clearspan.common.model_folder import EncoderError
from clearspan.common.options import from_keywords
from clearspan.common.plain_json import Option
from clearspan.common.spawned import CommandError, call
from clearspan.common.terminal import UsageError
from clearspan.common.typed import checked
from clearspan.shards.manifest import ManifestError
from clearspan.train.api import Overrides, assignments

EXPECTED = (ValueError, OSError)
"""Errors that a user or a disk can cause, in addition to a CommandError; any other exception is a defect."""


def find_best(options: Adapt) -> Result:
    """Make the texts, mine, train, judge, export the best system, and embed the texts with it; return the decision.

    What a stage would refuse is refused before the first one. If `dry_run` is true, no stage runs, and the result is a
    list of the commands.

    Raises:
        UsageError, ValueError, OSError: an option, an input or a file in the output folder cannot be used.
        CommandError: a stage failed.
    """
    record = AdaptRecord.read(options)
    options = with_commit(options, record)
    options = refuse_or_resolve(options, record)
    updates = check_update(options, record)
    if options.dry_run:
        if not updates:  # which looks up no question again
            check_questions(options)
        planned: list[Stage] = []
        until_verdict(options, planned.append)
        planned.append(stages.embed(options, updates=updates))
        return Printed("\n".join(f"{title(stage, options)}\n$ {stage}" for stage in planned))
    with files.locked(options.output):
        if updates:
            record.content[UPDATED] = True
            record.save()
        run = functools.partial(record.run, options=options)
        until_verdict(options, run)
        decision = decide(Verdicts.read(options.output / VERDICT))
        announce(decision)
        export(decision, record, options)
        run(stages.embed(options, source(decision, options), updates and record.is_finished))
        return finish(decision, record, options)


def until_verdict(options: Adapt, run: Callable[[Stage], object]) -> None:
    """Pass all stages up to the verdict to a function, in order; the stage that trains depends on those before it.

    Args:
        run: function that runs a stage, or only checks or lists it; some of its options may then be placeholders.
    """
    if options.queries:
        run(stages.questions(options))
    if options.encoder is None:
        run(stages.tokenizer(options))
    run(stages.texts(options))
    if options.makes_static:
        run(stages.start(options))
    if options.titles:
        run(stages.mine(options))
    run(stages.train(options))
    if options.interpolates:
        run(stages.interpolate(options))
    run(stages.judge(options))


def refuse_or_resolve(options: Adapt, record: AdaptRecord) -> Adapt:
    """Refuse what cannot work, before any work; return the options with the precision and the fields to show.

    Raises:
        UsageError, CommandError: an option contradicts another one, the texts, or what an earlier call made.
    """
    options.check()
    options = with_share(with_precision(options, record), record)
    keys = recipe_keys(options, options.output / stages.TEXTS)
    recipe.check(keys, options.overrides, options.trains_static, options.titles is not None, options.recipe)
    if "texts" not in record.commands:
        check_inputs(options)
        record.content[FIELDS] = checked_fields(options)
    options = with_stemmer(with_fields(options, record), record)
    refuse_other_commands(options, record)
    return options


def refuse_other_commands(options: Adapt, record: AdaptRecord) -> None:
    """Raise UsageError if an earlier call finished a stage with another command, before any stage runs.

    The command of the training is compared only if the outputs on which it depends are there, undamaged. The command
    that embeds is compared only if these options allow the model that was delivered.
    """

    def check(stage: Stage) -> None:
        if stage.is_known:
            record.check(stage, options)

    with contextlib.suppress(ManifestError, EncoderError, OSError):  # a damaged output, whose stage runs again
        until_verdict(options, check)
    if (folder := models(options).get(record.content.get("delivered", ""))) is not None:
        record.check(stages.embed(options, folder), options)


@dataclasses.dataclass(frozen=True)
class Adapted:
    """The result of `adapt`.

    Attributes:
        folder: the output folder; `report.html` in it has all scores.
        verdict: `better`, `worse` or `no difference`: the best system with the trained model, compared with the best
            system that needs no training.
        winner: name of the system to take, such as `trained + BM25`, `BM25` or `all-MiniLM-L6-v2 + BM25`.
        weight: the weight of the winner's model when combined with BM25: 0 for BM25 alone, None for the model alone.
        difference: the MRR of the best system with the trained model, minus the MRR of the best system that needs no
            training, in percentage points.
        low, high: the ends of the 95 % interval of the difference.
        task: the kind of queries: `titles`, `crops` of texts without titles, or `questions`.
        num_queries: number of queries with which the systems were compared.
        num_texts: number of texts that are ranked for each query.
        mrr: name of each system, best first -> its MRR in percent.
        others: the results of the second verdict, which did not decide, under the name of its kind of queries, e.g.
            `{"questions": {"difference": 2.1, ...}}`. Empty if you gave no questions.
        sentence: the outcome in words.
        share: the share of the trained weights in the trained model; the rest are those before training.
    """

    folder: Path
    verdict: str
    winner: str
    weight: float | None
    difference: float
    low: float
    high: float
    task: str
    num_queries: int
    num_texts: int
    mrr: Mapping[str, float]
    others: Mapping[str, Mapping[str, Any]]
    sentence: str
    share: float = 1.0

    @classmethod
    def read(cls, folder: Path) -> "Adapted":
        """Return the result in adapt.json of a finished folder."""
        content = json.loads((folder / STATE).read_text(encoding="utf-8"))
        _, *names = (field.name for field in dataclasses.fields(cls))
        return cls(folder, **{name: content[name] for name in names if name in content})

    @property
    def model(self) -> Path:
        """The folder of the winner's model, or of the best untrained model if BM25 alone wins."""
        return self.folder / "model"


@checked
def adapt(
    inputs: str | Path | Iterable[str | Path],
    output: str | Path,
    model: str | Path | None = None,
    overrides: Overrides = (),
    *,
    quiet: bool = False,
    **options: Option,
) -> Adapted:
    """Adapt a model to texts of your own, and measure whether that helped. A call that was stopped continues when it is
    repeated, and one that has finished returns its result again.

    Args:
        inputs: files, folders and globs.
        output: a new or empty folder, or the folder of the same call to continue.
        model: the folder of a sentence-transformers model, or `static:FOLDER` for a static encoder that is initialized
            with the vectors of the model in FOLDER. None trains a static encoder from the texts alone.
        overrides: recipe keys to change: a dictionary, or texts of the form `key=value`.
        quiet: print nothing.
        options: options of `clearspan adapt --help` by their names with underscores: `fields="title,body"`,
            `holdout_fraction=0.2`. `update=True` brings a finished folder up to date with changed inputs.

    Raises:
        UsageError: an option is unknown or cannot work, or another call wrote the output folder.
        CommandError: a step failed; the message says why and what to do.
    """
    if unusable := options.keys() & {"dry_run", "help", "version", "input"}:
        raise UsageError(f"{min(unusable)} is an option of the command `clearspan adapt` alone")
    keys = assignments(overrides)
    if wrong := [key for key in keys if key.startswith("-") or "=" not in key]:
        raise UsageError(f"overrides: {wrong[0]}: is no recipe key with a value, such as training.epochs=3")
    listed = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    given = {"overrides": keys, "input": listed, "output": output, "model": model, "quiet": quiet, **options}
    try:
        request = from_keywords(Adapt, given)
        result: Adapted = call("clearspan.adapt.__main__:adapted", request, expected=EXPECTED, quiet=quiet)
    except UsageError:
        raise
    except EXPECTED as error:
        raise CommandError(str(error)) from None
    return result
