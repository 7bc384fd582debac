"""glibc's malloc: keep freed memory in the process, for the next large block.

By default glibc maps every large block anew and returns it when it is freed, so each picture or each training step
meets all its pages for the first time: tens of thousands of page faults.
"""

import ctypes
import sys

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
"""glibc's malloc.h."""
NEVER = -1
"""As an unsigned number, more bytes than there are."""


def keep_freed(mmap_bytes: int, trim_bytes: int, top_pad_bytes: int | None = None) -> bool:
    """Set glibc's thresholds for this process.

    Args:
        mmap_bytes: a larger block is mapped anew, and returned when freed.
        trim_bytes: free bytes at the top of the heap above which the top is returned; NEVER: keep all.
        top_pad_bytes: bytes added to each extension of the heap; None: glibc's default.

    Returns:
        Whether the C library accepted them; False where it is not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform.startswith("linux") else None
    if mallopt is None:
        return False
    wanted = [(M_MMAP_THRESHOLD, mmap_bytes), (M_TRIM_THRESHOLD, trim_bytes), (M_TOP_PAD, top_pad_bytes)]
    accepted = [mallopt(name, value) for name, value in wanted if value is not None]
    return all(accepted)


def keep_tensors(keep: bool = True) -> bool:
    """Keep all memory that tensors free, so the process stays at its peak; `keep=False` sets glibc's own limits."""
    return keep_freed(1 << 30, NEVER, 64 << 20) if keep else keep_freed(32 << 20, 64 << 20, 128 << 10)


def keep_pictures() -> bool:
    """Keep up to 64 MiB of what decoded pictures and clips free; the peak stays the same."""
    return keep_freed(32 << 20, 64 << 20)
