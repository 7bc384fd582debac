"""glibc keeps what is freed; where the C library is another one nothing happens."""

import ctypes
import subprocess
import sys
from types import SimpleNamespace

import pytest

from clearspan.common import allocator

FAULTS = """
import resource, sys
from clearspan.common import allocator

told, number = bool(sys.argv[1]) and getattr(allocator, sys.argv[1])(), int(sys.argv[2])
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        [b"a" * ((60 << 20) // number) for _ in range(number)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(int(told), faults())
"""


def faults_of(how: str, number: int) -> tuple[int, int]:
    """Whether glibc was told, and the page faults of strings of 60 MiB together, made and freed ten times. In a process
    of its own: what it is told stays."""
    done = subprocess.run([sys.executable, "-c", FAULTS, how, str(number)], capture_output=True, text=True, check=True)
    told, faults = map(int, done.stdout.split())
    return told, faults


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"), reason="the C library is not glibc")
@pytest.mark.parametrize(("how", "number"), [("keep_tensors", 1), ("keep_blocks", 6)])
def test_what_is_freed_meets_its_pages_once(how: str, number: int) -> None:
    assert faults_of("", number)[1] > 100
    told, faults = faults_of(how, number)
    assert told and faults < 20


@pytest.mark.parametrize(
    ("platform", "library"),
    [("darwin", SimpleNamespace(mallopt=None)), ("linux", SimpleNamespace()), ("win32", SimpleNamespace(mallopt=None))],
    ids=["macOS", "musl", "Windows"],
)
def test_another_c_library_is_left_alone(
    platform: str, library: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocator.sys, "platform", platform)
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: library)
    assert not allocator.keep_tensors()
