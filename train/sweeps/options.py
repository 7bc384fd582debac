"""The options of `clearspan sweep`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from clearspan.common.options import Flag, Options, Quiet
from clearspan.train.sweeps import grid

WORDS = f"a sweep: {', '.join(grid.names())}, or a YAML file; and recipe keys for all runs"
GRID = "one run for each value; keys joined by ';' vary together; replaces a sweep's axis of the same first key"
LAUNCHER = 'options of the launcher of `clearspan train`, e.g. "--num_gpus 4"'
SCORE = "the table's first score: an average of the tasks, e.g. downstream_declutr_dev, or TASK/METRIC"


@dataclass(frozen=True, kw_only=True)
class Sweep(Options):
    """The command `sweep`."""

    words: Annotated[tuple[str, ...], Flag(WORDS, "SWEEP | key=value", positional=True)] = ()
    output: Annotated[Path, Flag("the sweep's folder: new, or to continue", "DIR")]
    recipe: Annotated[str, Flag("the runs' recipe (default: the sweep's)", "NAME-or-FILE")] = ""
    grid: Annotated[tuple[str, ...], Flag(GRID, "KEY=A,B[;KEY=C,D]")] = ()
    launcher: Annotated[str, Flag(LAUNCHER, "ARGS", name="--launcher-options")] = ""
    tasks: Annotated[str, Flag("tasks of `clearspan eval` (default: the sweep's)", "LIST")] = ""
    data: Annotated[str, Flag("the tasks' data; without it no run is evaluated", "DIR")] = ""
    score: Annotated[str, Flag(SCORE, "NAME")] = ""
    protocol: Annotated[Literal["full", "fast"], Flag("protocol of `clearspan eval`")] = "full"
    dry_run: Annotated[bool, Flag("list the runs and what each changes; no training")] = False
    quiet: Quiet = False
