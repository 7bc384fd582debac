"""`make hosts`: install what tests across hosts need, run them, and take everything down again.

    python -m tests.hosts [pytest's options]

Debian packages that are missing are installed by apt-get, which needs root.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence

from tests.conftest import ROOT
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


def install() -> None:
    """Install the Debian packages of the programs that are missing; their services are not started."""
    missing = [package for program, package in PACKAGES.items() if not shutil.which(program, path=PATH)]
    if not missing:
        return
    print(f"installing {' '.join(missing)} by apt-get", flush=True)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    subprocess.run(["apt-get", "-qq", "update"], env=quiet, check=True)
    command = ["apt-get", "-qq", "install", "--no-install-recommends", "-o", "Dpkg::Use-Pty=0", *missing]
    subprocess.run(command, env=quiet, check=True, stdout=subprocess.DEVNULL)


def main(words: Sequence[str]) -> int:
    """Return pytest's exit code; 0 after a line that says why there can be no hosts here."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if os.geteuid():
        print("tests across hosts were not run: only root may make network namespaces")
        return 0
    try:
        install()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"tests across hosts were not run: apt-get failed ({error})")
        return 1
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
