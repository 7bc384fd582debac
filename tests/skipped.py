"""A line at the end of each run of the tests: how many did not run, and why."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

MAX_REASONS = 8
LEFT_OUT = pytest.StashKey[int]()
"""The number of tests that `-m` or `-k` left out; with xdist that of the worker that left out most."""


def reason(report: Any) -> str:
    """Return why a test was skipped, without the place where it says so."""
    text = report.longrepr[2] if isinstance(report.longrepr, Sequence) else report.longrepr
    return " ".join(str(text).removeprefix("Skipped: ").split())


def line(reasons: Iterable[str], left_out: int = 0, chosen: str = "") -> str:
    """Return the line, empty if every test ran.

    Args:
        reasons: the reason of each skipped test.
        left_out: number of tests that `chosen` left out.
        chosen: the options that selected the tests.
    """
    by_reason = Counter(reasons).most_common()
    shown, others = by_reason[:MAX_REASONS], by_reason[MAX_REASONS:]
    parts = [f"{count:,} ({text})" for text, count in shown]
    if others:
        parts.append(f"{sum(count for _, count in others):,} (other reasons: pytest -rs)")
    lines = [f"{sum(dict(by_reason).values()):,} skipped: {', '.join(parts)}"] if parts else []
    return "; ".join([*lines, f"{left_out:,} left out by {chosen}"] if left_out else lines)


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Count the tests that are left out; with xdist, each worker reports its count to the controlling process."""
    if items:
        config = items[0].config
        config.stash[LEFT_OUT] = config.stash.get(LEFT_OUT, 0) + len(items)
        if hasattr(config, "workeroutput"):
            config.workeroutput["left_out"] = config.stash[LEFT_OUT]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the largest count of all workers, since every worker collects all tests."""
    left_out = getattr(node, "workeroutput", {}).get("left_out", 0)
    node.config.stash[LEFT_OUT] = max(node.config.stash.get(LEFT_OUT, 0), left_out)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the line."""
    options = {"-m": config.option.markexpr, "-k": config.option.keyword}
    chosen = " ".join(f"{flag} '{value}'" for flag, value in options.items() if value) or "--deselect"
    reasons = [reason(report) for report in terminalreporter.stats.get("skipped", [])]
    if text := line(reasons, config.stash.get(LEFT_OUT, 0), chosen):
        terminalreporter.write_line(text)
