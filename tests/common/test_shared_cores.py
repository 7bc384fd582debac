"""OpenMP threads that wait sleep in commands, their children and the library, unless the user chose otherwise."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.processes import environment

STARTS = {
    "a command": "run(Work('a', lambda: load() or 0))",
    "the library": "import clearspan; clearspan.load_model; load()",
    "a child of a command": "run(Work('a', lambda: subprocess.run([sys.executable, '-c', LOAD]).returncode))",
}


def spins(start: str, **variables: str) -> str:
    """Return the number of spins before a thread sleeps, as libgomp prints it when a new process loads it."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    paths = sorted(Path(spec.origin).parent.glob("lib/libgomp*.so*"))
    if not paths:
        pytest.skip("this torch brings no libgomp")
    program = f"""import ctypes, subprocess, sys
from clearspan.cli.run import Work, run
LOAD = "import ctypes; ctypes.CDLL({str(paths[0])!r})"
def load():
    exec(LOAD)
{start}"""
    variables = {"OMP_DISPLAY_ENV": "VERBOSE", **variables}
    kept = {name: value for name, value in environment().items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    process = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env={**kept, **variables}, capture_output=True, text=True, check=True
    )
    (line,) = (line for line in process.stderr.splitlines() if "GOMP_SPINCOUNT" in line)
    return line.split("'")[1]


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_threads_that_wait_sleep_at_once(start: str) -> None:
    assert spins(start) == "0"


@pytest.mark.parametrize("start", ["a command", "the library"])
def test_a_users_own_policy_stays(start: str) -> None:
    assert int(spins(STARTS[start], OMP_WAIT_POLICY="ACTIVE")) > 0
