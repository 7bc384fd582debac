"""Runs of tests on copies of the checkout.

Cosmic Ray starts an interpreter for each mutant, which takes longer than most of the tests. Here, one pytest a copy
collects all tests, and each run is a process forked from it, in which the functions of a changed file are exchanged. A
run in a pytest of its own also sees what a change does to the import of its module.
"""

import contextlib
import dataclasses
import functools
import gc
import hashlib
import importlib
import json
import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import sys
import types
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.guarantees import ROOT

SLOW_PACKAGES = (
    *("torch", "apache_beam", "transformers", "sentence_transformers", "pyarrow.parquet", "deepspeed", "hypothesis"),
    *("webdataset", "scipy.stats", "sklearn.linear_model", "sentencex", "torch.utils.tensorboard", "pytest"),
)
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", ".mutants", "__pycache__", ".mypy_cache", ".hypothesis", "demo", "build"
)
LEVELS = ("slow", "exhaustive")
"""Marks of the tests that take longer, in this order; those of no mark are the quick ones."""
FORK = multiprocessing.get_context("fork")


@dataclass
class Run:
    """Tests to run on a copy, until the first one fails.

    Attributes:
        tests: what to run, as `file::function`.
        path: the file that is changed, empty if none is.
        content: its content.
        level: of `tests`, those that are quick (0), slow (1) or exhaustive (2).
        limit_s: seconds after which the run is ended.
        alone: whether pytest starts anew, with a collection of its own.
        seconds: of each test item, for those of the fewest to be run first.
    """

    tests: Sequence[str]
    path: str = ""
    content: str = ""
    level: int = 0
    limit_s: float = 1800
    alone: bool = False
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass
class Result:
    """How a run ended.

    Attributes:
        failed: the test item that failed, or why the run ended without one; empty if all passed.
        report: what pytest says of the failure.
        seconds: of each test item that ran and was not skipped.
    """

    failed: str = ""
    report: str = ""
    seconds: dict[str, float] = field(default_factory=dict)


class Copies:
    """Copies of the checkout, each with a pytest that has collected `tests`.

    Attributes:
        levels: level (0 quick, 1 slow, 2 exhaustive) of each test item, by test.
    """

    def __init__(self, folder: Path, number: int, tests: Sequence[str]) -> None:
        for package in SLOW_PACKAGES:
            importlib.import_module(package)
        self._free: list[tuple[Path, Connection]] = []
        self._busy: dict[Connection, tuple[tuple[Path, Connection], Callable[[Result], None]]] = {}
        for index in range(number):
            copy = folder / str(index)
            shutil.copytree(ROOT, copy / "checkout", symlinks=True, ignore=LEFT_OUT)
            self._free.append((copy, _started(_collect_and_serve, copy, tests)))
        began = [session.recv() for _, session in self._free]
        if problems := [each for each in began if isinstance(each, str)]:
            raise RuntimeError(problems[0])
        self.levels: dict[str, dict[str, int]] = began[0]

    def run(self, run: Run, done: Callable[[Result], None]) -> None:
        """Start a run as soon as a copy is free; `done` gets its result."""
        while not self._free:
            self._collect()
        copy, session = self._free.pop()
        connection = _started(_run_alone, copy, run) if run.alone else session
        if not run.alone:
            session.send(dataclasses.asdict(run))
        self._busy[connection] = (copy, session), done

    def finish(self) -> None:
        """Wait for all runs."""
        while self._busy:
            self._collect()

    def close(self) -> None:
        """End the processes, also those that still run tests."""
        for process in multiprocessing.active_children():
            process.terminate()

    def _collect(self) -> None:
        for connection in multiprocessing.connection.wait(list(self._busy)):
            assert isinstance(connection, Connection)
            place, done = self._busy.pop(connection)
            try:
                result = Result(**connection.recv())
            except EOFError:
                raise RuntimeError("a process of the tests has ended: is there memory for all?") from None
            self._free.append(place)
            done(result)


@contextlib.contextmanager
def copies(folder: Path, number: int, tests: Sequence[str]) -> Iterator[Copies]:
    """Give copies, and remove them."""
    made = None
    try:
        made = Copies(folder, number, tests)
        yield made
    finally:
        if made is not None:
            made.close()
        shutil.rmtree(folder, ignore_errors=True)


def _started(target: Callable[..., None], *arguments: Any) -> Connection:
    """Start a process that gets the other end of a connection as its last argument; return this end."""
    here, there = FORK.Pipe()
    FORK.Process(target=target, args=(*arguments, there), daemon=False).start()
    there.close()
    return here


def _collect_and_serve(copy: Path, tests: Sequence[str], connection: Connection) -> None:
    """Collect the tests on this copy, and run those that are asked for, until this process is ended."""
    _enter(copy)
    session = _Session(copy, connection)
    code = pytest.main([*_options(copy), *tests], plugins=[session])
    if not session.began:
        connection.send(f"pytest ended with exit code {code}: {(copy / 'log').read_text()[-2000:]}")


def _run_alone(copy: Path, run: Run, connection: Connection) -> None:
    """Run tests in a pytest of their own, in a process that ends with its time."""

    def test() -> None:
        _enter(copy)
        recorder = _Recorder(copy / "result")
        code = pytest.main(["-x", *_options(copy), *run.tests], plugins=[recorder, _OfLevel(run.level)])
        recorder.keep("" if code in (0, 5) else recorder.failed or f"pytest ended with exit code {code}")

    with _changed(copy, run):
        connection.send(dataclasses.asdict(_forked(test, copy, run.limit_s)))


def _enter(copy: Path) -> None:
    """Make this process one of the copy: its folder, its modules, its output."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # to end what it has started before it ends
    checkout = copy / "checkout"
    os.chdir(checkout)
    log = os.open(copy / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    sys.path[:] = [str(checkout), *(entry for entry in sys.path if entry not in ("", str(ROOT)))]
    os.environ["PYTHONPATH"] = str(checkout)
    for name in [name for name in sys.modules if name.split(".")[0] in ("tests", "clearspan")]:
        del sys.modules[name]
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def _options(copy: Path) -> list[str]:
    return ["--rootdir", str(copy / "checkout"), "--basetemp", str(copy / "tmp")]


def _level(item: pytest.Item) -> int:
    return max((index for index, mark in enumerate(LEVELS, start=1) if item.get_closest_marker(mark)), default=0)


class _Recorder:
    """Writes down what fails and how long each test takes."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._result = Result()
        self._skipped: set[str] = set()

    @property
    def failed(self) -> str:
        return self._result.failed

    def keep(self, failed: str) -> None:
        """Write the result, for the process that started this one."""
        seconds = {test: taken for test, taken in self._result.seconds.items() if test not in self._skipped}
        result = Result(failed, self._result.report, seconds)
        self._file.write_text(json.dumps(dataclasses.asdict(result)), encoding="utf-8")

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the test's time, whether it was skipped and whether it failed."""
        seconds = self._result.seconds
        seconds[report.nodeid] = seconds.get(report.nodeid, 0) + report.duration
        if report.skipped:
            self._skipped.add(report.nodeid)
        if report.failed and not self.failed:
            self._result.failed, self._result.report = report.nodeid, report.longreprtext[-1000:]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file of tests that cannot be imported."""
        if report.failed and not self.failed:
            self._result.failed, self._result.report = report.nodeid, report.longreprtext[-1000:]


class _OfLevel:
    """Runs the tests of one level alone."""

    def __init__(self, level: int) -> None:
        self._level = level

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave the others out."""
        items[:] = [item for item in items if _level(item) == self._level]


class _Session(_Recorder):
    """In place of the loop of pytest: a forked process for each run that is asked for."""

    def __init__(self, copy: Path, connection: Connection) -> None:
        super().__init__(copy / "result")
        self._copy = copy
        self._connection = connection
        self._functions: dict[str, list[types.FunctionType]] = {}
        self.began = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> NoReturn:
        """Run what is asked for. Nothing runs in this process itself, so that no run finds another's traces."""
        self.began = True
        items = defaultdict(list)
        for item in session.items:
            items[item.nodeid.partition("[")[0]].append(item)
        self._functions = functions_in(self._copy / "checkout")
        self._connection.send({test: {each.nodeid: _level(each) for each in of} for test, of in items.items()})
        while True:
            run = Run(**self._connection.recv())
            chosen = [item for test in run.tests for item in items[test] if _level(item) == run.level]
            chosen.sort(key=lambda item: run.seconds.get(item.nodeid, 0))
            with _changed(self._copy, run):
                result = _forked(functools.partial(self._test, run, chosen), self._copy, run.limit_s)
            self._connection.send(dataclasses.asdict(result))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """End the run with its first failure."""
        super().pytest_runtest_logreport(report)
        if self.failed:
            self.keep(self.failed)
            os._exit(0)

    def _test(self, run: Run, items: list[pytest.Item]) -> None:
        if run.path:
            path = os.path.realpath(self._copy / "checkout" / run.path)
            exchange(self._functions.get(path, []), compile(run.content, path, "exec", dont_inherit=True))
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        self.keep(self.failed)


def functions_in(checkout: Path) -> dict[str, list[types.FunctionType]]:
    """Return all functions in memory that a file of the checkout defines, by file."""
    found = defaultdict(list)
    start = os.path.realpath(checkout) + os.sep
    gc.unfreeze()
    for each in gc.get_objects():
        if isinstance(each, types.FunctionType):
            path = os.path.realpath(each.__code__.co_filename)
            if path.startswith(start):
                found[path].append(each)
    gc.freeze()
    return found


def exchange(functions: Iterable[types.FunctionType], module: types.CodeType) -> None:
    """Give functions the code that their module has now; one that is not in it, or cannot take it, keeps its own."""
    codes = _codes(module)
    for function in functions:
        if (code := codes.get(function.__code__.co_qualname)) is not None:
            with contextlib.suppress(ValueError):  # other variables of the function around it
                function.__code__ = code.replace(co_filename=function.__code__.co_filename)


def _codes(code: types.CodeType) -> dict[str, types.CodeType]:
    """Return the code of each function in a module, by its qualified name, which lambdas share and so lack."""
    found: dict[str, types.CodeType] = {}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= {constant.co_qualname: constant, **_codes(constant)}
    return {name: each for name, each in found.items() if "<lambda>" not in name}


@contextlib.contextmanager
def _changed(copy: Path, run: Run) -> Iterator[None]:
    """Change the file also on the disk, where other processes read it."""
    if not run.path:
        yield
        return
    path = copy / "checkout" / run.path
    unchanged = path.read_text(encoding="utf-8")
    _write(path, run.content)
    try:
        yield
    finally:
        _write(path, unchanged)


def _write(path: Path, content: str) -> None:
    """Write a file with a time of its content's own, by which Python tells it from others."""
    path.write_text(content, encoding="utf-8")
    stamp = int(hashlib.sha256(content.encode()).hexdigest()[:7], 16)
    os.utime(path, (stamp, stamp))


def _forked(test: Callable[[], None], copy: Path, limit_s: float) -> Result:
    """Run tests in a forked process, with all that it starts, and return what it wrote."""
    result = copy / "result"
    result.unlink(missing_ok=True)
    process = FORK.Process(target=_apart, args=(test,))
    process.start()
    try:
        process.join(limit_s)
    finally:
        late = process.is_alive()
        with contextlib.suppress(ProcessLookupError):  # also what its tests left running
            os.killpg(process.pid or 0, signal.SIGKILL)
        process.join()
    if late:
        return Result(f"not ended after {limit_s:.0f} s")
    if not result.exists():
        return Result(f"ended with exit code {process.exitcode}")
    return Result(**json.loads(result.read_text(encoding="utf-8")))


def _apart(test: Callable[[], None]) -> None:
    """Run in a process group of its own, and leave without the cleaning up of what was forked."""
    os.setsid()
    test()
    os._exit(0)
