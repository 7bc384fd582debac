"""Run the stages of a plan that are not done: several at a time, each in its own process with its own log.

    stages -> those whose needs are met, in their order -> process -> WORK/logs/STAGE.log, WORK/journal.jsonl

A stage that fails takes those that need it with it; all others run. The same command again goes on: pipelines and
trainings continue what they began. On Ctrl-C or SIGTERM, and if this process is killed, trainings save and end.
"""

import contextlib
import ctypes
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import FrameType

from benchmarks.findings.plan import ROOT, Plan
from benchmarks.findings.stages import Stage, environment, minutes
from clearspan.common import files, terminal

PR_SET_PDEATHSIG = 1
"""Linux's option of prctl: the signal that a process gets when the thread that started it ends."""
TAIL = 1_000
"""Characters of a failed stage's log that are printed."""

Start = Callable[[Plan, Stage], int]
"""Does a stage's command and returns its exit code."""


class StoppedError(Exception):
    """A signal ended the run; the message names it."""


class Processes:
    """The processes of the stages that run now; a call starts one and waits for it."""

    def __init__(self) -> None:
        self.running: set[subprocess.Popen[bytes]] = set()
        self.stopping = False

    def __call__(self, plan: Plan, stage: Stage) -> int:
        assert not callable(stage.work)
        log = plan.work / "logs" / f"{stage.name.replace(' ', '-')}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as stream:
            process = subprocess.Popen(
                [sys.executable, *stage.work],
                cwd=ROOT,
                env=environment(plan, stage.alone),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            )
        self.running.add(process)
        if self.stopping:
            process.terminate()
        code = process.wait()
        self.running.discard(process)
        if code and not self.stopping:
            said = terminal.visible(log.read_text(errors="replace")[-TAIL:].strip())
            print(f"{stage.name}: exit code {code}; see {log}\n{said}", file=sys.stderr)
        return code

    def stop(self) -> None:
        """Let every process save and end."""
        self.stopping = True
        for process in list(self.running):
            process.terminate()


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@contextlib.contextmanager
def stopping(processes: Processes) -> Iterator[None]:
    """Turn SIGINT, SIGTERM and SIGHUP into StoppedError, once the processes have been told."""

    def stop(number: int, frame: FrameType | None) -> None:
        processes.stop()
        raise StoppedError(signal.Signals(number).name)

    handlers = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def run(plan: Plan, planned: Sequence[Stage], start: Start) -> list[str]:
    """Do what is missing; return the names of the stages that failed or lacked what they need.

    Args:
        start: does a stage's command.
    """
    clock = Clock(plan.work)
    missing = [stage for stage in planned if not stage.done()]
    waiting, done = list(missing), {stage.name for stage in planned} - {stage.name for stage in missing}
    running: dict[Future[int], Stage] = {}
    failed: list[str] = []
    with ThreadPoolExecutor(plan.jobs) as pool:
        while waiting or running:
            lost = [stage for stage in waiting if set(stage.needs) & set(failed)]
            failed += [stage.name for stage in lost]
            waiting = [stage for stage in waiting if stage not in lost]
            while (stage := _next(waiting, done, list(running.values()), plan.jobs)) is not None:
                waiting.remove(stage)
                terminal.notice(f"{stage.name} ({len(done)} of {len(planned)} stages done)")
                running[pool.submit(_timed, plan, stage, start)] = stage
            if not running:
                continue
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                stage = running.pop(future)
                (done.add if future.result() == 0 and stage.done() else failed.append)(stage.name)
                clock.save()
                left = minutes(plan, [*waiting, *running.values()])
                terminal.notice(
                    f"  {stage.name}: {'done' if stage.name in done else 'FAILED'}; about {left:.0f} min left"
                )
    clock.save()
    return failed


def _next(waiting: Sequence[Stage], done: set[str], running: Sequence[Stage], jobs: int) -> Stage | None:
    """Return the first stage that can start: beside others only if neither takes all cores."""
    if len(running) >= jobs or any(stage.alone for stage in running):
        return None
    ready = next((stage for stage in waiting if set(stage.needs) <= done), None)
    return None if ready is None or (ready.alone and running) else ready


def _timed(plan: Plan, stage: Stage, start: Start) -> int:
    begun = time.time()
    stage.before()
    code = _called(stage.name, stage.work) if callable(stage.work) else start(plan, stage)
    line = json.dumps({"stage": stage.name, "seconds": round(time.time() - begun, 1), "code": code})
    with (plan.work / "journal.jsonl").open("a") as journal:
        journal.write(line + "\n")
    return code


def _called(name: str, work: Callable[[], None]) -> int:
    """Call a function; return 0, or 1 after printing its error in one line."""
    try:
        work()
    except (ValueError, RuntimeError, OSError) as error:
        print(f"{name}: {terminal.one_line(error)}", file=sys.stderr)
        return 1
    return 0


class Clock:
    """The hours that a work folder has taken, over all calls; a killed call loses those of its last stages."""

    def __init__(self, work: Path) -> None:
        self.path, self.start = work / "hours.json", time.time()
        self.before = json.loads(self.path.read_text())["hours"] if self.path.is_file() else 0.0

    def save(self) -> None:
        hours = self.before + (time.time() - self.start) / 3600
        files.write_text(self.path, json.dumps({"hours": round(hours, 4)}) + "\n")
