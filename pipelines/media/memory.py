"""Keeps the memory that pictures and clips free, for the next of them.

The C library gives large blocks back to the system at once, which then clears their pages for the next picture. Kept
are at most the bytes below; the peak is the same.
"""

import ctypes

KEPT_BYTES = 1 << 26
LARGEST_BYTES = 1 << 25
"""A larger block is given back all the same: it is the most that glibc takes here."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def keep_freed() -> bool:
    """Asks the C library of this process to keep what is freed; says whether it is one that can (glibc)."""
    adjust = getattr(ctypes.CDLL(None), "mallopt", None)
    return bool(adjust and adjust(_TRIM_THRESHOLD, KEPT_BYTES) and adjust(_MMAP_THRESHOLD, LARGEST_BYTES))
