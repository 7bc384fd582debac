"""Check the keys of a recipe: convert its nested mapping to dataclasses of options, or raise an error with the key.

Relations between the values of several keys are checked in `train.config.options`.
"""

import contextlib
import dataclasses
import functools
import json
import math
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from clearspan.common.former import advice
from clearspan.common.parsing import closest
from clearspan.common.typed import UNIONS, MismatchError, conform, short_repr, within_int64
from clearspan.train.config.options import RecipeError

Options = TypeVar("Options")
T = TypeVar("T")


def typed(section: type[Options], options: Mapping[str, Any], prefix: str = "") -> Options:
    """Return a section of a recipe as an instance of its dataclass, with defaults for the options that are not set.

    Args:
        section: the dataclass.
        options: name of an option -> its value in the recipe; the value of a nested section is such a mapping too.
        prefix: the key of the section followed by a dot, such as `model.`, for messages; "" for the whole recipe.

    Raises:
        RecipeError: an option is unknown, missing, of another type or out of range.
    """
    key = prefix.removesuffix(".")
    plain = convert(key, options, lambda key, value: value)
    with naming(key or "the recipe"):  # YAML knows dates, and numbers as keys: they become texts
        plain = json.loads(json.dumps(plain, default=str))
    made: Options = _section(section, plain, prefix, functools.partial(keys, section, prefix))
    return made


def convert(key: str, value: Any, scalar: Callable[[str, Any], Any]) -> Any:
    """Return a value of a recipe as dicts and lists of converted scalars.

    Args:
        key: the key of the value in the recipe; "" if `value` is the whole recipe.
        value: a mapping, a list or tuple, or a scalar, which is any other value. Mappings and lists may be nested.
        scalar: function that converts a scalar. Its arguments are the key in the recipe, such as `optimizer.betas.0`,
            and the scalar.

    Raises:
        RecipeError: a mapping has a key that JSON cannot represent, such as a date.
    """
    at = f"{key}." if key else ""
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str | int | float | None):
                raise RecipeError(f"{key or 'the recipe'}: the key {name} must be a text: put it in quotes")
        return {name: convert(f"{at}{name}", each, scalar) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [convert(f"{at}{place}", each, scalar) for place, each in enumerate(value)]
    return scalar(key, value)


def finite(key: str, value: T) -> T:
    """Return a scalar that a user sets, unchanged; raise RecipeError if it is NaN or infinite, which JSON lacks.

    Values in a recipe's file may be infinite: a run's recipe.yaml states the defaults of a user's own class.

    Args:
        key: the key of the scalar in the recipe.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise RecipeError(f"{key} must be finite, not {value}")
    return value


def _is_section(hint: Any) -> bool:
    """Return whether an annotation is a dataclass of options."""
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


@functools.cache
def _hints(section: Any) -> dict[str, Any]:
    return typing.get_type_hints(section, include_extras=True)


def _section(section: Any, options: Any, prefix: str, known: Callable[[], list[str]]) -> Any:
    """Return a section of a recipe as an instance of its dataclass, with defaults for the options that are not set.

    Args:
        section: the dataclass.
        options: name of an option -> its value in the recipe.
        prefix: the key of the section followed by a dot, such as `model.`; "" for the whole recipe.
        known: function that returns the valid keys of the recipe. The error about an unknown key suggests one of them.

    Raises:
        RecipeError: `options` is no mapping, or an option is unknown, missing, of another type or out of range.
    """
    if not isinstance(options, dict):
        raise RecipeError(f"{prefix.removesuffix('.')} must be a mapping of options, not {short_repr(options)}")
    fields = {field.name: field for field in dataclasses.fields(section) if field.init}
    for name in options:
        if name not in fields:
            key = prefix + name
            printed = "`dry_run` prints the keys there are"
            other = nearest_key(key, [*known(), *keys(section, prefix)]) or printed
            raise RecipeError(f"unknown key {key!r}{advice(key) or f'; {other}'}")
    values, hints = {}, _hints(section)
    for name, field in fields.items():
        key = prefix + name
        if name in options:
            values[name] = _value(hints[name], options[name], key, known)
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise RecipeError(f"{key} is not set; give it as {key}=VALUE")
    return section(**values)


def _value(hint: Any, value: Any, key: str, known: Callable[[], list[str]]) -> Any:
    """Return the value of a key, converted to the type of its annotation.

    Args:
        hint: the annotation: a type with its limits; a dataclass of options; or a list or mapping of such dataclasses.
        value: the value in the recipe.
        key: the key, such as `training.seed`, for error messages.
        known: function that returns the valid keys of the recipe, for error messages.

    Raises:
        RecipeError: the value is of another type or out of range; or it is a section, or contains sections, with such a
            value, with an unknown option or without a required one.
    """
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if value is not None and origin in UNIONS:
        hint = next(filter(_is_section, inner), hint)
    if _is_section(hint):
        return _section(hint, value, f"{key}.", known)
    try:
        if origin in (dict, list) and inner and _is_section(inner[-1]):
            items = conform(value, origin)
            items = items.items() if origin is dict else enumerate(items)
            made = {name: _section(inner[-1], each, f"{key}.{name}.", known) for name, each in items}
            return made if origin is dict else list(made.values())
        return within_int64(conform(value, hint))
    except MismatchError as error:
        is_unquoted = error.expected == "a text" and isinstance(error.value, bool | int | float)
        raise RecipeError(error.message(key) + (": put it in quotes" if is_unquoted else "")) from None


@contextlib.contextmanager
def naming(key: str, *expected: type[Exception]) -> Iterator[None]:
    """Return a context that converts errors to RecipeErrors whose messages begin with `key`.

    Args:
        key: the recipe's key, or another name of the place of the error, such as a file's path.
        expected: the types of the errors to convert, in addition to ValueError.
    """
    expected = (ValueError, *expected)
    try:
        yield
    except expected as error:
        raise RecipeError(f"{key}: {error}") from None


def nearest_key(key: str, known: Iterable[str]) -> str | None:
    """Return "did you mean KEY?", where KEY is a known key that is similar to an unknown one; None if there is none.

    Only the last parts of the keys are compared. If several known keys have the most similar last part, the one that is
    most similar as a whole is chosen.

    Args:
        key: the unknown key, such as `training.max_stops`.
        known: the valid keys.
    """
    last_parts = {name: name.rpartition(".")[2] for name in known}
    near = closest(key.rpartition(".")[2], last_parts.values())
    named = [name for name, last in last_parts.items() if last == near]
    return f"did you mean {closest(key, named) or named[0]}?" if named else None


def keys(section: Any, prefix: str = "") -> list[str]:
    """Return the keys of a section and of the sections nested in it, such as `model` and `model.path`.

    A section under a name of the user's own, such as `data.NAME`, is not entered: only `data` is returned.

    Args:
        section: the dataclass of the section's options.
        prefix: text that is put before each key: the section's own key and a dot, or "" for the whole recipe.
    """
    names, hints = [], _hints(section)
    for field in dataclasses.fields(section):
        names.append(prefix + field.name)
        for part in (hints[field.name], *typing.get_args(hints[field.name])):
            if _is_section(part) and typing.get_origin(hints[field.name]) is not dict:
                names += keys(part, f"{prefix}{field.name}.")
    return names
