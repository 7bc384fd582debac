"""CPU cores: their number, for choosing the number of processes or threads, and sharing them with other processes."""

import math
import os
from pathlib import Path

CGROUPS, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
"""Linux's control groups, and the file that names those of this process."""


def num_cores() -> int:
    """Return the number of CPU cores that this process may use: those of its affinity, or fewer in a container with a
    quota (`docker run --cpus`, a limit of Kubernetes).
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, math.ceil(_quota(cores))))


def _quota(cores: float) -> float:
    """Return the smallest quota of this process's control groups, in cores; `cores` without one."""
    for line in _words(OWN):
        for root in (CGROUPS, CGROUPS / "cpu"):
            group = root / line.rpartition(":")[2].strip("/")  # a container sees its own group as the root
            for folder in (group, *group.parents):
                quota = _words(folder / "cpu.max")
                quota = quota or _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us")
                if len(quota) == 2 and quota[0].isdecimal():  # "max" and -1: no quota
                    cores = min(cores, int(quota[0]) / int(quota[1]))
    return cores


def _words(path: Path) -> list[str]:
    """Return the words of a file; none if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        return []


def share_cores() -> None:
    """Make OpenMP threads sleep while they wait, unless the user has set OMP_WAIT_POLICY. Child processes inherit it.

    By default torch's threads spin at the end of every parallel operation. If other processes use the cores, a spinning
    thread takes the core that the thread it waits for needs. libgomp reads the variable when torch is imported.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
