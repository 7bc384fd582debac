"""The command `clearspan COMMAND ...`: every step from raw data to a model, its scores and its vectors.

A command's module is imported when the command is named, and those of `pipelines` to list them: help takes a fraction
of a second, and a Beam worker's image needs no torch. `python -m clearspan` is the same command.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import NamedTuple

from clearspan.common import terminal

EPILOG = """`clearspan COMMAND --help` explains a command's options. A kind of dataset of your own is a command too:
`clearspan my_module:MyKind ...` (docs/data.md).
"""


PIPELINES = "clearspan.pipelines.__main__"


class Command(NamedTuple):
    """A command: the module whose `main(argv, prog)` runs it, and its line of help, which `pipelines` says itself."""

    module: str
    summary: str = ""

    @property
    def kept(self) -> bool:
        """Whether `main` takes the command's name as its first word."""
        return self.module == PIPELINES


COMMANDS = {
    "adapt": Command("clearspan.adapt.__main__", "adapt a model to your own texts, and measure whether that helped"),
    "vocabulary": Command(PIPELINES),
    "documents": Command(PIPELINES),
    "sentences": Command(PIPELINES),
    "pairs": Command(PIPELINES),
    "triplets": Command(PIPELINES),
    "mine": Command(PIPELINES),
    "images": Command(PIPELINES),
    "audio": Command(PIPELINES),
    "train": Command("clearspan.train.__main__", "train an encoder by a recipe, on one or more devices"),
    "sweep": Command("clearspan.train.sweep", "train a grid of runs, and compare them"),
    "distill": Command("clearspan.train.distill", "make a static encoder of a local encoder, without training"),
    "export": Command("clearspan.train.export", "write a run's checkpoint as a model folder"),
    "eval": Command("clearspan.eval.__main__", "score models by the published protocols; write a report"),
    "compare": Command("clearspan.eval.compare", "test which differences between two evaluations exceed noise"),
    "tables": Command("clearspan.eval.tables.__main__", "print a paper's table with your own models in it"),
    "data": Command("clearspan.eval.data.__main__", "check the evaluation data, and say where to obtain the rest"),
    "embed": Command(PIPELINES),
    "search": Command(PIPELINES),
    "serve": Command(PIPELINES),
    "shards": Command("clearspan.shards.__main__", "list, verify, print or export a dataset of any kind"),
}
"""The commands in the order in which a user needs them."""
OWN = Command(PIPELINES)


def parser(commands: dict[str, Command], prog: str) -> terminal.Parser:
    """Return the parser of the command's name."""
    from clearspan.pipelines.__main__ import KINDS, OTHERS

    of_pipelines = {name: cls.summary for name, cls in [*KINDS.items(), *OTHERS.items()]}
    lines = [f"  {name:<12}{command.summary or of_pipelines[name]}" for name, command in COMMANDS.items()]
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
