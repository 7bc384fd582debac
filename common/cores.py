"""CPU cores: their number, for choosing the number of processes or threads, and sharing them with other processes."""

import os


def num_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share_cores() -> None:
    """Make OpenMP threads sleep while they wait, unless the user has set OMP_WAIT_POLICY. Child processes inherit it.

    By default torch's threads spin at the end of every parallel operation. If other processes use the cores, a spinning
    thread takes the core that the thread it waits for needs. libgomp reads the variable when torch is imported.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
