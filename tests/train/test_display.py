"""The display of a run: lines without a terminal, a bar on one."""

from types import SimpleNamespace

import pytest

from clearspan.train.engine import display
from clearspan.train.engine.display import Display, figures

LOGGED = {
    "loss": 8.5,
    "spans/loss": 3.25,
    "mlm/loss": 5.25,
    "learning_rate": 0.001,
    "tokens_per_s": 20123.4,
    "examples_per_s/text": 44.5,
    "data_wait": 0.004,
    "mfu": 0.351,
}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock whose time the test sets."""
    now = [0.0]
    monkeypatch.setattr(display, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    return now


def test_a_log_has_every_figure_and_each_turns_learning_rate() -> None:
    assert figures(LOGGED) == ("loss 8.5 (spans 3.25, mlm 5.25), 20,123 tokens/s, lr 0.001, MFU 35%, 0.4% data wait")
    turns = {"loss": 2.0, "spans/loss": 2.0, "learning_rate/a": 1e-5, "learning_rate/b": 2e-6}
    assert figures(turns) == "loss 2, lr a 1e-05, lr b 2e-06"


def test_without_a_terminal_every_log_is_a_line_with_the_time_left(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    """The first step includes start-up, and does not count."""
    shown = Display(10, 4, quiet=False)
    lines = []
    for step, seconds in enumerate((60, 100, 200), 5):
        clock[0] += seconds
        shown.advance()
        shown.show(step, {"loss": 2.0})
        lines.append(capsys.readouterr().out)
    assert lines == ["step 5/10: loss 2\n", "step 6/10: loss 2, 6.7 min to go\n", "step 7/10: loss 2, 7.5 min to go\n"]


def test_quiet_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    shown = Display(10, 0, quiet=True)
    shown.advance()
    shown.show(1, LOGGED)
    shown.score(1, {"dev_score": 50.0}, True)
    shown.tell("text starts epoch 2")
    assert capsys.readouterr() == ("", "")


def test_scores_are_told_with_the_step_and_whether_they_are_the_best(capsys: pytest.CaptureFixture[str]) -> None:
    shown = Display(10, 0, quiet=False)
    shown.score(0, {"dev_score": 50.0}, True)
    shown.score(5, {"dev_score": 61.25, "validation/loss": 2.5}, True)
    shown.score(10, {"dev_score": 60.0}, False)
    assert capsys.readouterr().out.splitlines() == [
        "before the first step: dev score 50",
        "after step 5: dev score 61.25, validation loss 2.5, the best so far",
        "after step 10: dev score 60",
    ]
