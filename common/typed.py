"""Types of values: pydantic checks a value against an annotation, strictly, and an error is one line.

    conform("1", Annotated[int, Ge(1)])   MismatchError: must be an integer, not '1'
    conform(np.int64(3), float)           3.0

Beyond strict pydantic, numbers of numpy are numbers, a list may stand for a tuple and a tuple for a list, and any
mapping is a dict.
"""

import collections.abc
import functools
import inspect
import math
import operator
import reprlib
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, ParamSpec, TypeVar

from clearspan.common.parsing import did_you_mean
from clearspan.common.terminal import UsageError

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

P = ParamSpec("P")
T = TypeVar("T")
UNIONS = (types.UnionType, typing.Union)
EXPECTED = {
    "int_type": "an integer",
    "float_type": "a number",
    "finite_number": "finite",
    "string_type": "a text",
    "bool_type": "True or False",
    "none_required": "None",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "greater_than_equal": "at least {ge}",
    "greater_than": "above {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "below {lt}",
    "is_instance_of": "a {class}",
    "sequence_str": "a list",
}
"""Type of an error of pydantic -> what the value must be, in words."""
INFINITE = {"less_than", "less_than_equal", "greater_than", "greater_than_equal"}
MIN_INT64, MAX_INT64 = -(1 << 63), (1 << 63) - 1
"""The smallest and the largest integer that arrays and files hold."""


class MismatchError(ValueError):
    """An annotation does not allow a value.

    Attributes:
        value: the value, or the item in it that is wrong.
        expected: what `value` must be, in words, e.g. "an integer" or "at least 1".
        choices: the allowed values, if the annotation is a Literal; else ().
        place: the path, in indices of lists and keys of mappings, from the checked value to `value`.
    """

    def __init__(
        self, value: Any, expected: str = "", choices: Sequence[Any] = (), place: tuple[Any, ...] = ()
    ) -> None:
        super().__init__()
        self.value, self.expected, self.choices, self.place = value, expected, choices, place

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
    from pydantic import ValidationError  # here, since the processes of a pipeline's workers check no options

    plain = value if exact else _plain(value)
    try:
        return _adapter(hint, exact).validate_python(plain)
    except ValidationError as error:
        raise _mismatch(error, plain) from None


@functools.lru_cache(maxsize=4096)
def _adapter(hint: Any, exact: bool) -> "TypeAdapter[Any]":
    from pydantic import ConfigDict, TypeAdapter

    return TypeAdapter(_schema(hint, exact), config=ConfigDict(strict=True, arbitrary_types_allowed=True))


def _schema(hint: Any, exact: bool) -> Any:
    """Return the annotation with the conversions that strict pydantic lacks; a class is checked by `isinstance`."""
    from pydantic import BeforeValidator, InstanceOf, PlainValidator

    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    within = functools.partial(_schema, exact=exact)
    if origin is Annotated:
        return Annotated[(within(inner[0]), *inner[1:])]
    if origin in UNIONS:
        return functools.reduce(operator.or_, map(within, inner))
    if hint is float and exact:
        return Annotated[float, BeforeValidator(_float_alone)]
    if hint in (int, float, str, bool, None, types.NoneType, Any, object):
        return hint
    if origin is Literal:
        return Annotated[hint, PlainValidator(functools.partial(_one_of, inner))]
    kind = origin or hint
    if not isinstance(kind, type):
        return Any
    if issubclass(kind, Mapping):
        return Annotated[dict[tuple(map(within, inner or (Any, Any)))], BeforeValidator(_as_dict)]  # type: ignore[misc]
    if origin is tuple:
        items = tuple(each if each is Ellipsis else within(each) for each in inner)
        return Annotated[tuple[items], BeforeValidator(_as_tuple)]  # type: ignore[valid-type]
    if kind is collections.abc.Sequence and inner:  # keeps a tuple
        return Annotated[Sequence[within(inner[0])], BeforeValidator(_several)]  # type: ignore[misc]
    if origin is not None and issubclass(kind, Iterable):
        read = _as_list if issubclass(kind, Sequence) else _listed
        return Annotated[list[within(inner[0])], BeforeValidator(read)]  # type: ignore[misc]
    return Annotated[kind, InstanceOf()]  # type: ignore[type-arg]


class _NoChoiceError(ValueError):
    """A value is not one of the choices; pydantic hands the error on."""

    def __init__(self, choices: tuple[Any, ...]) -> None:
        super().__init__("one of the choices")
        self.choices = choices


def _one_of(choices: tuple[Any, ...], value: Any) -> Any:
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise _NoChoiceError(choices)
    return value


def _float_alone(value: Any) -> Any:
    if isinstance(value, int):
        raise ValueError("a number")
    return value


def _several(value: Any) -> Any:
    return None if _is_one(value) else value


def _as_dict(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, Sequence) and not _is_one(value) else value


def _as_list(value: Any) -> Any:
    return list(value) if isinstance(value, Sequence) and not _is_one(value) else value


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, Iterable) and not _is_one(value) else value


def _is_one(value: Any) -> bool:
    """Return whether an iterable is a text, bytes or a mapping; these do not count as lists of values."""
    return isinstance(value, str | bytes | bytearray | memoryview | Mapping)


def _plain(value: Any) -> Any:
    """Return a value with Python's numbers in place of numpy's, also within lists, tuples and mappings."""
    if type(value) in (list, tuple):
        return type(value)(map(_plain, value))
    if type(value) is dict:
        return {_plain(key): _plain(each) for key, each in value.items()}
    is_of_numpy = getattr(value, "shape", None) == () and hasattr(value, "item")
    return value.item() if is_of_numpy else value


def _mismatch(error: "ValidationError", value: Any) -> MismatchError:
    """Return pydantic's errors on a value as one: one on a limit if there is one, else all types that it may have."""
    found = error.errors(include_url=False)
    limits = [each for each in found if not each["type"].endswith(("_type", "_required", "_of"))]
    first, *others = limits or found
    place, item = _place(first["loc"], value)
    if isinstance(wrong := first.get("ctx", {}).get("error"), _NoChoiceError):
        return MismatchError(item, choices=wrong.choices, place=place)
    expected = _expected(first)
    if not limits:
        same = [each for each in others if _place(each["loc"], value)[0] == place]
        expected = " or ".join(dict.fromkeys(map(_expected, [first, *same])))
    return MismatchError(item, expected, place=place)


def _place(loc: Iterable[Any], value: Any) -> tuple[tuple[Any, ...], Any]:
    """Return the place of an error and the value there, without the types of unions among pydantic's places."""
    place: list[Any] = []
    for step in loc:
        if step == "[key]":
            value = place[-1]
        elif step in value if isinstance(value, Mapping) else isinstance(step, int) and isinstance(value, list | tuple):
            place.append(step)
            value = value[step]
    return tuple(place), value


def _expected(error: Mapping[str, Any]) -> str:
    """Return what a value must be, in words, from an error of pydantic."""
    context = error.get("ctx", {})
    if error["type"] in INFINITE and any(isinstance(each, float) and math.isinf(each) for each in context.values()):
        return "finite"
    if error["type"] in EXPECTED:
        kind = "list_type" if context.get("class") == "Sequence" else error["type"]
        return EXPECTED[kind].format(**{name: _shown(each) for name, each in context.items()})
    if error["type"] in ("too_short", "too_long", "string_too_short", "string_too_long"):
        least, most = context.get("min_length"), context.get("max_length")
        return f"of length {least} or more" if most is None else f"of length {most} or less"
    return str(error["msg"]).removeprefix("Input should be ").removeprefix("Value error, ")


def _shown(limit: Any) -> str:
    """Return a limit as text, e.g. 0 for 0.0 and 1,000 for 1000."""
    return f"{int(limit) if limit == int(limit) else limit:,}" if isinstance(limit, int | float) else str(limit)


def within_int64(value: T) -> T:
    """Return a value unchanged if each integer in it fits into 64 bits, as arrays and files hold it.

    Args:
        value: an integer; or a list or tuple, whose items are checked. Any other value is not checked.

    Raises:
        MismatchError: an integer is too small or too large.
    """
    for place, each in _integers(value, ()):
        if not MIN_INT64 <= each <= MAX_INT64:
            raise MismatchError(each, f"at most {MAX_INT64:,}" if each > 0 else f"at least {MIN_INT64:,}", place=place)
    return value


def _integers(value: Any, place: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], int]]:
    if isinstance(value, int):
        yield place, value
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _integers(item, (*place, index))


def short_repr(value: Any) -> str:
    """Return a value as an error message shows it: one short line."""
    if isinstance(value, bytes | bytearray | memoryview):
        return "bytes"
    try:
        return " ".join(reprlib.repr(value).split())
    except ValueError:  # Python writes no integer of more than 4,300 digits
        return "a number of thousands of digits"


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
        raise UsageError(error.message(f"`{name}`")) from None
