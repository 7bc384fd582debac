"""The command `clearspan COMMAND ...`: every step from raw data to a model, its scores and its vectors.

A command's module is imported when the command is named: help takes a fraction of a second, and a Beam worker's image
needs no torch. `python -m clearspan` is the same command. `common.catalog` lists the commands.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence

from clearspan.common import terminal
from clearspan.common.catalog import COMMANDS, PIPELINES, Entry

EPILOG = """`clearspan COMMAND --help` explains a command's options. A kind of dataset of your own is a command too:
`clearspan my_module:MyKind ...` (docs/data.md).
"""


OWN = Entry(PIPELINES, "your own kind of dataset")


def parser(commands: dict[str, Entry], prog: str) -> terminal.Parser:
    """Return the parser of the command's name."""
    lines = [f"  {name:<12}{entry.summary}" for name, entry in COMMANDS.items()]
    title = "Every step from raw data to a model, its scores and its vectors."
    description = "\n".join([title, "", "commands, in the order in which they are needed:", *lines])
    root = terminal.Parser(prog=prog, usage=f"{prog} COMMAND ...", description=description, epilog=EPILOG)
    root.add_argument("command", choices=list(commands), metavar="COMMAND", help=argparse.SUPPRESS)
    return root


def main(argv: Sequence[str] | None = None, prog: str = "clearspan") -> int:
    """Run a command line; return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    return terminal.run(prog, lambda: dispatch(words, prog), (OSError,))


def dispatch(words: list[str], prog: str) -> int:
    """Run the command that the first word names; return its exit code."""
    commands = {**COMMANDS, words[0]: OWN} if words and ":" in words[0] else COMMANDS
    if not words or words[0] not in commands:
        parser(commands, prog).parse_args(words[:1])  # prints help or an error, and exits
    name, command = words[0], commands[words[0]]
    module = importlib.import_module(command.module)
    code: int = module.main(words, prog) if command.kept else module.main(words[1:], f"{prog} {name}")
    return code


if __name__ == "__main__":
    sys.exit(main(prog="python -m clearspan"))
