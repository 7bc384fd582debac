"""Run a step, unless an earlier call has finished it and what it left is whole."""

from typing import Any

from clearspan.adapt.options import Adapt
from clearspan.adapt.state import save
from clearspan.adapt.steps import Step, title
from clearspan.common import terminal
from clearspan.common.commands import UsageError, run_module
from clearspan.common.sealed_folder import FolderChangedError, set_aside

FOLLOWING = ("questions", "judge")
"""Steps that may be those of another command on a later call: with questions that were added, the verdict is reached
again, of the same models.
"""


def run(step: Step, state: dict[str, Any], options: Adapt) -> None:
    """Run a command unless an earlier call has finished it, and what it left is whole; add it to `adapt.json` when it
    has finished. A command that compares its inputs itself runs in any case.

    Raises:
        UsageError: the earlier call's command was another one, or the command refused an option.
        CommandError: the command failed.
    """
    done = state["steps"].get(step.name)
    if done not in (None, str(step)) and step.name not in FOLLOWING:
        raise UsageError(
            f"--output {options.output}: its step {step.name} is that of another command; name another folder: {done}"
        )
    if done != str(step):
        done = None
    if done and (problem := damage(step, options)):
        terminal.notice(f"{problem}: step {step.name} is run again")
        done = None
    comment = f"  # finished{': compares its inputs' * step.compares}" if done else ""
    terminal.notice(f"{title(step, options)}\n$ {step}{comment}")
    if not done:
        save(options.output, state)
    if not done or step.compares:
        run_module(step.module, step.words, options.quiet or bool(done))
        state["steps"][step.name] = str(step)
        save(options.output, state)


def damage(step: Step, options: Adapt) -> str:
    """Return what is wrong with the files that a finished command left, "" if they are whole or the command checks them
    itself. A damaged folder that the command would not replace is moved out of the way.
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
