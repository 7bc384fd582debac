"""The command `clearspan COMMAND ...`: every step from raw data to a model, its scores and its vectors.

`cli.catalog` lists the commands. Only the module of the named command is imported. So `--help` takes a fraction of a
second, and the image of a Beam worker needs no torch. `python -m clearspan` is the same command.
"""

import argparse
import importlib
import inspect
import sys
from collections.abc import Sequence

from clearspan.cli.catalog import COMMANDS
from clearspan.cli.parser import Parser
from clearspan.cli.run import Work, run

EPILOG = """`clearspan COMMAND --help` explains the options of a command. COMMAND may also be a class of your own, as
my_module:MyClass: a command (docs/architecture.md), or a kind of dataset (docs/data.md).
"""


def main(argv: Sequence[str] | None = None, prog: str = "clearspan") -> int:
    """Run a command line; return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    return run(Work(prog, lambda: found(words, prog), (OSError,)))


def parser(prog: str) -> Parser:
    """Return the parser of the first word, the name of a command."""
    lines = [f"  {name:<12}{entry.summary}" for name, entry in COMMANDS.items()]
    title = "Every step from raw data to a model, its scores and its vectors."
    description = "\n".join([title, "", "commands, in the order in which they are needed:", *lines])
    root = Parser(prog=prog, usage=f"{prog} COMMAND ...", description=description, epilog=EPILOG)
    root.add_argument("command", choices=list(COMMANDS), metavar="COMMAND", help=argparse.SUPPRESS)
    return root


def found(words: Sequence[str], prog: str) -> Work:
    """Return the work of the command that the first word names; without one, print the help or an error, and exit."""
    if words and ":" in words[0]:
        return _own(words, prog)
    if not words or words[0] not in COMMANDS:
        parser(prog).parse_args(words[:1])
    entry = COMMANDS[words[0]]
    module, _, name = entry.command.partition(":")
    command = getattr(importlib.import_module(module), name)
    work: Work = command.work(words, prog) if entry.is_of_group else command.work(words[1:], f"{prog} {words[0]}")
    return work


def _own(words: Sequence[str], prog: str) -> Work:
    """Return the work of a command of the user's own; the first word, `module:name`, names it or a builder."""
    from clearspan.cli.command import Command
    from clearspan.common import plugins

    spec = words[0]
    try:
        named = plugins.resolve(spec)
        if inspect.isclass(named) and issubclass(named, Command):
            command = plugins.load_class(spec, Command, "a command")
            if "__dataclass_fields__" not in vars(command):
                raise plugins.PluginError(f"{spec}: not a dataclass: add @dataclass(frozen=True, kw_only=True)")
        else:
            command = importlib.import_module("clearspan.pipelines.registry").own_command(spec)
    except plugins.PluginError as error:
        parser(prog).error(str(error))
    return command.work(words[1:], f"{prog} {spec}")
