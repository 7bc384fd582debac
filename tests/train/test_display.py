"""The display of a run: lines without a terminal, a bar on one, and estimates of the remaining time."""

import io
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from clearspan.train.engine import display
from clearspan.train.engine.display import Display, device_name, figures, listed
from clearspan.train.engine.tracking import Tracker

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


def test_every_figure_of_a_log_is_told() -> None:
    assert listed(figures(LOGGED, {"text": "documents"}).values()) == (
        "loss 8.5 (spans 3.25, mlm 5.25), lr 0.001, 20,123 tokens/s, 44.5 documents/s, MFU 35%, 0.4% data wait"
    )


def test_each_turns_learning_rate_has_its_name_and_one_loss_is_told_once() -> None:
    found = figures({"loss": 2.0, "spans/loss": 2.0, "learning_rate/a": 1e-5, "learning_rate/b": 2e-6}, {})
    assert list(found.values()) == ["loss 2", "lr a 1e-05, b 2e-06"]


def test_without_a_terminal_every_log_is_a_line(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    shown = Display(10, 0, quiet=False, units={"text": "documents"}, device="CPU, 2 threads")
    shown.begin()
    for _ in range(5):
        clock[0] += 100
        shown.advance()
    shown.show(5, LOGGED)
    first, whole, line = capsys.readouterr().out.splitlines()
    assert first == "training on CPU, 2 threads: 10 steps"
    assert whole == "about 17 min for 10 steps: 100 s a step"
    assert line.startswith("step 5/10: loss 8.5 (spans") and line.endswith("0.4% data wait, 8.3 min to go")


def test_the_time_of_the_run_is_told_after_the_third_step_and_its_start_up_is_not_counted(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    shown = Display(160, 0, quiet=False, uncounted=", and an evaluation every 25 steps")
    lines = []
    for seconds in (35.3, 2.0, 2.2, 2.1):
        clock[0] += seconds
        shown.advance()
        lines.append(capsys.readouterr().out)
    assert lines == ["", "", "about 5.6 min for 160 steps: 2.1 s a step, and an evaluation every 25 steps\n", ""]


def test_a_log_of_the_first_step_tells_no_time_that_is_left(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    shown = Display(10, 0, quiet=False)
    clock[0] += 35
    shown.advance()
    shown.show(1, {"loss": 2.0})
    assert capsys.readouterr().out == "step 1/10: loss 2\n"


def test_quiet_shows_nothing_but_warnings(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    shown = Display(10, 0, quiet=True, device="CPU")
    shown.begin()
    for _ in range(4):
        clock[0] += 100
        for number in (1, 2, 3):
            shown.forwarded(number, 3)
        shown.advance()
    shown.show(4, LOGGED)
    shown.score(4, {"dev_score": 50.0}, True)
    shown.tell("text starts epoch 2")
    assert capsys.readouterr() == ("", "")
    shown.warn("the loss rises")
    assert "the loss rises" in "".join(capsys.readouterr())


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def bar_of(width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the line of a bar at step 60,000 of 500,000, after ten hours."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    shown = Display(500_000, 0, quiet=False, units={"text": "documents"})
    shown.score(0, {"dev_score": 61.25}, True)
    shown.bar.dynamic_ncols = lambda stream: (width, 24)
    shown.bar.n, shown.bar.start_t = 60_000, shown.bar._time() - 36_000
    shown.show(60_000, LOGGED)
    line = str(shown.bar)
    shown.close()
    return line


def test_a_wide_bar_has_every_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    line = bar_of(200, monkeypatch)
    assert line.startswith("train:  12%|60000/500000 [10:00:00<73:20:0")
    assert line.endswith(f"{listed(figures(LOGGED, {'text': 'documents'}).values())}, dev score 61.25]")


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (113, "loss 8.5 (spans 3.25, mlm 5.25), 20,123 tokens/s, dev score 61.25]"),
        (100, "loss 8.5 (spans 3.25, mlm 5.25), 20,123 tokens/s]"),
        (80, "loss 8.5, 20,123 tokens/s]"),
    ],
)
def test_a_narrow_bar_does_without_the_least_figures_and_is_not_cut(
    monkeypatch: pytest.MonkeyPatch, width: int, shown: str
) -> None:
    line = bar_of(width, monkeypatch)
    assert line.endswith(f", {shown}") and len(line) <= width
    assert line.startswith("train:  12%|60000/500000 [10:00:00<73:20:0")


@pytest.mark.parametrize(
    ("cached", "told"), [(False, "61 years"), (True, "81 years")], ids=["plain", "gradient caching"]
)
def test_a_paper_sized_step_on_a_small_device_is_told_after_three_micro_batches(
    clock: list[float], capsys: pytest.CaptureFixture[str], cached: bool, told: str
) -> None:
    """The first micro-batch compiles the encoder, and its backward pass too; with gradient caching, each micro-batch
    has had another forward pass, half as long as a backward pass.
    """
    shown = Display(500_000, 0, quiet=False)
    shown.begin()
    for number, seconds in ((1, 500), (2, 300), (3, 120)):
        clock[0] += seconds
        shown.forwarded(number, 32, cached)
    step = "85 min" if cached else "64 min"
    assert capsys.readouterr().out == f"about {told} for 500,000 steps: {step} a step\n"


def test_the_first_step_is_left_out_of_what_a_step_takes(clock: list[float]) -> None:
    shown = Display(10, 4, quiet=True)
    shown.begin()
    for seconds in (60, 1, 3):
        clock[0] += seconds
        shown.advance()
    assert shown.seconds_a_step == 2


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


def test_a_cpu_is_called_so() -> None:
    assert device_name(torch.device("cpu"), 2).startswith("CPU, ")


class Online:
    """A stand-in for wandb's run."""

    id = "abc"

    def __init__(self) -> None:
        self.logged: list[tuple[int, dict]] = []
        self.finished = 0

    def log(self, metrics: dict, step: int) -> None:
        self.logged.append((step, metrics))

    def finish(self) -> None:
        self.finished += 1


def test_a_run_goes_to_wandb_where_the_recipe_says_so_and_a_resumed_one_to_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for the package, which is not installed."""
    asked: list[dict] = []
    online = Online()

    class Package:
        Error = RuntimeError

        @staticmethod
        def init(**options: object) -> Online:
            asked.append(options)
            return online

    monkeypatch.setitem(sys.modules, "wandb", Package)
    for step in (0, 1):
        tracker = Tracker(tmp_path, Display(2, step, quiet=True), wandb=("project", {"training.seed": 42}))
        tracker.log(step + 1, {"loss": 1.0})
        tracker.close()
    assert online.logged == [(1, {"loss": 1.0}), (2, {"loss": 1.0})] and online.finished == 2
    assert [(one["project"], one["id"], one["resume"]) for one in asked] == [
        ("project", None, None),
        ("project", "abc", "allow"),
    ]
    assert [one["settings"] for one in asked] == [{"silent": True}] * 2


def test_matrix_products_are_timed_in_a_moment() -> None:
    from clearspan.train.estimate import matrix_rate

    began = time.perf_counter()
    assert matrix_rate(64, False, torch.device("cpu")) > 1e8
    assert time.perf_counter() - began < 5
