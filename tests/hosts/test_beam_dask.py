"""Pipelines on a Dask cluster across hosts give the bytes of a run on one machine, also when hosts fail meanwhile."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hosts import clusters
from tests.hosts.clusters import DaskCluster, Store, in_the_middle
from tests.hosts.datasets import COMMANDS, Case
from tests.hosts.network import network, wait
from tests.hosts.store import digests

pytestmark = pytest.mark.hosts("dask", "moto_server")
LOST = r"pipelines: worker tcp://10\.77\.0\.{}:\d+ was lost \(killed, out of memory or cut off\): {}\n"
PARTITIONS = "--dask_npartitions=4"
"""So many tasks that a part of the work is done when something happens."""
NO_SCHEDULER = (
    "pipelines: the connection to Dask's scheduler tcp://node2:8786 was lost: start the scheduler and its workers, "
    "then run the same command again to continue\n"
)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DaskCluster, Store]]:
    """A cluster with two workers, and an object store that all of its hosts reach."""
    with network(5) as (*of_cluster, of_store):
        cluster = DaskCluster(tmp_path_factory.mktemp("dask"), of_cluster)
        with clusters.store(of_store, cluster) as store:
            yield cluster, store


@pytest.fixture
def cluster(hosts: tuple[DaskCluster, Store]) -> DaskCluster:
    """The cluster, with all of its services started."""
    hosts[0].start()
    return hosts[0]


@pytest.fixture(scope="module")
def bucket(hosts: tuple[DaskCluster, Store], corpora: Path) -> str:
    """A bucket with the corpora."""
    cluster, store = hosts
    store.put(cluster.driver, corpora, "s3://clearspan-test/corpora")
    return "s3://clearspan-test"


@pytest.mark.guarantee("any-workers")
@pytest.mark.parametrize("builder", COMMANDS)
def test_two_hosts_of_dask_give_the_bytes_of_one_machine(
    cluster: DaskCluster, case: Callable[[str], Case], corpora: Path, builder: str, tmp_path: Path
) -> None:
    assert cluster.make(*case(builder).command(corpora, tmp_path / "out")) == ""
    assert digests(str(tmp_path / "out")) == case(builder).digests


@pytest.mark.guarantee("any-workers")
@pytest.mark.parametrize("builder", COMMANDS)
def test_two_hosts_of_dask_give_them_from_bucket_to_bucket(
    cluster: DaskCluster, hosts: tuple[DaskCluster, Store], bucket: str, case: Callable[[str], Case], builder: str
) -> None:
    """The workers know how to reach the store from the options alone."""
    _, store = hosts
    output = f"{bucket}/{builder}"
    assert cluster.make(*case(builder).command(f"{bucket}/corpora", output), *store.options) == ""
    assert store.digests(cluster.driver, output)[output] == case(builder).digests


@pytest.mark.guarantee("killed-run")
@pytest.mark.parametrize("stage", ["_staged", "_done"])
def test_a_killed_worker_is_named_and_others_do_its_work(
    cluster: DaskCluster, long_case: Case, stage: str, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    with cluster.started(*long_case.command("", output), PARTITIONS) as running:
        wait(in_the_middle(output, stage), "a part of the run")
        cluster.workers[0].kill()
        assert re.fullmatch(LOST.format(3, "1 worker left, to do its work again"), running.end())
    assert digests(str(output)) == long_case.digests


@pytest.mark.guarantee("killed-run")
def test_a_host_that_is_cut_off_is_named_and_one_that_joins_takes_its_place(
    cluster: DaskCluster, long_case: Case, tmp_path: Path
) -> None:
    """All workers are cut off, until the scheduler has given them up; their processes end by themselves."""
    output = tmp_path / "out"
    first, second = cluster.workers
    with cluster.started(*long_case.command("", output), PARTITIONS) as running:
        wait(in_the_middle(output), "a part of the run")
        for host in cluster.workers:
            host.cut()
        wait(lambda: "none is left" in running.err.read_text(), "a line about the loss")
        wait(lambda: not first.pids() and not second.pids(), "the end of workers that are cut off")
        for host in cluster.workers:
            host.join()
        cluster.start_worker(second)
        printed = running.end()
    lost = "|".join(LOST.format(number, next_) for number in (3, 4) for next_ in ("1 worker left.*", "none is left.*"))
    joined = r"pipelines: worker tcp://10\.77\.0\.4:\d+ joined: the run goes on\n"
    assert re.fullmatch(rf"({lost}){{2}}{joined}", printed), printed
    assert digests(str(output)) == long_case.digests


@pytest.mark.guarantee("killed-run")
def test_a_lost_scheduler_is_named_and_the_same_command_does_the_rest(
    cluster: DaskCluster, long_case: Case, tmp_path: Path
) -> None:
    """What was finished before stays; the workers end by themselves."""
    output = tmp_path / "out"
    command = [*long_case.command("", output), PARTITIONS]
    with cluster.started(*command) as running:
        wait(in_the_middle(output), "a part of the run")
        finished = {path: path.stat().st_mtime_ns for path in (output / "_staged").glob("[0-9]*.json")}
        cluster.scheduler.kill()
        assert running.end(1) == NO_SCHEDULER
    wait(lambda: not any(host.pids() for host in cluster.workers), "the end of workers without a scheduler")
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    alone = cluster.make(*command, code=1, variables=DaskCluster.impatient)
    assert re.fullmatch(r"pipelines: .*tcp://node2:8786.*\n", alone), "nobody listens"
    cluster.start_scheduler()
    with cluster.started(*command) as running:
        wait(lambda: "the run waits for one" in running.err.read_text(), "a line that there are no workers")
        cluster.start()
        lines = running.end().splitlines()
    assert lines[0] == "pipelines: tcp://node2:8786 has no workers: the run waits for one"
    assert re.fullmatch(r"pipelines: worker tcp://\S+ joined: the run goes on", lines[1]) and len(lines) == 2
    assert digests(str(output)) == long_case.digests


@pytest.mark.guarantee("killed-run")
def test_a_cut_off_command_is_told_so_and_the_same_command_does_the_rest(
    cluster: DaskCluster, long_case: Case, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    command = [*long_case.command("", output), PARTITIONS]
    with cluster.started(*command, variables=DaskCluster.impatient) as running:
        wait(in_the_middle(output), "a part of the run")
        cluster.driver.cut()
        assert running.end(1) == NO_SCHEDULER
    cluster.driver.join()
    assert cluster.make(*command) == ""
    assert digests(str(output)) == long_case.digests


def test_workers_that_die_of_their_work_end_the_run_in_one_line(
    cluster: DaskCluster, long_case: Case, tmp_path: Path
) -> None:
    """Here at the first death; by default, Dask gives a task four workers."""
    cluster.scheduler.kill()
    wait(lambda: not any(host.pids() for host in cluster.workers), "the end of workers without a scheduler")
    cluster.start_scheduler(DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="0")
    cluster.start()
    output = tmp_path / "out"
    try:
        with cluster.started(*long_case.command("", output), PARTITIONS) as running:
            wait(in_the_middle(output), "a part of the run")
            cluster.workers[0].kill()
            *_, last = running.end(1).splitlines()
    finally:
        cluster.scheduler.kill()
        wait(lambda: not any(host.pids() for host in cluster.workers), "the end of workers without a scheduler")
    assert last.startswith("pipelines: ") and "probably its memory ran out: start workers with fewer threads" in last
