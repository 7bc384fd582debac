"""A host that is cut off or killed ends the others, and wrong set-ups end all of them, with one line each."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.network import Host, network, wait
from tests.hosts.training import Training

pytestmark = pytest.mark.hosts

QUICK = {"JOIN_S": "5", "SILENCE_S": "4", "BEAT_S": "0.3"}
AGAIN = "run it again, with --resume if a checkpoint is there"


@pytest.fixture
def hosts() -> Iterator[list[Host]]:
    with network(2) as made:
        yield made


def steps(run: Path) -> int:
    """Return the number of steps that a run has logged."""
    log = run / "metrics.jsonl"
    return log.read_text().count("\n") if log.exists() else 0


def errors(done) -> list[str]:
    """Return the error lines of a rank that failed, without what rank 0 says of its port."""
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line and "listening on port" not in line]
    return [line for line in lines if line.startswith("train: ")]


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("how", ["cut", "kill"])
def test_a_host_that_is_lost_ends_the_other_with_a_line_that_names_it(
    hosts: list[Host], how: str, lost: int, tiny: list[str], tmp_path: Path
) -> None:
    training = Training(hosts, *tiny, "training.max_steps=100000", f"output={tmp_path / 'run'}", **QUICK)
    wait(lambda: steps(tmp_path / "run") > 2, "three steps")
    getattr(hosts[lost], how)()
    done = training.wait()
    name = f"node{lost + 1} (10.77.0.{lost + 1}, rank {lost})"
    said = {
        "cut": f"no answer from {name} for 4 s: see whether it runs and can be reached; {AGAIN}",
        "kill": f"{name} ended, or is cut off: its output gives the reason; {AGAIN}",
    }
    other = done[1 - lost]
    assert errors(other) == [f"train: {said[how]}"] and other.returncode == 1
    if how == "cut":  # it cannot know which of the two is cut off
        assert f"no answer from node{2 - lost} (10.77.0.{2 - lost}, rank {1 - lost})" in errors(done[lost])[0]
    else:
        assert done[lost].returncode == -9
