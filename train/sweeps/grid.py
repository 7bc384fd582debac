"""Grids of runs: which combinations of a recipe's keys a sweep trains, and what the runs are called.

    --grid KEY=A,B               an axis: runs with A, runs with B
    --grid "KEY=A,B;OTHER=C,D"   an axis whose keys go together: runs with A and C, runs with B and D
    train/sweeps/NAME.yaml       a recipe and its axes, such as those of a paper's figure

The key `recipe` names the run's recipe. A run is of one value of every axis, the last axis varying first.
"""

import dataclasses
import hashlib
import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clearspan.train.config.layers import parse, read_yaml
from clearspan.train.options import RecipeError, one_of, refuse

FOLDER = Path(__file__).parent
RECIPE = "recipe"
LONGEST = 200
"""Characters of a run's name: a folder's name has 255 at most."""


@dataclasses.dataclass(frozen=True)
class Axis:
    """Keys that vary together: of each point, a value of every key, as an override writes it."""

    keys: tuple[str, ...]
    points: tuple[tuple[str, ...], ...]

    @property
    def labels(self) -> list[str]:
        """A point's first value, and as many of the next ones as it takes to tell the points apart."""
        for count in range(1, len(self.keys) + 1):
            labels = ["-".join(slug(value) for value in point[:count]) for point in self.points]
            if len(set(labels)) == len(labels):
                break
        return labels

    def in_order(self) -> "Axis":
        """This axis with its points by the first key's value, where all of these are numbers."""
        try:
            return Axis(self.keys, tuple(sorted(self.points, key=lambda point: float(point[0]))))
        except ValueError:
            return self


@dataclasses.dataclass(frozen=True)
class Run:
    """One combination: its folder's name, and the values of the axes' keys."""

    name: str
    settings: dict[str, str]

    def overrides(self) -> list[str]:
        return [f"{key}={value}" for key, value in self.settings.items() if key != RECIPE]


@dataclasses.dataclass(frozen=True)
class Grid:
    """A sweep's axes, over one recipe or those of an axis `recipe`.

    Args:
        by: the axes, by their first keys, that the figure has a panel of; (): all that vary.
        colour: the axis that it tells apart by colour; "": none.
        tasks: of `python -m eval`, which runs are scored on where their data is given.
        score: of these tasks' figures the one that the figure shows; see `train.sweeps.scores`.
    """

    recipe: str
    axes: tuple[Axis, ...]
    by: tuple[str, ...] = ()
    colour: str = ""
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
            *((keys.count(key) > 1, f"{key} stands in two axes of the grid: give it in one") for key in keys),
            *(
                (
                    key not in first,
                    f"the figure's {key!r} is not the first key of an axis: {one_of(key, first)}",
                )
                for key in (*self.by, *filter(None, [self.colour]))
            ),
        )

    def axis(self, key: str) -> Axis:
        """The axis of that first key."""
        return next(axis for axis in self.axes if axis.keys[0] == key)

    @property
    def panels(self) -> tuple[str, ...]:
        return self.by or tuple(axis.keys[0] for axis in self.axes if len(axis.points) > 1)

    def with_axes(self, more: Sequence[Axis]) -> "Grid":
        """This grid with these axes too, each in place of the one of the same first key."""
        given = {axis.keys[0]: axis for axis in more}
        refuse((len(given) < len(more), "--grid: one key has two: give all its values in one"))
        axes = [given.pop(axis.keys[0], axis) for axis in self.axes]
        return dataclasses.replace(self, axes=(*axes, *given.values()))

    def runs(self) -> list[Run]:
        """Every combination.

        Raises:
            RecipeError: two of them would have one name.
        """
        short = short_names([key for axis in self.axes for key in axis.keys])
        found: dict[str, Run] = {}
        for points in itertools.product(*(axis.points for axis in self.axes)):
            chosen = zip(self.axes, points, strict=True)
            settings = {key: value for axis, point in chosen for key, value in zip(axis.keys, point, strict=True)}
            name = ",".join(f"{short[key]}={slug(value)}" for key, value in settings.items())
            if len(name) > LONGEST:
                name = f"{name[: LONGEST - 9]}-{_hash(name, 8)}"
            if name in found:
                raise RecipeError(f"--grid: two runs would be called {name}: give each value once")
            found[name] = Run(name, {RECIPE: self.recipe, **settings})
        return list(found.values())


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Each key's last word, or the whole key where others end with it too."""
    last = {key: key.rsplit(".", 1)[-1] for key in keys}
    return {key: word if list(last.values()).count(word) == 1 else key for key, word in last.items()}


def slug(value: str) -> str:
    """A value as a part of a folder's name. What is changed for it, such as a path, has a hash of the whole."""
    kept = re.sub(r"[^\w.+-]+", "-", value.rstrip("/").rsplit("/", 1)[-1])
    return value if kept == value else f"{kept.strip('-')}-{_hash(value, 6)}"


def _hash(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def parse_axis(text: str) -> Axis:
    """The axis that `KEY=A,B` or `KEY=A,B;OTHER=C,D` says.

    Raises:
        RecipeError: it says none.
    """
    keys: dict[str, list[str]] = {}
    for part in re.split(r";(?=\s*[\w.-]+=)", text):
        key, equals, values = part.strip().partition("=")
        if not equals or not re.fullmatch(r"[\w.-]+", key):
            raise RecipeError(f"--grid {text!r} is not KEY=VALUE,VALUE")
        if key in keys:
            raise RecipeError(f"--grid {text!r}: {key} stands twice")
        keys[key] = [canonical(key, value) for value in _split(values)]
    return axis_of(f"--grid {text!r}", keys)


def axis_of(where: str, keys: dict[str, list[str]]) -> Axis:
    """An axis of these keys' values; `where` says whose it is."""
    counts = {key: len(values) for key, values in keys.items()}
    if len(set(counts.values())) != 1:
        said = ", ".join(f"{count} of {key}" for key, count in counts.items())
        raise RecipeError(f"{where}: keys that go together need as many values each, found {said or 'none'}")
    if bad := next((key for key, values in keys.items() if not values), None):
        raise RecipeError(f"{where}: {bad} has no value")
    points = tuple(zip(*keys.values(), strict=True))
    if len(set(points)) < len(points):
        raise RecipeError(f"{where}: gives the same value twice")
    return Axis(tuple(keys), points)


def _split(values: str) -> list[str]:
    """At the commas outside of brackets."""
    return [part.strip() for part in re.split(r",(?![^\[{]*[\]}])", values)]


def canonical(key: str, value: str) -> str:
    """One text for one value: 5e-5 and 0.00005 are the same run."""
    if not value:
        raise RecipeError(f"--grid {key} has an empty value: write null to leave a key out")
    try:
        return as_text(parse(value))
    except ValueError as error:
        raise RecipeError(f"--grid {key}: {value!r}: {error}") from None


def as_text(value: Any) -> str:
    """A value as an override writes it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{','.join(map(as_text, value))}]"
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def read(name_or_file: str) -> Grid:
    """A named sweep, or one of a file.

    Raises:
        RecipeError: there is none, or it is not of the form that `train/sweeps/*.yaml` have.
    """
    is_file = name_or_file.endswith((".yaml", ".yml"))
    path = Path(name_or_file) if is_file else FOLDER / f"{name_or_file}.yaml"
    if not path.is_file():
        raise RecipeError(f"no sweep {name_or_file!r}: give a .yaml file or one of {one_of(name_or_file, names())}")
    content = read_yaml(path)
    known = ("recipe", "grid", "by", "colour", "tasks", "score")
    for key in content:
        if key not in known:
            raise RecipeError(f"{path}: unknown key {key!r}: a sweep has {one_of(str(key), known)}")
    grid, by, tasks = content.get("grid"), content.get("by", []), content.get("tasks", [])
    if not isinstance(grid, list) or not all(isinstance(axis, dict) for axis in grid) or not isinstance(by, list):
        raise RecipeError(f"{path}: grid: expected a list of axes, each a mapping of keys to lists of values")
    if not isinstance(tasks, list) or bool(content.get("score")) > bool(tasks):
        raise RecipeError(f"{path}: tasks: expected a list of those of `python -m eval`, which a score needs")
    axes = []
    for number, axis in enumerate(grid, 1):
        if wrong := next((key for key, values in axis.items() if not isinstance(values, list)), None):
            raise RecipeError(f"{path}: grid: {wrong}: expected a list of values")
        axes.append(axis_of(f"{path}: axis {number}", {str(k): [as_text(v) for v in vs] for k, vs in axis.items()}))
    recipe, colour, score = (str(content.get(key, "")) for key in ("recipe", "colour", "score"))
    return Grid(recipe, tuple(axes), tuple(map(str, by)), colour, tuple(map(str, tasks)), score)
