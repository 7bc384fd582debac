"""Write dataclasses of options as JSON, for another process, and read them there.

    Judging(data=Path("texts"), chunk_tokens=64)
    -> {"class": "clearspan.adapt.judging:Judging", "data": "texts", "chunk_tokens": 64}

Fields with their default are left out. What is read is checked again, as the dataclass checks its fields.
"""

import dataclasses
import json
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from clearspan.common.plugins import resolve
from clearspan.common.typed import UNIONS

T = TypeVar("T")
Option = str | bool | int | float | Path | Sequence[str | Path | int | float] | None
"""Value of an option in Python: True or False for a switch, a sequence for an option that may be repeated; None leaves
the option out.
"""
CLASS = "class"
"""Key of a dataclass's name, `module:Class`; no field has a keyword of Python as its name."""


def to_json(value: Any) -> str:
    """Return a dataclass, or a list of dataclasses and plain values, as JSON.

    Raises:
        TypeError: JSON lacks the type of a value.
    """
    return json.dumps(value, default=_plain)


def from_json(hint: type[T], text: str) -> T:
    """Return the value that `to_json` wrote.

    Args:
        hint: the type of the value. A dataclass may also be of a subclass.

    Raises:
        TypeError: the text holds a dataclass of another type.
        ValueError: a value of a field is invalid.
    """
    made: T = typed(hint, json.loads(text))
    return made


def typed(hint: Any, value: Any) -> Any:
    """Return a value that was read from JSON, converted to the type that an annotation names."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return typed(inner[0], value)
    if isinstance(value, Mapping) and CLASS in value:
        return _dataclass(hint, value)
    if origin in UNIONS:
        return value if value is None else typed(_first(inner, value), value)
    if hint is Path:
        return Path(value)
    if isinstance(value, list):
        origin = origin if isinstance(origin, type) else list
        several = inner[:1] * len(value) if origin is not tuple or inner[-1:] == (...,) else inner
        items = [typed(each, item) for each, item in zip(several or (Any,) * len(value), value, strict=True)]
        return tuple(items) if origin is tuple else items
    if isinstance(value, dict) and len(inner) == 2:
        return {key: typed(inner[1], each) for key, each in value.items()}
    return value


def _first(union: Iterable[Any], value: Any) -> Any:
    """Return the type of a union by which a value of JSON is read."""
    kinds = [each for each in union if each is not types.NoneType]
    kinds_of: dict[type, tuple[Any, ...]] = {str: (str, Path), list: (list, tuple)}
    fits = kinds_of.get(type(value), (type(value),))
    named = [each for fit in fits for each in kinds if (typing.get_origin(each) or each) is fit]
    return (named or kinds)[0]


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        cls = type(value)
        given = {
            field.name: getattr(value, field.name)
            for field in dataclasses.fields(value)
            if field.init and not _is_default(field, getattr(value, field.name))
        }
        return {CLASS: f"{cls.__module__}:{cls.__qualname__}", **given}
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__}: JSON has no such type")


def _is_default(field: "dataclasses.Field[Any]", value: Any) -> bool:
    if field.default_factory is not dataclasses.MISSING:
        return bool(field.default_factory() == value)
    return bool(field.default is not dataclasses.MISSING and field.default == value)


def _dataclass(hint: Any, content: Mapping[str, Any]) -> Any:
    cls = resolve(content[CLASS])
    bases = [each for each in (hint, *typing.get_args(hint)) if isinstance(each, type)]
    if not dataclasses.is_dataclass(cls) or not (hint is Any or any(issubclass(cls, base) for base in bases)):  # type: ignore[arg-type]
        raise TypeError(f"{content[CLASS]}: expected {hint}")
    hints = typing.get_type_hints(cls, include_extras=True)
    return cls(**{name: typed(hints[name], each) for name, each in content.items() if name != CLASS})  # type: ignore[operator]
