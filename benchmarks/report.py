"""The two ends of every benchmark: its command line, and what is printed and kept of its result.

    command(doc, name) -> the benchmark's own options -> finish(parser, measure, table): parse, measure, print, write

It imports nothing that a benchmark may want to time.
"""

import argparse
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any


def cpu() -> str:
    """The processor's name."""
    path = Path("/proc/cpuinfo")
    names = [line for line in path.read_text().splitlines() if "model name" in line] if path.exists() else []
    return names[0].partition(": ")[2] if names else platform.processor()


def machine() -> dict[str, Any]:
    """What every result says of where it was measured."""
    return {"cpu": cpu(), "cores": os.cpu_count(), "python": platform.python_version()}


def command(doc: str | None, name: str) -> argparse.ArgumentParser:
    """A parser with the module's docstring and the option `--output`, by default a file in `benchmarks/results`."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path("benchmarks/results", f"{name}.json")
    parser.add_argument("--output", type=Path, default=default, metavar="FILE", help=f"default {default}")
    return parser


def finish(
    parser: argparse.ArgumentParser,
    measure: Callable[[argparse.Namespace], dict[str, Any]],
    table: Callable[[dict[str, Any]], str],
) -> None:
    """Parses the command line, measures, prints the table and writes the result."""
    arguments = parser.parse_args()
    tell(measure(arguments), table, arguments.output)


def tell(result: dict[str, Any], table: Callable[[dict[str, Any]], str], output: Path) -> None:
    """Prints the table and writes the result."""
    print(table(result))
    write(result, output)


def write(result: dict[str, Any], path: Path) -> None:
    """Keeps a benchmark's result as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
