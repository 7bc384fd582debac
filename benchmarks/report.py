"""Shared parts of the benchmarks: command line, timing in alternating rounds, text table, JSON result.

    command(doc, name) -> option(...) -> finish(parser, measure, table): parse, measure, print the table, write the JSON

This module imports nothing whose import a benchmark may want to time.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from clearspan.cli.parser import Parser
from clearspan.common import terminal
from clearspan.common.compute import PRECISIONS, resolve

Result = TypeVar("Result")


class Seconds(NamedTuple):
    """The time of a piece of work: elapsed, and on the processors in all threads, which other load affects less."""

    clock: float
    processor: float


def timed(work: Callable[[], Result], wait: Callable[[], Any] = lambda: None) -> tuple[Seconds, Result]:
    """Return (time, result) of a piece of work.

    Args:
        wait: waits for the device, before and after the work.
    """
    wait()
    clock, processor = time.perf_counter(), time.process_time()
    result = work()
    wait()
    return Seconds(time.perf_counter() - clock, time.process_time() - processor), result


def alternating(contenders: Mapping[str, Callable[[], Result]], rounds: int) -> dict[str, list[Result]]:
    """Return what each contender measures in each round; contenders take turns, so other load affects all of them."""
    results: dict[str, list[Result]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, measure in contenders.items():
            results[name].append(measure())
    return results


def median_ratio(numerators: Iterable[float], denominators: Iterable[float]) -> float:
    """Return the median of the ratios of each round, to two digits."""
    return round(statistics.median(a / b for a, b in zip(numerators, denominators, strict=True)), 2)


def cpu() -> str:
    """Return the name of the processor."""
    path = Path("/proc/cpuinfo")
    names = [line for line in path.read_text().splitlines() if "model name" in line] if path.exists() else []
    return names[0].partition(": ")[2] if names else platform.processor()


def machine() -> dict[str, Any]:
    """Return the description of the machine that every result contains."""
    return {"cpu": cpu(), "cores": os.cpu_count(), "python": platform.python_version()}


def columns(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a text table whose columns, except the first, are aligned right."""
    return terminal.table(headings, rows, right=range(1, len(headings)), indent=0)


def tabulated(heading: str, rows: Mapping[str, Mapping[str, Any]], figures: Mapping[str, tuple[str, str]]) -> str:
    """Return a text table of named rows; an absent figure is left blank.

    Args:
        figures: heading of a column -> key in a row, and format.
    """
    cells = [
        [name, *("" if row.get(key) is None else format(row[key], form) for key, form in figures.values())]
        for name, row in rows.items()
    ]
    return columns([heading, *figures], cells)


def command(doc: str | None, name: str) -> argparse.ArgumentParser:
    """Return a parser with the module's docstring and `--output`, by default a file in `benchmarks/results`."""
    parser = Parser(prog=f"python -m benchmarks.{name}", description=doc)
    default = Path("benchmarks/results", f"{name}.json")
    parser.add_argument("--output", type=Path, default=default, metavar="FILE", help=f"JSON result (default {default})")
    return parser


def option(parser: argparse.ArgumentParser, name: str, default: float, description: str) -> None:
    """Add an option for a number."""
    description = f"{description} (default {default:g})"
    parser.add_argument(f"--{name}", type=type(default), default=default, metavar="N", help=description)


def precisions_option(parser: argparse.ArgumentParser, *default: str) -> None:
    """Add `--precisions`, by default these."""
    text = (
        f"precisions to measure; auto: bf16 if the hardware computes in bf16, else fp32 (default {' '.join(default)})"
    )
    parser.add_argument("--precisions", nargs="+", default=list(default), choices=PRECISIONS, help=text)


def resolved_precisions(asked: Sequence[str], device: str) -> list[str]:
    """Return the precisions to measure on a device, each once, and print why for `auto` and for emulated bf16."""
    resolved = [resolve(device, each, "--precisions") for each in asked]
    for line in dict.fromkeys(each.message for each in resolved if each.message):
        print(line, file=sys.stderr)
    return list(dict.fromkeys(each.precision for each in resolved))


def finish(
    parser: argparse.ArgumentParser,
    measure: Callable[[argparse.Namespace], dict[str, Any]],
    table: Callable[[dict[str, Any]], str],
) -> None:
    """Parse the command line, measure, print the table and write the result."""
    arguments = parser.parse_args()
    publish(measure(arguments), table, arguments.output)


def publish(result: dict[str, Any], table: Callable[[dict[str, Any]], str], output: Path) -> None:
    """Print the table of a result and write the result."""
    print(table(result))
    write(result, output)


def write(result: dict[str, Any], path: Path) -> None:
    """Write a result as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
