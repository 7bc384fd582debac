"""The command `python -m eval.tables`: a paper's table, its published rows and one's own beside them.

Exit codes: 0 printed; 1 a results.json cannot be read; 2 bad usage.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from clearspan.common.parsing import did_you_mean
from clearspan.common.terminal import Parser
from clearspan.eval import saved
from clearspan.eval.command import UsageError, run
from clearspan.eval.files import json_text
from clearspan.eval.tables.beside import beside
from clearspan.eval.tables.formats import FORMATS
from clearspan.eval.tables.published import tables

_EXAMPLE = """example:
  python -m eval.tables declutr-2 runs/eval runs/other/results.json --format markdown
  python -m eval.tables --list

Without RESULTS the published rows alone are printed. NonLing-CSE's Table D.1 holds retrieved sentences and no figures:
the report of --tasks retrieval shows those of one's own models.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command on `argv` (default: the process's arguments) and return its exit code."""
    parser = Parser(
        prog="python -m eval.tables",
        description="Print a table of a paper with one's own models in it.",
        epilog=_EXAMPLE,
    )
    add = parser.add_argument
    add("name", nargs="?", metavar="NAME", help="which table; --list names all")
    add(
        "results", nargs="*", type=Path, metavar="RESULTS",
        help="results.json, the folder it lies in, or a folder of several models' folders",
    )  # fmt: skip
    add("--list", action="store_true", help="name every table")
    add("--format", choices=tuple(FORMATS), default="text", help="default: %(default)s")
    add("--json", action="store_true", help="print the table as JSON instead")
    return run(parser, argv, lambda args: (_output(args), 0))


def _output(args: argparse.Namespace) -> str:
    if args.list:
        width = max(map(len, tables()))
        return "".join(f"{name:<{width}}  {table.paper}, {table.title}\n" for name, table in tables().items())
    if args.name is None:
        raise UsageError("name a table, or ask for them with --list")
    if args.name not in tables():
        raise UsageError(f"no table {args.name!r}; there are {', '.join(tables())}{did_you_mean(args.name, tables())}")
    grid = beside(tables()[args.name], saved.find(args.results))
    return json_text(asdict(grid)) if args.json else FORMATS[args.format](grid)


if __name__ == "__main__":
    sys.exit(main())
