"""Options, declared once: the fields of a frozen dataclass are the options of a command, its help and its checks.

    min_tokens: Annotated[int, Flag("N"), Ge(1)] = 2048    ->  --min-tokens N, or min_tokens=N from Python
    "Drop documents of fewer tokens."

The docstring under the field is the help of the option. `Options` checks types, limits and choices; `validate` of a
subclass checks whether the values fit together. `from_keywords` creates the dataclass from a user's keyword arguments,
and `cli/` from the words of a command line. A field without a `Flag` is no option: a subclass drops an option by
declaring its field again without a `Flag`. A field whose type is a dataclass of options is a part: the options of the
part are options of the whole.

    builder: Documents  ->  --min-tokens N, and all other options of `Documents`
"""

import ast
import dataclasses
import functools
import inspect
import itertools
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

from clearspan.common.files import file_in_way
from clearspan.common.former import advice
from clearspan.common.parsing import NUMBERS, did_you_mean
from clearspan.common.terminal import UsageError
from clearspan.common.typed import UNIONS, MismatchError, conform, within_int64

T = TypeVar("T", bound="Options")
REQUIRED = "the following arguments are required: "
"""Beginning of the message on missing options, as argparse writes it."""
NO_PATH = "an empty text names no file or folder"


class DefinitionError(UsageError):
    """A field of a command cannot be an option. The message is one line for the author of the command."""


@dataclasses.dataclass(frozen=True)
class Flag:
    """The option of a field on the command line. The field's type decides how a word is parsed; the field's default is
    also the default of the option, and the docstring under the field its help. The default is appended to the help
    unless the docstring contains the word "default"; in the docstring, `%(default)s` stands for it. The default of a
    switch is appended only if the switch has both forms.

    A field that is a tuple gives an option that may be repeated, and a `Literal` gives its choices. A bool gives a
    switch: `--NAME` if the default is False, `--no-NAME`, which turns the field off, if the default is True.

    Attributes:
        metavar: the placeholder of the value in the help, e.g. N; None for argparse's placeholder.
        name: the flag, if it differs from the field's name; "" if it does not.
        parse: function that returns the value of a word, or of each name if `commas` is set; its ValueError tells the
            user what is wrong. None to parse a word by the field's type.
        const: the value if the flag is given without a word; None if a word must follow the flag.
        choices: the allowed values, if they are known only when the command runs; empty to allow any value of the
            field's type. The word for a value is its text, `str(value)`, as for the values of a `Literal`.
        commas: whether a word holds several names, separated by commas.
        many: whether the flag takes several words at once.
        negatable: whether a switch has both forms, --NAME and --no-NAME.
        positional: whether the option is a word without a flag; such a word may be omitted if the field has a default.
        required: whether the option must be given although the field has a default.
        path: whether the value, a text, is the path of a file or folder, or a glob, and hence not empty. A value of the
            type `Path` is a path in any case, and so is the value of an option with `output`. An empty text may still
            be the default of an option that need not be given.
        output: whether the value names a folder to write, on this machine or an object store.
        hidden: whether the help leaves out the option.
        rest: whether the field takes the words of a command line that are no option of the command. Without such a
            field, these words are an error.
        resolve: function that returns the value to use for a valid value, e.g. the folder of a model that is fetched.
            It is called when all options are known to be valid by themselves, and must return its own result unchanged.
            None to use the value as it is.
    """

    metavar: str | None = None
    _: dataclasses.KW_ONLY
    name: str = ""
    choices: Sequence[Any] = ()
    parse: Callable[[str], Any] | None = None
    const: Any = None
    commas: bool = False
    many: bool = False
    negatable: bool = False
    positional: bool = False
    required: bool = False
    path: bool = False
    output: bool = False
    hidden: bool = False
    rest: bool = False
    resolve: Callable[[str], str] | None = None


class OptionField(NamedTuple):
    """A field of a dataclass of options whose annotation holds a `Flag`.

    Attributes:
        owner: the dataclass.
        name: the field's name.
        type: the type without None and without `Annotated`: `int` for `Annotated[int | None, ...]`.
        hint: the whole annotation.
        default: the default; `dataclasses.MISSING` if there is none.
    """

    owner: "type[Options]"
    name: str
    flag: Flag
    type: Any
    hint: Any
    default: Any

    @property
    def keyword(self) -> str:
        """The name of the keyword argument that sets the option from Python, e.g. "min_tokens"."""
        given = self.flag.name.removeprefix("--").replace("-", "_")
        return given or f"{'no_' if self.is_negated else ''}{self.name}"

    @property
    def option(self) -> str:
        """The name of the option in a message."""
        return f"`{self.keyword}`"

    @property
    def is_negated(self) -> bool:
        """Return whether the flag sets the field to False, as `--no-NAME` does."""
        return self.default is True and not self.flag.negatable

    def turned_off_by(self, keyword: str) -> bool:
        """Return whether `keyword=True` sets this field, a bool, to False, as `no_dedup=True` does with `dedup`.

        Args:
            keyword: the name of a keyword argument that sets this field.
        """
        return self.is_negated or keyword != self.keyword

    @property
    def name_in_message(self) -> str:
        """The name of the option in a message, also if it has no flag.

        A positional option has the name of its placeholder in the help.
        """
        return self.flag.metavar or self.name if self.flag.positional else self.option

    @property
    def is_tuple(self) -> bool:
        return typing.get_origin(self.type) is tuple

    @property
    def value_type(self) -> Any:
        """The type of one value: `int` for `int` and for `tuple[int, ...]`."""
        return _without_none(typing.get_args(self.type)[0]) if self.is_tuple else self.type

    @property
    def choices(self) -> tuple[Any, ...]:
        kind = self.value_type
        return typing.get_args(kind) if typing.get_origin(kind) is Literal else tuple(self.flag.choices)

    @property
    def is_path(self) -> bool:
        """Return whether each value is the path of a file or folder."""
        return self.flag.path or self.flag.output or Path in (self.type, *typing.get_args(self.type))

    @property
    def allows_empty_word(self) -> bool:
        """Return whether an empty word may be given: for a path only if it says what leaving out the option says."""
        return not self.is_path or (self.default == "" and not self.flag.required)

    @property
    def required(self) -> bool:
        return self.flag.required or self.default is dataclasses.MISSING


def fields_of(cls: "type[Options]") -> list[OptionField]:
    """Return the fields of a dataclass that have a `Flag`; the fields of its parts are not included.

    A part is a field whose type is another dataclass of options.

    Raises:
        DefinitionError: a field has a type that no option can have.
    """
    hints, fields = typing.get_type_hints(cls, include_extras=True), []
    for field in dataclasses.fields(cls):
        hint, default = hints[field.name], field.default
        if typing.get_origin(hint) in UNIONS and any(map(_flags, typing.get_args(hint))):
            raise DefinitionError(
                f"{cls.__qualname__}.{field.name}: write Annotated[... | None, Flag(...)], with None inside"
            )
        if flags := _flags(hint):
            if field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            try:
                fields.append(OptionField(cls, field.name, flags[0], _option_type(hint, flags[0]), hint, default))
            except DefinitionError as error:
                raise DefinitionError(f"{cls.__qualname__}.{field.name}: {error}") from None
    return fields


def _flags(hint: Any) -> list[Flag]:
    """Return the `Flag` of an annotation as a list, which is empty if the annotation has none."""
    return [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Flag)]


def parts_of(cls: "type[Options]") -> "dict[str, type[Options]]":
    """Return the parts of a dataclass, i.e. its fields whose type is another dataclass of options: name -> type."""
    hints = typing.get_type_hints(cls)
    named = {field.name: hints[field.name] for field in dataclasses.fields(cls)}
    return {name: hint for name, hint in named.items() if isinstance(hint, type) and issubclass(hint, Options)}


def all_fields(cls: "type[Options]") -> list[OptionField]:
    """Return the fields that have a `Flag`: first the fields of the dataclass itself, then the fields of its parts.

    A part is a field whose type is another dataclass of options; a part may have parts, too.

    Raises:
        DefinitionError: a field has a type that no option can have, or has neither a `Flag` nor a default.
    """
    fields, parts = fields_of(cls), parts_of(cls)
    given = {*parts, *(field.name for field in fields)}
    for each in dataclasses.fields(cls):
        if each.init and each.name not in given and each.default is each.default_factory is dataclasses.MISSING:
            raise DefinitionError(f"{cls.__qualname__}.{each.name}: add a default, or a Flag to make it an option")
    return [*fields, *(field for part in parts.values() for field in all_fields(part))]


def _option_type(hint: Any, flag: Flag) -> Any:
    """Return the type of an option, without None and without `Annotated`: `int` for `Annotated[int | None, ...]`.

    Raises:
        DefinitionError: the option has no `Flag.parse`, and a word of the command line cannot be read as its type, e.g.
            because it has several types, or is a collection other than a tuple; or a choice has another type.
    """
    hint = _without_none(hint)
    if flag.parse is not None:
        return hint
    items = typing.get_args(hint) if typing.get_origin(hint) is tuple else ()
    kinds = {_without_none(each) for each in items if each is not Ellipsis} or {hint}
    kind = next(iter(kinds))
    shown = hint if typing.get_args(hint) else getattr(hint, "__name__", hint)
    if len(kinds) > 1 or typing.get_origin(kind) in UNIONS:
        raise DefinitionError(f"an option has one type, not {shown}: choose one, or parse the word by Flag(parse=...)")
    collection = typing.get_origin(kind) or kind
    if isinstance(collection, type) and issubclass(collection, Collection) and not issubclass(collection, str):
        raise DefinitionError(f"an option with several values is a tuple, e.g. tuple[str, ...], not {shown}")
    for choice in flag.choices:
        try:
            conform(choice, kind)
        except MismatchError as error:
            raise DefinitionError(error.message("each choice")) from None
    if kind is bool and (items or flag.positional):
        raise DefinitionError("a bool is a switch, --NAME: it has one value, and is not positional")
    if collection is not Literal and (not isinstance(kind, type) or kind in (Any, object)):
        raise DefinitionError(f"no word can be read as {shown}: choose another type, or parse it by Flag(parse=...)")
    if (flag.commas or flag.many) and not items:
        raise DefinitionError(f"Flag(commas=True) and Flag(many=True) need a tuple, e.g. tuple[str, ...], not {shown}")
    return hint


def _without_none(hint: Any) -> Any:
    """Return a type without None and without `Annotated`; a union of several other types is returned as it is."""
    if typing.get_origin(hint) is Annotated:
        return _without_none(hint.__origin__)
    several = [each for each in typing.get_args(hint) if each is not types.NoneType]
    return _without_none(several[0]) if typing.get_origin(hint) in UNIONS and len(several) == 1 else hint


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Base of a command's options. A subclass checks in `validate` whether the values of its fields fit together.

    Attributes:
        heading: the heading of these options in a command's help; "" if they stand there without a heading.
        underscores: whether flags are written with underscores, `--num_gpus`, as DeepSpeed writes them.

    Raises:
        ValueError: a value has the wrong type, is outside its limits or is not one of the choices; an integer does
            not fit into 64 bits; a required option with several values has none; a list of names (`Flag.commas`) holds
            a name twice; or a file is in the way of an output folder (`Flag.output`). The message names the option.
    """

    heading: ClassVar[str] = ""
    underscores: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for field in fields_of(type(self)):
            value = getattr(self, field.name)
            if value is field.default:  # most are: nothing to check, and no import of pydantic
                continue
            try:
                value = within_int64(conform(value, field.hint))
                if field.flag.choices and value is not None:
                    for each in value if field.is_tuple else [value]:
                        if each not in field.choices:
                            raise MismatchError(each, choices=field.choices)
            except MismatchError as error:
                former = advice(f"--{field.keyword.replace('_', '-')} {error.value}")
                raise ValueError(
                    f"{field.option} {error.value}{former}" if former else error.message(field.option)
                ) from None
            if value is None:
                continue
            object.__setattr__(self, field.name, value)
            if field.is_path and value != field.default and "" in (value if field.is_tuple else [value]):
                raise ValueError(f"{field.name_in_message}: {NO_PATH}")
            if field.required and field.is_tuple and not value:
                raise ValueError(f"{field.name_in_message} is empty: name at least one")
            if field.flag.output and "://" not in str(value) and (file := file_in_way(value)):
                raise ValueError(
                    f"{field.name_in_message} {value}: {file} is a file, not a folder: name a new or an empty folder"
                )
            if field.flag.commas and (twice := [name for name in value if value.count(name) > 1]):
                raise ValueError(f"{field.option}: {twice[0]} is named twice")
        self._resolve()
        self.validate()

    def _resolve(self) -> None:
        for field in fields_of(type(self)):
            value, resolve = getattr(self, field.name), field.flag.resolve
            if resolve is None or value is None or value == field.default:
                continue
            try:
                given = value if field.is_tuple else (value,)
                used = tuple(type(each)(resolve(str(each))) for each in given)
            except ValueError as error:
                raise ValueError(f"{field.name_in_message} {error}") from None
            object.__setattr__(self, field.name, used if field.is_tuple else used[0])

    def validate(self) -> None:
        """Raise ValueError if the values of the fields, each of which is valid, do not fit together."""


def documentation(cls: type) -> dict[str, str]:
    """Return field -> the docstring under it, in one line, for the fields of a class and of its bases."""
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        texts |= _docstrings(base.__module__).get(base.__qualname__, {})
    return texts


@functools.cache
def _docstrings(module: str) -> dict[str, dict[str, str]]:
    """Return class -> field -> the docstring under it, for all classes of a module; {} if its source is missing."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError, KeyError):
        return {}
    return dict(_classes(tree, ""))


def _classes(node: ast.AST, prefix: str) -> Iterator[tuple[str, dict[str, str]]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _classes(child, f"{prefix}{child.name}.<locals>.")
        elif isinstance(child, ast.ClassDef):
            texts = {}
            for field, text in itertools.pairwise(child.body):
                if (
                    isinstance(field, ast.AnnAssign)
                    and isinstance(text, ast.Expr)
                    and isinstance(text.value, ast.Constant)
                ):
                    texts[ast.unparse(field.target)] = " ".join(str(text.value.value).split())
            yield f"{prefix}{child.name}", texts
            yield from _classes(child, f"{prefix}{child.name}.")


def parse(field: OptionField, word: str) -> Any:
    """Return the value of a word of the command line: a list for a field whose words hold several names.

    Raises:
        ValueError: the word cannot be read; the message says why.
    """
    if not word and not field.allows_empty_word:  # before the field's function, which may make "" the path "."
        raise ValueError(NO_PATH)
    named = {str(choice): choice for choice in field.choices}
    read = field.flag.parse or ((lambda name: named.get(name, name)) if named else field.value_type)
    read = NUMBERS.get(read, read)
    return [read(name) for name in names(word)] if field.flag.commas else read(word)


def names(word: str) -> Iterator[str]:
    """Split a word at its commas, and yield the names, without spaces around them; raise ValueError if none is left."""
    if not word.replace(",", "").strip():
        raise ValueError("names nothing: leave it out")
    yield from (name.strip() for name in word.split(",") if name.strip())


def lines_in(path: str) -> tuple[str, ...]:
    """Return the lines of a file that are not blank, without spaces around them.

    Raises:
        ValueError: the file cannot be read, or has no such line.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if not (found := tuple(line.strip() for line in lines if line.strip())):
        raise ValueError(f"{path}: is empty")
    return found


def checking(check: Callable[[str], object]) -> Callable[[str], str]:
    """Return a function for `Flag.parse` that returns the word unchanged, after calling `check` with it.

    Args:
        check: function that raises a ValueError if the word is invalid; its result is ignored.
    """

    def parse(word: str) -> str:
        check(word)
        return word

    return parse


def build(cls: type[T], values: Mapping[str, Any]) -> T:
    """Create an instance of `cls` with these values of fields of `cls` and of its parts; others have their defaults."""
    own = {field.name: values[field.name] for field in fields_of(cls) if field.name in values}
    return cls(**own, **{name: build(part, values) for name, part in parts_of(cls).items()})


def keyword_fields(cls: type[Options]) -> dict[str, OptionField]:
    """Return name of a keyword argument -> the field that it sets; a switch with --NAME and --no-NAME has two."""
    known = {field.keyword: field for field in all_fields(cls)}
    return known | {f"no_{field.name}": field for field in known.values() if field.flag.negatable}


def keywords(cls: type[Options]) -> set[str]:
    """Return the names of the keyword arguments that set the options of a dataclass."""
    return set(keyword_fields(cls))


def unknown_option(name: str, known: Iterable[str]) -> UsageError:
    """Return the error for a keyword argument that sets no option, with advice or the most similar name of `known`."""
    word = f"--{name.replace('_', '-')}"
    return UsageError(f"no such option: {name}{advice(word) or did_you_mean(name, known)}")


def from_keywords(cls: type[T], arguments: Mapping[str, Any]) -> T:
    """Create the options that a user's keyword arguments set.

    A string or a path is parsed as a word of the command line. If a flag may be given without a word (`Flag.const`),
    True stands for the flag alone. An option with the value None has its default.

    Args:
        arguments: name of a keyword argument -> value. The name is the flag with underscores, e.g. `min_tokens`.

    Raises:
        UsageError: an option is unknown or missing, or its value is invalid; the message names the option.
    """
    known, values = keyword_fields(cls), {}
    for name, value in arguments.items():
        if name not in known:
            raise unknown_option(name, known)
        if value is not None:
            field = known[name]
            turns_off = field.turned_off_by(name) and isinstance(value, bool)
            values[field.name] = not value if turns_off else _read(field, value)
    if missing := [name for name, field in known.items() if field.required and field.name not in values]:
        raise UsageError(f"{REQUIRED}{', '.join(missing)}")
    try:
        return build(cls, values)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _read(field: OptionField, value: Any) -> Any:
    """Return a field's value: strings and paths are parsed as words of the command line, others stay as they are."""
    if value is True and field.flag.const is not None:
        return field.flag.const
    if not field.is_tuple:
        return _read_one(field, value)
    read = [_read_one(field, each) for each in ([value] if is_one(value) else value)]
    return tuple(itertools.chain.from_iterable(read) if field.flag.commas else read)


def is_one(value: Any) -> bool:
    """Return whether a keyword argument's value is a single value rather than a list; a string is a single value."""
    return isinstance(value, str | bytes) or not isinstance(value, Iterable)


def _read_one(field: OptionField, value: Any) -> Any:
    """Return what the field's flag reads from a string or path, a list for names with commas; others stay."""
    if not isinstance(value, str | Path) or field.type is bool:
        return [value] if field.flag.commas else value
    try:
        return parse(field, str(value))
    except ValueError as error:
        raise UsageError(f"{field.option}: {error}") from None


Json = Annotated[bool, Flag()]
Quiet = Annotated[bool, Flag()]
