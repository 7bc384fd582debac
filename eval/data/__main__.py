"""The command `python -m eval.data check DIR`: which data is there and whole, where the rest is obtained.

Exit codes: 0 what is there is whole; 1 something that is there is not; 2 bad usage.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clearspan.common.terminal import Parser, printable
from clearspan.eval.command import UsageError, run
from clearspan.eval.data.catalogue import Finding, check
from clearspan.eval.files import json_text
from clearspan.eval.report.console import text_table

_EXAMPLE = """example:
  python -m eval.data check data

DIR is what python -m eval takes as --data. It holds, as far as there: downstream/ and probing/ (SentEval's, or both in
senteval/), glue/, stsb_multi_mt/, retrieval/. Nothing is downloaded.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command on `argv` (default: the process's arguments) and return its exit code."""
    parser = Parser(
        prog="python -m eval.data",
        description="Say for each task whether its data is there, whole, and where it is obtained.",
        epilog=_EXAMPLE,
    )
    add = parser.add_argument
    add("what", choices=["check"], metavar="check", help="the one thing this does")
    add("data", type=Path, metavar="DIR", help="the data folder")
    add("--json", action="store_true", help="print JSON instead of the table")
    return run(parser, argv, _output)


def _output(args: argparse.Namespace) -> tuple[str, int]:
    if not args.data.is_dir():
        raise UsageError(f"no such folder: {args.data}")
    findings = check(args.data)
    text = json_text([_record(one) for one in findings]) if args.json else _text(findings)
    return text, int(any(one.state == "not whole" for one in findings))


def _text(findings: list[Finding]) -> str:
    rows = []
    for one in findings:
        number = f"{sum(one.rows.values()):,}" if one.rows else ""
        rows.append([one.data_set.name, one.state, ", ".join(one.data_set.tasks), one.data_set.licence, number])
    lines = text_table(("data", "state", "tasks", "licence", "rows"), rows, num_left=4)
    lines += [f"not whole: {one.data_set.name}: {problem}" for one in findings for problem in one.problems]
    lines += [f"note: {one.data_set.name}: {note}" for one in findings for note in one.notes]
    wanted: dict[str, list[str]] = {}
    for one in findings:
        if one.state != "whole":
            wanted.setdefault(one.data_set.source, []).append(f"{one.data_set.name} into {one.place}")
    for source, places in wanted.items():
        lines += [f"obtained from {source}:", *(f"  {place}" for place in places)]
    return "\n".join(printable(line) for line in lines) + "\n"


def _record(one: Finding) -> dict[str, Any]:
    return {
        "data": one.data_set.name,
        "tasks": one.data_set.tasks,
        "state": one.state,
        "place": str(one.place),
        "rows": one.rows,
        "problems": one.problems,
        "notes": one.notes,
        "source": one.data_set.source,
        "licence": one.data_set.licence,
    }


if __name__ == "__main__":
    sys.exit(main())
