"""The progress of long work: a bar on a terminal, a line of it now and then elsewhere, and nothing for short work."""

import io
import sys
import time

import pytest

from clearspan.common import progress
from clearspan.common.progress import Bar


@pytest.mark.parametrize(("long_s", "quiet", "shown"), [(0.2, False, True), (30, False, False), (0.2, True, False)])
def test_without_a_terminal_long_work_shows_seldom(
    long_s: float, quiet: bool, shown: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LONG_S", long_s)
    with Bar(40, "the work", quiet) as bar:
        for _ in bar.over(range(40)):
            time.sleep(0.02)
    out, err = capsys.readouterr()
    lines = [line for line in err.replace("\r", "\n").splitlines() if line.strip()]
    assert out == "" and bool(lines) == shown and len(lines) < 8
    assert all(line.startswith("the work: ") for line in lines)


def test_on_a_terminal_there_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", terminal)
    assert list(Bar(3, "ranking by 3 queries").over("abc")) == [*"abc"]
    assert "ranking by 3 queries: 100%" in terminal.getvalue()
