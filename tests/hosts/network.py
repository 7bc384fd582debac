"""Hosts of one's own: network namespaces on a switch, each with addresses, a name and, if wanted, an sshd.

    switch ── node1: eth0 10.77.0.1, eth1 10.78.0.1     a hostfile's network, and another one to listen on by mistake
           └─ node2: eth0 10.77.0.2, eth1 10.78.0.2     ...

The switch is a bridge in a namespace of its own, so that runs that go on at the same time have the same addresses and
never meet. Hosts share the file system, as over NFS; folders for temporary files and caches are each host's own, and
`Host.place` shows a host another file or folder at a path. Namespaces need root and iproute2.

Each run holds a lock while it lasts. `python -m tests.hosts.network --down` removes what runs left behind that were
killed: those whose lock nobody holds.
"""

import contextlib
import fcntl
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from tests import processes
from tests.conftest import ROOT

NETWORK, OTHER = "10.77.0", "10.78.0"
PREFIX = "clearspan-hosts"
ETC = Path("/etc/netns")
"""Folder of `ip netns exec`: it shows a host the files of ETC/NAMESPACE/ in /etc. The locks of runs are here, too."""
MADE = ETC / f".{PREFIX}"
"""File that says that a run of these tests made ETC, so that the last one removes it."""
ENTER = (
    'hostname "$1" && shift && while [ "$1" != -- ]; do mount --bind "$1" "$2" && shift 2; done && shift && exec "$@"'
)
"""Shell script that names a host, mounts what the host sees elsewhere, and becomes the command."""
START_SSHD = 'mount -t tmpfs tmpfs /run && mkdir /run/sshd && exec "$1" -D'
"""Shell script that makes the folder without which sshd refuses to start, for sshd and its sessions alone."""
SSHD = """
ListenAddress {address}
HostKey /etc/ssh/key
AuthorizedKeysFile /etc/ssh/key.pub
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
PidFile none
SetEnv {environment}
"""
SSH = """
Host *
  IdentityFile /etc/ssh/key
  IdentitiesOnly yes
  StrictHostKeyChecking yes
  GlobalKnownHostsFile /etc/ssh/ssh_known_hosts
  UserKnownHostsFile /dev/null
  BatchMode yes
"""


class Host:
    """A host: a network namespace with two cables to the switch.

    Args:
        name: the host's name, which all hosts resolve.
        address: its address in the network of the switch.
        run: the beginning of the names of all namespaces of this network.
        folder: a folder for the host's own files.
    """

    def __init__(self, name: str, address: str, run: str, folder: Path) -> None:
        self.name, self.address, self.folder = name, address, folder
        self.namespace, self._switch = f"{run}-{name}", f"{run}-switch"
        self._places: dict[str, str] = {}
        number = address.rpartition(".")[2]
        self._ports = [f"port{number}", f"other{number}"]
        _ip("netns", "add", self.namespace)
        addresses = (address, f"{OTHER}.{number}")
        for interface, port, local in zip(("eth0", "eth1"), self._ports, addresses, strict=True):
            cable = ["type", "veth", "peer", "name", interface, "netns", self.namespace]
            _ip("-n", self._switch, "link", "add", port, *cable)
            _ip("-n", self._switch, "link", "set", port, "master", "switch", "up")
            _ip("-n", self.namespace, "address", "add", f"{local}/24", "dev", interface)
        for interface in ("lo", "eth0", "eth1"):
            _ip("-n", self.namespace, "link", "set", interface, "up")
        for variable in ("TMPDIR", "XDG_CACHE_HOME"):
            Path(self.environment()[variable]).mkdir(parents=True)

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment variables of a process on this host, with folders of its own, and `more`."""
        folders = {"TMPDIR": f"{self.folder}/tmp", "XDG_CACHE_HOME": f"{self.folder}/cache"}
        return processes.environment(**folders, **more)

    def place(self, source: Path, target: Path) -> None:
        """Show the processes that this host starts from now on the file or folder `source` at the path `target`.

        Other hosts still see what is at `target`, where a file or a folder must exist.
        """
        self._places[str(target)] = str(source)

    def words(self, command: Sequence[str | Path]) -> list[str]:
        """Return the command line that runs a command on this host."""
        places = [word for target, source in self._places.items() for word in (source, target)]
        enter = ["ip", "netns", "exec", self.namespace, "unshare", "--uts", "sh", "-c", ENTER, "sh", self.name]
        return [*enter, *places, "--", *map(str, command)]

    def popen(
        self, command: Sequence[str | Path], variables: dict[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        """Start a command on this host; its process id is the one of the returned process.

        Args:
            command: the program and its arguments.
            variables: further environment variables.
            options: other arguments of `subprocess.Popen`; stdout and stderr are joined in a pipe unless they are here.
        """
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
        environment = self.environment(**variables or {})
        return subprocess.Popen(
            self.words(command), **{"cwd": ROOT, "env": environment, "text": True, **streams, **options}
        )

    def run(
        self, command: Sequence[str | Path], variables: dict[str, str] | None = None, timeout: float = 120, **more: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on this host to its end, which must come within `timeout` seconds; keep stdout and stderr."""
        environment = self.environment(**variables or {})
        options = {"cwd": ROOT, "env": environment, "capture_output": True, "text": True, **more}
        return subprocess.run(self.words(command), timeout=timeout, stdin=subprocess.DEVNULL, **options)

    def cut(self) -> None:
        """Pull the host's cables: nobody is told, and packets are lost from now on."""
        for port in self._ports:
            _ip("-n", self._switch, "link", "set", port, "down")

    def join(self) -> None:
        """Plug the host's cables in again."""
        for port in self._ports:
            _ip("-n", self._switch, "link", "set", port, "up")

    def close_ports(self, ports: str) -> None:
        """Reject what this host sends to TCP ports of other hosts, such as 29500 or 1-29499, as a firewall does."""
        _ip("-n", self.namespace, "rule", "add", "ipproto", "tcp", "dport", ports, "unreachable")

    def pids(self) -> list[int]:
        """Return the ids of all processes on this host."""
        return _pids(self.namespace)

    def kill(self) -> None:
        """Kill all processes on this host, its sshd too; the kernel closes their connections."""
        _kill(self.namespace)

    def listening(self) -> dict[str, str]:
        """Return the TCP addresses that processes of this host listen on, "IP:PORT" -> the name of the program."""
        lines = _output("ip", "netns", "exec", self.namespace, "ss", "-Hltnp").splitlines()
        return {line.split()[3]: line.partition('(("')[2].partition('"')[0] for line in lines}

    def start_sshd(self) -> None:
        """Start an sshd on the host's address, for the present user's key of this network.

        Its sessions see no processes but their own: deepspeed's launcher ends ranks by `pkill`.
        """
        alone = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
        sshd = shutil.which("sshd") or "/usr/sbin/sshd"
        self.popen([*alone, "sh", "-c", START_SSHD, "sh", sshd], stdout=subprocess.DEVNULL)
        wait(lambda: f"{self.address}:22" in self.listening(), f"sshd on {self.name}")


@contextlib.contextmanager
def network(num_hosts: int, ssh: bool = False) -> Iterator[list[Host]]:
    """Return a context with hosts node1, node2, ... on one switch; at its end, all processes on them are killed.

    Args:
        num_hosts: the number of hosts.
        ssh: whether each host has an sshd, so that `ssh node2` works on node1 as the present user, without a password.
    """
    take_down()
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}-{os.getpid()}-"))
    run = folder.name
    addresses = {f"node{number}": f"{NETWORK}.{number}" for number in range(1, num_hosts + 1)}
    lock = _lock(run, folder)
    try:
        _ip("netns", "add", f"{run}-switch")
        _ip("-n", f"{run}-switch", "link", "add", "switch", "type", "bridge")
        _ip("-n", f"{run}-switch", "link", "set", "switch", "up")
        hosts = [Host(name, address, run, folder / name) for name, address in addresses.items()]
        known = "".join(f"{address} {name}\n" for name, address in addresses.items())
        for host in hosts:
            (etc := ETC / host.namespace).mkdir(parents=True)
            (etc / "hosts").write_text(f"127.0.0.1 localhost\n{known}")
        if ssh:
            _write_keys(hosts, folder)
            for host in hosts:
                host.start_sshd()
        yield hosts
    finally:
        with lock:
            _end_run(run, folder)


def _write_keys(hosts: Sequence[Host], folder: Path) -> None:
    """Write the folder that each host sees as /etc/ssh: one key for all hosts and the user, in the run's own files."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True)
    public = (folder / "key.pub").read_text()
    for host in hosts:
        (ssh := ETC / host.namespace / "ssh").mkdir()
        for name in ("key", "key.pub"):
            shutil.copy(folder / name, ssh)
        names = ("TMPDIR", "XDG_CACHE_HOME", "OMP_NUM_THREADS")
        environment = " ".join(f"{name}={host.environment()[name]}" for name in names)
        (ssh / "sshd_config").write_text(SSHD.format(address=host.address, environment=environment))
        (ssh / "ssh_config").write_text(SSH)
        known = "".join(f"{other.name},{other.address} {public}" for other in hosts)
        (ssh / "ssh_known_hosts").write_text(known)


def wait(is_done: Callable[[], bool], what: str, seconds: float = 60, pause: float = 0.05) -> None:
    """Wait until something is done on a host, looking every `pause` seconds; fail with its name after `seconds`."""
    end = time.monotonic() + seconds
    while not is_done():
        assert time.monotonic() < end, f"{what}: not within {seconds:g} s"
        time.sleep(pause)


@functools.cache
def refusal(*programs: str) -> str:
    """Return why there can be no hosts here, in one line; "" if there can.

    Args:
        programs: programs that the test needs, beside `ip`.
    """
    for program in ("ip", "ss", "unshare", *programs):
        if not shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin"):
            return f"tests across hosts: no program `{program}` here: `make hosts` installs what they need"
    if os.geteuid():
        return "tests across hosts: only root may make network namespaces"
    name = f"{PREFIX}-{os.getpid()}-probe"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if not tried.returncode:
        cable = ["ip", "-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", "eth1"]
        tried = subprocess.run(cable, capture_output=True, text=True)
        _remove(name)
    reason = " ".join(tried.stderr.split())
    return f"tests across hosts: network namespaces are not allowed here ({reason})" if tried.returncode else ""


def take_down() -> list[str]:
    """Remove the namespaces, processes and files of runs that were killed; return the names of the namespaces."""
    names: list[str] = []
    for path in ETC.glob(f"{PREFIX}-*.lock"):
        with contextlib.suppress(FileNotFoundError, BlockingIOError), path.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if folder := lock.read():  # "": the run has just made the file
                names += _end_run(path.stem, Path(folder))
    return names


def _lock(run: str, folder: Path) -> IO[str]:
    """Return the lock of a run, a file that says where the files of the run are; it is free when the run has ended."""
    with contextlib.suppress(FileExistsError):
        ETC.mkdir(parents=True)
        MADE.touch()
    lock = (ETC / f"{run}.lock").open("x")
    fcntl.flock(lock, fcntl.LOCK_EX)
    lock.write(str(folder))
    lock.flush()
    return lock


def _end_run(run: str, folder: Path) -> list[str]:
    """Remove a run's namespaces, processes, files and lock; return the names of the namespaces."""
    names = [name for name in _namespaces() if name.startswith(f"{run}-")]
    with contextlib.ExitStack() as stack:  # the rest is removed also if a process does not end
        stack.callback(_remove_etc, run)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        for name in names:
            stack.callback(_remove, name)
    return names


def _remove_etc(run: str) -> None:
    """Remove a run's lock, and the folder of all locks if runs of these tests made it and nothing else is in it."""
    (ETC / f"{run}.lock").unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # another run has removed it, or uses it
        if [*ETC.iterdir()] == [MADE]:
            MADE.unlink()
            ETC.rmdir()


def _namespaces() -> list[str]:
    """Return the names of all network namespaces of this machine."""
    return [line.split()[0] for line in _output("ip", "netns", "list").splitlines()]


def _pids(namespace: str) -> list[int]:
    """Return the ids of a namespace's processes; those that have ended, and wait for their parent, are in none."""
    return [int(pid) for pid in _output("ip", "netns", "pids", namespace).split()]


def _kill(namespace: str) -> None:
    """Kill all processes of a namespace, and wait for their end; fail if one does not end within a minute."""

    def is_empty() -> bool:
        pids = _pids(namespace)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not pids

    wait(is_empty, f"the end of the processes of {namespace}", pause=0.02)


def _remove(namespace: str) -> None:
    try:
        _kill(namespace)
    finally:
        _ip("netns", "delete", namespace)
        shutil.rmtree(ETC / namespace, ignore_errors=True)


def _ip(*words: str) -> None:
    """Run `ip`; raise CalledProcessError if it fails, after it has printed why."""
    subprocess.run(["ip", *words], check=True)


def _output(*words: str) -> str:
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    if sys.argv[1:] != ["--down"]:
        raise SystemExit("usage: python -m tests.hosts.network --down")
    for left in take_down():
        print(f"removed {left}")
