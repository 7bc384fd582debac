"""How many cores a process may use, where a container limits them."""

from pathlib import Path

import pytest

from clearspan.common import cores


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of eight cores; returns the folder of its control groups."""
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(cores, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(cores, "OWN", tmp_path / "own")
    (tmp_path / "own").write_text("0::/pods/mine\n")
    return tmp_path / "cgroup"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000"}, 8),
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "1600000 100000"}, 8),
        ({"cpu.max": "1000 100000"}, 1),
        ({"pods/cpu.max": "300000 100000", "pods/mine/cpu.max": "max 100000"}, 3),
        ({"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "50000"}, 4),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
    ],
)
def test_a_containers_quota_limits_the_cores(machine: Path, files: dict[str, str], expected: int) -> None:
    for name, content in files.items():
        (machine / name).parent.mkdir(parents=True, exist_ok=True)
        (machine / name).write_text(f"{content}\n")
    assert cores.num_cores() == expected
