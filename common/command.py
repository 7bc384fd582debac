"""Commands: one object each, which the command line, Python and other commands call alike.

A command declares its options as fields, and does its work in `run`:

    @dataclass(frozen=True, kw_only=True)
    class Compare(Command):
        "The command `compare`."

        prog: ClassVar[str] = "python -m clearspan.eval.compare"
        expected: ClassVar[Errors] = (DataError, OSError)
        a: Annotated[Path, Flag("the first model's evaluation", "A", positional=True)]

        def run(self) -> Result: ...

    Compare(a=folder).run()             from Python: options checked, a `Result`
    Compare.main(["runs/a"])            from a command line: text or JSON is printed, the exit code returned
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from clearspan.common import terminal
from clearspan.common.failures import Failure, report
from clearspan.common.options import Options, parse

Errors = tuple[type[Exception], ...]
"""Types of exceptions."""


class Result(ABC):
    """Result of a command: text for a person, and JSON for a program.

    Attributes:
        code: the exit code: 0, or another number if the work failed although there is a result.
        failure: the reason for the failure, one line for the user; "" if there is none, or if it was already reported.
    """

    code: int = 0
    failure: str = ""

    @abstractmethod
    def __str__(self) -> str:
        """Return the text; "" if the command has already printed everything."""

    def to_json(self) -> str:
        """Return the JSON; by default, the text."""
        return str(self)


@dataclass(frozen=True)
class Printed(Result):
    """Result that holds its text and, if the command has the option `json`, its JSON."""

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
        prog: the words that run the module; the usage line begins with them.
        error_prefix: the beginning of error lines; "" stands for the words with which the command was called.
        description, example: the texts above and below the options in the help. Without a description, the help begins
            with the docstring of the command's module.
        expected: types of exceptions that mean that the work failed; the user sees each exception as one line.
        remedy: advice for a user who stops the command. If it is given, SIGINT and SIGTERM print it in one line and end
            the process at once.
    """

    prog: ClassVar[str] = ""
    error_prefix: ClassVar[str] = ""
    description: ClassVar[str] = ""
    example: ClassVar[str] = ""
    expected: ClassVar[Errors] = (ValueError, OSError)
    remedy: ClassVar[str] = ""

    @abstractmethod
    def run(self) -> Result:
        """Do the work.

        Raises:
            UsageError: the options cannot work.
            Exception: one of `expected`: the work failed.
        """

    @classmethod
    def parsed(cls, argv: Sequence[str] | None = None, prog: str = "", raises: bool = False) -> Self:
        """Return the command with the options of a command line, whose positional words may stand anywhere.

        Args:
            argv: the words of the command line; None stands for the arguments of this process.
            raises: raise UsageError for a wrong command line, instead of exiting with code 2.
        """
        description = cls.description or sys.modules[cls.__module__].__doc__
        return parse(cls, argv, prog=prog or cls.prog, description=description, epilog=cls.example, raises=raises)

    @classmethod
    def main(cls, argv: Sequence[str] | None = None, prog: str = "") -> int:
        """Run a command line to its end, and print the result; return the exit code (`terminal.run`)."""
        prefix = cls.error_prefix or prog or cls.prog
        return terminal.run(prefix, lambda: cls.parsed(argv, prog).tell(prefix), cls.expected, cls.remedy)

    def tell(self, prefix: str) -> int:
        """Run the command and print its result, as JSON if its option `json` is set; return the exit code.

        Args:
            prefix: the beginning of error lines.
        """
        result = self.run()
        if result.failure:
            report(Failure(prefix, result.failure, result.code))
        text = result.to_json() if getattr(self, "json", False) else str(result)
        if text:
            terminal.say(text.removesuffix("\n"))
        return result.code
