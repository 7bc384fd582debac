"""Check the hostfile and ssh before ranks start on several machines, where DeepSpeed's launcher would check less.

DeepSpeed trains on this machine alone if there is no such file, and tries ssh to the first machine only.
"""

import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from clearspan.common.terminal import UsageError
from clearspan.train.request import LauncherOptions

LINE = re.compile(r"(\S+)\s+slots=(\d+)")
SSH_S = 20
"""The time, in seconds, that ssh may take to connect to a machine."""
KEEP_ALIVE = "-oServerAliveInterval=10 -oServerAliveCountMax=6"
"""Options that end ssh when its machine has not answered for a minute; a machine that is cut off would hold it."""


def prepare(launcher: LauncherOptions) -> None:
    """Check the options that start ranks on several machines, and the machines' ssh; nothing if there is no hostfile.

    With pdsh, set an environment variable that ends its ssh when a machine does not answer.

    Raises:
        UsageError: the hostfile or an option is wrong, or a machine cannot be reached by ssh.
    """
    if launcher.hostfile is None:
        return
    hosts = read(Path(launcher.hostfile))
    if launcher.no_ssh:
        if launcher.node_rank is None or not 0 <= launcher.node_rank < len(hosts):
            raise UsageError(f"`no_ssh` needs `node_rank`, this machine's place in the hostfile: 0 to {len(hosts) - 1}")
        if launcher.master_addr is None:
            raise UsageError("`no_ssh` needs `master_addr`, the address of the first machine of the hostfile")
        return
    if len(hosts) < 2 and not launcher.force_multi:
        return
    if (launcher.launcher or "pdsh").lower() != "pdsh":
        return
    if not shutil.which("pdsh"):
        raise UsageError("pdsh is not installed here: install it, or start each machine with `no_ssh`")
    earlier = os.environ.get("PDSH_SSH_ARGS_APPEND", "")
    if KEEP_ALIVE not in earlier:
        os.environ["PDSH_SSH_ARGS_APPEND"] = f"{earlier} {KEEP_ALIVE}".strip()
    if not (launcher.no_ssh_check or launcher.include_devices or launcher.exclude_devices):
        _check_ssh(list(hosts)[: launcher.num_nodes], launcher)


def read(path: Path) -> dict[str, int]:
    """Return the number of slots of each machine in a hostfile, in order.

    Raises:
        UsageError: the file is missing or empty, a line is wrong, or a machine is named twice.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not a hostfile ({getattr(error, 'strerror', None) or 'not UTF-8'})") from None
    hosts: dict[str, int] = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        match = LINE.match(line)
        if not match or not int(match[2]):
            raise UsageError(f"{path}: line {number}: {line!r} is not of the form NODE slots=N, with N of 1 or more")
        if match[1] in hosts:
            raise UsageError(f"{path}: line {number}: {match[1]} is named twice: add its slots up in one line")
        hosts[match[1]] = int(match[2])
    if not hosts:
        raise UsageError(f"{path}: names no machine: write a line NODE slots=N for each")
    return hosts


def _check_ssh(hosts: list[str], launcher: LauncherOptions) -> None:
    """Raise UsageError if ssh cannot run a command on one of the machines without asking for a password."""
    port = ["-p", str(launcher.ssh_port)] if launcher.ssh_port is not None else []

    def problem(host: str) -> str:
        command = ["ssh", "-oBatchMode=yes", f"-oConnectTimeout={SSH_S}", *port, host, "true"]
        try:
            tried = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
        except OSError as error:
            return str(error)
        said = tried.stderr.strip().splitlines()
        return (said[-1].removeprefix("ssh: ") if said else f"exit code {tried.returncode}") if tried.returncode else ""

    with ThreadPoolExecutor(32) as threads:
        for host, reason in zip(hosts, threads.map(problem, hosts), strict=True):
            if reason:
                raise UsageError(
                    f"{launcher.hostfile}: {host} cannot be reached by ssh ({reason}): "
                    f"`ssh {host} true` must work without a password"
                )
