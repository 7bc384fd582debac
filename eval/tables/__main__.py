"""The command `clearspan tables`: a paper's table, with the user's models added to the published rows.

Exit codes: 0 printed; 1 a results.json cannot be read; 2 bad usage.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from clearspan.common.commands import UsageError
from clearspan.common.parsing import did_you_mean
from clearspan.common.terminal import Parser
from clearspan.eval import saved
from clearspan.eval.command import run
from clearspan.eval.files import json_text
from clearspan.eval.tables.beside import beside
from clearspan.eval.tables.formats import FORMATS
from clearspan.eval.tables.published import tables

_EXAMPLE = """example:
  clearspan tables declutr-2 runs/eval runs/other/results.json --format markdown
  clearspan tables --list

Without RESULTS only the published rows are printed. NonLing-CSE's Table D.1 lists retrieved sentences instead of
figures: the report of --tasks retrieval shows those of your models.
"""


def main(argv: Sequence[str] | None = None, prog: str = "python -m clearspan.eval.tables") -> int:
    """Run the command on `argv` (default: the process's arguments) and return its exit code."""
    parser = Parser(
        prog=prog,
        description="Print a table of a paper with your models added to it.",
        epilog=_EXAMPLE,
    )
    add = parser.add_argument
    add("name", nargs="?", metavar="NAME", help="name of the table; --list prints all names")
    add(
        "results", nargs="*", type=Path, metavar="RESULTS",
        help="results.json, its folder, or a folder with a subfolder for each model",
    )  # fmt: skip
    add("--list", action="store_true", help="print the names of all tables")
    add("--format", choices=tuple(FORMATS), default="text", help="default: %(default)s")
    add("--json", action="store_true", help="print the table as JSON")
    return run(parser, argv, lambda args: (_output(args), 0))


def _output(args: argparse.Namespace) -> str:
    if args.list:
        width = max(map(len, tables()))
        return "".join(f"{name:<{width}}  {table.paper}, {table.title}\n" for name, table in tables().items())
    if args.name is None:
        raise UsageError("name a table; --list prints all names")
    if args.name not in tables():
        choices = f"choose from {', '.join(tables())}{did_you_mean(args.name, tables())}"
        raise UsageError(f"no table {args.name!r}; {choices}")
    grid = beside(tables()[args.name], saved.find(args.results))
    return json_text(asdict(grid)) if args.json else FORMATS[args.format](grid)


if __name__ == "__main__":
    sys.exit(main())
