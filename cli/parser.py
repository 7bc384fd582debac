"""Parser of a command line: argparse with the options of a dataclass, strict numbers, and errors of one line.

    Options ─> add_fields ─> Parser ─> words ─> values ─> Options

argparse takes 0.02 s of CPU time to import. cyclopts 5.5, which reads docstrings under fields, takes 0.11 s; it has
no option whose value may be left out (`--hybrid [W]`), and lets `1_0` and `nan` pass as numbers.
"""

import argparse
import dataclasses
import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from typing import Any, NoReturn, TypeVar

from clearspan.cli.flags import flag_of, register
from clearspan.common.answers import Failure, report, types_of
from clearspan.common.former import advice
from clearspan.common.options import REQUIRED, DefinitionError, OptionField, Options, all_fields, build, documentation
from clearspan.common.options import parse as parse_word
from clearspan.common.parsing import NUMBERS, did_you_mean
from clearspan.common.terminal import UsageError, one_line, say

T = TypeVar("T", bound=Options)
UNRECOGNIZED = "unrecognized arguments: "
"""Beginning of argparse's message on unknown words."""


@functools.cache
def version() -> str:
    """Return the text that `--version` prints."""
    try:
        return f"clearspan {metadata.version('clearspan')}"
    except metadata.PackageNotFoundError:
        return "clearspan, not installed"


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Formatter of a command's help. A `%` in the usage, or in the text above or below the options, stands for itself.

    argparse would replace `%(prog)s` there, and fail at another `%`, even at one in a metavar or in a choice, since
    `parse_known_intermixed_args` makes a usage of them.
    """

    def add_usage(self, usage: str | None, *arguments: Any, **options: Any) -> None:
        super().add_usage(usage and usage.replace("%", "%%"), *arguments, **options)

    def add_text(self, text: str | None) -> None:
        super().add_text(text.replace("%", "%%") if text is not None and "%(prog)" in text else text)


class Parser(argparse.ArgumentParser):
    """Argument parser of a command. An error is one line; for a typo it suggests the most similar option or choice.

    An option of `type=int` or `type=float` rejects `1_0`, `nan` and `inf`. Options cannot be abbreviated, since a new
    option would change what an abbreviation means. Description and epilog are shown as written.

    Args:
        raises: True to raise UsageError for a wrong command line; False to print an error and exit with code 2.
    """

    def __init__(self, raises: bool = False, **options: Any) -> None:
        self._words: list[str] = []
        self._raises = raises
        defaults = {
            "formatter_class": _HelpFormatter,
            "allow_abbrev": False,
            "exit_on_error": False,  # `parse_known_args` names the option and calls `error`
        }
        super().__init__(**{**defaults, **options})
        for kind, read in NUMBERS.items():
            self.register("type", kind, read)
        self.add_argument("--version", action="version", version=version(), help="print the version and exit")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse as `ArgumentParser` does, and store the words of the command line for the messages of `error`."""
        self._words = list(sys.argv[1:] if args is None else args)
        register(self._option_string_actions)
        try:
            return super().parse_known_args(self._words, namespace)
        except argparse.ArgumentError as error:
            if error.argument_name:
                error.argument_name = error.argument_name.partition("/")[0]
            self.error(str(error))

    def unknown(self, words: Sequence[str], known_options: Iterable[str] = ()) -> str:
        """Return an error message about unknown words of a command line. It names one of them, preferably an option.

        Args:
            words: the words that this parser does not know; at least one.
            known_options: options of other parsers; the message may suggest one of them for a mistyped option.
        """
        name = next((word for word in words if word.startswith("-")), words[0]).split("=", 1)[0]
        if not name.startswith("-"):
            return f"unexpected argument: {name}"
        known = [*self._option_string_actions, *known_options]
        if name in known:  # the option stands before the subcommand
            return f"{name} must come after {self.prog.rpartition(' ')[2]!r}"
        return f"no such option: {name}{advice(name) or did_you_mean(name, known)}"

    def error(self, message: str) -> NoReturn:
        """Print the message in one line and exit with code 2, or raise UsageError if the parser was made with `raises`.

        If a required option is mistyped, argparse's message only says that this option is missing. The printed line
        also names the mistyped word.
        """
        if message.startswith(UNRECOGNIZED):
            message = self.unknown(message.removeprefix(UNRECOGNIZED).split())
        mistyped = [
            word
            for word in self._words
            if word.startswith("--") and word.split("=", 1)[0] not in self._option_string_actions
        ]
        if message.startswith(REQUIRED):
            message = "; ".join([message, *([self.unknown(mistyped)] if mistyped else [])])
        if self._raises:
            raise UsageError(message)
        error = UsageError(message)
        report(Failure(self.prog, one_line(error), 2, is_refused=True, types=types_of(error)))
        self.exit(2)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print the help or the version to `file`; on stdout, unprintable characters are escaped."""
        if file is sys.stdout:
            say(message, end="")
        else:
            super()._print_message(message, file)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if value == []:  # no word of a positional option with several values
            return
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            option = action.option_strings[0] if action.option_strings else ""
            error.message += advice(f"{option} {value}") or did_you_mean(str(value), map(str, action.choices or ()))
            raise


def add_fields(parser: argparse.ArgumentParser, cls: type[Options]) -> None:
    """Add the flags of a dataclass to a parser, required flags first.

    Raises:
        DefinitionError: a field cannot be an option, or two options have the same flag.
    """
    fields = [field for field in all_fields(cls) if not field.flag.rest]
    headings = dict.fromkeys(field.owner.heading for field in fields)
    groups = {heading: parser.add_argument_group(heading) if heading else parser for heading in headings}
    for field in sorted(fields, key=lambda field: not field.required):
        name = field.name if field.flag.positional else flag_of(field)
        try:
            groups[field.owner.heading].add_argument(name, **_argument(field))
        except (argparse.ArgumentError, ValueError) as error:
            is_taken = isinstance(error, argparse.ArgumentError)  # by --help, --version or another field
            reason = f"another option is {name}: choose another flag by Flag(name=...)" if is_taken else error
            raise DefinitionError(f"{field.owner.__qualname__}.{field.name}: {reason}") from None


def _argument(field: OptionField) -> dict[str, Any]:
    """Return the keyword arguments with which argparse's `add_argument` adds the flag of a field."""
    flag, is_tuple = field.flag, field.is_tuple
    default = None if is_tuple or field.default is dataclasses.MISSING else field.default
    is_shown = flag.negatable or (default not in (None, "", ()) and not isinstance(default, bool))
    text = documentation(field.owner).get(field.name, "").removesuffix(".")
    is_shown = is_shown and "default" not in text
    shown = ("on" if default else "off") if flag.negatable else str(default)
    # The default is written here because argparse has no default of a positional option while it parses the flags.
    text = text.replace("%(default)s", str(default)) + (f" (default {shown})" if is_shown else "")
    given: dict[str, Any] = {"help": argparse.SUPPRESS if flag.hidden else text.replace("%", "%%"), "default": default}
    if not flag.positional:
        given |= {"dest": field.name, "required": field.required}
    if field.type is bool:
        switch = "store_false" if field.default is True else "store_true"
        return given | {"action": argparse.BooleanOptionalAction if flag.negatable else switch}
    metavar = flag.metavar and " ".join(flag.metavar.split())  # argparse cannot wrap a usage with double spaces
    given |= {"metavar": metavar, "choices": (not flag.commas and field.choices) or None, "type": _reader(field)}
    if flag.positional:
        return given | ({"nargs": "*" if is_tuple else "?"} if is_tuple or not field.required else {})
    if is_tuple:
        given["action"] = "extend" if flag.commas or flag.many else "append"
    if flag.many or flag.const is not None:
        given |= {"nargs": "+"} if flag.many else {"nargs": "?", "const": flag.const}
    return given


def _reader(field: OptionField) -> Callable[[str], Any]:
    """Return `type` for argparse's `add_argument`: a function that parses a word of the field's flag."""

    def read(word: str) -> Any:
        try:
            return parse_word(field, word)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def parser_of(cls: type[Options], **described: Any) -> Parser:
    """Return a parser with the flags of a dataclass.

    Args:
        described: arguments of `Parser`: prog, usage, description, epilog, raises.
    """
    parser = Parser(**described)
    add_fields(parser, cls)
    return parser


def parse(cls: type[T], argv: Sequence[str] | None = None, **described: Any) -> T:
    """Create the options that a command line sets. Positional words may stand before, between and after the flags.

    Args:
        argv: the words of the command line; None for the arguments of this process.
        described: arguments of the `Parser`: prog, usage, description, epilog, raises.
    """
    fields, parser = all_fields(cls), parser_of(cls, **described)
    namespace, rest = parser.parse_known_intermixed_args(argv)
    takes_rest = next((field.name for field in fields if field.flag.rest), None)
    if rest and takes_rest is None:
        parser.error(parser.unknown(rest))
    given = {**vars(namespace), **({takes_rest: rest} if takes_rest is not None else {})}
    values = {field.name: given[field.name] for field in fields if given[field.name] is not None}
    try:
        return build(cls, {name: tuple(each) if isinstance(each, list) else each for name, each in values.items()})
    except ValueError as error:
        parser.error(str(error))
