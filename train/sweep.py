"""Train a grid of runs, one after the other or `--at-once N`, and compare them: `clearspan sweep`.

    recipe x grid -> OUTPUT/NAME, one run each -> scores -> table.csv

The same command continues a stopped sweep: it keeps finished runs, resumes unfinished runs, and starts runs for values
that were added to the grid. `--part K/N` trains every Nth run only, so that N jobs share a sweep; the same command
without it then writes the table. `train/sweeps` holds the ablations of the papers, by name.
"""

import signal
from dataclasses import dataclass
from typing import ClassVar

from clearspan.cli.command import Command, Result
from clearspan.train.sweeps.grid import Sweep

EXAMPLE = """
clearspan sweep declutr-figure-2 data.text.path=data/train model.path=MODEL --output sweeps/figure-2
clearspan sweep --recipe declutr-small --grid objectives.spans.sampler.num_anchors=1,2 \\
    --grid "optimizer.learning_rate=5e-5,1e-4;training.epochs=1,2" --output sweeps/mine data.text.path=data/train
"""


@dataclass(frozen=True, kw_only=True)
class SweepCommand(Sweep, Command):
    """The command `sweep`: trains a grid of runs, and compares them."""

    error_prefix: ClassVar[str] = "sweep"
    example: ClassVar[str] = EXAMPLE

    def run(self) -> Result:
        """Train and score the runs, and print a line when a run begins; or only list them, with the option `dry_run`.

        The exit code of the result is 1 if a run failed.
        """
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the run that trains saves its work
        from clearspan.train.sweeps.running import sweep

        return sweep(self)


main = SweepCommand.main


if __name__ == "__main__":
    raise SystemExit(main())
