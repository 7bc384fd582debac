"""Limits on the memory that a process keeps: glibc's malloc thresholds, and oneDNN's cache of compiled kernels.

By default glibc maps every large block anew and returns it to the system when it is freed. Each image or training step
then touches all its pages for the first time: tens of thousands of page faults.
"""

import ctypes
import os
import sys

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
"""Parameters of `mallopt`, from glibc's malloc.h."""
NEVER = -1
"""The largest unsigned number of bytes, so a threshold that no machine reaches."""
_keeps_tensors = False


def keep_freed(mmap_bytes: int, trim_bytes: int, top_pad_bytes: int | None = None) -> bool:
    """Set glibc's thresholds for this process.

    Args:
        mmap_bytes: a block larger than this is mapped anew, and returned to the system when it is freed.
        trim_bytes: the top of the heap is returned to the system when more bytes than this are free there; NEVER keeps
            everything.
        top_pad_bytes: number of extra bytes to request whenever the heap grows; None keeps glibc's default.

    Returns:
        True if the C library accepted the thresholds; False if it is not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform.startswith("linux") else None
    if mallopt is None:
        return False
    settings = [(M_MMAP_THRESHOLD, mmap_bytes), (M_TRIM_THRESHOLD, trim_bytes), (M_TOP_PAD, top_pad_bytes)]
    accepted = [mallopt(name, value) for name, value in settings if value is not None]
    return all(accepted)


def keep_tensors(keep: bool = True) -> bool:
    """Keep all memory that tensors free, so the process stays at its peak; `keep=False` sets glibc's default limits."""
    global _keeps_tensors
    _keeps_tensors = keep
    return keep_freed(1 << 30, NEVER, 64 << 20) if keep else keep_freed(32 << 20, 64 << 20, 128 << 10)


def keep_blocks() -> bool:
    """Keep up to 64 MiB of freed memory, such as decoded images or a batch's states, without a higher peak.

    After `keep_tensors`, which keeps all memory, this changes nothing.
    """
    return _keeps_tensors or keep_freed(32 << 20, 64 << 20)


def keep_few_kernels() -> None:
    """Let oneDNN keep only the kernels of the last 64 shapes; call this before the first matrix product on a CPU.

    By default it keeps 1,024. Packed training batches differ in their number of rows, which seldom recurs, so memory
    would grow with the steps. A step has about 12 shapes.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
