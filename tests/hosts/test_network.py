"""Hosts that tests make: names, addresses, a cable that is pulled, ssh, and nothing that stays behind."""

import contextlib
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.hosts import network as networks
from tests.hosts.network import Host, network, wait
from tests.processes import environment

pytestmark = pytest.mark.hosts

SERVER = """
import socket
with socket.create_server(("{address}", 7000)) as server:
    while True:
        server.accept()[0].close()
"""
CLIENT = "import socket; socket.create_connection(('{name}', 7000), 2)"
KEPT = """
import sys, time
from tests.hosts.network import network
with network(2) as (first, _):
    first.popen(["sleep", "1000"])
    print("made", flush=True)
    time.sleep(1000)
"""


def reaches(host: Host, other: Host) -> bool:
    return not host.run([sys.executable, "-c", CLIENT.format(name=other.name)]).returncode


def test_hosts_have_names_and_cables_that_can_be_pulled_and_leave_nothing() -> None:
    with network(2) as (first, second):
        assert first.run(["hostname"]).stdout == "node1\n" and second.run(["hostname"]).stdout == "node2\n"
        second.popen([sys.executable, "-c", SERVER.format(address=second.address)])
        wait(lambda: f"{second.address}:7000" in second.listening(), "a server")
        assert second.listening() == {"10.77.0.2:7000": "python"} and not first.listening()
        assert reaches(first, second)
        second.cut()
        assert not reaches(first, second)
        second.join()
        assert reaches(first, second)
        second.kill()
        assert not second.pids() and not reaches(first, second)
        made = first.namespace, second.namespace
    assert not {*made} & {*networks._namespaces()} and not any(networks.ETC.glob(f"{made[0]}*"))


def test_a_host_sees_what_is_placed_for_it_and_has_folders_of_its_own(tmp_path: Path) -> None:
    for name in ("shared", "own"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "text").write_text(name)
    with network(2) as (first, second):
        second.place(tmp_path / "own", tmp_path / "shared")
        read = [host.run(["cat", tmp_path / "shared" / "text"]).stdout for host in (first, second)]
        assert read == ["shared", "own"]
        assert len({host.run(["sh", "-c", "echo $TMPDIR"]).stdout for host in (first, second)}) == 2
    assert (tmp_path / "shared" / "text").read_text() == "shared"


@pytest.mark.hosts("sshd", "ssh", "ssh-keygen")
def test_ssh_leads_from_host_to_host_without_a_password() -> None:
    known = Path("~/.ssh/known_hosts").expanduser()
    before = known.read_bytes() if known.exists() else None
    with network(2, ssh=True) as (first, second):
        done = first.run(["ssh", "node2", "hostname; echo $TMPDIR"])
        assert done.stdout.split() == ["node2", second.environment()["TMPDIR"]], done.stderr
    assert (known.read_bytes() if known.exists() else None) == before


def test_what_a_killed_run_left_is_taken_down() -> None:
    with network(1) as (own,):
        with subprocess.Popen(
            [sys.executable, "-c", KEPT], env=environment(), stdout=subprocess.PIPE, text=True
        ) as killed:
            assert killed.stdout is not None and killed.stdout.readline() == "made\n"
            killed.kill()
        left = [name for name in networks._namespaces() if name.startswith(f"{networks.PREFIX}-{killed.pid}-")]
        assert len(left) == 3
        pids = [pid for name in left for pid in networks._pids(name)]
        done = subprocess.run(
            [sys.executable, "-m", "tests.hosts.network", "--down"], env=environment(), capture_output=True, text=True
        )
        assert sorted(done.stdout.split("\n")) == ["", *sorted(f"removed {name}" for name in left)], done.stderr
        assert own.namespace in networks._namespaces(), "another run's hosts stay"
        for pid in pids:
            with contextlib.suppress(psutil.NoSuchProcess):
                assert psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
