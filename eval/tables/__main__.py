"""Print a paper's table, with your own models added to the published rows: `clearspan tables`.

Exit codes: 0: printed; 1: a results.json cannot be read; 2: wrong usage.
"""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from clearspan.cli.command import Command, Errors, Printed, Result
from clearspan.common.options import Flag, Json
from clearspan.common.parsing import did_you_mean
from clearspan.common.records import DataError
from clearspan.common.terminal import as_printed
from clearspan.eval import results
from clearspan.eval.files import json_text
from clearspan.eval.tables.beside import FORMATS, beside, formatted
from clearspan.eval.tables.published import tables

_EXAMPLE = """
clearspan tables declutr-2 runs/eval runs/other/results.json --format markdown
clearspan tables --list
"""
_NOTES = """
Without RESULTS, only the published rows are printed. Table D.1 of NonLing-CSE lists retrieved sentences instead of
scores. For your own models, the report of `clearspan eval --tasks retrieval` shows such sentences.
"""


@dataclass(frozen=True, kw_only=True)
class Tables(Command):
    """The command `clearspan tables`: prints a paper's result table with additional rows for your own models."""

    example: ClassVar[str] = _EXAMPLE
    notes: ClassVar[str] = _NOTES
    expected: ClassVar[Errors] = (DataError, OSError)

    name: Annotated[str | None, Flag("NAME", positional=True)] = None
    """Name of the table (see --list)."""
    results: Annotated[tuple[Path, ...], Flag("RESULTS", positional=True)] = ()
    """A results.json, its folder, or a folder with a subfolder for each model."""
    list: Annotated[bool, Flag()] = False
    """Print the names of all tables."""
    format: Annotated[str, Flag(choices=tuple(FORMATS))] = "text"
    """Format of the printed table."""
    json: Json = False
    """Print JSON instead of text."""

    def validate(self) -> None:
        super().validate()
        if self.name is None and not self.list:
            raise ValueError("name a table; --list prints all names")
        if self.name is not None and self.name not in tables():
            choices = f"choose from {', '.join(tables())}{did_you_mean(self.name, tables())}"
            raise ValueError(f"no table {self.name!r}; {choices}")

    def run(self) -> Result:
        """Return the paper's table with a row for each evaluation in `results`, or, for `--list`, the tables' names."""
        if self.list or self.name is None:
            width = max(map(len, tables()))
            return Printed("\n".join(f"{name:<{width}}  {each.paper}, {each.title}" for name, each in tables().items()))
        grid = beside(tables()[self.name], results.find(self.results))
        return Printed(as_printed(formatted(grid, self.format)), json_text(asdict(grid)))


main = Tables.main


if __name__ == "__main__":
    sys.exit(main())
