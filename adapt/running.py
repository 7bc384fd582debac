"""Run a step, unless an earlier call has finished it and what it left is whole."""

from pathlib import Path
from typing import Any

from clearspan.adapt.finish import SCORED
from clearspan.adapt.options import Adapt
from clearspan.adapt.state import save
from clearspan.adapt.steps import PIPELINES, Step, title
from clearspan.common import terminal
from clearspan.common.commands import UsageError, run_module
from clearspan.common.sealed_folder import DamageError, set_aside


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
