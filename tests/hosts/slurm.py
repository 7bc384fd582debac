"""A Slurm of one's own: slurmctld, a slurmd on each node and munge, on hosts of a network of this run.

    node1, node2: slurmd      the last host: munged, slurmctld, and where jobs are submitted

The programs are those of Debian's packages. Their settings, key, sockets, state and logs lie in one folder, to which
SLURM_CONF leads; /etc, /run and /var stay as they are. Slurm needs no cgroups here: it finds the processes of a job by
their parents. A job that is requeued may start again after 5 seconds (`cred_expire`) instead of two minutes.
"""

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.hosts.network import Host, wait

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
"""The programs that tests on a Slurm need."""
KILL_WAIT_S = 30
"""KillWait: the seconds between SIGTERM and SIGKILL of `scancel` and of a time limit; Slurm's default."""
LOST_S = 15
"""SlurmdTimeout: the seconds after which a node that does not answer is down; Slurm's default is 300."""
STEP_S = 150
"""The maximum time, in seconds, that a job may take to its next state, also on a busy machine."""
CONFIG = """
ClusterName=clearspan
SlurmctldHost={controller.name}({controller.address})
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
SlurmUser=root
SlurmdUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1
SlurmdParameters=config_overrides
KillWait={kill_wait}
SlurmdTimeout={lost}
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
PlugStackConfig={folder}/plugstack.conf
{nodes}
PartitionName=main Nodes={names} Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    """A cluster whose daemons run.

    Args:
        controller: the host on which commands are given.
        nodes: the hosts that run jobs.
        folder: the folder of all its files.
    """

    def __init__(self, controller: Host, nodes: Sequence[Host], folder: Path) -> None:
        self.controller, self.nodes, self.folder = controller, nodes, folder
        self.variables = {"SLURM_CONF": str(folder / "slurm.conf")}
        self.daemons: list[subprocess.Popen[str]] = []

    def command(self, *words: str | Path, folder: Path | None = None) -> str:
        """Run one of Slurm's commands on the controller, and return what it prints.

        Args:
            words: the command and its arguments.
            folder: the working folder; None for that of the cluster.

        Raises:
            CalledProcessError: the command failed.
        """
        done = self.controller.run(words, self.variables, cwd=folder or self.folder)
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, [*words], done.stdout, done.stderr)
        return done.stdout.strip()

    def submit(self, script: Path, *options: str) -> str:
        """Submit a job script, in its folder, with options of sbatch; return the number of the job."""
        return self.command("sbatch", "--parsable", *options, script, folder=script.parent)

    def job(self, number: str) -> dict[str, str]:
        """Return what `scontrol show job` says of a job or a task of an array: JobState, ExitCode, Restarts, ..."""
        return dict(re.findall(r"(\w+)=(\S*)", self.command("scontrol", "show", "job", number, "--oneliner")))

    def wait_for(self, number: str, *states: str) -> dict[str, str]:
        """Wait until a job is in one of these states, such as COMPLETED; return what `scontrol show job` says of it."""
        what = f"job {number}: {' or '.join(states)}"
        wait(lambda: self.job(number)["JobState"] in states, what, seconds=STEP_S, pause=0.5)
        return self.job(number)

    def start(self, node: Host) -> None:
        """Start the slurmd of a node."""
        with (self.folder / "daemons.log").open("a") as output:
            self.daemons.append(node.popen(["slurmd", "-D"], self.variables, stdout=output))

    def processes(self) -> list[int]:
        """Return the ids of the processes on the nodes that belong to jobs."""
        daemons = [daemon.pid for daemon in self.daemons]
        return [pid for node in self.nodes for pid in node.pids() if pid not in daemons]


@contextlib.contextmanager
def slurm(hosts: Sequence[Host], folder: Path) -> Iterator[Slurm]:
    """Return a context with a Slurm on hosts: a slurmd on each but the last one, where the rest runs.

    At its end the daemons and all jobs are killed.

    Args:
        hosts: hosts of a network.
        folder: an empty folder for all files.
    """
    *nodes, controller = hosts
    cpus = os.cpu_count() or 1
    lines = [
        f"NodeName={node.name} NodeAddr={node.address} CPUs={cpus} RealMemory=1000 State=UNKNOWN" for node in nodes
    ]
    names = ",".join(node.name for node in nodes)
    settings = {"controller": controller, "folder": folder, "kill_wait": KILL_WAIT_S, "lost": LOST_S, "names": names}
    (folder / "slurm.conf").write_text(CONFIG.format(nodes="\n".join(lines), **settings))
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    (folder / "plugstack.conf").touch()
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o600)
    for name in ("state", *(node.name for node in nodes)):
        (folder / name).mkdir()
    cluster = Slurm(controller, nodes, folder)
    munge = ["munged", "--foreground", f"--socket={folder}/munge.socket"]
    munge += [f"--{name}-file={folder}/munge.{name}" for name in ("key", "log", "pid", "seed")]
    munge.append("--force")  # although other users cannot enter the folder
    try:
        with (folder / "daemons.log").open("a") as output:
            cluster.daemons.append(controller.popen(munge, stdout=output))
            wait((folder / "munge.socket").exists, "munged")
            cluster.daemons.append(controller.popen(["slurmctld", "-D"], cluster.variables, stdout=output))
        for node in nodes:
            cluster.start(node)
        wait(lambda: _idle(cluster) == len(nodes), f"slurmd on all nodes (see {folder})")
        yield cluster
    finally:
        for host in hosts:
            host.kill()
        for daemon in cluster.daemons:
            daemon.wait()


def _idle(cluster: Slurm) -> int:
    """Return how many nodes wait for jobs."""
    done = cluster.controller.run(["sinfo", "--noheader", "--Node", "--format=%T"], cluster.variables)
    return done.stdout.split().count("idle")
