"""Pipelines on a job service with worker pools on other hosts give the bytes of a run on one machine, as on Dask."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hosts import clusters
from tests.hosts.clusters import JobService, Store, in_the_middle
from tests.hosts.datasets import COMMANDS, Case
from tests.hosts.network import network, wait
from tests.hosts.store import digests

pytestmark = pytest.mark.hosts("haproxy", "moto_server")
WORKER_LOST = (
    "pipelines: a worker was killed or cut off: run the same command again to continue, with fewer workers a host if "
    "memory ran out\n"
)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[JobService, Store]]:
    """Two worker pools, a job service, and an object store that all of them reach."""
    with network(5) as (_, *of_service, of_store):
        service = JobService(tmp_path_factory.mktemp("service"), of_service)
        with clusters.store(of_store, service) as store:
            yield service, store


@pytest.fixture
def service(hosts: tuple[JobService, Store]) -> JobService:
    """The job service and its pools, with all of their processes started."""
    hosts[0].start()
    return hosts[0]


@pytest.mark.guarantee("any-workers")
@pytest.mark.parametrize("builder", COMMANDS)
def test_pools_on_two_hosts_give_the_bytes_of_one_machine(
    service: JobService, case: Callable[[str], Case], corpora: Path, builder: str, tmp_path: Path
) -> None:
    assert service.make(*case(builder).command(corpora, tmp_path / "out")) == ""
    assert digests(str(tmp_path / "out")) == case(builder).digests


@pytest.mark.guarantee("any-workers")
def test_pools_on_two_hosts_give_them_from_bucket_to_bucket(
    service: JobService, hosts: tuple[JobService, Store], case: Callable[[str], Case], corpora: Path
) -> None:
    _, store = hosts
    bucket, output = "s3://clearspan-test", "s3://clearspan-test/out"
    store.put(service.driver, corpora, f"{bucket}/corpora")
    assert service.make(*case("documents").command(f"{bucket}/corpora", output), *store.options) == ""
    assert store.digests(service.driver, output)[output] == case("documents").digests


@pytest.mark.guarantee("killed-run")
def test_a_killed_pool_ends_the_run_in_one_line_and_the_same_command_does_the_rest(
    service: JobService, long_case: Case, tmp_path: Path
) -> None:
    """The other pool takes the place of the killed one."""
    output = tmp_path / "out"
    command = long_case.command("", output)
    with service.started(*command) as running:
        wait(in_the_middle(output), "a part of the run")
        service.workers[0].kill()
        assert running.end(1) == WORKER_LOST
    assert service.make(*command) == ""
    assert digests(str(output)) == long_case.digests


@pytest.mark.guarantee("killed-run")
def test_a_host_that_was_cut_off_for_a_while_goes_on(service: JobService, long_case: Case, tmp_path: Path) -> None:
    """Its connections stay; the other worker's part of the run ends meanwhile."""
    output = tmp_path / "out"
    with service.started(*long_case.command("", output)) as running:
        wait(in_the_middle(output), "a part of the run")
        service.workers[0].cut()
        with pytest.raises(AssertionError):
            wait(lambda: running.process.poll() is not None, "nothing", seconds=10)
        service.workers[0].join()
        assert running.end() == ""
    assert digests(str(output)) == long_case.digests


@pytest.mark.guarantee("killed-run")
def test_a_lost_job_service_ends_the_run_in_one_line_and_the_same_command_does_the_rest(
    service: JobService, long_case: Case, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    command = long_case.command("", output)
    with service.started(*command) as running:
        wait(in_the_middle(output), "a part of the run")
        service.job_service.kill()
        lost = (
            r"pipelines: the connection to the job service at localhost:8099 was lost \(.+\): start it, then run .+\n"
        )
        assert re.fullmatch(lost, running.end(1))
    alone = service.make(*command, "--job_server_timeout=2", code=1)
    expected = "start it, or check its address, then run the same command again to continue"
    assert alone == f"pipelines: no job service answers at localhost:8099: {expected}\n"
    service.start_service()
    assert service.make(*command) == ""
    assert digests(str(output)) == long_case.digests


def test_a_job_service_without_a_pool_is_one_line(service: JobService, long_case: Case, tmp_path: Path) -> None:
    wrong = "--environment_config=node3:50001"
    said = service.make(*long_case.command("", tmp_path / "out"), wrong, code=1)
    assert re.fullmatch(
        r"pipelines: the job service does not reach its workers \(.*50001.*\): start them, then .+\n", said
    )
