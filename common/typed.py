"""Type checks of arguments and options: a value that does not have the annotated type is refused in one line.

    @checked                              search(top=None)          top must be a whole number, not None
    def search(..., top: int = 10)        search(top=np.int64(3))   top is 3

`checked` checks the arguments of a public function, `common.options` the fields of a command's options. A numpy number
is a number. Bytes are neither a text nor a path, and True is not a number.
"""

import functools
import inspect
import numbers
import reprlib
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

from clearspan.common.terminal import UsageError

P = ParamSpec("P")
T = TypeVar("T")
WORDS: dict[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a Path",
    types.NoneType: "None",
}
"""Types, and their names in a message."""
UNIONS = (types.UnionType, typing.Union)


def conform(value: Any, hint: Any) -> Any:
    """Return a value converted to the type that a hint names, e.g. a numpy number to a Python number.

    Raises:
        TypeError: the value does not have this type.
    """
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint in (Any, object):
        return value
    if origin is Annotated:
        return conform(value, inner[0])
    if origin in UNIONS:
        return _first(value, inner)
    if origin is Literal:
        if isinstance(value, str):  # the option's own check compares it with the choices
            return value
    elif hint is bool:
        if isinstance(value, bool) or _is_bool_of_numpy(value):
            return bool(value)
    elif hint in (int, float):
        kind = numbers.Integral if hint is int else numbers.Real
        if isinstance(value, kind) and not isinstance(value, bool):
            return value if type(value).__module__ == "builtins" else hint(value)
    elif origin is not None and issubclass(origin, Mapping):
        if isinstance(value, Mapping):
            return {conform(key, inner[0]): conform(each, inner[1]) for key, each in value.items()}
    elif origin is not None and issubclass(origin, Iterable):
        if isinstance(value, Sequence if issubclass(origin, Sequence) else Iterable) and not _is_one(value):
            made = tuple if origin is tuple or isinstance(value, tuple) else list
            return made(conform(each, inner[0]) for each in value)
    elif isinstance(hint, type) and isinstance(value, hint):
        return value
    raise TypeError


def _first(value: Any, hints: Iterable[Any]) -> Any:
    """Return the value converted to the first of these types that it has; raise TypeError if it has none."""
    for hint in hints:
        try:
            return conform(value, hint)
        except TypeError:
            continue
    raise TypeError


def _is_bool_of_numpy(value: Any) -> bool:
    """Return whether a value is a `numpy.bool_`, without importing numpy."""
    return str(getattr(value, "dtype", "")) == "bool" and getattr(value, "shape", None) == ()


def _is_one(value: Any) -> bool:
    """Return whether an iterable is a single value and not a list of values: a text, bytes or a mapping."""
    return isinstance(value, str | bytes | bytearray | memoryview | Mapping)


def problem(name: str, hint: Any, value: Any) -> str:
    """Return the message that a value does not have the type of its hint."""
    shown = "bytes" if isinstance(value, bytes | bytearray | memoryview) else " ".join(reprlib.repr(value).split())
    return f"{name} must be {' or '.join(dict.fromkeys(_words(hint)))}, not {shown}"


def _words(hint: Any) -> Iterator[str]:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in UNIONS or origin is Annotated:
        for each in inner if origin in UNIONS else inner[:1]:
            yield from _words(each)
    elif origin is not None and origin is not Literal and issubclass(origin, Mapping):
        yield "a dictionary"
    elif origin is not None and origin is not Literal and issubclass(origin, Iterable):
        yield f"a list of them ({' or '.join(_words(inner[0]))})"
    else:
        yield "a text" if origin is Literal else WORDS.get(hint, f"a {getattr(hint, '__name__', hint)}")


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Check the arguments of a function by its annotations before it is called.

    Raises:
        UsageError: (when the returned function is called) an argument does not have the annotated type.
    """
    signature, hints = inspect.signature(function), functools.cache(typing.get_type_hints)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        given = signature.bind(*args, **kwargs)
        for name, value in given.arguments.items():
            hint, several = hints(function).get(name, Any), signature.parameters[name].kind
            if several is inspect.Parameter.VAR_KEYWORD:
                given.arguments[name] = {key: _checked(key, hint, each) for key, each in value.items()}
            else:
                given.arguments[name] = _checked(name, hint, value)
        return function(*given.args, **given.kwargs)

    return call


def _checked(name: str, hint: Any, value: Any) -> Any:
    try:
        return conform(value, hint)
    except TypeError:
        raise UsageError(problem(name, hint, value)) from None
