"""Options of a command, declared once: the fields of a frozen dataclass are its flags, its help and its checks.

    min_tokens: Annotated[int, Flag("drop shorter documents", "N"), Ge(1)] = 2048  ->  --min-tokens N

`add_fields` adds the flags to an argparse parser. `from_namespace` creates the dataclass from the parsed flags,
`from_keywords` from a user's keyword arguments; `Options` checks types, limits and choices in both cases. A field
without a `Flag` is no option of the command: a subclass drops an option by declaring its field again without a `Flag`.
"""

import argparse
import dataclasses
import itertools
import operator
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from clearspan.common.files import file_in_way
from clearspan.common.former import advice
from clearspan.common.parsing import NUMBERS, did_you_mean
from clearspan.common.terminal import Parser, UsageError
from clearspan.common.typed import conform, problem

T = TypeVar("T")
LIMITS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "ge": ("at least", operator.ge),
    "gt": ("above", operator.gt),
    "le": ("at most", operator.le),
    "lt": ("below", operator.lt),
}
"""Attribute of a limit from annotated_types -> (words for the limit in a message, function that tests it)."""


@dataclasses.dataclass(frozen=True)
class Flag:
    """The option of a field on the command line. The field's type decides how a word is parsed; the field's default is
    also the default of the option.

    A field that is a tuple gives an option that may be repeated, and a `Literal` gives its choices. A bool gives a
    switch: `--NAME` if the default is False, `--no-NAME`, which turns the field off, if the default is True.

    Attributes:
        help: a phrase for the help; the default is appended unless the phrase contains the word "default".
        name: the flag, if it differs from the field's name.
        parse: function that returns the value of a word, or of each name if `commas` is set; its ValueError tells the
            user what is wrong.
        const: the value if the flag is given without a word.
        choices: the allowed values, if they are known only when the command runs.
        commas: whether a word holds several names, separated by commas.
        many: whether the flag takes several words at once.
        negatable: whether a switch has both forms, --NAME and --no-NAME.
        positional: whether the option is a word without a flag; such a word may be omitted if the field has a default.
        required: whether the option must be given although the field has a default.
        output: whether the value names a folder to write, on this machine or an object store.
    """

    help: str
    metavar: str | None = None
    _: dataclasses.KW_ONLY
    name: str = ""
    choices: Sequence[str] = ()
    parse: Callable[[str], Any] | None = None
    const: Any = None
    commas: bool = False
    many: bool = False
    negatable: bool = False
    positional: bool = False
    required: bool = False
    output: bool = False


class _Field(NamedTuple):
    """A field with a `Flag`: `type` is its type without None, `hint` its annotation, `limits` the limits of a value."""

    name: str
    flag: Flag
    type: Any
    hint: Any
    default: Any
    limits: list[tuple[str, Any]]

    @property
    def option(self) -> str:
        """Return the flag as the user writes it, e.g. "--min-tokens"."""
        return self.flag.name or f"--{'no-' if self.is_negated else ''}{self.name.replace('_', '-')}"

    @property
    def is_negated(self) -> bool:
        """Return whether the flag turns the field off."""
        return self.default is True and not self.flag.negatable

    @property
    def shown(self) -> str:
        """Return the name of the field in the help: the flag, or the placeholder of a positional word."""
        return self.flag.metavar or self.name if self.flag.positional else self.option

    @property
    def is_tuple(self) -> bool:
        return typing.get_origin(self.type) is tuple

    @property
    def choices(self) -> tuple[str, ...]:
        return typing.get_args(self.type) if typing.get_origin(self.type) is Literal else tuple(self.flag.choices)

    @property
    def range(self) -> str:
        """Return the limits in words, e.g. "from 0 to 1"."""
        words = [f"{LIMITS[name][0]} {limit:,}" for name, limit in self.limits]
        return re.sub(r"^at least (\S+) and at most ", r"from \1 to ", " and ".join(words))

    def is_within(self, value: Any) -> bool:
        return all(LIMITS[name][1](value, limit) for name, limit in self.limits)

    @property
    def required(self) -> bool:
        return self.flag.required or self.default is dataclasses.MISSING


def _fields(cls: Any) -> list[_Field]:
    hints, fields = typing.get_type_hints(cls, include_extras=True), []
    for field in dataclasses.fields(cls):
        metadata = getattr(hints[field.name], "__metadata__", ())
        if flags := [each for each in metadata if isinstance(each, Flag)]:
            limits = [(name, getattr(each, name)) for each in metadata for name in LIMITS if hasattr(each, name)]
            hint = hints[field.name]
            fields.append(_Field(field.name, flags[0], _without_none(hint), hint, field.default, limits))
    return fields


def _without_none(hint: Any) -> Any:
    hint = hint.__origin__  # of Annotated
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        (hint,) = (each for each in typing.get_args(hint) if each is not types.NoneType)
    return hint


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Base of a command's options. A subclass checks in `__post_init__` whether the values of its fields fit together.

    Raises:
        ValueError: a value has the wrong type, is outside its limits or is not one of the choices, or a name is given
            twice; the message names the flag.
    """

    def __post_init__(self) -> None:
        for field in _fields(type(self)):
            value = getattr(self, field.name)
            try:
                value = conform(value, field.hint)
            except TypeError:
                raise ValueError(problem(field.option, field.hint, value)) from None
            if value is None:
                continue
            object.__setattr__(self, field.name, value)
            if field.flag.output and "://" not in str(value) and (file := file_in_way(value)):
                raise ValueError(
                    f"{field.shown} {value}: {file} is a file, not a folder: name a new or an empty folder"
                )
            if field.limits and not field.is_within(value):
                raise ValueError(f"{field.option} must be {field.range}")
            given = value if field.is_tuple else [value]
            if field.choices and (wrong := [each for each in given if each not in field.choices]):
                former = advice(f"{field.option} {wrong[0]}") or f": choose {', '.join(field.choices)}"
                raise ValueError(f"{field.option} {wrong[0]}{former}")
            if field.flag.commas and (twice := [name for name in value if value.count(name) > 1]):
                raise ValueError(f"{field.option}: {twice[0]} is named twice")


def add_fields(parser: argparse.ArgumentParser, *classes: type) -> None:
    """Add the flags of dataclasses to a parser, required flags first."""
    fields = [field for cls in classes for field in _fields(cls)]
    for field in sorted(fields, key=lambda field: not field.required):
        parser.add_argument(field.name if field.flag.positional else field.option, **_argument(field))


def _argument(field: _Field) -> dict[str, Any]:
    """Return the keyword arguments of argparse's `add_argument`."""
    flag, is_tuple = field.flag, field.is_tuple
    default = None if is_tuple or field.default is dataclasses.MISSING else field.default
    is_shown = default not in (None, "", ()) and not isinstance(default, bool) and "default" not in flag.help
    help_ = flag.help + (" (default %(default)s)" if is_shown and flag.help != argparse.SUPPRESS else "")
    given: dict[str, Any] = {"help": help_, "default": default}
    if not flag.positional:
        given |= {"dest": field.name, "required": field.required}
    if field.type is bool:
        switch = "store_false" if field.default is True else "store_true"
        return given | {"action": argparse.BooleanOptionalAction if flag.negatable else switch}
    given |= {"metavar": flag.metavar, "choices": (not flag.commas and field.choices) or None, "type": _reader(field)}
    if flag.positional:
        return given | ({"nargs": "*" if is_tuple else "?"} if is_tuple or not field.required else {})
    if is_tuple:
        given["action"] = "extend" if flag.commas or flag.many else "append"
    if flag.many or flag.const is not None:
        given |= {"nargs": "+"} if flag.many else {"nargs": "?", "const": flag.const}
    return given


def _reader(field: _Field) -> Callable[[str], Any]:
    """Return the function that reads a word of a flag; for plain types, the type, whose parser argparse looks up."""
    kind = typing.get_args(field.type)[0] if field.is_tuple else field.type
    parse = field.flag.parse or (str if field.choices else kind)
    if field.flag.parse is None and not field.flag.commas:
        return parse

    def read(word: str) -> Any:
        try:
            return [parse(name) for name in names(word)] if field.flag.commas else parse(word)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def names(word: str) -> Iterator[str]:
    """Yield the names in a word that are separated by commas; raise ValueError if there is none."""
    if not word.replace(",", "").strip():
        raise ValueError("names nothing: leave it out")
    yield from (name.strip() for name in word.split(",") if name.strip())


def lines_in(path: str) -> tuple[str, ...]:
    """Return the lines of a file that are not blank; raise ValueError if it is unreadable or has none."""
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if not (found := tuple(line.strip() for line in lines if line.strip())):
        raise ValueError(f"{path}: is empty")
    return found


def checking(check: Callable[[str], object]) -> Callable[[str], str]:
    """Return a `parse` that returns the word itself, if `check` raises no ValueError."""

    def parse(word: str) -> str:
        check(word)
        return word

    return parse


def from_namespace(cls: type[T], namespace: argparse.Namespace, **others: Any) -> T:
    """Return the options that were parsed by the flags of `add_fields`.

    Args:
        others: values of the fields that have no flag.

    Raises:
        ValueError: the options do not fit together; the message names the flags.
    """
    given = {field.name: getattr(namespace, field.name) for field in _fields(cls)}
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    return cls(**{name: value for name, value in values.items() if value is not None}, **others)


def checked(parser: Parser, cls: type[T], namespace: argparse.Namespace, **others: Any) -> T:
    """Return the result of `from_namespace`; call `parser.error` if the options do not fit together."""
    try:
        return from_namespace(cls, namespace, **others)
    except ValueError as error:
        parser.error(str(error))


def from_keywords(cls: type[T], given: Mapping[str, Any]) -> T:
    """Return the options that keyword arguments set: names as on the command line, with underscores.

    A text or a path is read as the flag reads a word. None leaves an option out.

    Raises:
        UsageError: an option is unknown or missing, or a value cannot work; the message names the flag.
    """
    known = {field.option.removeprefix("--").replace("-", "_"): field for field in _fields(cls)}
    turn_off = {f"no_{field.name}": field for field in known.values() if field.flag.negatable}
    turn_off |= {name: field for name, field in known.items() if field.is_negated}
    known |= turn_off
    values = {}
    for name, value in given.items():
        if name not in known:
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"no such option: {flag}{advice(flag) or did_you_mean(name, known)}")
        if value is not None:
            field = known[name]
            values[field.name] = not value if name in turn_off and isinstance(value, bool) else _read(field, value)
    if missing := [name for name, field in known.items() if field.required and field.name not in values]:
        raise UsageError(f"the following arguments are required: {', '.join(missing)}")
    try:
        return cls(**values)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _read(field: _Field, value: Any) -> Any:
    """Return a field's value for a keyword argument. Only texts and paths are parsed; `Options` checks other values."""
    if not field.is_tuple:
        return _read_one(field, value)
    is_one = isinstance(value, str | bytes) or not isinstance(value, Iterable)
    read = [_read_one(field, each) for each in ([value] if is_one else value)]
    return tuple(itertools.chain.from_iterable(read) if field.flag.commas else read)


def _read_one(field: _Field, value: Any) -> Any:
    """Return the value that the flag reads from a text or a path; always a list if the flag has `commas`."""
    if not isinstance(value, str | Path) or field.type is bool:
        return [value] if field.flag.commas else value
    read = _reader(field)
    try:
        return NUMBERS.get(read, read)(str(value))
    except (ValueError, argparse.ArgumentTypeError) as error:
        raise UsageError(f"{field.option}: {error}") from None


def parse(cls: type[T], argv: Sequence[str] | None, **described: Any) -> T:
    """Return the options of a command line, whose positional words may stand anywhere.

    Args:
        described: arguments of `Parser`: prog, description, epilog, raises.
    """
    parser = Parser(**described)
    add_fields(parser, cls)
    return checked(parser, cls, parser.parse_intermixed_args(argv))


Json = Annotated[bool, Flag("print JSON instead of text")]
Quiet = Annotated[bool, Flag("show no progress bar")]
