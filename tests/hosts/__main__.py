"""`make hosts`: install what tests across hosts need, run them, and take everything down again.

    python -m tests.hosts [pytest's options]

Debian packages that are missing are installed by apt-get, which needs root. They stay, with their settings, users and
keys; a line names them, and the command that removes them. Their services are neither started nor enabled. In CI, tests
that cannot run here are failures.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.conftest import IN_CI, ROOT
from tests.hosts import network

PACKAGES = {
    "ip": "iproute2",
    "ssh": "openssh-client",
    "sshd": "openssh-server",
    "pdsh": "pdsh",
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "haproxy": "haproxy",
}
"""Program -> the Debian package that has it."""
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
POLICY = Path("/usr/sbin/policy-rc.d")
"""The program that Debian's packages ask whether they may start their services."""
REFUSING = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
"""Shell script that shows the command, and no other process, one file in the place of another."""


def install(packages: Sequence[str]) -> None:
    """Install Debian packages; do not start or enable their services, and say how to remove what was installed."""
    print(f"installing {' '.join(packages)} by apt-get", flush=True)
    before = _installed()
    command = ["apt-get", "-qq", "install", "--no-install-recommends", "-o", "Dpkg::Use-Pty=0", *packages]
    try:
        without_services(["apt-get", "-qq", "update"])
        without_services(command)
    finally:
        if added := sorted(_installed() - before):
            print(f"installed; their services are off; to remove them: apt-get purge {' '.join(added)}", flush=True)
            _disable(added)


def without_services(command: Sequence[str]) -> None:
    """Run a command that installs packages, which may not start services.

    The policy that forbids it is mounted for this command alone: other processes never see it, and it ends with the
    command, also with one that is killed.

    Raises:
        CalledProcessError: the command failed.
    """
    is_new = not POLICY.exists()
    if is_new:
        POLICY.touch(0o644)  # a place to mount on; nobody runs it
    try:
        with tempfile.TemporaryDirectory() as folder:
            (policy := Path(folder) / "policy").write_text("#!/bin/sh\nexit 101\n")
            policy.chmod(0o755)
            words = ["unshare", "--mount", "sh", "-c", REFUSING, "sh", policy, POLICY, *command]
            quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            subprocess.run(words, env=quiet, check=True, stdout=subprocess.DEVNULL)
    finally:
        if is_new:
            POLICY.unlink()


def _installed() -> set[str]:
    """Return the names of all installed Debian packages."""
    command = ["dpkg-query", "--show", "--showformat", "${db:Status-Abbrev} ${Package}\n"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return {line.split()[1] for line in lines if line.startswith("ii")}


def _disable(packages: Sequence[str]) -> None:
    """Disable the services of packages, which Debian enables for the next start of the machine."""
    files = subprocess.run(["dpkg", "--listfiles", *packages], check=True, capture_output=True, text=True).stdout
    paths = [Path(line) for line in files.splitlines() if "/systemd/system/" in line]
    units = [path.name for path in paths if path.suffix in (".service", ".socket", ".timer") and "@" not in path.name]
    if units and shutil.which("systemctl", path=PATH):
        subprocess.run(["systemctl", "--quiet", "disable", *units], check=True, stderr=subprocess.DEVNULL)


def main(words: Sequence[str]) -> int:
    """Return pytest's exit code; 0 after a line that says why there can be no hosts here."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    if os.geteuid():
        print("tests across hosts were not run: only root may make network namespaces")
        return 0
    try:
        if missing := [package for program, package in PACKAGES.items() if not shutil.which(program, path=PATH)]:
            install(missing)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"tests across hosts were not run: apt-get failed ({error})")
        return int(not IN_CI)  # a mirror that is away is no fault of a change
    if why := network.refusal():
        print(f"{why}: none was run")
        return 0
    command = [sys.executable, "-m", "pytest", "tests/hosts", "-m", "hosts", "-p", "no:xdist", *words]
    tests = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PATH": PATH})
    try:
        return tests.wait()
    finally:
        if tests.poll() is None:
            tests.terminate()
            tests.wait()
        network.take_down()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
