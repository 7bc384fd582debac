"""Clusters across hosts on which Beam runs: Dask's, and Beam's own job service with worker pools; an object store.

    Dask          node1: the command    node2: the scheduler                  node3, node4: a worker each
    job service   node2: the command, the job service, and a balancer ──────> node3, node4: a worker pool each
    object store  node5

Beam's job service listens on localhost alone, and starts all workers of a job at one address. HAProxy at this address
sends each request to the next pool.
"""

import contextlib
import dataclasses
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from tests.conftest import ROOT
from tests.hosts.network import Host, wait

AWS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
BALANCER = """
defaults
  mode tcp
  timeout connect 2s
  timeout client 1h
  timeout server 1h
listen pools
  bind 127.0.0.1:50000
  balance roundrobin
  server node3 node3:50000 check inter 200ms
  server node4 node4:50000 check inter 200ms
"""
SCHEDULER = "tcp://node2:8786"


@dataclasses.dataclass
class Running:
    """A command that runs on a host.

    Attributes:
        out, err: the files that it prints to.
    """

    process: subprocess.Popen
    out: Path
    err: Path

    def end(self, code: int = 0, seconds: float = 120) -> str:
        """Wait for its end, and return what it printed to stderr."""
        ended = self.process.wait(seconds)
        printed = self.err.read_text()
        assert ended == code, printed + self.out.read_text()
        return printed


class Cluster:
    """A cluster of workers on hosts, and a host that runs commands on it.

    Attributes:
        driver: the host of the commands.
        workers: the hosts of the workers.
        options: the options for Beam.
    """

    driver: Host
    workers: list[Host]
    options: ClassVar[list[str]]

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self) -> None:
        """Start what does not run of it: the services and the workers."""
        raise NotImplementedError

    def service(self, host: Host, words: list[str | Path], ready: str, **variables: str) -> subprocess.Popen:
        """Start a service on a host; wait until it prints a text that matches `ready`, or listens on this port."""
        log = Path(tempfile.mkstemp(dir=self.folder, prefix=f"{host.name}-")[1])
        with log.open("w") as stream:
            process = host.popen(words, variables, stdout=stream)

        def is_ready() -> bool:
            assert process.poll() is None, f"{words}: {log.read_text()}"
            listens = any(address.endswith(ready) for address in host.listening()) if ready.startswith(":") else False
            return listens or bool(re.search(ready, log.read_text()))

        wait(is_ready, f"{words[:2]} on {host.name}")
        return process

    @contextlib.contextmanager
    def started(self, *words: str | Path, variables: Mapping[str, str] | None = None) -> Iterator[Running]:
        """A command `python -m clearspan.pipelines WORDS` on the cluster; it is killed at the end of the block."""
        out, err = (Path(tempfile.mkstemp(dir=self.folder, prefix=name)[1]) for name in ("out-", "err-"))
        command = [sys.executable, "-m", "clearspan.pipelines", words[0], *self.options, *words[1:]]
        with out.open("w") as stdout, err.open("w") as stderr:
            process = self.driver.popen(command, dict(variables or {}), stdout=stdout, stderr=stderr)
        try:
            yield Running(process, out, err)
        finally:
            process.kill()
            process.wait()

    def make(self, *words: str | Path, code: int = 0, variables: Mapping[str, str] | None = None) -> str:
        """Run a command to its end; return what it printed to stderr."""
        with self.started(*words, variables=variables) as running:
            return running.end(code)


class DaskCluster(Cluster):
    """A Dask cluster. A connection that is cut is given up after 12 s, and one that nobody takes after 3, not 30."""

    options: ClassVar = [
        "--runner=apache_beam.runners.dask.dask_runner.DaskRunner",
        f"--dask_client_address={SCHEDULER}",
        "--dask_npartitions=2",
    ]
    impatient: ClassVar = {
        "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "12s",
        "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "3s",
    }

    def __init__(self, folder: Path, hosts: list[Host]) -> None:
        super().__init__(folder)
        self.driver, self.scheduler, *self.workers = hosts

    def start(self) -> None:
        if not self.scheduler.pids():
            self.start_scheduler()
        for host in self.workers:
            if not host.pids():
                self.start_worker(host)

    def start_scheduler(self, **variables: str) -> None:
        words: list[str | Path] = ["dask", "scheduler", "--host", self.scheduler.address, "--port", "8786"]
        self.service(self.scheduler, [*words, "--no-dashboard"], "Scheduler at:", **self.impatient, **variables)

    def start_worker(self, host: Host) -> subprocess.Popen:
        words: list[str | Path] = ["dask", "worker", SCHEDULER, "--nthreads", "1", "--no-dashboard"]
        folder = ["--local-directory", host.folder]
        return self.service(host, [*words, *folder], "Registered to:", **self.impatient)


class JobService(Cluster):
    """Beam's own job service, with two workers a job from two worker pools."""

    options: ClassVar = [
        "--runner=PortableRunner",
        "--job_endpoint=localhost:8099",
        "--environment_type=EXTERNAL",
        "--environment_config=localhost:50000",
    ]

    def __init__(self, folder: Path, hosts: list[Host]) -> None:
        super().__init__(folder)
        self.driver, *self.workers = hosts

    def start(self) -> None:
        for host in self.workers:
            if not host.pids():
                pool: list[str | Path] = [sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main"]
                self.service(host, [*pool, "--service_port=50000"], ":50000")
        if not self.driver.pids():
            (self.folder / "haproxy.cfg").write_text(BALANCER)
            self.service(self.driver, ["haproxy", "-db", "-f", self.folder / "haproxy.cfg"], ":50000")
            self.start_service()

    def start_service(self) -> None:
        script = ROOT / "tests" / "end_to_end" / "job_service.py"
        words = [sys.executable, script, "--port=8099", f"--staging_dir={self.folder / 'staged'}"]
        self.job_service = self.service(self.driver, words, ":8099")


@dataclasses.dataclass
class Store:
    """S3 on a host, which keeps its objects in memory.

    Attributes:
        variables: environment variables by which other hosts reach it.
        options: options for Beam by which they do.
    """

    host: Host

    @property
    def url(self) -> str:
        return f"http://{self.host.address}:5000"

    @property
    def variables(self) -> dict[str, str]:
        return {**AWS, "AWS_ENDPOINT_URL": self.url}

    @property
    def options(self) -> list[str]:
        keys = ["--s3_access_key_id=key", "--s3_secret_access_key=secret", "--s3_region_name=us-east-1"]
        return [f"--s3_endpoint_url={self.url}", *keys]

    def _call(self, host: Host, *words: str | Path) -> str:
        done = host.run([sys.executable, "-m", "tests.hosts.store", *words], self.variables)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def put(self, host: Host, folder: Path, target: str) -> None:
        """Copy a folder into the store, from a host that reaches it."""
        self._call(host, "put", folder, target)

    def digests(self, host: Host, *places: str) -> dict[str, dict[str, str]]:
        """Return place -> name of a file -> SHA-256, as a host sees them."""
        return json.loads(self._call(host, "digests", *places).splitlines()[-1])


@contextlib.contextmanager
def store(host: Host, cluster: Cluster) -> Iterator[Store]:
    """An S3 emulator on a host."""
    cluster.service(host, ["moto_server", "-H", host.address, "-p", "5000"], ":5000")
    yield Store(host)
    host.kill()


def in_the_middle(folder: Path, stage: str = "_staged", count: int = 4) -> Callable[[], bool]:
    """A function that tells whether so many units have finished a stage of a run that writes to a folder."""
    return lambda: len([*(folder / stage).glob("[0-9]*.json")]) >= count
