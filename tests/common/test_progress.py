"""The progress of long work: a bar on a terminal, a line of it now and then elsewhere, and nothing for short work."""

import io
import itertools
import sys

import pytest

from clearspan.common.progress import ProgressBar


@pytest.mark.parametrize(("seconds", "quiet", "shown"), [(2, False, True), (0.1, False, False), (2, True, False)])
def test_without_a_terminal_long_work_shows_seldom_in_whole_lines(
    seconds: float, quiet: bool, shown: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = itertools.count(0, seconds)
    monkeypatch.setattr("tqdm.std.time", lambda: next(clock))
    assert len(list(ProgressBar(80, "the work", quiet).over(range(80)))) == 80
    out, err = capsys.readouterr()
    lines = [line for line in err.split("\n") if line]
    assert out == "" and bool(lines) == shown and len(lines) < 8
    assert all(line.startswith("the work: ") and "\r" not in line for line in lines)


def test_on_a_terminal_there_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", terminal)
    assert list(ProgressBar(3, "ranking by 3 queries").over("abc")) == [*"abc"]
    assert "ranking by 3 queries: 100%" in terminal.getvalue()
