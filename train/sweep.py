"""Train a grid of runs, one after the other, and compare them: `clearspan sweep`.

    recipe x grid -> OUTPUT/NAME, one run each -> scores -> table.csv, sweep.json, figure.png

The same command continues where it stopped: it keeps finished runs, resumes halted ones, and trains values that were
added to the grid. `train/sweeps` holds the papers' ablations by name.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clearspan.train.engine.signals import ending_at_once

if TYPE_CHECKING:
    from clearspan.common.terminal import Parser

PROG = "python -m train.sweep"
EXAMPLE = """examples:
  clearspan sweep declutr-figure-2 data.text.path=data/train model.path=MODEL --output sweeps/figure-2
  clearspan sweep --recipe declutr-small --grid objectives.spans.sampler.num_anchors=1,2 \\
      --grid "optimizer.learning_rate=5e-5,1e-4;training.epochs=1,2" --output sweeps/mine data.text.path=data/train
"""


def parser(prog: str = PROG) -> "Parser":
    from clearspan.common import terminal
    from clearspan.train.sweeps import grid

    root = terminal.Parser(prog=prog, description=__doc__, epilog=EXAMPLE)
    words_help = f"a sweep: {', '.join(grid.names())}, or a YAML file; and recipe keys for all runs"
    root.add_argument("words", nargs="*", metavar="SWEEP | key=value", help=words_help)
    root.add_argument("--recipe", default="", metavar="NAME-or-FILE", help="the runs' recipe (default: the sweep's)")
    root.add_argument(
        "--grid",
        action="append",
        default=[],
        metavar="KEY=A,B[;KEY=C,D]",
        help="one run for each value; keys joined by ';' vary together; replaces a sweep's axis of the same first key",
    )
    root.add_argument(
        "--output", required=True, type=Path, metavar="DIR", help="the sweep's folder: new, or to continue"
    )
    launcher = 'options of the launcher of `clearspan train`, e.g. "--num_gpus 4"'
    root.add_argument("--launcher-options", dest="launcher", default="", metavar="ARGS", help=launcher)
    root.renamed("--launcher", "--launcher-options")
    root.add_argument("--tasks", default="", metavar="LIST", help="tasks of `clearspan eval` (default: the sweep's)")
    root.add_argument("--data", default="", metavar="DIR", help="the tasks' data; without it no run is evaluated")
    score_help = "the score that the figure shows: an average of the tasks, e.g. downstream_declutr_dev, or TASK/METRIC"
    root.add_argument("--score", default="", metavar="NAME", help=score_help)
    root.add_argument("--protocol", choices=("full", "fast"), default="full", help="protocol of `clearspan eval`")
    root.add_argument(
        "--by",
        action="append",
        default=[],
        metavar="KEY",
        help="key with a panel of its own in the figure; may be repeated (default: all keys that vary)",
    )
    root.add_argument("--color", default="", metavar="KEY", help="the key that the figure shows by color")
    root.add_argument("--dry-run", action="store_true", help="list the runs and what each changes; no training")
    root.add_argument("--quiet", action="store_true", help="no progress bars")
    root.add_argument("--version", action="version", version=terminal.version())
    return root


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    with ending_at_once("sweep", "run it again"):
        from clearspan.common import terminal

        options = parser(prog).parse_intermixed_args(argv)
    return terminal.run("sweep", lambda: work(options), (ValueError, OSError))


def work(options: argparse.Namespace) -> int:
    """Run the sweep; return the exit code: 0, 1 if a run failed or the sweep was stopped, 2 if it cannot work."""
    with ending_at_once("sweep", "run it again"):
        from clearspan.common import files, terminal
        from clearspan.train.engine.ranks import name_accelerator
        from clearspan.train.options import RecipeError

        name_accelerator()
        from clearspan.train.sweeps.running import Starter, describe, planned, sweep
        from clearspan.train.sweeps.scores import missing

    try:
        with ending_at_once("sweep", "run it again"):
            plan = planned(options)
            if absent := missing(plan.scoring):
                terminal.notice(absent)
            elif plan.grid.score and not plan.scoring.tasks:
                terminal.notice(f"no --data DIR for {', '.join(plan.grid.tasks)}: runs have no {plan.grid.score}")
        if options.dry_run:
            terminal.say(describe(plan, options.output))
            return 0
        with files.locked(options.output), Starter() as starter:
            return sweep(options, plan, starter.run, lambda: starter.signal)
    except RecipeError as error:
        print(f"sweep: {terminal.one_line(error)}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
