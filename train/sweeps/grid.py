"""Grids of runs: the combinations of a recipe's keys that a sweep trains, and the names of the runs.

    --grid KEY=A,B               an axis: runs with A, runs with B
    --grid "KEY=A,B;OTHER=C,D"   an axis whose keys vary together: runs with A and C, runs with B and D
    train/sweeps/NAME.yaml       a recipe and its axes, such as those of a paper's figure

The key `recipe` names the run's recipe. A run has one value of every axis; the last axis varies fastest.
"""

import dataclasses
import hashlib
import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clearspan.train.config.keys import KeyedError, typed
from clearspan.train.config.layers import read_value, read_yaml
from clearspan.train.options import RecipeError, one_of, refuse

FOLDER = Path(__file__).parent
RECIPE = "recipe"
LONGEST = 200
"""Characters of a run's name at most: a folder's name may have 255."""


@dataclasses.dataclass(frozen=True)
class Axis:
    """Keys that vary together. A point has one value of every key, written as in an override."""

    keys: tuple[str, ...]
    points: tuple[tuple[str, ...], ...]

    @property
    def labels(self) -> list[str]:
        """The points' labels: each point's first value, and more of its values if the first ones are not unique."""
        for count in range(1, len(self.keys) + 1):
            labels = ["-".join(slug(value) for value in point[:count]) for point in self.points]
            if len(set(labels)) == len(labels):
                break
        return labels

    def in_order(self) -> "Axis":
        """Return this axis sorted by the first key's values if all are numbers, else unchanged."""
        try:
            return Axis(self.keys, tuple(sorted(self.points, key=lambda point: float(point[0]))))
        except ValueError:
            return self


@dataclasses.dataclass(frozen=True)
class Run:
    """One combination: the name of its folder, and the values of the axes' keys."""

    name: str
    settings: dict[str, str]

    def overrides(self) -> list[str]:
        """Return the run's settings as `key=value` arguments."""
        return [f"{key}={value}" for key, value in self.settings.items() if key != RECIPE]


@dataclasses.dataclass(frozen=True)
class Grid:
    """A sweep's axes, over one recipe or over those of an axis `recipe`.

    Args:
        by: the first keys of the axes that the figure has panels for; (): all axes that vary.
        color: the first key of the axis that the figure shows by color; "": none.
        tasks: the tasks of `clearspan eval` on which runs are scored if their data is given.
        score: the one of the tasks' scores that the figure shows; see `train.sweeps.scores`.
    """

    recipe: str
    axes: tuple[Axis, ...]
    by: tuple[str, ...] = ()
    color: str = ""
    tasks: tuple[str, ...] = ()
    score: str = ""

    def __post_init__(self) -> None:
        keys = [key for axis in self.axes for key in axis.keys]
        first = [axis.keys[0] for axis in self.axes]
        recipes = RECIPE in keys
        refuse(
            (not self.axes, "a sweep needs a key that varies: --grid KEY=A,B"),
            (not self.recipe and not recipes, "give --recipe, or --grid recipe=A,B"),
            (bool(self.recipe) and recipes, f"--recipe {self.recipe} has no effect: the grid varies recipe"),
            *((keys.count(key) > 1, f"{key} stands in two axes of the grid: keep one") for key in keys),
            *(
                (key not in first, f"the figure's {key!r} is not the first key of an axis: {one_of(key, first)}")
                for key in (*self.by, *filter(None, [self.color]))
            ),
        )

    def axis(self, key: str) -> Axis:
        """Return the axis with this first key."""
        return next(axis for axis in self.axes if axis.keys[0] == key)

    @property
    def panels(self) -> tuple[str, ...]:
        """The first keys of the axes that the figure has panels for."""
        return self.by or tuple(axis.keys[0] for axis in self.axes if len(axis.points) > 1)

    def with_axes(self, more: Sequence[Axis]) -> "Grid":
        """Return this grid with further axes; an axis replaces the one with the same first key."""
        new = {axis.keys[0]: axis for axis in more}
        refuse((len(new) < len(more), "--grid: two axes have the same first key: give all its values in one"))
        axes = [new.pop(axis.keys[0], axis) for axis in self.axes]
        return dataclasses.replace(self, axes=(*axes, *new.values()))

    def runs(self) -> list[Run]:
        """Return every combination.

        Raises:
            RecipeError: two of them would have the same name.
        """
        short = short_names([key for axis in self.axes for key in axis.keys])
        runs: dict[str, Run] = {}
        for points in itertools.product(*(axis.points for axis in self.axes)):
            chosen = zip(self.axes, points, strict=True)
            settings = {key: value for axis, point in chosen for key, value in zip(axis.keys, point, strict=True)}
            name = ",".join(f"{short[key]}={slug(value)}" for key, value in settings.items())
            if len(name) > LONGEST:
                name = f"{name[: LONGEST - 9]}-{_hash(name, 8)}"
            if name in runs:
                raise RecipeError(f"--grid: two runs would be called {name}: give each value once")
            runs[name] = Run(name, {RECIPE: self.recipe, **settings})
        return list(runs.values())


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Return each key's last part, or the whole key if another key ends in the same part."""
    last = {key: key.rsplit(".", 1)[-1] for key in keys}
    return {key: word if list(last.values()).count(word) == 1 else key for key, word in last.items()}


def slug(value: str) -> str:
    """Return a value as a part of a folder's name; a value that must be changed, such as a path, gets a hash."""
    word = re.sub(r"[^\w.+-]+", "-", value.rstrip("/").rsplit("/", 1)[-1])
    return value if word == value else f"{word.strip('-')}-{_hash(value, 6)}"


def _hash(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def parse_axis(text: str) -> Axis:
    """Return the axis that `KEY=A,B` or `KEY=A,B;OTHER=C,D` writes.

    Raises:
        RecipeError: the text has another form, or its keys have different numbers of values.
    """
    keys: dict[str, list[str]] = {}
    for part in re.split(r";(?=\s*[\w.-]+=)", text):
        key, equals, values = part.strip().partition("=")
        if not equals or not re.fullmatch(r"[\w.-]+", key):
            raise RecipeError(f"--grid {text!r} is not KEY=VALUE,VALUE")
        if key in keys:
            raise RecipeError(f"--grid {text!r}: {key} stands twice")
        parts = re.split(r",(?![^\[{]*[\]}])", values)  # not in brackets
        keys[key] = [canonical(key, value.strip()) for value in parts]
    return _axis(f"--grid {text!r}", keys)


def _axis(where: str, keys: dict[str, list[str]]) -> Axis:
    """Return the axis of these keys' values; `where` is the start of an error message."""
    counts = {key: len(values) for key, values in keys.items()}
    if len(set(counts.values())) != 1 or 0 in counts.values():
        numbers = ", ".join(f"{count} of {key}" for key, count in counts.items())
        raise RecipeError(f"{where}: keys that vary together need as many values each, found {numbers or 'none'}")
    points = tuple(zip(*keys.values(), strict=True))
    if len(set(points)) < len(points):
        raise RecipeError(f"{where}: gives the same value twice")
    return Axis(tuple(keys), points)


def canonical(key: str, value: str) -> str:
    """Return the one text of a value, so that 5e-5 and 0.00005 are the same run."""
    if not value:
        raise RecipeError(f"--grid {key} has an empty value: write null to leave a key out")
    try:
        return as_text(read_value(value))
    except ValueError as error:
        raise RecipeError(f"--grid {key}: {value!r}: {error}") from None


def as_text(value: Any) -> str:
    """Return a value as an override writes it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{','.join(map(as_text, value))}]"
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def names() -> list[str]:
    """Return the names of the sweeps that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


@dataclasses.dataclass
class SweepFile:
    """The keys of a sweep's YAML file; `Grid` says what they mean."""

    grid: list[dict[str, list[Any]]]
    recipe: str = ""
    by: list[str] = dataclasses.field(default_factory=list)
    color: str = ""
    tasks: list[str] = dataclasses.field(default_factory=list)
    score: str = ""


def read(name_or_file: str) -> Grid:
    """Return a named sweep, or the one in a file.

    Raises:
        RecipeError: there is none, or it is not of the form of `train/sweeps/*.yaml`.
    """
    is_file = name_or_file.endswith((".yaml", ".yml"))
    path = Path(name_or_file) if is_file else FOLDER / f"{name_or_file}.yaml"
    if not path.is_file():
        raise RecipeError(f"no sweep {name_or_file!r}: give a .yaml file or one of {one_of(name_or_file, names())}")
    try:
        file = typed(SweepFile, read_yaml(path), known=[field.name for field in dataclasses.fields(SweepFile)])
    except KeyedError as error:
        raise RecipeError(f"{path}: {error}") from None
    refuse((bool(file.score) and not file.tasks, f"{path}: score {file.score} needs tasks, those of `clearspan eval`"))
    axes = tuple(
        _axis(f"{path}: axis {number}", {key: [as_text(value) for value in values] for key, values in axis.items()})
        for number, axis in enumerate(file.grid, 1)
    )
    return Grid(file.recipe, axes, tuple(file.by), file.color, tuple(file.tasks), file.score)
