"""Limits on the memory that a process keeps: glibc's malloc thresholds, and oneDNN's cache of compiled kernels.

By default, glibc requests each large block of memory from the system (`mmap`), and returns the block when it is freed.
Each image or training step then touches new pages of memory, which costs tens of thousands of page faults.
The functions of this module let malloc keep freed memory instead, and let oneDNN keep fewer kernels.
"""

import ctypes
import os
import sys

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
"""Parameters of `mallopt`, from glibc's malloc.h."""
NEVER = -1
"""glibc reads -1 as the largest unsigned number of bytes, a threshold that no machine reaches."""
_keeps_tensors = False


def keep_freed(mmap_bytes: int, trim_bytes: int, top_pad_bytes: int | None = None) -> bool:
    """Set how much freed memory glibc's malloc keeps in this process before it returns memory to the system.

    Args:
        mmap_bytes: a block larger than this does not use the heap: it is requested directly from the system (`mmap`),
            and returned when it is freed.
        trim_bytes: the top of the heap is returned to the system when more bytes than this are free there; -1 to keep
            all of it.
        top_pad_bytes: the number of extra bytes to request whenever the heap grows; None for glibc's default.

    Returns:
        True if glibc accepted these values; False if it refused one, or if the C library is not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform.startswith("linux") else None
    if mallopt is None:
        return False
    settings = [(M_MMAP_THRESHOLD, mmap_bytes), (M_TRIM_THRESHOLD, trim_bytes), (M_TOP_PAD, top_pad_bytes)]
    accepted = [mallopt(name, value) for name, value in settings if value is not None]
    return all(accepted)


def keep_tensors(keep: bool = True) -> bool:
    """Let malloc keep the memory of freed CPU tensors for later tensors.

    The memory of the process then stays at its peak.

    Args:
        keep: pass False to undo this: malloc then keeps about 64 MiB, and returns other freed memory to the system.

    Returns:
        True if glibc accepted these settings of malloc; False if it refused one, or if the C library is not glibc.
    """
    global _keeps_tensors
    _keeps_tensors = keep
    return keep_freed(1 << 30, NEVER, 64 << 20) if keep else keep_freed(32 << 20, 64 << 20, 128 << 10)


def keep_blocks() -> bool:
    """Let malloc keep up to 64 MiB of freed memory, e.g. the memory of decoded images or hidden states, for reuse.

    The peak of the process's memory does not rise. After `keep_tensors`, malloc keeps all freed memory already, so this
    function changes nothing.

    Returns:
        True if freed memory is kept; False if glibc refused to, or if the C library is not glibc.
    """
    return _keeps_tensors or keep_freed(32 << 20, 64 << 20)


def keep_few_kernels() -> None:
    """Limit oneDNN's cache to the compiled kernels of the 64 matrix shapes used last.

    This sets the environment variable ONEDNN_PRIMITIVE_CACHE_CAPACITY, unless the user has set it. oneDNN reads the
    variable at the first matrix product on a CPU, so call this function before.

    By default, oneDNN keeps the kernels of 1,024 shapes. Packed training batches seldom have the same number of rows
    twice, so memory would grow with each step. A step has about 12 shapes.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
