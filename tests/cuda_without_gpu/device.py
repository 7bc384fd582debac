"""A CUDA device that only exists: torch is told that there is one GPU. `start` must run before anything imports torch.

    device.cpp -> g++ -> library -> loaded before torch: hooks -> import torch -> device guard, torch.cuda's functions

Only a process that starts for it may call this: the device cannot be taken away again.
"""

import contextlib
import ctypes
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

SOURCE = Path(__file__).with_name("device.cpp")
NAME, CAPABILITY, MEMORY = "NVIDIA H200 (none, for tests)", (9, 0), 141 << 30
FIRST = ("libgomp*.so*", "libc10.so", "libtorch_cpu.so")
"""Libraries of torch that the device's library is linked to, in the order in which they must be loaded."""


class NoCompilerError(Exception):
    """There is no C++ compiler."""


def _torch() -> Path:
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def build(folder: Path) -> Path:
    """Compile the library, once for each version of torch and of the source; return its path.

    Args:
        folder: the folder to keep it in.

    Raises:
        NoCompilerError: this machine has no C++ compiler.
    """
    version = importlib.metadata.version("torch")
    key = hashlib.sha256(SOURCE.read_bytes() + version.encode()).hexdigest()[:16]
    library = folder / f"device-{key}.so"
    if library.exists():
        return library
    names = [os.environ["CXX"]] if "CXX" in os.environ else ["g++", "c++"]
    compiler = next(filter(None, map(shutil.which, names)), None)
    if compiler is None:
        raise NoCompilerError(f"no C++ compiler ({', '.join(names)}) to try CUDA's paths: install one, or set CXX")
    folder.mkdir(parents=True, exist_ok=True)
    torch = _torch()
    made = library.with_suffix(f".{os.getpid()}")
    command = [compiler, "-O0", "-std=c++20", "-shared", "-fPIC", "-w", f"-I{torch / 'include'}", str(SOURCE)]
    command += [f"-L{torch / 'lib'}", "-lc10", "-ltorch_cpu", "-o", str(made)]
    subprocess.run(command, check=True)
    made.replace(library)
    return library


def start(library: Path) -> None:
    """Load the library and torch, and tell torch that there is one GPU."""
    assert "torch" not in sys.modules, "the device must be there before torch"
    for pattern in FIRST:
        for path in sorted((_torch() / "lib").glob(pattern))[:1]:
            ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
    loaded = ctypes.CDLL(str(library))
    import torch

    loaded.register_device_guard()
    _patch(torch)
    from tests.cuda_without_gpu import kernels, tensors

    kernels.register()
    tensors.Gpu().__enter__()  # for the rest of the process


class _Stream:
    """A stream that does nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device_index, self.cuda_stream = 0, 0

    def wait_stream(self, _: Any) -> None: ...
    def wait_event(self, _: Any) -> None: ...
    def record_event(self, event: Any = None) -> Any:
        return event or _Event()

    def synchronize(self) -> None:
        _wait("waits for a stream")


class _Event:
    """An event that has happened."""

    def __init__(self, *_: Any, **__: Any) -> None: ...
    def record(self, *_: Any) -> None: ...
    def wait(self, *_: Any) -> None: ...
    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        from tests.cuda_without_gpu.tensors import ledger

        ledger().events += 1

    def elapsed_time(self, _: Any) -> float:
        return 1.0


def _wait(why: str) -> None:
    from tests.cuda_without_gpu.tensors import ledger

    ledger().wait(why)


@contextlib.contextmanager
def _on_stream(_: Any) -> Iterator[None]:
    yield


def _patch(torch: Any) -> None:
    """Replace torch.cuda's functions that ask a driver."""
    cuda, stream = torch.cuda, _Stream()
    properties = SimpleNamespace(
        name=NAME, major=CAPABILITY[0], minor=CAPABILITY[1], total_memory=MEMORY, multi_processor_count=132
    )
    answers: dict[str, Any] = {
        "is_available": True,
        "is_initialized": True,
        "is_bf16_supported": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": NAME,
        "get_device_capability": CAPABILITY,
        "get_device_properties": properties,
        "mem_get_info": (MEMORY, MEMORY),
        "memory_allocated": 0,
        "max_memory_allocated": 0,
        "current_stream": stream,
        "default_stream": stream,
        "_lazy_init": None,
        "init": None,
        "set_device": None,
        "_exchange_device": 0,
        "_maybe_exchange_device": 0,
        "empty_cache": None,
        "reset_peak_memory_stats": None,
    }
    for name, answer in answers.items():
        setattr(cuda, name, lambda *_, answer=answer, **__: answer)
    cuda.Stream, cuda.Event, cuda.stream = _Stream, _Event, _on_stream
    cuda.synchronize = lambda *_: _wait("waits for the device")
    from tests.cuda_without_gpu.tensors import RANDOM

    cuda.manual_seed = cuda.manual_seed_all = RANDOM.seed
    cuda.get_rng_state, cuda.set_rng_state = (lambda *_: RANDOM.state), (lambda state, *_: RANDOM.set(state))
    cuda._initialized = True  # torch.utils.checkpoint asks this before it keeps the device's random state
    torch.Tensor.pin_memory = lambda self, *_: torch.ops.aten._pin_memory(self)
    torch.backends.cuda.is_built = lambda: True
