"""Grids of runs: the combinations of values of recipe keys that a sweep trains; the options of `clearspan sweep`.

    --grid KEY=A,B               an axis: runs with A, runs with B
    --grid "KEY=A,B;OTHER=C,D"   an axis whose keys vary together: runs with A and C, runs with B and D
    train/sweeps/NAME.yaml       a recipe and its axes, e.g. the axes of a paper's figure

An axis may also vary the key `recipe`. A point of an axis is one value of its key, or of each of its keys. There is a
run for each combination of one point from each axis; the last axis varies fastest.
"""

import dataclasses
import hashlib
import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge

from clearspan.common.options import Flag, Options, Quiet
from clearspan.train.config.keys import naming, typed
from clearspan.train.config.layers import parse, read_yaml
from clearspan.train.config.options import RecipeError, one_of, refuse

FOLDER = Path(__file__).parent
RECIPE = "recipe"
MAX_RUNS = 10_000
"""Most runs of a sweep; the values of several axes multiply."""

Axis = dict[str, list[Any]]
"""An axis: keys that vary together -> their values, the same number for each key."""


@dataclasses.dataclass(frozen=True)
class GridRun:
    """A run of the grid: the values that it gives to the keys that vary.

    Attributes:
        name: the name of the run's folder, such as `num_anchors=1,epochs=2`.
        settings: recipe key -> the run's value for it, written as on the command line. The key `recipe` is always
            there.
    """

    name: str
    settings: dict[str, str]

    def overrides(self) -> list[str]:
        """Return the run's settings as `key=value` arguments, except for its recipe."""
        return [f"{key}={value}" for key, value in self.settings.items() if key != RECIPE]


@dataclasses.dataclass
class Grid:
    """The description of a sweep. Its fields are the keys of a sweep's YAML file.

    Args:
        grid: the axes, each with its keys and values.
        recipe: the name or the file of the recipe of all runs; "" if an axis varies the recipe.
        tasks: the tasks of `clearspan eval` that score the runs. If the user gives no `--data`, no run is scored.
        score: the name of an average over tasks, which is the first metric in the table and ranks the runs; "" for
            none.
    """

    grid: list[Axis]
    recipe: str = ""
    tasks: list[str] = dataclasses.field(default_factory=list)
    score: str = ""

    def with_axes(self, axes: Sequence[Axis]) -> "Grid":
        """Return this grid with further axes.

        A further axis replaces the axis of this grid that has the same first key, if there is one.

        Args:
            axes: the further axes.

        Raises:
            RecipeError: two of the further axes have the same first key.
        """
        new = {next(iter(axis)): axis for axis in axes}
        refuse((len(new) < len(axes), "`grid`: two axes have the same first key: give all its values in one"))
        kept = [new.pop(next(iter(axis)), axis) for axis in self.grid]
        return dataclasses.replace(self, grid=[*kept, *new.values()])

    def runs(self) -> list[GridRun]:
        """Return the runs of the grid: one run for each way to choose one point from each axis.

        A point of an axis is one value of its key, or of each of its keys if they vary together.

        Raises:
            RecipeError: there is no axis; the recipe is missing, or both --recipe and an axis set it; a key is in two
                axes; the keys of an axis have different numbers of values; two runs would have the same name; or there
                are more than 10,000 runs (MAX_RUNS).
        """
        keys = [key for axis in self.grid for key in axis]
        refuse(
            (not keys, "a sweep needs a key that varies: `grid` KEY=A,B"),
            (not self.recipe and RECIPE not in keys, "give `recipe`, or `grid` recipe=A,B"),
            (
                self.recipe != "" and RECIPE in keys,
                f"`recipe` {self.recipe} has no effect: the grid varies recipe",
            ),
            *((keys.count(key) > 1, f"{key} stands in two axes of the grid: keep one") for key in keys),
        )
        short = short_names(keys)
        runs: dict[str, GridRun] = {}
        axes = list(map(_points, self.grid))
        num_runs = math.prod(map(len, axes))
        refuse((num_runs > MAX_RUNS, f"the grid has {num_runs:,} runs, more than {MAX_RUNS:,}: give fewer values"))
        for points in itertools.product(*axes):
            settings = {key: value for point in points for key, value in point.items()}
            name = ",".join(f"{short[key]}={slug(value)}" for key, value in settings.items())
            refuse((name in runs, f"the grid has the run {name} twice: give each value once"))
            runs[name] = GridRun(name, {RECIPE: self.recipe, **settings})
        return list(runs.values())


def _points(axis: Axis) -> list[dict[str, str]]:
    """Return the points of an axis, each as key -> value: the first point has the first value of every key, and so on.

    Raises:
        RecipeError: the keys have different numbers of values, or none.
    """
    counts = ", ".join(f"{len(values)} of {key}" for key, values in axis.items())
    if not axis or len({len(values) for values in axis.values()}) != 1 or not all(axis.values()):
        raise RecipeError(f"keys of a grid that vary together need the same number of values, found {counts or 'none'}")
    return [dict(zip(axis, map(as_text, point), strict=True)) for point in zip(*axis.values(), strict=True)]


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Return key -> its short name: the last part of the key, or the whole key if another key has the same last part.

    Args:
        keys: dotted recipe keys, such as `optimizer.learning_rate`.
    """
    last = {key: key.rsplit(".", 1)[-1] for key in keys}
    return {key: word if list(last.values()).count(word) == 1 else key for key, word in last.items()}


def slug(value: str) -> str:
    """Return the text that stands for a value in the name of a run's folder.

    That is the value itself if it consists of letters, digits and the characters `_.+-`. Otherwise it is what follows
    the last slash of the value, with `-` in place of each other character, and a hash of the whole value.
    """
    word = re.sub(r"[^\w.+-]+", "-", value.rstrip("/").rsplit("/", 1)[-1])
    return value if word == value else f"{word.strip('-')}-{hashlib.sha256(value.encode()).hexdigest()[:6]}"


def as_text(value: Any) -> str:
    """Return a value as written on the command line, normalized so that 5e-5 and 0.00005 give the same run."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{','.join(map(as_text, value))}]"
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def parse_axis(text: str) -> Axis:
    """Parse an axis: `KEY=A,B`, or `KEY=A,B;OTHER=C,D` for keys that vary together (A with C, B with D).

    Raises:
        RecipeError: the text has a different form, or names a key twice.
    """
    axis: Axis = {}
    for part in re.split(r";(?=\s*[\w.-]+=)", text):
        key, equals, values = part.strip().partition("=")
        refuse(
            (not equals or not re.fullmatch(r"[\w.-]+", key), f"`grid` {text!r} is not KEY=VALUE,VALUE"),
            (key in axis, f"`grid` {text!r}: {key} stands twice"),
        )
        with naming(f"`grid` {text!r}"):
            axis[key] = parse(f"[{values}]")
    return axis


def names() -> list[str]:
    """Return the names of the sweeps that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def read(name_or_file: str) -> Grid:
    """Return the description of a sweep, by the sweep's name or from a YAML file.

    Args:
        name_or_file: the name of a sweep that comes with the package, or the path of a .yaml or .yml file.

    Raises:
        RecipeError: there is no such sweep, or it does not have the form of `train/sweeps/*.yaml`.
    """
    is_file = name_or_file.endswith((".yaml", ".yml"))
    path = Path(name_or_file) if is_file else FOLDER / f"{name_or_file}.yaml"
    if not path.is_file():
        raise RecipeError(f"no sweep {name_or_file!r}: give a .yaml file or one of {one_of(name_or_file, names())}")
    with naming(str(path)):
        return typed(Grid, read_yaml(path))


@dataclass(frozen=True, kw_only=True)
class Sweep(Options):
    """Options of the command `sweep`."""

    words: Annotated[tuple[str, ...], Flag("SWEEP | key=value", positional=True)] = ()
    """A sweep by name (clear-augmentations, clear-deletion, declutr-figure-2, declutr-figure-3, declutr-v1-figure-2,
    declutr-v1-figure-s1a, declutr-v1-figure-s1b) or as a YAML file, and recipe keys to change in all runs.
    """
    output: Annotated[Path, Flag("DIR", output=True)]
    """Folder of the sweep: a new one, or one to continue."""
    recipe: Annotated[str, Flag("NAME-or-FILE", path=True)] = ""
    """Recipe of all runs (default: the sweep's recipe)."""
    grid: Annotated[tuple[str, ...], Flag("KEY=A,B[;KEY=C,D]")] = ()
    """Train one run for each value of a recipe key; keys joined by ';' vary together; replaces the sweep's axis of the
    same first key; may be repeated.
    """
    launcher: Annotated[str, Flag("ARGS", name="--launcher-options")] = ""
    """Launcher options of `clearspan train`, e.g. "--num_gpus 4"."""
    tasks: Annotated[str, Flag("LIST")] = ""
    """Tasks of `clearspan eval` that score the runs (default: the sweep's tasks)."""
    data: Annotated[str, Flag("DIR", path=True)] = ""
    """Folder with the data of the tasks; without --data, no run is evaluated."""
    protocol: Annotated[Literal["full", "fast"], Flag()] = "full"
    """Protocol of `clearspan eval`."""
    at_once: Annotated[int, Flag("N"), Ge(1)] = 1
    """Train and evaluate N runs at a time, quietly, on the same devices, whose memory the runs share."""
    part: Annotated[str, Flag("K/N")] = ""
    """Train and evaluate every Nth run only, from the Kth on, and write no table: for a job array, e.g. 2/4."""
    dry_run: Annotated[bool, Flag()] = False
    """List the runs and the keys that each run changes, without training."""
    quiet: Quiet = False
    """Show no progress bar."""

    def validate(self) -> None:
        super().validate()
        number, _, parts = self.part.partition("/")
        if self.part and not (number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)):
            raise ValueError(f"`part` {self.part}: give K/N with K from 1 to N, e.g. 2/4")

    def chosen(self, runs: Sequence[GridRun]) -> Sequence[GridRun]:
        """Return the runs of this part of a sweep: every Nth run, from the Kth on; all runs if `part` is "".

        Args:
            runs: all runs of the sweep.

        Raises:
            RecipeError: there are fewer runs than parts.
        """
        if not self.part:
            return runs
        number, parts = map(int, self.part.split("/"))
        refuse((parts > len(runs), f"`part` {self.part}: the grid has {len(runs)} runs: give as many parts at most"))
        return runs[number - 1 :: parts]
