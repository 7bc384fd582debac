"""Train on hosts: ranks by hand, or as deepspeed's launcher starts them."""

import itertools
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.hosts.network import Host
from tests.processes import run_commands
from tests.train.ranks import checked

PORT = "29500"


def launcher_variables(hosts: Sequence[Host], rank: int) -> dict[str, str]:
    """Return what deepspeed's launcher tells a rank; `hosts` has the host of each rank."""
    place = {"LOCAL_RANK": str(hosts[:rank].count(hosts[rank])), "LOCAL_SIZE": str(hosts.count(hosts[rank]))}
    meeting = {"MASTER_ADDR": hosts[0].address, "MASTER_PORT": PORT, "WORLD_SIZE": str(len(hosts)), "RANK": str(rank)}
    every = list(dict.fromkeys(hosts))
    return {**place, **meeting, "CROSS_RANK": str(every.index(hosts[rank])), "CROSS_SIZE": str(len(every))}


class Training:
    """A training that runs, each rank in a process of its own (`tests.hosts.rank`).

    Args:
        hosts: the host of each rank.
        words: the words of the command line; where ranks differ, a list of the words of each.
        variables: further environment variables of all ranks.
    """

    def __init__(self, hosts: Sequence[Host], *words: str | list[list[str]], **variables: str) -> None:
        def run(rank: int) -> subprocess.CompletedProcess:
            given = [[word] if isinstance(word, str) else word[rank] for word in words]
            command = ["tests/hosts/rank.py", "--recipe", "demo", *itertools.chain(*given), "--quiet"]
            place = {**launcher_variables(hosts, rank), "NAMESPACE": hosts[rank].namespace}
            return run_commands(command, [hosts[rank].environment(**{**place, **variables})])

        self._threads = ThreadPoolExecutor(len(hosts))
        self._ranks = [self._threads.submit(run, rank) for rank in range(len(hosts))]

    def wait(self) -> list[subprocess.CompletedProcess]:
        """Return how each rank ended."""
        with self._threads:
            return [rank.result() for rank in self._ranks]


def train_on_hosts(hosts: Sequence[Host], *words: str | list[list[str]], code: int = 0, **variables: str) -> None:
    """Train with one rank on each of these hosts, which may repeat; all end with this exit code."""
    for done in Training(hosts, *words, **variables).wait():
        checked(done, code)


def steps(run: Path) -> int:
    """Return the number of steps that a run has logged."""
    log = run / "metrics.jsonl"
    return log.read_text().count("\n") if log.exists() else 0


def hostfile(hosts: Sequence[Host], folder: Path) -> Path:
    """Write a hostfile with one slot on each host."""
    (path := folder / "hostfile").write_text("".join(f"{host.name} slots=1\n" for host in hosts))
    return path


def clearspan_train(*words: str | Path) -> list[str]:
    """Return the command line of `clearspan train`."""
    return [sys.executable, "-m", "clearspan", "train", "--recipe", "demo", *map(str, words), "--quiet"]
