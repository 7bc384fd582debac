"""Train a sentence encoder: `clearspan train --recipe NAME-or-FILE [key=value ...]`, or `deepspeed train/run.py ...`.

Read the recipe, build the model and the stream of examples, train, and export the best checkpoint (or the last, if
checkpoints are not scored) to OUTPUT/model. `--resume` continues a run; the length of the run and its settings of
logging, saving and evaluation may change. A run that Ctrl-C, SIGTERM or `training.max_hours` stops saves a checkpoint,
and exits with code 130. `--dry-run` makes all checks that precede the first step, prints the resolved recipe and the
cost of the run, and does not train.
"""

import contextlib
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

# `deepspeed train/run.py` puts train/ first, where its data/, model/ or config/ could hide a user's module.
sys.path[:] = [folder for folder in sys.path if Path(folder) != Path(__file__).parent]

from clearspan.cli.command import Command, Errors, Printed, Result  # noqa: E402
from clearspan.cli.flags import flag_of, register  # noqa: E402
from clearspan.common.allocator import keep_few_kernels  # noqa: E402
from clearspan.common.answers import continue_with  # noqa: E402
from clearspan.common.options import Flag, fields_of  # noqa: E402
from clearspan.train.engine.signals import PREFIX  # noqa: E402
from clearspan.train.request import LauncherOptions, TrainOptions  # noqa: E402

EXAMPLE = """
clearspan train --recipe declutr-small data.text.path=data/train output=runs/declutr-small model.path=MODEL
clearspan train --num_accelerators 2 --recipe my-recipe.yaml data.text.batch_size=64
clearspan train --recipe declutr-base data.text.path=data/train output=runs/try model.path=MODEL --dry-run
"""


@dataclass(frozen=True, kw_only=True)
class RankCommand(TrainOptions, Command):
    """The command `deepspeed train/run.py`, which trains as one rank; the launcher starts it once for each device."""

    prog: ClassVar[str] = "deepspeed train/run.py"
    error_prefix: ClassVar[str] = PREFIX
    example: ClassVar[str] = EXAMPLE
    expected: ClassVar[Errors] = ()
    remedy: ClassVar[str] = continue_with("resume", "run it again, with --resume if a checkpoint is there")

    local_rank: Annotated[int, Flag(name="--local_rank", hidden=True)] = 0

    def run(self) -> Result:
        """Train as one rank, or list the recipes if the option `list` is set.

        After a training, the result has no text, only the exit code: 0 for success, 1 if the work failed, 2 if the
        recipe cannot work, 130 if the run was stopped. The reason has been printed by then. If several ranks fail on a
        machine, only the first of them prints a reason: the others wait for it, and the launcher then ends them.
        """
        if self.list:
            return catalog()
        ranks_here = os.environ.get("LOCAL_SIZE", os.environ.get("LOCAL_WORLD_SIZE"))  # of deepspeed, of torchrun
        if ranks_here and ranks_here != os.environ.get("WORLD_SIZE"):
            os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # torch warns of each machine without a name in DNS
        from clearspan.train.engine.ranks import check_environment, name_accelerator

        register(map(flag_of, fields_of(LauncherOptions)))  # of which messages speak
        check_environment()
        name_accelerator()
        keep_few_kernels()
        from clearspan.train import job

        return Printed(code=job.work(self.recipe, self.overrides, self.resume, self.dry_run, self.quiet))


def catalog() -> Result:
    """Return the list of recipes, for `--list`."""
    from clearspan.train import reference

    return Printed(reference.catalog())


def main(argv: list[str] | None = None) -> int:
    warnings.filterwarnings("ignore", category=FutureWarning)
    return RankCommand.main(argv)


if __name__ == "__main__":
    exit_code = main()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(exit_code)  # everything is saved; gloo's threads sometimes abort an interpreter that shuts down
