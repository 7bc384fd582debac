"""Run a step's command; leave it out if an earlier call has finished the step and its output is not damaged.

What a finished folder refuses is refused before the first step (`check_finished`), so that nothing in it changes.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

from clearspan.adapt.options import Adapt
from clearspan.adapt.state import save
from clearspan.adapt.steps import QUESTIONS_FILE, Step, embedding, steps, title, without_chunks, without_inputs
from clearspan.adapt.updating import OF_TEXTS, UPDATED, is_finished
from clearspan.common import terminal
from clearspan.common.child_commands import run_module
from clearspan.common.model_folder import EncoderError
from clearspan.common.sealed_folder import FolderChangedError, set_aside
from clearspan.common.terminal import UsageError
from clearspan.eval.verdict import TRAINED
from clearspan.shards.manifest import ManifestError

FOLLOWING = ("questions", "judge")
"""Steps whose command may differ on a later call: if questions are added, the verdict on the same models is reached
again.
"""


def check_finished(state: Mapping[str, Any], options: Adapt) -> None:
    """Raise UsageError if an earlier call finished a step with another command, before any step runs.

    The command of the training is compared only if the outputs on which it depends are there, undamaged. The command
    that embeds is compared only if these options allow the model that was delivered.

    Args:
        state: the content of adapt.json.
        options: the options of this call.
    """
    with contextlib.suppress(ManifestError, EncoderError, OSError):  # a damaged output, whose step runs again
        for step in steps(options, runs=False):
            if step.is_known:
                _check_same(step, state, options)
    folders = {TRAINED: options.trained, **options.untrained}
    if (source := folders.get(state.get("delivered", ""))) is not None:
        _check_same(embedding(options, source), state, options)


def _check_same(step: Step, state: Mapping[str, Any], options: Adapt) -> None:
    """Raise UsageError if an earlier call finished a step with another command.

    The inputs may differ once the folder is finished, because it can then be updated (`adapt.updating`), and so may
    the length of chunks, because the vectors are then made again (`adapt.delivery`); but not both at once.
    """
    done = state["steps"].get(step.name)
    is_same = done in (None, step.recorded)
    if done and (is_finished(state) or state.get(UPDATED)):
        is_same = without_inputs(without_chunks(done)) == without_inputs(without_chunks(step.recorded))
    if not is_same and step.name not in FOLLOWING:
        raise UsageError(
            f"`output` {options.output}: its step {step.name} was made by another command; name another folder: {done}"
        )
    if options.update and done and is_finished(state) and without_inputs(done) != without_inputs(step.recorded):
        raise UsageError(
            f"`update` keeps the model and the verdict of {options.output}: give all other options as they "
            f"were when its step {step.name} was made: {done}"
        )


def run_step(step: Step, state: dict[str, Any], options: Adapt) -> None:
    """Print the command of a step, run it, and record it in adapt.json as finished.

    The command does not run if an earlier call has finished the step with the same command, and no damage to its output
    is found. A command that itself checks whether its inputs have changed (`Step.checks_inputs`) runs on every call.

    Args:
        state: the content of adapt.json, which is changed and saved.

    Raises:
        UsageError: an earlier call finished this step with another command, and the step is not `questions` or `judge`,
            which then run again; or the command refused an option.
        CommandError: the command failed.
    """
    done = state["steps"].get(step.name)
    _check_same(step, state, options)
    if state.get(UPDATED) and done and _is_of_the_verdict(step, done, options):
        terminal.notice(f"{title(step, options)}\n$ {done}  # finished: of the texts before the update")
        return
    if done != step.recorded or step.of_call:
        done = None
    if done and (problem := damage(step, options)):
        terminal.notice(f"{problem}: step {step.name} is run again")
        done = None
    finished = "  # finished: only checks whether its inputs have changed" if step.checks_inputs else "  # finished"
    comment = finished if done else ""
    terminal.notice(f"{title(step, options)}\n$ {step}{comment}")
    if not done:
        save(options.output, state)
    if not done or step.checks_inputs:
        run_module(step.module, (*step.words, *step.of_call), options.quiet or bool(done))
        state["steps"][step.name] = step.recorded
        save(options.output, state)


def _is_of_the_verdict(step: Step, done: str, options: Adapt) -> bool:
    """Return whether a step has read the texts of the verdict, which an update keeps though the inputs have changed."""
    if step.name != "questions":
        return step.name in OF_TEXTS
    return without_inputs(done) == without_inputs(step.recorded) and (options.output / QUESTIONS_FILE).is_file()


def damage(step: Step, options: Adapt) -> str:
    """Return a message about the damage to a finished step's output; "" if no damage is found.

    Only the models of the steps `start` and `train` are checked, because all other commands check their own output. A
    damaged folder of `start`, the static encoder before training, is renamed, because the command does not overwrite
    it.
    """
    from clearspan.train.run_folder import check_model

    try:
        if step.name == "start":
            check_model(options.base)
        elif step.name == "train":
            check_model(options.trained)
    except FolderChangedError as error:
        is_mine = step.name == "start" and options.base.exists()
        return f"{error}{f' (moved to {set_aside(options.base)})' if is_mine else ''}"
    return ""
