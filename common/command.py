"""Commands. Each is one class, which the command line, Python and other commands use in the same way.

A command declares its options as fields, and does its work in `run`:

    @dataclass(frozen=True, kw_only=True)
    class Compare(Command):
        "The command `compare`: tests which differences between two evaluations exceed noise."

        example: ClassVar[str] = "clearspan compare runs/a runs/b"
        expected: ClassVar[Errors] = (DataError, OSError)
        a: Annotated[Path, Flag("A", positional=True)]
        "The first model's evaluation."

        def run(self) -> Result: ...

    Compare(a=folder).run()             from Python: checks the options, and returns a `Result`
    Compare.main(["runs/a"])            from a command line: prints text or JSON, and returns the exit code

A field whose type is a dataclass of options adds the options of that dataclass (`common.options`). In a `Group` of
commands, the first word of a command line chooses the command.
"""

import contextlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from clearspan.common import terminal
from clearspan.common.answers import Failure, report
from clearspan.common.options import Options, add_fields, parse, parser_of
from clearspan.common.plugins import PluginError
from clearspan.common.terminal import Parser

Errors = tuple[type[Exception], ...]
"""Types of exceptions."""


class Result(ABC):
    """Result of a command: text for a person, and JSON for a program.

    Attributes:
        code: the exit code of the command; if it is 0 and there is a failure, the command exits with 1.
        failure: the reason for the failure, one line for the user; "" if there is no failure, or if its reason was
            already reported.
    """

    code: int = 0
    failure: str = ""

    @abstractmethod
    def __str__(self) -> str:
        """Return the result as text for a person; "" if the command has already printed everything."""

    def to_json(self) -> str:
        """Return the result as JSON; for a command without an option `json`, return its text."""
        return str(self)


@dataclass(frozen=True)
class Printed(Result):
    """Result whose text and JSON are made in advance.

    Attributes:
        text: the result as text for a person.
        json: the result as JSON; "" if the command has no option `json`.
        code: the exit code; if it is 0 and there is a failure, the command exits with 1.
        failure: the reason for a failure, one line; "" if there is none, or if it was already reported.
    """

    text: str = ""
    json: str = ""
    code: int = 0
    failure: str = ""

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> str:
        return self.json or self.text


@dataclass(frozen=True, kw_only=True)
class Command(Options, ABC):
    """A command. A subclass is a frozen dataclass whose fields with a `Flag` are its options.

    Attributes:
        summary: one line for a list of commands.
        description: the text above the options in the help. If it is "", the help shows the summary; if that is "" too,
            the docstring of the command's module.
        example: one or more command lines for the help, separated by newlines. An indented line continues the line
            above it.
        notes: the text below the examples in the help.
        usage: the options in the usage line of the help, e.g. "--recipe NAME [options]"; "" to list all options.
        prog: the words that run the command's module; "" stands for `python -m MODULE`.
        error_prefix: the beginning of error lines; "" stands for the words with which the command was called.
        expected: types of exceptions that mean that the work failed; the user sees each exception as one line.
        remedy: advice for a user who stops the command: SIGINT and SIGTERM print it in one line and end the process at
            once. If it is "", the signals have their usual effect in Python.
    """

    summary: ClassVar[str] = ""
    description: ClassVar[str] = ""
    example: ClassVar[str] = ""
    notes: ClassVar[str] = ""
    usage: ClassVar[str] = ""
    prog: ClassVar[str] = ""
    error_prefix: ClassVar[str] = ""
    expected: ClassVar[Errors] = (ValueError, OSError)
    remedy: ClassVar[str] = ""

    @abstractmethod
    def run(self) -> Result:
        """Do the work.

        Raises:
            UsageError: an option has a wrong value, or the options do not fit together.
            Exception: the work failed; the exception has one of the types in `expected`.
        """

    def request(self) -> tuple[Any, ...]:
        """Return the function, and its arguments, that run the command in a process of its own (`common.spawned`)."""
        return f"{type(self).__module__}:{type(self).__qualname__}.run_here", self

    def run_here(self) -> int:
        """Run the command, whose options another process has made, and print its result; return the exit code."""
        prefix = self.error_prefix
        with terminal.ending_at_once(prefix, self.remedy) if self.remedy else contextlib.nullcontext():
            return self.run_and_print(prefix)

    @classmethod
    def help_texts(cls, prog: str = "") -> dict[str, Any]:
        """Return the texts of the help, as arguments of an argparse parser.

        Args:
            prog: the words with which the command is called; "" stands for the words that run its module.
        """
        prog = prog or cls.prog or words_to_run(cls.__module__)
        description = cls.description or cls.summary or sys.modules[cls.__module__].__doc__
        usage = f"{prog} {cls.usage}" if cls.usage else None
        return {"prog": prog, "usage": usage, "description": description, "epilog": epilog([cls.example], cls.notes)}

    @classmethod
    def parser(cls, prog: str = "") -> Parser:
        """Return the parser of the command line.

        Args:
            prog: the words with which the command is called; "" stands for the words that run its module.
        """
        return parser_of(cls, **cls.help_texts(prog))

    @classmethod
    def parsed(cls, argv: Sequence[str] | None = None, prog: str = "", raises: bool = False) -> Self:
        """Parse a command line; return the command with its options. Positional words may stand between options.

        Args:
            argv: the words of the command line; None stands for the arguments of this process.
            prog: the words with which the command is called; "" stands for the words that run its module.
            raises: if true, raise UsageError for a wrong command line; otherwise print the error and exit with code 2.
        """
        return parse(cls, argv, raises=raises, **cls.help_texts(prog))

    @classmethod
    def main(cls, argv: Sequence[str] | None = None, prog: str = "") -> int:
        """Run a command line to its end, and print the result or the error; return the exit code.

        Args:
            argv: the words of the command line; None stands for the arguments of this process.
            prog: the words with which the command is called; "" stands for the words that run its module.

        Returns:
            The result's exit code; 2 for a wrong command line, 1 for a failure, 130 for Ctrl-C.
        """
        prefix = cls.error_prefix or cls.help_texts(prog)["prog"]
        return terminal.run(prefix, lambda: cls.parsed(argv, prog).run_and_print(prefix), cls.expected, cls.remedy)

    def run_and_print(self, prefix: str) -> int:
        """Run the command and print its result, as JSON if its option `json` is true; return the exit code.

        Args:
            prefix: the beginning of error lines.
        """
        try:
            result = self.run()
        except SystemExit as ended:  # only code of the user's own, which the command has loaded, calls sys.exit
            if ended.code not in (None, 0):
                raise
            report(Failure(prefix, "a part of your own called sys.exit before the work was done: let it return", 1))
            return 1
        if not isinstance(result, Result):
            raise TypeError(f"{type(self).__qualname__}.run must return a Result, not {result!r:.80}")
        code = result.code or int(bool(result.failure))
        text = result.to_json() if getattr(self, "json", False) else str(result)
        try:
            if text:
                terminal.say(text.removesuffix("\n"))
        finally:  # also if the reader of the text has gone
            if result.failure:
                report(Failure(prefix, result.failure, code))
        return code


@dataclass(frozen=True)
class Group:
    """A group of commands. The first word of a command line names the one to run: `ls` in `clearspan shards ls DIR`.

    Attributes:
        commands: the commands by name.
        prog: the words that call the group, such as `python -m clearspan.shards`, with which its usage line begins.
        description: the text above the list of commands in the help.
        examples: command lines for the help. An element may hold several lines; an indented line continues the line
            above it.
        notes: the text below the examples.
        load: function that imports a user's own command, which the first word names as `module:name`, and returns it;
            it raises `PluginError` if it cannot. None if the group runs only `commands`.
    """

    commands: Mapping[str, type[Command]]
    prog: str
    description: str
    examples: Sequence[str] = ()
    notes: str = ""
    load: Callable[[str], type[Command]] | None = None

    def main(self, argv: Sequence[str] | None = None, prog: str = "") -> int:
        """Run the command that a command line names; return its exit code.

        Args:
            argv: the words of the command line, the command's name first; None for the arguments of this process.
            prog: the words with which the group is called; "" stands for the group's attribute `prog`.
        """
        words = list(sys.argv[1:] if argv is None else argv)
        prog = prog or self.prog
        return terminal.run(prog, lambda: self._named(words, prog).main(words[1:], f"{prog} {words[0]}"), (OSError,))

    def parsed(self, words: Sequence[str]) -> Command:
        """Parse a command line, the command's name first; return the command with its options."""
        return self._named(words, self.prog).parsed(words[1:], f"{self.prog} {words[0]}")

    def parser(self, prog: str) -> Parser:
        """Return a parser with a subparser for each command. It prints the group's help and reports a wrong first word.

        Args:
            prog: the words with which the group is called.
        """
        root = Parser(prog=prog, description=self.description, epilog=epilog(self.examples, self.notes))
        below = root.add_subparsers(dest="command", required=True)
        for name, cls in self.commands.items():
            parser = below.add_parser(name, help=cls.summary.replace("%", "%%"), **cls.help_texts(f"{prog} {name}"))
            add_fields(parser, cls)
            parser.set_defaults(parser=parser)
        return root

    def _named(self, words: Sequence[str], prog: str) -> type[Command]:
        """Return the command that the first word names; if it names none, print the help or an error, and exit."""
        if words and words[0] in self.commands:
            return self.commands[words[0]]
        if words and ":" in words[0] and self.load is not None:
            try:
                return self.load(words[0])
            except PluginError as error:
                self.parser(prog).error(str(error))
        # Help, or an error in the first word, ends here; if it goes on, an option stands before the command's name.
        given, rest = self.parser(prog).parse_known_args(words)
        parser: Parser = given.parser
        parser.error(parser.unknown(rest or words))


def epilog(examples: Sequence[str], notes: str = "") -> str:
    """Return the text below the options in the help: a list of examples, and notes."""
    lines = [line for example in examples for line in example.strip().splitlines()]
    is_one = sum(not line.startswith(" ") for line in lines) == 1
    listed = ["example:" if is_one else "examples:", *(f"  {line}" for line in lines), ""] if lines else []
    return "\n".join([*listed, notes.strip()])


def words_to_run(module: str) -> str:
    """Return the words that run a module: `python -m MODULE`, or `python FILE` if it was started by its file."""
    if module == "__main__":
        spec = sys.modules[module].__spec__
        if spec is None:
            return f"python {Path(sys.argv[0]).name}"
        module = spec.name
    return f"python -m {module.removesuffix('.__main__')}"
