"""The commands of docs/training.md, as a user types them on hosts with ssh and pdsh."""

import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.hosts.network import Host, network, wait
from tests.hosts.training import PORT, clearspan_train, hostfile, steps
from tests.train import runs
from tests.train.ranks import train_on_ranks

pytestmark = pytest.mark.hosts("ssh", "sshd", "pdsh")

LOCAL_PORT = 24700 + os.getpid() % 300
FIGURES = ("loss", "spans/loss", "mlm/loss", "grad_norm", "learning_rate", "tokens")
CPU = {"DS_ACCELERATOR": "cpu"}
TRAINING_S = 240
"""The maximum time, in seconds, that a command may take, also on a busy machine."""


@pytest.fixture(scope="module")
def hosts() -> Iterator[list[Host]]:
    with network(2, ssh=True) as made:
        yield made


@pytest.fixture(scope="module")
def few(tiny: list[str]) -> list[str]:
    return [*tiny, "training.max_steps=3"]


@pytest.fixture(scope="module")
def on_one(few: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of two ranks on one host."""
    run = tmp_path_factory.mktemp("one") / "run"
    train_on_ranks(2, *few, f"output={run}", port=LOCAL_PORT)
    return run


def opened(hosts: list[Host], *commands: subprocess.Popen) -> tuple[list[set[str]], list[str]]:
    """Return (the addresses that each host listens on until the commands end, what each command printed)."""
    addresses: list[set[str]] = [set() for _ in hosts]
    with ThreadPoolExecutor(len(commands)) as threads:
        ends = [threads.submit(command.communicate, timeout=TRAINING_S) for command in commands]
        while not all(end.done() for end in ends):
            for host, each in zip(hosts, addresses, strict=True):
                each |= {*host.listening()} - {f"{host.address}:22"}
            time.sleep(0.2)
    printed = [end.result()[0] for end in ends]
    assert not any(command.returncode for command in commands), printed
    return addresses, printed


def check(run: Path, on_one: Path, hosts: list[Host], addresses: list[set[str]]) -> None:
    """Check that a run is the same as on one host, and that hosts listened in the hostfile's network alone."""
    assert runs.metrics(run, FIGURES) == runs.metrics(on_one, FIGURES)
    assert runs.same_weights(run, on_one)
    for host, each in zip(hosts, addresses, strict=True):
        assert each and all(address.startswith(f"{host.address}:") for address in each), each
    assert f"{hosts[0].address}:{PORT}" in addresses[0]


@pytest.mark.guarantee("ranks-as-one")
def test_one_command_trains_on_the_hosts_of_a_hostfile_as_on_one(
    hosts: list[Host], few: list[str], on_one: Path, tmp_path: Path
) -> None:
    words = ["--hostfile", hostfile(hosts, tmp_path), "--master_addr", "node1", *few, f"output={tmp_path / 'run'}"]
    addresses, (printed,) = opened(hosts, hosts[0].popen(clearspan_train(*words)))
    assert f"listening on port {PORT} of 10.77.0.1 for the other machines, without encryption or passwords" in printed
    assert "launch.py" not in printed and "[c10d]" not in printed
    check(tmp_path / "run", on_one, hosts, addresses)


@pytest.mark.guarantee("ranks-as-one")
def test_deepspeeds_own_command_does_so_too(hosts: list[Host], few: list[str], on_one: Path, tmp_path: Path) -> None:
    command = ["deepspeed", "--hostfile", hostfile(hosts, tmp_path), "--master_addr", "node1", "train/run.py"]
    more = ["--recipe", "demo", *few, f"output={tmp_path / 'run'}", "--quiet"]
    addresses, _ = opened(hosts, hosts[0].popen([*command, *more], CPU))
    check(tmp_path / "run", on_one, hosts, addresses)


@pytest.mark.guarantee("ranks-as-one")
def test_a_command_on_each_host_needs_no_ssh(hosts: list[Host], few: list[str], on_one: Path, tmp_path: Path) -> None:
    words = ["--hostfile", hostfile(hosts, tmp_path), "--no_ssh", "--master_addr", "node1"]
    more = [*few, f"output={tmp_path / 'run'}"]
    commands = [host.popen(clearspan_train(*words, "--node_rank", str(k), *more)) for k, host in enumerate(hosts)]
    addresses, _ = opened(hosts, *commands)
    check(tmp_path / "run", on_one, hosts, addresses)


def test_a_command_ends_when_a_host_is_killed_and_names_it(hosts: list[Host], tiny: list[str], tmp_path: Path) -> None:
    words = ["--hostfile", hostfile(hosts, tmp_path), "--master_addr", "node1", *tiny, "training.max_steps=100000"]
    command = hosts[0].popen(clearspan_train(*words, f"output={tmp_path / 'run'}"))
    wait(lambda: steps(tmp_path / "run") > 2, "three steps")
    hosts[1].kill()
    try:
        printed = command.communicate(timeout=60)[0]
    finally:
        hosts[1].start_sshd()
    assert command.returncode and printed.count("train: ") == 1
    assert "node1: train: node2 (10.77.0.2, rank 1) ended, or is cut off: its output gives the reason" in printed


def test_a_host_that_ssh_does_not_reach_is_named_before_anything_starts(
    hosts: list[Host], few: list[str], tmp_path: Path
) -> None:
    (path := tmp_path / "hosts").write_text("node1 slots=1\nnode9 slots=1\n")
    done = hosts[0].run(
        clearspan_train("--hostfile", path, "--master_addr", "node1", *few, f"output={tmp_path / 'run'}")
    )
    reason = f"{path}: node9 cannot be reached by ssh (Could not resolve hostname node9: "
    assert done.returncode == 2 and done.stderr.startswith(f"train: {reason}") and done.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()
