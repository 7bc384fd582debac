"""Several commands at a time: side by side, in order, and all of them stopped by one interrupt."""

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from clearspan.common.spawned import CommandError, call, parallel_map, processes

WAITING = """import pathlib, signal, sys
def wait(file, started, code):
    def end(*_):
        pathlib.Path(file).write_text("saved")
        sys.exit(code)
    signal.signal(signal.SIGINT, end)
    signal.alarm(5)  # one that is not interrupted ends by itself, unsaved
    with open(started, "w") as pipe:
        pipe.write(".")
    signal.pause()
"""


@pytest.mark.guarantee("interrupt-reaches-all")
def test_calls_run_side_by_side_and_their_results_are_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    both = threading.Barrier(2, timeout=20)
    threads: list[str] = []

    def work(number: int) -> int:
        threads.append(os.environ["OMP_NUM_THREADS"])
        both.wait()
        return 10 * number

    assert parallel_map(work, [3, 1, 2, 0], 2) == [30, 10, 20, 0]
    assert len(threads) == 4 and all(int(each) >= 1 for each in threads) and "OMP_NUM_THREADS" not in os.environ
    assert parallel_map(str, [3, 1]) == ["3", "1"]


@pytest.mark.guarantee("interrupt-reaches-all")
def test_after_a_failure_no_further_call_begins() -> None:
    begun: list[int] = []
    both = threading.Barrier(2, timeout=20)

    def work(number: int) -> None:
        begun.append(number)
        both.wait()
        raise CommandError(f"failed at {number}", 1)

    with pytest.raises(CommandError, match="failed at"):
        parallel_map(work, list(range(2)) * 20, 2)
    assert len(begun) <= 6, "those that had begun, and what a thread took before the failure was seen"


@pytest.mark.guarantee("interrupt-reaches-all")
def test_an_interrupt_reaches_every_process_and_nothing_begins_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process ends with an error and one without: both were stopped, neither is reported as failed or finished."""
    (tmp_path / "waiting.py").write_text(WAITING)
    monkeypatch.setenv("PYTHONPATH", ":".join([str(tmp_path), *filter(None, sys.path)]))
    os.mkfifo(started := tmp_path / "started")
    ends: dict[int, BaseException | None] = {}

    def work(number: int) -> None:
        try:
            call("waiting:wait", tmp_path / f"{number}", started, number)
        except BaseException as error:
            ends[number] = error
            raise

    def interrupt() -> None:
        with started.open("r+b", buffering=0) as stream:  # also for writing: it opens at once
            for _ in range(2):
                stream.read(1)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background process ignores it
    (thread := threading.Thread(target=interrupt, daemon=True)).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            parallel_map(work, range(4), 2)
    finally:
        thread.join(20)
        signal.signal(signal.SIGINT, before)
    assert {path.name for path in tmp_path.glob("[0-9]")} == {"0", "1"}, "both saved"
    assert ends.keys() <= {0, 1, 2, 3} and all(isinstance(error, KeyboardInterrupt) for error in ends.values())
    assert not processes.are_interrupted, "the next command starts"
