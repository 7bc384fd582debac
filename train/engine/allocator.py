"""What a step frees on the host stays with the process for the next step.

glibc maps every large tensor anew and gives it back when it is freed, so that each step meets all its pages for the
first time: page faults by the ten thousand, a good part of a CPU's step. The price is that the process stays at its
highest memory between steps.
"""

import ctypes
import sys

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
"""glibc's malloc.h."""


def keep_freed_memory(keep: bool = True) -> bool:
    """Whether the C library was told: one that is not glibc has no such call, or takes no notice, as macOS and musl.

    `keep=False` is what glibc itself comes to with tensors, for who measures the difference.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    never = -1  # as an unsigned number, more than there is
    mapped, trimmed, padded = (1 << 30, never, 64 << 20) if keep else (32 << 20, 64 << 20, 128 << 10)
    return all([mallopt(M_MMAP_THRESHOLD, mapped), mallopt(M_TRIM_THRESHOLD, trimmed), mallopt(M_TOP_PAD, padded)])
