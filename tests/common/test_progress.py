"""The time of long work: one line without a terminal, and nothing for short work."""

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from clearspan.common import progress
from clearspan.common.progress import Bar, stage


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock whose time the test sets."""
    now = [0.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    return now


def advance(bar: Bar, clock: list[float], *seconds: float, cost: float | None = None) -> None:
    for each in seconds:
        clock[0] += each
        bar.update(1, cost)


LONG = [2.0] * 50


@pytest.mark.parametrize(
    ("total", "seconds", "options", "line"),
    [
        pytest.param(100, LONG, {}, "about 3.3 min for the work\n", id="long"),
        pytest.param(61, [30, 2, 2, 2], {}, "about 2.5 min for the work\n", id="start-up has no part in the rate"),
        pytest.param(100, [6.0] * 10, {"cost": 1000}, "about 60 s for the work\n", id="items count by their cost"),
        pytest.param(100, [0.25] * 100, {}, "", id="short"),
        pytest.param(100, LONG, {"quiet": True}, "", id="quiet"),
    ],
)
def test_without_a_terminal_long_work_says_once_how_long_it_takes(
    clock: list[float],
    capsys: pytest.CaptureFixture[str],
    total: int,
    seconds: list[float],
    options: dict[str, Any],
    line: str,
) -> None:
    with Bar(total, "the work", **options) as bar:
        advance(bar, clock, *seconds, cost=100 if "cost" in options else None)
    assert capsys.readouterr() == ("", line)


def test_on_a_terminal_there_is_a_bar_and_no_line(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", terminal)
    bar = Bar(3, "ranking by 3 queries", desc="ranking")
    for _ in bar.over("abc"):
        clock[0] += 100
    assert "ranking: 100%" in terminal.getvalue() and "about" not in terminal.getvalue()


def test_a_line_names_the_stages_it_belongs_to(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with stage("mini"), stage("task 2 of 3, MR"), Bar(100, "training 100 classifiers") as bar:
        advance(bar, clock, *[2.0] * 10)
    assert capsys.readouterr().err == "mini: task 2 of 3, MR: about 3.3 min for training 100 classifiers\n"


def test_many_short_stages_of_long_work_say_which_one_runs(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with stage("mini"):
        for number in range(1, 8):
            with stage(f"task {number} of 7"):
                clock[0] += 12
    assert capsys.readouterr().err == "mini: task 4 of 7\nmini: task 7 of 7\n"


def test_quiet_stages_print_nothing(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with stage("mini", quiet=True), stage("task 1 of 2", quiet=True):
        clock[0] += 100
    assert capsys.readouterr() == ("", "")
