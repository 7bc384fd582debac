"""Check the evaluation data in a folder, and say where to obtain missing data: `clearspan data check DIR`.

Exit codes: 0: every data set in the folder is complete; 1: a data set is not complete; 2: wrong usage.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from clearspan.cli.command import Command, Errors, Printed, Result
from clearspan.common.options import Flag, Json
from clearspan.common.records import DataError
from clearspan.common.terminal import printable
from clearspan.eval.data.catalog import Finding, check
from clearspan.eval.details import Table
from clearspan.eval.files import existing_folder, json_text
from clearspan.eval.report.text import text_table

_EXAMPLE = "clearspan data check data"
_NOTES = """
DIR is the folder that `clearspan eval` takes as --data. It may contain downstream/ and probing/ of SentEval (also in a
folder senteval/), glue/, stsb_multi_mt/ and retrieval/. Nothing is downloaded.
"""


@dataclass(frozen=True, kw_only=True)
class Data(Command):
    """The command `data`: checks evaluation data."""

    example: ClassVar[str] = _EXAMPLE
    notes: ClassVar[str] = _NOTES
    expected: ClassVar[Errors] = (DataError, OSError)

    what: Annotated[str, Flag("check", positional=True, choices=("check",))]
    """The action: check the data in DIR."""
    data: Annotated[Path, Flag("DIR", positional=True, parse=existing_folder)]
    """Folder of the data."""
    json: Json = False
    """Print JSON instead of text."""

    def run(self) -> Result:
        """Check each data set, and return a table of their states.

        The exit code in the result is 1 if a data set exists in part, or if a file has a wrong number of rows.
        """
        findings = check(self.data)
        code = int(any(finding.state == "not whole" for finding in findings))
        return Printed(_text(findings), json_text([_record(finding) for finding in findings]), code)


main = Data.main


def _text(findings: list[Finding]) -> str:
    rows = []
    for finding in findings:
        number = f"{sum(finding.rows.values()):,}" if finding.rows else ""
        data_set = finding.data_set
        rows.append([data_set.name, finding.state, ", ".join(data_set.tasks), data_set.licence, number])
    lines = text_table(Table(("data", "state", "tasks", "licence", "rows"), rows, names=4))
    lines += [f"not whole: {finding.data_set.name}: {problem}" for finding in findings for problem in finding.problems]
    lines += [f"note: {finding.data_set.name}: {note}" for finding in findings for note in finding.notes]
    missing: dict[str, list[str]] = {}
    for finding in findings:
        if finding.state != "whole":
            missing.setdefault(finding.data_set.source, []).append(f"{finding.data_set.name} into {finding.place}")
    for source, places in missing.items():
        lines += [f"obtain from {source}:", *(f"  {place}" for place in places)]
    return "\n".join(printable(line) for line in lines) + "\n"


def _record(finding: Finding) -> dict[str, Any]:
    record = vars(finding).copy()
    data_set = record.pop("data_set")
    more = {"source": data_set.source, "licence": data_set.licence}
    return {"data": data_set.name, "tasks": data_set.tasks, **record, **more}


if __name__ == "__main__":
    sys.exit(main())
