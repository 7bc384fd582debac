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

A field whose type is a dataclass of options adds the options of that dataclass (`common.options`). In a group of
commands (`cli.group`), the first word of a command line chooses the command.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from clearspan.cli.parser import Parser, parse, parser_of
from clearspan.cli.run import Work, run
from clearspan.common.answers import Failure, report
from clearspan.common.options import Options
from clearspan.common.terminal import say

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
        """Return a function, `module:function`, and its arguments, for a process of its own (`common.spawned`).

        The function returns the command, which that process then runs.
        """
        return f"{__name__}:unchanged", self

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
            The result's exit code; 1 for a failure, 2 for options that cannot work together, 130 for Ctrl-C.

        Raises:
            SystemExit: with code 2 for a wrong command line, with 0 for --help and --version.
        """
        return run(cls.work(argv, prog))

    @classmethod
    def work(cls, argv: Sequence[str] | None = None, prog: str = "") -> Work:
        """Return the work of a command line: parse it, run the command, and print the result."""
        prefix = cls.error_prefix or cls.help_texts(prog)["prog"]
        return Work(prefix, lambda: cls.parsed(argv, prog).run_and_print(prefix), cls.expected, cls.remedy)

    def own_work(self) -> Work:
        """Return the work of this command, whose options another process has checked."""
        prefix = self.error_prefix
        return Work(prefix, lambda: self.run_and_print(prefix), self.expected, self.remedy)

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
                say(text.removesuffix("\n"))
        finally:  # also if the reader of the text has gone
            if result.failure:
                report(Failure(prefix, result.failure, code))
        return code


def unchanged(command: Command) -> Command:
    """Return the command that another process has sent."""
    return command


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
