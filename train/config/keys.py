"""Keys of recipes: a nested mapping becomes a dataclass of options, or an error names the key.

Relations between values are checked in `train.config.options`.
"""

import contextlib
import dataclasses
import functools
import json
import re
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from clearspan.common.former import advice
from clearspan.common.parsing import closest
from clearspan.train.config.options import RecipeError, not_one_of

Options = TypeVar("Options")


@functools.cache
def _adapter(section: Any) -> TypeAdapter[Any]:
    return TypeAdapter(with_config(ConfigDict(extra="forbid"))(section))


def typed(section: type[Options], options: Mapping[str, Any], within: str = "") -> Options:
    """Return a dataclass made of options, with defaults for the others.

    Args:
        within: the key of the section, for messages: "" or one that ends in a dot.

    Raises:
        RecipeError: an option is unknown, missing, of another type or out of range.
    """
    adapter: TypeAdapter[Options] = _adapter(cast(Any, section))
    try:
        # Validated as JSON in strict mode, where true is not a number and a number is not a string.
        return adapter.validate_json(json.dumps(options, default=str), strict=True)
    except ValidationError as error:
        problems = error.errors(include_url=False)
    problem = min(problems, key=lambda error: error["type"] != "unexpected_keyword_argument")
    key, value = within + ".".join(map(str, problem["loc"])), problem["input"]
    message = f"{key}: {value!r:.80}{problem['msg'].removeprefix('Input').replace('array', 'list')}"
    match problem["type"]:
        case "unexpected_keyword_argument":
            known = (within + name for name in keys(section))
            others = nearest_key(key, known) or "`--dry-run` prints the keys there are"
            message = f"unknown key {key!r}{advice(key) or f'; {others}'}"
        case "missing":
            message = f"{key} is not set; give it as {key}=VALUE"
        case "string_type" if not isinstance(value, dict | list | None):
            message += ": put it in quotes"
        case "literal_error":
            choices = re.findall(r"[^\s',]+", problem["ctx"]["expected"].replace(" or ", ", "))
            choices = [choice.lower() if choice in ("True", "False") else choice for choice in choices]
            message = f"{key}: {not_one_of(str(value), choices)}"
        case "dataclass_type" | "dict_type":
            message = f"{key}: {value!r:.80} should be a mapping of options"
    raise RecipeError(message)


@contextlib.contextmanager
def naming(key: str, *expected: type[Exception]) -> Iterator[None]:
    """Raise RecipeError, which begins with a key, for a ValueError or an error of the other expected types."""
    expected = (ValueError, *expected)
    try:
        yield
    except expected as error:
        raise RecipeError(f"{key}: {error}") from None


def nearest_key(key: str, known: Iterable[str]) -> str | None:
    """Return "did you mean KEY?" with the known key whose last part is most similar to the unknown key's, or None."""
    last_parts = {name: name.rpartition(".")[2] for name in known}
    near = closest(key.rpartition(".")[2], last_parts.values())
    named = [name for name, last in last_parts.items() if last == near]
    return f"did you mean {closest(key, named) or named[0]}?" if named else None


def keys(section: Any, within: str = "") -> list[str]:
    """Return the keys of a dataclass and of the dataclasses in it."""
    names, hints = [], typing.get_type_hints(section)
    for field in dataclasses.fields(section):
        names.append(within + field.name)
        for part in (hints[field.name], *typing.get_args(hints[field.name])):
            if dataclasses.is_dataclass(part) and typing.get_origin(hints[field.name]) is not dict:
                names += keys(part, f"{within}{field.name}.")
    return names
