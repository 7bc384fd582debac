"""Checks of a value against an annotation: its type, its limits and its choices. A value that does not fit is refused
in one line.

    @checked                              search(top=None)          top must be an integer, not None
    def search(..., top: int = 10)        search(top=np.int64(3))   top is 3

    Annotated[int, Ge(1)]                 0                         top must be at least 1, not 0
    Literal["gas", "wood"]                "good"                    oven good: choose gas, wood; did you mean 'wood'?

`checked` checks the arguments of a public function, `common.options` the fields of a command's options, and
`train.config.keys` the keys of a recipe; these three also refuse integers that do not fit into 64 bits
(`within_int64`). A numpy number is a number. Bytes are neither a text nor a path, and True is not a number.
"""

import contextlib
import functools
import inspect
import math
import numbers
import operator
import re
import reprlib
import types
import typing
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

from clearspan.common.parsing import did_you_mean
from clearspan.common.terminal import UsageError

P = ParamSpec("P")
T = TypeVar("T")
WORDS: dict[Any, str] = {
    bool: "True or False",
    int: "an integer",
    float: "a number",
    str: "a text",
    Path: "a Path",
    list: "a list",
    dict: "a mapping",
    types.NoneType: "None",
}
"""Types, and their names in a message."""
UNIONS = (types.UnionType, typing.Union)
LIMITS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "ge": ("at least", operator.ge),
    "gt": ("above", operator.gt),
    "le": ("at most", operator.le),
    "lt": ("below", operator.lt),
}
"""Attribute of a limit from annotated_types -> (words for the limit in a message, function that tests it)."""


MIN_INT64, MAX_INT64 = -(1 << 63), (1 << 63) - 1
"""The smallest and the largest integer that arrays and files hold."""


class MismatchError(ValueError):
    """An annotation does not allow a value.

    Attributes:
        value: the value, or the item in it that is wrong.
        expected: what `value` must be, in words, e.g. "an integer" or "at least 1".
        choices: the allowed values, if the annotation is a Literal; else ().
        is_type: True if the type of `value` is wrong; False if only a limit or the choices do not allow it.
        place: the path, in indices of lists and keys of mappings, from the checked value to `value`; () if they are the
            same.
    """

    def __init__(self, value: Any, expected: str = "", choices: Sequence[Any] = (), is_type: bool = False) -> None:
        super().__init__()
        self.value, self.expected, self.choices, self.is_type = value, expected, choices, is_type
        self.place: tuple[Any, ...] = ()

    def within(self, place: Any) -> "MismatchError":
        """Return this error with the index or key of the item that was checked put before its `place`."""
        self.place = (place, *self.place)
        return self

    def message(self, name: str) -> str:
        """Return the error message; `name` is the name of the option, argument or key that has the value."""
        name = ".".join(map(str, (name, *self.place)))
        if not self.choices:
            return f"{name} must be {self.expected}, not {short_repr(self.value)}"
        known = [str(choice) or '""' for choice in self.choices]
        value = short_repr(self.value).strip("'") or '""'
        return f"{name} {value}: choose {', '.join(known)}{did_you_mean(value, known)}"


def conform(value: Any, hint: Any, exact: bool = False) -> Any:
    """Return a value converted to the type that an annotation names, e.g. a numpy number to a Python number.

    Args:
        exact: if true, no number is converted: 1 is not accepted for a float.

    Raises:
        MismatchError: the value does not have this type, is outside the limits or is not one of the choices.
    """
    if type(value) is hint or hint in (Any, object):
        return value
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _within_limits(conform(value, inner[0], exact), inner[1:])
    if origin in UNIONS:
        return _first(value, hint, exact)
    if origin is Literal:
        return choose(value, inner)
    if hint is bool:
        if isinstance(value, bool) or _is_bool_of_numpy(value):
            return bool(value)
    elif hint in (int, float):
        kind = numbers.Integral if hint is int else numbers.Real
        if isinstance(value, kind) and not isinstance(value, bool) and not exact:
            with contextlib.suppress(OverflowError):  # an integer may be too large for a float
                return hint(value)
    elif origin is not None and issubclass(origin, Mapping):
        if isinstance(value, Mapping):
            return {_item(key, key, inner[0], exact): _item(key, each, inner[1], exact) for key, each in value.items()}
    elif origin is not None and issubclass(origin, Iterable):
        if isinstance(value, Sequence if issubclass(origin, Sequence) else Iterable) and not _is_one(value):
            return _items(value, origin, inner, exact)
    elif isinstance(hint, type) and isinstance(value, hint):
        return value
    raise _wrong_type(value, hint)


def within_int64(value: T) -> T:
    """Return a value unchanged if each integer in it fits into 64 bits, as arrays and files hold it.

    Args:
        value: an integer; or a list or tuple, whose items are checked. Any other value is not checked.

    Raises:
        MismatchError: an integer is too small or too large.
    """
    if isinstance(value, int) and not MIN_INT64 <= value <= MAX_INT64:
        raise MismatchError(value, f"at most {MAX_INT64:,}" if value > 0 else f"at least {MIN_INT64:,}")
    if isinstance(value, list | tuple):
        for place, item in enumerate(value):
            try:
                within_int64(item)
            except MismatchError as error:
                raise error.within(place) from None
    return value


def choose(value: Any, choices: Sequence[Any]) -> Any:
    """Return the choice that equals a value; raise MismatchError if there is none."""
    for choice in choices:
        if isinstance(value, Hashable) and value == choice:  # an array, which cannot be hashed, compares item by item
            return choice
    raise MismatchError(value, choices=choices)


def _items(value: Iterable[Any], origin: Any, inner: tuple[Any, ...], exact: bool) -> Any:
    """Return the items of a list or tuple, converted to the types that the annotation of the list or tuple names.

    Args:
        origin: the type of the annotation without its arguments, such as `tuple` for `tuple[int, ...]`.
        inner: the arguments of the annotation, such as (int, ...).
        exact: if true, no number is converted: 1 is not accepted for a float.
    """
    items = list(value)
    hints = list(inner) if origin is tuple and inner[-1] is not Ellipsis else [inner[0]] * len(items)
    if len(hints) != len(items):
        raise MismatchError(value, f"{len(hints)} values", is_type=True)
    made = tuple if origin is tuple or isinstance(value, tuple) else list
    return made(_item(*each, exact) for each in zip(range(len(items)), items, hints, strict=True))


def _item(place: Any, value: Any, hint: Any, exact: bool) -> Any:
    """Return an item of a list or mapping, converted to the type that the annotation `hint` names.

    Args:
        place: the item's index or key, which a MismatchError records.
        exact: if true, no number is converted: 1 is not accepted for a float.
    """
    try:
        return conform(value, hint, exact)
    except MismatchError as error:
        raise error.within(place) from None


def _first(value: Any, union: Any, exact: bool) -> Any:
    """Return the value converted to the first type of a union that allows it, e.g. to int for 3 and `int | str`.

    Args:
        exact: if true, no number is converted: 1 is not accepted for a float.
    """
    outside: MismatchError | None = None
    for hint in typing.get_args(union):
        try:
            return conform(value, hint, exact)
        except MismatchError as error:
            outside = outside if error.is_type else error
    raise outside or _wrong_type(value, union)


def _within_limits(value: Any, metadata: Sequence[Any]) -> Any:
    """Return the value if the limits among `Annotated`'s metadata allow it, as None always; or raise MismatchError."""
    if value is None:
        return value
    if not all(LIMITS[name][1](value, limit) for name, limit in limits(metadata)):
        raise MismatchError(value, _range(metadata))
    for each in metadata:
        least, most = getattr(each, "min_length", 0), getattr(each, "max_length", None)
        if (least or most is not None) and not least <= len(value) <= (math.inf if most is None else most):
            lengths = f"{least}" if least == most else f"{least} or more" if most is None else f"{least} to {most}"
            raise MismatchError(value, f"of length {lengths}")
    return value


def limits(metadata: Iterable[Any]) -> list[tuple[str, Any]]:
    """Return the limits in the metadata of an `Annotated` type: (name, limit) each, such as ("ge", 1) for `Ge(1)`."""
    found = [(name, getattr(each, name, None)) for each in metadata for name in LIMITS]
    return [(name, limit) for name, limit in found if limit is not None]


def _range(metadata: Iterable[Any]) -> str:
    """Return the limits in the metadata of an `Annotated` type in words, e.g. "from 0 to 1" or "finite and above 0"."""
    found = limits(metadata)
    words = [f"{LIMITS[name][0]} {limit:,}" for name, limit in found if not math.isinf(limit)]
    finite = ["finite"] if len(words) < len(found) else []
    return re.sub(r"^at least (\S+) and at most ", r"from \1 to ", " and ".join(finite + words))


def _is_bool_of_numpy(value: Any) -> bool:
    """Return whether a value is a `numpy.bool_`, without importing numpy."""
    return str(getattr(value, "dtype", "")) == "bool" and getattr(value, "shape", None) == ()


def _is_one(value: Any) -> bool:
    """Return whether an iterable is a text, bytes or a mapping; these do not count as lists of values."""
    return isinstance(value, str | bytes | bytearray | memoryview | Mapping)


def _wrong_type(value: Any, hint: Any) -> MismatchError:
    return MismatchError(value, " or ".join(dict.fromkeys(_words(hint))), is_type=True)


def short_repr(value: Any) -> str:
    """Return a value as an error message shows it: one short line."""
    if isinstance(value, bytes | bytearray | memoryview):
        return "bytes"
    try:
        return " ".join(reprlib.repr(value).split())
    except ValueError:  # Python writes no integer of more than 4,300 digits
        return "a number of thousands of digits"


def _words(hint: Any) -> Iterator[str]:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in UNIONS or origin is Annotated:
        for each in inner if origin in UNIONS else inner[:1]:
            yield from _words(each)
    elif origin is not None and origin is not Literal and issubclass(origin, Mapping):
        yield "a mapping"
    elif origin is not None and origin is not Literal and issubclass(origin, Iterable):
        each = list(_words(inner[0])) if inner else ["a value"]
        yield f"a list of {' or '.join(f'{word[2:]}s' if word.startswith('a ') else word for word in each)}"
    else:
        yield "a text" if origin is Literal else WORDS.get(hint, f"a {getattr(hint, '__name__', hint)}")


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    return typing.get_type_hints(function, include_extras=True)


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function that calls `function` with its arguments converted to the types in the annotations.

    For example, a numpy number becomes a Python number.

    Raises:
        UsageError: (when the returned function is called) an argument does not fit its annotation.
    """
    signature, hints = inspect.signature(function), functools.cache(_hints)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        given = signature.bind(*args, **kwargs)
        for name, value in given.arguments.items():
            hint, several = hints(function).get(name, Any), signature.parameters[name].kind
            if several is inspect.Parameter.VAR_KEYWORD:
                given.arguments[name] = {key: check_argument(key, hint, each) for key, each in value.items()}
            elif several is inspect.Parameter.VAR_POSITIONAL:
                given.arguments[name] = tuple(check_argument(name, hint, each) for each in value)
            else:
                given.arguments[name] = check_argument(name, hint, value)
        return function(*given.args, **given.kwargs)

    return call


def check_argument(name: str, hint: Any, value: Any) -> Any:
    """Return an argument's value converted to the type of its annotation.

    Raises:
        UsageError: the value does not fit the annotation, or an integer does not fit into 64 bits; the message
            names the argument.
    """
    try:
        return within_int64(conform(value, hint))
    except MismatchError as error:
        raise UsageError(error.message(name)) from None
