"""Keys of recipes: list the known ones, suggest one for a typing error, name the argument that caused an error.

    nested mapping -> typed -> a dataclass of `train.options` or of an objective, or a KeyedError

Relations between values are checked in `train.options`.
"""

import dataclasses
import functools
import re
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from clearspan.common.parsing import closest
from clearspan.common.plugins import PluginError
from clearspan.train.options import DatasetConfig, Recipe, RecipeError, not_one_of
from clearspan.train.schedules import OptimizerConfig

LENGTHS = ("epochs", "max_steps")
STRICT = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

Options = TypeVar("Options")


class KeyedError(RecipeError):
    """An error about one key, which an argument may have set."""

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message)
        self.key = key

    def blamed(self, overrides: Sequence[str]) -> str | None:
        """Return the last argument that sets the key, a key below it or a section around it; None: a file set it."""
        for override in reversed(overrides if self.key else ()):
            key = override.split("=", 1)[0]
            if f"{self.key}.".startswith(f"{key}.") or key.startswith(f"{self.key}."):
                return f"the argument {override[:80]!r}"
        return None


@functools.cache
def _adapter(section: Any) -> TypeAdapter[Any]:
    return TypeAdapter(with_config(STRICT)(section))


def typed(section: type[Options], options: Mapping[str, Any], within: str = "", known: Sequence[str] = ()) -> Options:
    """Return a dataclass made of options, with defaults for the others.

    Args:
        within: the key of the section, for messages: "" or one that ends in a dot.
        known: all keys that the recipe may have, of which a mistyped one may mean any.

    Raises:
        KeyedError: an option is unknown, missing, of another type or out of range.
    """
    adapter: TypeAdapter[Options] = _adapter(cast(Any, section))
    try:
        made = adapter.validate_python(options)
        if misread := _misread(options, made):
            place, reason = misread
            key = within + ".".join(map(str, place))
            raise KeyedError(f"{key}: {reason}", key)
        return made
    except ValidationError as error:
        problems = error.errors(include_url=False)
    problem = min(problems, key=lambda error: error["type"] != "unexpected_keyword_argument")
    key, value = within + ".".join(map(str, problem["loc"])), problem["input"]
    message = f"{key}: {value!r:.80}{problem['msg'].removeprefix('Input')}"
    match problem["type"]:
        case "unexpected_keyword_argument":
            message = f"unknown key {key!r}; {nearest_key(key, known) or '`--dry-run` prints the keys there are'}"
        case "missing":
            message = f"{key} is not set; give it as {key}=VALUE"
        case "literal_error":
            choices = re.findall(r"[^\s',]+", problem["ctx"]["expected"].replace(" or ", ", "))
            choices = [choice.lower() if choice in ("True", "False") else choice for choice in choices]
            message = f"{key}: {not_one_of(str(value), choices)}"
        case "dataclass_type" | "dict_type":
            message = f"{key}: {value!r:.80} should be a mapping of options"
    raise KeyedError(message, key)


def _misread(given: Any, made: Any) -> tuple[list[Any], str] | None:
    """Return the keys that lead to a boolean of which pydantic made a number, or to a number with a fraction or an
    exponent of which it made a text that may be another one than the user wrote, and the problem; None without one.
    """
    if isinstance(given, bool):
        return ([], "true and false are no numbers") if type(made) in (int, float) else None
    if isinstance(given, float):
        return ([], f"{given} is a number, and should be a text: put it in quotes") if isinstance(made, str) else None
    if isinstance(given, Mapping):
        pairs = [(name, made[name] if isinstance(made, dict) else getattr(made, name, None)) for name in given]
    elif isinstance(given, list) and isinstance(made, Sequence):
        pairs = list(enumerate(made))
    else:
        return None
    inner = ((name, _misread(given[name], value)) for name, value in pairs)
    return next((([name, *misread[0]], misread[1]) for name, misread in inner if misread), None)


def nearest_key(key: str, known: Sequence[str]) -> str | None:
    """Return "did you mean KEY?" with the known key whose last part is most similar to the unknown key's, or None. Keys
    of the same section come first.
    """
    within, _, last = key.rpartition(".")
    beside = [name for name in known if name.rpartition(".")[0] == within]
    for candidates in (beside, known):
        last_parts = {name.rpartition(".")[2]: name for name in reversed(candidates)}
        if near := closest(last, last_parts):
            return f"did you mean {last_parts[near]}?"
    return None


def known_keys(recipe: Mapping[str, Any], objectives: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return every key that a recipe with these datasets and objectives may have, except those of `model.config`.

    Raises:
        KeyedError: a type of the user's own, `module:Class`, cannot be loaded.
    """
    from clearspan.train.objectives import config_class, is_type

    keys = _keys(Recipe)
    for name in recipe.get("data") or {}:
        keys += _keys(DatasetConfig, f"data.{name}.")
    for name, options in objectives.items():
        if is_type(type_ := str(options.get("type") or name)):
            try:
                keys += _keys(config_class(type_), f"objectives.{name}.")
            except PluginError as error:
                raise KeyedError(f"objectives.{name}.type {error}", f"objectives.{name}.type") from None
        keys += _keys(OptimizerConfig, f"turns.{options.get('turn') or name}.")
    return keys


def _keys(section: Any, within: str = "") -> list[str]:
    """Return the keys of a dataclass and of the dataclasses in it."""
    keys, hints = [], typing.get_type_hints(section)
    for field in dataclasses.fields(section):
        keys.append(within + field.name)
        for part in (hints[field.name], *typing.get_args(hints[field.name])):
            if dataclasses.is_dataclass(part) and typing.get_origin(hints[field.name]) is not dict:
                keys += _keys(part, f"{within}{field.name}.")
    return keys


def check_names(recipe: Mapping[str, Any], before: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Check the names of datasets and objectives on the command line for typing errors.

    Args:
        recipe: the merged recipe.
        before: the recipe without the command line's arguments.
        arguments: the command line's arguments alone.

    Raises:
        KeyedError: a new dataset is read by no objective, or a null leaves out an entry that does not exist and whose
            name is similar to an existing one.
    """
    for section in ("data", "objectives"):
        existing, merged, changes = _names(before, section), _names(recipe, section), arguments.get(section)
        for name, value in changes.items() if existing and isinstance(changes, dict) else ():
            if name in existing:
                continue
            key, near = f"{section}.{name}", closest(name, existing)
            mend = f"did you mean {section}.{near}?" if near else ""
            if name not in merged and value is None and near:
                raise KeyedError(f"{key}: the recipe has no such entry to leave out; {mend}", key)
            readers = _names(recipe, "objectives").values()
            read = any(isinstance(options, dict) and options.get("data") == name for options in readers)
            if section == "data" and isinstance(merged.get(name), dict) and len(merged) > 1 and not read:
                mend = mend or f"say which one does: objectives.NAME.data={name}"
                raise KeyedError(f"{key}: no objective reads it, and the recipe has {', '.join(existing)}; {mend}", key)


def _names(recipe: Mapping[str, Any], section: str) -> dict[str, Any]:
    """Return the entries of a section that are not null, by name."""
    content = recipe.get(section)
    entries = content if isinstance(content, dict) else {}
    return {str(name): entry for name, entry in entries.items() if entry is not None}


def keep_one_length(recipe: dict[str, Any], places: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Keep only the one of `training.epochs` and `training.max_steps` that was set last.

    Args:
        recipe: the merged recipe, which is changed in place.
        places: (name, content) of each file and of the command line, in their order.

    Raises:
        RecipeError: one place sets both.
    """
    last = ""
    for where, content in places:
        training = content.get("training")
        lengths = [key for key in LENGTHS if isinstance(training, Mapping) and training.get(key)]
        if isinstance(training, Mapping) and len(lengths) == 2:
            both = " and ".join(f"training.{key} {training[key]}" for key in lengths)
            raise RecipeError(f"{where}: {both}: a run has one length: give one of the two, the other as 0")
        last = lengths[0] if lengths else last
    training = recipe.get("training")
    if isinstance(training, dict):
        training.pop("max_steps" if last == "epochs" else "epochs" if training.get("max_steps") else "", None)
