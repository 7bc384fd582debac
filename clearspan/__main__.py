"""The command `clearspan COMMAND ...`: every step from raw data to a model, its scores and its vectors.

`common.catalog` lists the commands. Only the module of the named command is imported. So `--help` takes a fraction of a
second, and the image of a Beam worker needs no torch. `python -m clearspan` is the same command.
"""

import argparse
import importlib
import inspect
import sys
from collections.abc import Sequence

from clearspan.common import terminal
from clearspan.common.catalog import COMMANDS

EPILOG = """`clearspan COMMAND --help` explains the options of a command. COMMAND may also be a class of your own, as
my_module:MyClass: a command (docs/architecture.md), or a kind of dataset (docs/data.md).
"""


def parser(prog: str) -> terminal.Parser:
    """Return the parser of the first word, the name of a command."""
    lines = [f"  {name:<12}{entry.summary}" for name, entry in COMMANDS.items()]
    title = "Every step from raw data to a model, its scores and its vectors."
    description = "\n".join([title, "", "commands, in the order in which they are needed:", *lines])
    root = terminal.Parser(prog=prog, usage=f"{prog} COMMAND ...", description=description, epilog=EPILOG)
    root.add_argument("command", choices=list(COMMANDS), metavar="COMMAND", help=argparse.SUPPRESS)
    return root


def main(argv: Sequence[str] | None = None, prog: str = "clearspan") -> int:
    """Run a command line; return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    return terminal.run(prog, lambda: dispatch(words, prog), (OSError,))


def dispatch(words: list[str], prog: str) -> int:
    """Run the command that the first word names; return its exit code."""
    if words and ":" in words[0]:
        return run_own(words, prog)
    if not words or words[0] not in COMMANDS:
        parser(prog).parse_args(words[:1])  # prints help or an error, and exits
    name, command = words[0], COMMANDS[words[0]]
    module = importlib.import_module(command.module)
    code: int = module.main(words, prog) if command.takes_name else module.main(words[1:], f"{prog} {name}")
    return code


def run_own(words: list[str], prog: str) -> int:
    """Run a command from outside this package; return its exit code.

    Args:
        words: the command line. Its first word, `module:name`, names a `Command` or a kind of dataset.
    """
    from clearspan.common import plugins
    from clearspan.common.command import Command

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
    return command.main(words[1:], f"{prog} {spec}")


if __name__ == "__main__":
    sys.exit(main(prog="python -m clearspan"))
