"""Keys of recipes: which there are, which one a typing error meant, and which argument is to blame.

Covers names only; what the values mean is checked in `train.options`, and read in `train.config.recipe`.
"""

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import OmegaConf

from clearspan.common.parsing import closest
from clearspan.common.plugins import PluginError
from clearspan.train.options import DatasetConfig, Recipe, RecipeError
from clearspan.train.schedules import OptimizerConfig

MOVED = {"training.batch_size": "data.NAME.batch_size", "spans": "sampler"}
"""Keys that recipes had before datasets had names, and what says it today."""
LENGTHS = ("epochs", "max_steps")


class KeyedError(RecipeError):
    """One of a key, which an argument may have given."""

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message)
        self.key = key

    def blamed(self, overrides: Sequence[str]) -> str | None:
        """The last argument that gave the key, or what holds it, or is in it; None: it is the file's."""
        for override in reversed(overrides if self.key else ()):
            given = override.split("=", 1)[0]
            if f"{self.key}.".startswith(f"{given}.") or given.startswith(f"{self.key}."):
                return f"the argument {override[:80]!r}"
        return None


def answer_to(key: str, known: Sequence[str]) -> str | None:
    """What to say to a key that is unknown: where it is today, or the known one that is nearest by its last part."""
    within, _, last = key.rpartition(".")
    if moved := MOVED.get(key) or MOVED.get(last):
        return f"say {moved if '.' in moved else f'{within}.{moved}'}"
    beside = [name for name in known if name.rpartition(".")[0] == within]
    for candidates in (beside, known):
        last_parts = {name.rpartition(".")[2]: name for name in reversed(candidates)}
        if near := closest(last, last_parts):
            return f"did you mean {last_parts[near]}?"
    return None


def known_keys(recipe: Mapping[str, Any], objectives: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Every key that a recipe with these datasets and objectives may have, but for those of a model's configuration."""
    from clearspan.train.objectives import config_class, is_type

    found = _keys(Recipe)
    for name in recipe.get("data") or {}:
        found += _keys(DatasetConfig, f"data.{name}.")
    for name, options in objectives.items():
        if is_type(type_ := str(options.get("type") or name)):
            try:
                found += _keys(config_class(type_), f"objectives.{name}.")
            except PluginError as error:
                raise KeyedError(f"objectives.{name}.type {error}", f"objectives.{name}.type") from None
        found += _keys(OptimizerConfig, f"turns.{options.get('turn') or name}.")
    return found


def _keys(section: Any, within: str = "") -> list[str]:
    """The keys of a dataclass, and of the dataclasses in it."""
    found, hints = [], typing.get_type_hints(section)
    for field in dataclasses.fields(section):
        found.append(within + field.name)
        for part in (hints[field.name], *typing.get_args(hints[field.name])):
            if dataclasses.is_dataclass(part) and typing.get_origin(hints[field.name]) is not dict:
                found += _keys(part, f"{within}{field.name}.")
    return found


def check_names(recipe: Mapping[str, Any], before: Mapping[str, Any], overrides: Sequence[str]) -> None:
    """Finds names of datasets and objectives that the command line got wrong.

    Args:
        recipe: with the overrides. before: without them.

    Raises:
        KeyedError: a dataset is named there alone, and no objective reads it; or what is to be left out is not there,
            and something nearly of that name is.
    """
    given = stated(overrides)
    for section in ("data", "objectives"):
        own, now, mine = _names(before, section), _names(recipe, section), given.get(section)
        new = {str(name): value for name, value in mine.items()} if own and isinstance(mine, dict) else {}
        for name, value in new.items():
            if name in own:
                continue
            key, near = f"{section}.{name}", closest(name, own)
            did_you = f"did you mean {section}.{near}?" if near else ""
            if name not in now and value is None and near:
                raise KeyedError(f"{key}: there is none to leave out; {did_you}", key)
            options = _names(recipe, "objectives").values()
            read = any(isinstance(one, dict) and one.get("data") == name for one in options)
            if section == "data" and isinstance(now.get(name), dict) and len(now) > 1 and not read:
                mend = did_you or f"say which one does: objectives.NAME.data={name}"
                raise KeyedError(f"{key}: no objective reads it, and the recipe has {', '.join(own)}; {mend}", key)


def _names(recipe: Mapping[str, Any], section: str) -> dict[str, Any]:
    """What a section has, by name."""
    content = recipe.get(section)
    return {str(name): one for name, one in content.items() if one is not None} if isinstance(content, dict) else {}


def stated(overrides: Sequence[str]) -> dict[str, Any]:
    """What `key=value` arguments say, together."""
    try:
        found = OmegaConf.to_container(OmegaConf.from_dotlist(list(overrides)))
    except (ValueError, TypeError):  # which is told where they are merged
        return {}
    return {str(key): value for key, value in found.items()} if isinstance(found, dict) else {}


def one_length(recipe: dict[str, Any], places: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Keeps, of `training.epochs` and `training.max_steps`, the one that is said last, in the merged recipe.

    Args:
        places: where something is said, and what, in the order in which it counts.

    Raises:
        RecipeError: one place gives both.
    """
    kept = ""
    for where, content in places:
        training = content.get("training")
        given = [key for key in LENGTHS if isinstance(training, Mapping) and training.get(key)]
        if isinstance(training, Mapping) and len(given) == 2:
            both = " and ".join(f"training.{key} {training[key]}" for key in given)
            raise RecipeError(f"{where}: {both}: a run has one length: give one of the two, the other as 0")
        kept = given[0] if given else kept
    merged = recipe.get("training")
    if not isinstance(merged, dict):
        return
    if kept == "epochs" and merged.get("epochs"):
        merged.pop("max_steps", None)
    if merged.get("max_steps"):
        merged.pop("epochs", None)
