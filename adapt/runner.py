"""The record of a folder, adapt.json, and the run of a stage: it is left out if an earlier call has finished it.

    AdaptRecord.read ──> check: refuse what another command made ──> run: print, call, save ──> adapt.json

A finished stage runs again if its output is damaged. What a finished folder refuses is refused before the first stage.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearspan.adapt.options import Adapt
from clearspan.adapt.preflight import sample_texts
from clearspan.adapt.stages import (
    EVALUATIONS,
    QUESTIONS_FILE,
    Stage,
    title,
    without_chunks,
    without_evaluations,
    without_inputs,
)
from clearspan.common import files, terminal
from clearspan.common.checksummed import dump_checksummed, load_checksummed
from clearspan.common.checksummed_folder import FolderChangedError, set_aside
from clearspan.common.compute import AUTO, resolve
from clearspan.common.encoder.prompts import NONE
from clearspan.common.errors import PipelineError
from clearspan.common.hub import RECORD, hub_record, reference
from clearspan.common.model_forms import NO_FOLDER, STATIC, model_value_error
from clearspan.common.terminal import UsageError
from clearspan.retrieval.stemming import AUTO as STEMMER_AUTO
from clearspan.retrieval.stemming import NO_STEMMER, NUM_SAMPLED, of_language, words_named

STATE = "adapt.json"
FIELDS = "shown_fields"
"""Name, in adapt.json, of the list of fields that the first call chose for search results."""
STEMMER = "stemmer"
"""Name, in adapt.json, of the stemmer of the language of the texts, which the first call identified; or none."""
SHARE = "given_share"
"""Name, in adapt.json, of the share of the trained weights that the user gave; null for the default."""
UPDATED = "updated"
"""Name, in adapt.json, of a mark that the vectors are of other texts than the verdict."""
FORMAT = 3
"""Version of the stages and of their outputs; a folder of another version is refused."""
FOLLOWING = ("questions", "judge")
"""Stages whose command may differ on a later call: if questions are added, the verdict on the same models is reached
again.
"""
OF_TEXTS = ("tokenizer", "texts")
"""Names of the stages that read the inputs before the model is trained."""


@dataclass
class AdaptRecord:
    """The content of adapt.json: the finished stages, and at the end the decision.

    Attributes:
        folder: the output folder.
        content: the version of the format, `steps` with the command of each finished stage by name, the hash of the
            model that `--model` names (`given`; None without `--model`) and, at the end, the verdict.
    """

    folder: Path
    content: dict[str, Any]

    @classmethod
    def read(cls, options: Adapt) -> "AdaptRecord":
        """Return the record of the output folder, or a new one if the folder is new or empty.

        Raises:
            UsageError: the model is not a folder, or differs from the model of the finished stages; the output folder
                is inside the model's folder, or holds files but no `adapt.json`; or `adapt.json` is damaged or of
                another version.
        """
        from clearspan.common.encoder.fingerprint import model_sha256

        given, path = options.encoder, options.output / STATE
        if options.model is not None and (problem := model_value_error(options.model, STATIC)):
            raise UsageError(f"`model` {options.model!r}: {problem}")
        if given is not None and not given.is_dir():
            raise UsageError(f"`model` {given}: {NO_FOLDER}")
        if given is not None and options.output.resolve().is_relative_to(given.resolve()):
            raise UsageError(f"`output` {options.output}: is in `model`, which is copied: name a folder outside of it")
        state: dict[str, Any] = {"format": FORMAT, "steps": {}, "given": given and model_sha256(given)}
        state |= hub_record(model=given) if given else {}
        if not path.is_file():
            if options.output.exists() and (not options.output.is_dir() or any(options.output.iterdir())):
                raise UsageError(f"`output` {options.output}: holds other files: name a new or an empty folder")
            return cls(options.output, state)
        try:
            saved = load_checksummed(path.read_bytes())
            is_earlier = saved.get("format") != FORMAT
            same, state = saved["given"] == state["given"], {**saved, "steps": dict(saved["steps"])}
        except (ValueError, KeyError, TypeError) as error:
            reason = f"lacks {error}" if isinstance(error, KeyError) else error
            raise UsageError(f"{path}: is not a file of this command ({reason}): name another `output`") from None
        if is_earlier:
            raise UsageError(
                f"`output` {options.output}: another version of this command made it: name another `output`"
            )
        if not same:
            made_with = saved.get(RECORD, {}).get("model")
            known = f", {made_with}: name that one, or another `output`" if made_with else ": name another `output`"
            raise UsageError(
                f"`model` {reference(given or '')}: differs from the model with which {path} was made{known}"
            )
        return cls(options.output, state)

    @property
    def commands(self) -> dict[str, str]:
        """The commands of the finished stages by name."""
        found: dict[str, str] = self.content["steps"]
        return found

    @property
    def is_finished(self) -> bool:
        """Return whether an earlier call has embedded the texts, which is the last stage."""
        return "embed" in self.commands

    def save(self) -> None:
        files.write_bytes(self.folder / STATE, dump_checksummed(self.content, indent=2))

    def _finished(self, stage: Stage, options: Adapt) -> str | None:
        """Return the command that finished a stage; this one if only its evaluations, which no user set, are others."""
        done = self.commands.get(stage.name)
        if not done or stage.name != "train" or any(key.startswith(EVALUATIONS) for key in options.overrides):
            return done
        return stage.recorded if without_evaluations(done) == without_evaluations(stage.recorded) else done

    def check(self, stage: Stage, options: Adapt) -> None:
        """Raise UsageError if an earlier call finished a stage with another command.

        The inputs may differ once the folder is finished, because it can then be updated (`adapt.updating`), and so may
        the length of chunks, because the vectors are then made again (`adapt.export`); but not both at once.
        """
        done = self._finished(stage, options)
        is_same = done in (None, stage.recorded)
        if done and (self.is_finished or self.content.get(UPDATED)):
            is_same = without_inputs(without_chunks(done)) == without_inputs(without_chunks(stage.recorded))
        if not is_same and stage.name not in FOLLOWING:
            raise UsageError(
                f"`output` {options.output}: its step {stage.name} was made by another command; name another "
                f"folder: {done}"
            )
        if options.update and done and self.is_finished and without_inputs(done) != without_inputs(stage.recorded):
            raise UsageError(
                f"`update` keeps the model and the verdict of {options.output}: give all other options as "
                f"they were when its step {stage.name} was made: {done}"
            )

    def run(self, stage: Stage, options: Adapt) -> None:
        """Print the command of a stage, run it, and record it as finished.

        The stage does not run if an earlier call has finished it with the same command, and no damage to its output is
        found. A stage that itself checks whether its inputs have changed (`Stage.checks_inputs`) runs on every call.

        Raises:
            UsageError: an earlier call finished this stage with another command, and the stage is not `questions` or
                `judge`, which then run again; or the command refused an option.
            CommandError: the command failed.
            DataError: the output cannot be used (`Stage.check`).
        """
        done = self._finished(stage, options)
        self.check(stage, options)
        if self.content.get(UPDATED) and done and _is_of_the_verdict(stage, done, options):
            terminal.notice(f"{title(stage, options)}\n$ {done}  # finished: of the texts before the update")
            stage.check()
            return
        if done != stage.recorded or stage.of_call:
            done = None
        if done and (problem := damage(stage, options)):
            terminal.notice(f"{problem}: step {stage.name} is run again")
            done = None
        reads = ": only checks whether its inputs have changed" if stage.checks_inputs else ""
        terminal.notice(f"{title(stage, options)}\n$ {stage}{f'  # finished{reads}' if done else ''}")
        if not done:
            self.save()
        if not done or stage.checks_inputs:
            stage.run(options.quiet or bool(done))
            self.commands[stage.name] = stage.recorded
            self.save()
        stage.check()


def with_commit(options: Adapt, record: AdaptRecord) -> Adapt:
    """Return the options with the commit of the first call if a model of the hub has moved on, with the same files."""
    made_with = record.content.get(RECORD, {}).get("model")
    if made_with is None or options.model is None or options.encoder is None:
        return options
    if reference(options.encoder) in (str(options.encoder), made_with):
        return options
    return dataclasses.replace(options, model=f"{STATIC if options.makes_static else ''}{made_with}")


def with_precision(options: Adapt, record: AdaptRecord) -> Adapt:
    """Return the options with the precision `auto` replaced by fp32 or bf16; another precision is not changed.

    The first call of `clearspan adapt` for an output folder chooses the precision that suits this machine, prints it
    and adds it to the record. Later calls take it from there, so that all stages have the same precision. If all
    untrained models are static, the precision is fp32.

    """
    if options.precision != AUTO:
        return options
    chosen = record.content.get("precision", "fp32")
    if "precision" not in record.content and any(map(options.precision_of, options.untrained.values())):
        compute = resolve(AUTO, AUTO)
        terminal.notice(compute.message)
        chosen = record.content["precision"] = compute.precision
    return dataclasses.replace(options, precision=chosen)


def with_stemmer(options: Adapt, record: AdaptRecord) -> Adapt:
    """Return the options with the stemmer of the language of the texts, unless the user names one.

    Until a call has made the dataset of the texts, each identifies the language, prints it and adds the stemmer to the
    record; later calls take it from there. A folder of an earlier version, whose texts were made without one, has none.

    Raises:
        UsageError: a package that identifies the language is not installed.
    """
    if options.stemmer is not None:
        return options
    if "texts" not in record.commands:
        try:
            stemmer = words_named(STEMMER_AUTO, lambda: sample_texts(options, NUM_SAMPLED)).stemmer
        except PipelineError as error:
            raise UsageError(str(error)) from None
        record.content[STEMMER] = stemmer or NO_STEMMER
        if stemmer and not options.quiet:
            terminal.notice(of_language(stemmer))
    return dataclasses.replace(options, stemmer=record.content.get(STEMMER, NO_STEMMER))


def with_share(options: Adapt, record: AdaptRecord) -> Adapt:
    """Return the options with the share of the first call that came to a model; this call adds it to the record.

    Before that, a call without a share keeps the one of the call before, and a call with another replaces it. A folder
    of an earlier version was judged with the trained model itself, and stays so.

    Raises:
        UsageError: the first call had another share.
    """
    if record.commands.keys() & {"interpolate", "judge"}:
        known = record.content.get(SHARE, None if "interpolate" in record.commands else 1.0)
        if options.share not in (None, known):
            made_with = "the default share" if known is None else f"`share` {known:g}"
            raise UsageError(
                f"`share` {options.share:g}: {options.output} was made with {made_with}: name another `output`"
            )
        return dataclasses.replace(options, share=known)
    share = record.content.get(SHARE) if options.share is None else options.share
    record.content[SHARE] = share
    return dataclasses.replace(options, share=share)


def with_fields(options: Adapt, record: AdaptRecord) -> Adapt:
    """Return the options with the fields that the first call chose for search results, unless the user names others."""
    chosen = record.content.get(FIELDS)
    if options.keep_fields or chosen is None:
        return options
    return dataclasses.replace(options, keep_fields=tuple(chosen) or (NONE,))


def _is_of_the_verdict(stage: Stage, done: str, options: Adapt) -> bool:
    """Return whether a stage has read the texts of the verdict, which an update keeps though the inputs changed."""
    if stage.name != "questions":
        return stage.name in OF_TEXTS
    return without_inputs(done) == without_inputs(stage.recorded) and (options.output / QUESTIONS_FILE).is_file()


def damage(stage: Stage, options: Adapt) -> str:
    """Return a message about the damage to a finished stage's output; "" if no damage is found.

    Only the models of the stages `start` and `train` are checked, because all other commands check their own output. A
    damaged folder of `start`, the static encoder before training, is renamed, because the command does not overwrite
    it.
    """
    from clearspan.train.run_folder import check_model

    try:
        if stage.name == "start":
            check_model(options.base)
        elif stage.name == "train":
            check_model(options.exported)
    except FolderChangedError as error:
        is_mine = stage.name == "start" and options.base.exists()
        return f"{error}{f' (moved to {set_aside(options.base)})' if is_mine else ''}"
    return ""
