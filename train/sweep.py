"""Train a grid of runs, one after the other or `--at-once N`, and compare them: `clearspan sweep`.

    recipe x grid -> OUTPUT/NAME, one run each -> scores -> table.csv

The same command continues where it stopped: it keeps finished runs, resumes halted ones, and trains values that were
added to the grid. `train/sweeps` holds the papers' ablations by name.
"""

import signal
from collections.abc import Sequence

from clearspan.common.options import run
from clearspan.train.sweeps.grid import Sweep

PROG = "python -m train.sweep"
EXAMPLE = """examples:
  clearspan sweep declutr-figure-2 data.text.path=data/train model.path=MODEL --output sweeps/figure-2
  clearspan sweep --recipe declutr-small --grid objectives.spans.sampler.num_anchors=1,2 \\
      --grid "optimizer.learning_rate=5e-5,1e-4;training.epochs=1,2" --output sweeps/mine data.text.path=data/train
"""


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    frame = {"name": "sweep", "description": __doc__, "epilog": EXAMPLE}
    return run(Sweep, work, argv, prog, (ValueError, OSError), **frame)


def work(options: Sweep) -> int:
    """Run the sweep; return the exit code: 0, 1 if a run failed, 2 if it cannot work, 130 if interrupted."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the run that trains saves its work
    from clearspan.train.sweeps.running import sweep

    return sweep(options)


if __name__ == "__main__":
    raise SystemExit(main())
