"""Processes that `call` starts: what each is given, what is printed of it, and that one interrupt reaches all."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import joblib
import pytest

from clearspan.common import spawned
from clearspan.common.answers import ANSWER, Failure
from clearspan.common.spawned import CommandError, Processes, call, parallel_map
from clearspan.common.terminal import UsageError


class Output:
    """What a process prints: `read` before an interrupt (an exception among the lines is raised), `rest` after it."""

    def __init__(self, *read: list[str | BaseException]) -> None:
        self.parts = list(read)

    def __iter__(self) -> Iterator[str]:
        for line in self.parts.pop(0) if self.parts else []:
            if isinstance(line, BaseException):
                raise line
            yield line


class Process:
    """Stands for `subprocess.Popen`."""

    made: ClassVar[list["Process"]] = []
    output: ClassVar[list[list[str | BaseException]]] = []
    code = 0

    def __init__(self, command: list[str], **options: Any) -> None:
        self.command, self.options, self.signals = command, options, list[int]()
        self.stdout, self.returncode, self.is_waited = Output(*self.output), self.code, False
        self.made.append(self)

    def send_signal(self, number: int) -> None:
        assert not self.is_waited, "it has ended"
        self.signals.append(number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        return self.returncode if self.is_waited else None

    def wait(self, timeout: float | None = None) -> int:
        if timeout is not None:  # it saves for longer than any limit
            raise subprocess.TimeoutExpired(self.command, timeout)
        return self.returncode

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self.is_waited = True


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> type[Process]:
    """The class of the processes, of which none is real; `made` lists them."""
    monkeypatch.setattr(Process, "made", [])
    monkeypatch.setattr(subprocess, "Popen", Process)
    monkeypatch.setattr(spawned, "processes", Processes())
    return Process


@pytest.mark.guarantee("interrupt-reaches-all")
def test_an_interrupt_is_sent_to_all_that_run_and_to_none_that_ended(started: type[Process]) -> None:
    processes = Processes()
    with pytest.raises(CommandError), processes.started(["failed"], {}):
        raise CommandError("failed", 1)
    with processes.started(["ended"], {}):
        pass
    assert all(process.is_waited for process in started.made)
    with processes.started(["a"], {}), processes.started(["b"], {}), processes.started(["c"], {}) as last:
        assert last is started.made[-1] and not last.is_waited and not processes.are_interrupted
        processes.interrupt()
        assert [process.signals for process in started.made] == [[], []] + [[signal.SIGINT]] * 3
        with pytest.raises(KeyboardInterrupt), processes.started(["d"], {}):
            pass
        assert len(started.made) == 5, "none begins"
    assert processes.are_interrupted
    processes.resume()
    with processes.started(["e"], {}) as process:
        assert process.signals == [] and not processes.are_interrupted


@pytest.mark.guarantee("interrupt-reaches-all")
def test_a_process_is_given_its_command_its_environment_and_one_pipe(
    started: type[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWLS", "hunt")
    monkeypatch.setattr(spawned, "exclude_working_folder", lambda environment: environment.update(EXCLUDED="1"))
    call("owls:hunt", "at night")
    (process,) = started.made
    assert process.command == [sys.executable, "-m", "clearspan.cli.process", "owls:hunt"]
    environment = process.options.pop("env")
    given = {"OWLS": "hunt", "EXCLUDED": "1"}
    assert given.items() <= environment.items() and ANSWER in environment
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "backslashreplace"}
    assert process.options == pipe


@pytest.mark.guarantee("interrupt-reaches-all")
@pytest.mark.parametrize("quiet", [False, True])
def test_ctrl_c_is_passed_on_once_and_the_process_is_heard_to_its_end(
    quiet: bool, started: type[Process], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Process, "output", [["step 1\n", KeyboardInterrupt()], ["saved ", "step 1\n"]])
    told = Failure("train", "stopped: continue with --resume", 130)
    monkeypatch.setattr("clearspan.common.spawned.failures", lambda _: [told, told])
    monkeypatch.setattr(Process, "code", 130)
    with pytest.raises(KeyboardInterrupt):
        call("owls:hunt", **({"quiet": True} if quiet else {}))
    assert [process.signals for process in started.made] == [[signal.SIGINT]]
    printed = "" if quiet else f"step 1\nsaved step 1\n{told.line}\n{told.line}\n"
    assert capsys.readouterr().out == printed


@pytest.mark.guarantee("interrupt-reaches-all")
@pytest.mark.parametrize("code", [0, 1, 130])
def test_a_process_that_ends_after_the_interrupt_neither_failed_nor_finished(
    code: int, started: type[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Process, "code", code)
    monkeypatch.setattr(Process, "__exit__", lambda *_: spawned.processes.interrupt())
    with pytest.raises(KeyboardInterrupt):
        call("owls:hunt")


@pytest.mark.guarantee("interrupt-reaches-all")
@pytest.mark.parametrize(
    ("types", "expected", "raised"),
    [
        ((), (), CommandError),
        ((), (OSError,), CommandError),
        (("UsageError", "ValueError"), (), UsageError),
        (("UsageError", "ValueError"), (ValueError,), UsageError),
        (("KeyError", "LookupError"), (LookupError,), LookupError),
        (("KeyError", "LookupError"), (), CommandError),
    ],
)
def test_a_failure_of_one_process_is_no_interrupt(
    types: tuple[str, ...],
    expected: tuple[type[Exception], ...],
    raised: type[Exception],
    started: type[Process],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failure = Failure("train", "the loss exploded", 3, types=types)
    monkeypatch.setattr("clearspan.common.spawned.failures", lambda _: [failure])
    monkeypatch.setattr(Process, "code", 3)
    with pytest.raises(raised, match="the loss exploded") as error:
        call("owls:hunt", expected=expected)
    assert type(error.value) is raised and getattr(error.value, "code", 3) == 3
    assert started.made[0].signals == []


@pytest.mark.guarantee("interrupt-reaches-all")
def test_an_interrupt_within_one_call_stops_the_others_and_the_next_command_starts(
    started: type[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pressed keys do, whose signal reaches this process's main thread."""
    processes = Processes()
    monkeypatch.setattr("clearspan.common.spawned.processes", processes)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    is_running, ends = threading.Event(), list[list[int]]()

    def work(number: int) -> None:
        if number == 0:
            is_running.wait(20)
            raise KeyboardInterrupt
        with processes.started([str(number)], {}) as process:
            is_running.set()
            until = time.monotonic() + 5
            while not process.signals and time.monotonic() < until:  # type: ignore[attr-defined]
                threading.Event().wait(0.001)
            ends.append([*process.signals])  # type: ignore[attr-defined]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        parallel_map(work, range(9), 2)
    assert ends and all(signals == [signal.SIGINT] for signals in ends)
    assert len(started.made) <= 2, "no process begins after it"
    assert not processes.are_interrupted and "OMP_NUM_THREADS" not in os.environ


@pytest.mark.guarantee("interrupt-reaches-all")
@pytest.mark.parametrize(
    ("cores", "at_once", "user", "threads"),
    [(8, 2, None, "4"), (7, 2, None, "3"), (1, 2, None, "1"), (8, 3, None, "2"), (8, 2, "5", "5"), (8, 1, None, None)],
)
@pytest.mark.parametrize("fails", [False, True])
def test_cores_are_divided_among_the_processes_and_the_user_is_left_their_setting(
    cores: int, at_once: int, user: str | None, threads: str | None, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joblib, "cpu_count", lambda: cores)
    monkeypatch.setenv("OMP_NUM_THREADS", user) if user else monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    seen: list[str | None] = []

    def work(number: int) -> int:
        seen.append(os.environ.get("OMP_NUM_THREADS"))
        if fails:
            raise CommandError("failed", 1)
        return -number

    if fails:
        with pytest.raises(CommandError):
            parallel_map(work, range(3), at_once)
    else:
        assert parallel_map(work, range(3), at_once) == [0, -1, -2]
    assert set(seen) == {threads} and os.environ.get("OMP_NUM_THREADS") == user


@pytest.mark.guarantee("interrupt-reaches-all")
@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_as_many_calls_run_at_a_time_as_asked_for_on_any_machine(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setattr(joblib, "cpu_count", lambda: 1)
    lock, barrier, running, most = threading.Lock(), threading.Barrier(at_once, timeout=20), set[int](), list[int]()

    def work(number: int) -> bool:
        with lock:
            running.add(number)
            most.append(len(running))
        barrier.wait()
        with lock:
            running.discard(number)
        return threading.current_thread() is threading.main_thread()

    assert parallel_map(work, range(6), at_once) == [at_once == 1] * 6
    assert max(most) == at_once


@pytest.mark.guarantee("interrupt-reaches-all")
def test_one_call_after_the_other_needs_no_further_thread_and_ends_at_the_first_failure() -> None:
    begun: list[int] = []

    def work(number: int) -> None:
        begun.append(number)
        if number == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        parallel_map(work, range(4))
    assert begun == [0, 1]


@pytest.mark.guarantee("interrupt-reaches-all")
def test_an_interrupt_while_a_process_starts_reaches_it(
    started: type[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = Processes()
    thread = threading.Thread(target=processes.interrupt, daemon=True)

    class Starting(Process):
        def __init__(self, command: list[str], **options: Any) -> None:
            super().__init__(command, **options)
            thread.start()
            thread.join(0.05)  # it waits for the process

    monkeypatch.setattr(subprocess, "Popen", Starting)
    with processes.started(["train"], {}) as process:
        thread.join(20)
        assert process.signals == [signal.SIGINT]  # type: ignore[attr-defined]


@pytest.mark.guarantee("interrupt-reaches-all")
def test_a_process_that_ends_during_the_interrupt_keeps_it_from_no_other(
    started: type[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    processes, is_running, may_end = Processes(), threading.Event(), threading.Event()

    def run() -> None:
        with processes.started(["short"], {}):
            is_running.set()
            may_end.wait(20)

    (thread := threading.Thread(target=run, daemon=True)).start()

    def send_signal(process: Process, number: int) -> None:
        process.signals.append(number)
        may_end.set()
        thread.join(0.05)  # its end waits for the interrupt

    monkeypatch.setattr(Process, "send_signal", send_signal)
    with processes.started(["long"], {}):
        is_running.wait(20)
        processes.interrupt()
    thread.join(20)
    assert [process.signals for process in started.made] == [[signal.SIGINT]] * 2


@pytest.mark.guarantee("interrupt-reaches-all")
def test_a_process_that_would_start_during_the_interrupt_does_not_or_is_reached(
    started: type[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    processes, threads = Processes(), list[threading.Thread]()

    def run() -> None:
        with contextlib.suppress(KeyboardInterrupt), processes.started(["late"], {}):
            is_sent.wait(20)

    is_sent = threading.Event()

    def send_signal(process: Process, number: int) -> None:
        process.signals.append(number)
        if process.command == ["early"]:
            threads.append(threading.Thread(target=run, daemon=True))
            threads[0].start()
            threads[0].join(0.05)  # it may wait for the end of the interrupt

    monkeypatch.setattr(Process, "send_signal", send_signal)
    with processes.started(["early"], {}):
        processes.interrupt()
        is_sent.set()
    threads[0].join(20)
    assert [process.signals for process in started.made] == [[signal.SIGINT]] * len(started.made)


@pytest.mark.guarantee("interrupt-reaches-all")
def test_a_failure_stops_what_waits_although_an_earlier_call_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, begun = threading.Event(), list[int]()
    shutdown = ThreadPoolExecutor.shutdown

    def noted(pool: ThreadPoolExecutor, *given: Any, **options: Any) -> None:
        ended.set()
        shutdown(pool, *given, **options)

    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", noted)

    def work(number: int) -> None:
        begun.append(number)
        if number == 0:
            ended.wait(20)
        elif number == 2:
            raise CommandError("failed", 1)
        elif number == 199:
            ended.set()
        elif number > 2:
            ended.wait(0.002)

    with pytest.raises(CommandError):
        parallel_map(work, range(200), 2)
    assert len(begun) < 200
