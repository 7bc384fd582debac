"""The command `clearspan tables`: a paper's table, with the user's models added to the published rows.

Exit codes: 0 printed; 1 a results.json cannot be read; 2 bad usage.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from clearspan.common.options import Flag, Json, Options, run
from clearspan.common.parsing import did_you_mean
from clearspan.common.records import DataError
from clearspan.common.terminal import say
from clearspan.eval import results
from clearspan.eval.files import json_text
from clearspan.eval.tables.beside import FORMATS, beside, formatted
from clearspan.eval.tables.published import tables

_EXAMPLE = """example:
  clearspan tables declutr-2 runs/eval runs/other/results.json --format markdown
  clearspan tables --list

Without RESULTS only the published rows are printed. NonLing-CSE's Table D.1 lists retrieved sentences instead of
figures: the report of --tasks retrieval shows those of your models.
"""


@dataclass(frozen=True, kw_only=True)
class Tables(Options):
    """The command `tables`."""

    name: Annotated[str | None, Flag("name of the table; --list prints all names", "NAME", positional=True)] = None
    results: Annotated[
        tuple[Path, ...],
        Flag("results.json, its folder, or a folder with a subfolder for each model", "RESULTS", positional=True),
    ] = ()
    list: Annotated[bool, Flag("print the names of all tables")] = False
    format: Annotated[str, Flag("form of the table", choices=tuple(FORMATS))] = "text"
    json: Json = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name is None and not self.list:
            raise ValueError("name a table; --list prints all names")
        if self.name is not None and self.name not in tables():
            choices = f"choose from {', '.join(tables())}{did_you_mean(self.name, tables())}"
            raise ValueError(f"no table {self.name!r}; {choices}")


def main(argv: Sequence[str] | None = None, prog: str = "python -m clearspan.eval.tables") -> int:
    """Run the command on `argv` (default: the process's arguments) and return its exit code."""
    return run(Tables, _print, argv, prog, (DataError, OSError), description=__doc__, epilog=_EXAMPLE)


def _print(options: Tables) -> int:
    if options.list or options.name is None:
        width = max(map(len, tables()))
        text = "".join(f"{name:<{width}}  {table.paper}, {table.title}\n" for name, table in tables().items())
    else:
        grid = beside(tables()[options.name], results.find(options.results))
        text = json_text(asdict(grid)) if options.json else formatted(grid, options.format)
    say(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
