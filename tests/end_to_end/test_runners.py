"""One graph on every runner: the same command and the same bytes, from Dask's workers to Dataflow's job description."""

import contextlib
import io
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from apache_beam.options.pipeline_options import PortableOptions
from apache_beam.transforms.environments import ExternalEnvironment

from clearspan.pipelines.__main__ import main
from clearspan.pipelines.execution import runners
from clearspan.shards import Manifest, storage
from tests.conftest import ROOT
from tests.listening import listening
from tests.processes import environment

OPTIONS = ["--min-tokens", "512", "--unit-bytes", "60000"]
DASK = "--runner=apache_beam.runners.dask.dask_runner.DaskRunner"
DATAFLOW = ["--runner=DataflowRunner", "--project=clearspan-test", "--region=europe-west4", "--job_name=clearspan"]
STAGING = ["--temp_location=gs://clearspan-test/tmp", "--staging_location=gs://clearspan-test/staging"]
JOB_SERVICE = Path(__file__).with_name("job_service.py")
WORKER_POOL = ["-m", "apache_beam.runners.worker.worker_pool_main", "--service_port=0"]
STAGES = {"one stage": [], "two stages": ["--dedup", "--limit", "8"]}


@pytest.fixture(scope="module", params=STAGES)
def words(
    request: pytest.FixtureRequest, corpus: Path, roberta_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[str]:
    """The command, but for --output and the runner: several units, and documents that occur twice."""
    copies = tmp_path_factory.mktemp("copies") / "c.jsonl"
    copies.write_bytes((corpus / "b.jsonl").read_bytes())
    inputs = ["--input", f"{corpus}/*.jsonl", str(copies)]
    return ["documents", *inputs, "--tokenizer", str(roberta_tokenizer), *OPTIONS, *STAGES[request.param]]


@pytest.fixture(scope="module")
def finished(words: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files as this process makes them."""
    folder = tmp_path_factory.mktemp("local") / "out"
    assert main([*words, "--output", str(folder)]) == 0
    if "--dedup" in words:
        filtered = Manifest.load(str(folder)).counts["filtered"]
        assert filtered["duplicate"] and filtered["over_limit"]
    return tree(folder)


def tree(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and ".clearspan" not in path.parts)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.mark.exhaustive
@pytest.mark.parametrize("words", STAGES, indirect=True)
def test_two_dask_workers_share_the_units(words: list[str], finished: dict[str, bytes], tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    used = set()

    class Watch(distributed.SchedulerPlugin):
        def transition(self, key, start: str, finish: str, *arguments, worker: str | None = None, **_) -> None:
            if (start, finish) == ("processing", "memory"):
                used.add(worker)

    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        cluster.scheduler.add_plugin(Watch())
        dask = [DASK, f"--dask_client_address={cluster.scheduler_address}", "--dask_npartitions=2"]
        assert main([*words, "--output", str(tmp_path / "out"), *dask]) == 0
        with pytest.raises(ValueError, match="No client"):
            distributed.default_client()
    assert tree(tmp_path / "out") == finished
    assert len(used) == 2


@contextlib.contextmanager
def started(command: list, log: io.TextIOBase, **options) -> Iterator[subprocess.Popen]:
    """A process that is killed in the end, with those below it."""
    with subprocess.Popen(command, stdout=log, stderr=log, **options) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(psutil.NoSuchProcess):
                for one in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
                    one.kill()


def wait(ready: Callable[[], object], process: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + 120
    while not ready():
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)


@pytest.fixture(scope="module")
def job_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A portable runner's job service as a process of its own, as Flink's or Spark's would be; its job endpoint."""
    folder = tmp_path_factory.mktemp("service")
    port_file = folder / "port"
    command = [sys.executable, JOB_SERVICE, f"--port_file={port_file}", f"--staging_dir={folder / 'staged'}"]
    with (folder / "log").open("w") as log, started(command, log) as service:
        wait(lambda: port_file.exists() and port_file.read_text(), service, folder / "log")
        yield f"localhost:{port_file.read_text()}"


@pytest.fixture(scope="module")
def worker_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Beam's worker pool as a process of its own, as in a sidecar; its address."""
    folder = tmp_path_factory.mktemp("pool")
    variables = environment(PATH=f"{folder}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    command = [sys.executable, *WORKER_POOL]
    with (folder / "log").open("w") as log, started(command, log, env=variables) as server:
        wait(lambda: listening(psutil.Process(server.pid)), server, folder / "log")
        (socket,) = listening(psutil.Process(server.pid))
        yield f"localhost:{socket.laddr.port}"


def portable(job_service: str, *workers: str) -> list[str]:
    return ["--runner=PortableRunner", f"--job_endpoint={job_service}", *workers]


EXTERNAL = ["--environment_type=EXTERNAL", "--environment_config"]
WORKERS = {
    "in this process": ["--environment_type=LOOPBACK"],
    "in processes of their own": [
        "--environment_type=beam:env:harness_subprocess_python:v1",
        f"--environment_config={sys.executable} -m apache_beam.runners.worker.sdk_worker_main",
    ],
    "of a pool": [*EXTERNAL, "{worker_pool}"],
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("where", WORKERS)
def test_a_job_service_runs_it_with_two_workers(
    words: list[str], finished: dict[str, bytes], job_service: str, worker_pool: str, tmp_path: Path, where: str
) -> None:
    runner = portable(job_service, *(word.format(worker_pool=worker_pool) for word in WORKERS[where]))
    assert main([*words, "--output", str(tmp_path / "out"), *runner]) == 0
    assert tree(tmp_path / "out") == finished


def test_nothing_is_staged_for_workers_that_have_the_package() -> None:
    """A job server and its task managers often share no folder."""
    pipeline = runners.named(portable("localhost:1", *EXTERNAL, "localhost:2"))
    assert not ExternalEnvironment.from_options(pipeline.options.view_as(PortableOptions)).artifacts()


@pytest.fixture
def dataflow(google, corpus: Path, roberta_tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command with input and output in a bucket, as Dataflow needs them."""
    google()
    for path in corpus.iterdir():
        storage.publish_file(path, f"gs://clearspan-test/corpus/{path.name}")
    monkeypatch.chdir(ROOT)
    places = ["--input", "gs://clearspan-test/corpus/*.jsonl", "--output", "gs://clearspan-test/out"]
    return ["documents", *places, "--tokenizer", str(roberta_tokenizer), *OPTIONS, *DATAFLOW, *STAGING]


@pytest.mark.slow
def test_dataflows_dry_run_describes_the_job_and_runs_nothing(
    dataflow: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*dataflow, "--dry_run=True", "--sdk_container_image=example.test/clearspan:1"]) == 0
    assert capsys.readouterr().out == "gs://clearspan-test/out: planned; the job was only described, not run\n"
    assert storage.list_files("gs://clearspan-test/out") == ["plan.json"]


def test_dataflow_with_this_machines_files_is_refused(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        main([*words, "--output", str(tmp_path / "out"), *DATAFLOW, *STAGING])
    assert error.value.code == 2
    assert "--input and --output must be in a bucket" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


TEMPLATE = "gs://clearspan-test/templates/documents.json"


@pytest.mark.exhaustive
def test_a_classic_template_and_its_staged_package_are_in_the_bucket(
    dataflow: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*dataflow, f"--template_location={TEMPLATE}", "--setup_file=./setup.py"]) == 0
    assert "planned; the job was only described, not run" in capsys.readouterr().out
    job = json.loads(storage.read_bytes(TEMPLATE))
    packages = [package for pool in job["environment"]["workerPools"] for package in pool["packages"]]
    (package,) = (package for package in packages if package["name"] == "workflow.tar.gz")
    location = package["location"].replace("storage.googleapis.com/", "gs://")
    with tarfile.open(fileobj=io.BytesIO(storage.read_bytes(location))) as staged:
        names = {name.partition("/")[2] for name in staged.getnames()}
    assert {f"clearspan/{path}" for path in ("pipelines/execution/graph.py", "shards/storage.py")} <= names
