"""One graph on every runner: the same command and the same bytes, from Dask's workers to Dataflow's job description."""

import io
import json
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from apache_beam.portability.api import beam_runner_api_pb2

from clearspan.pipelines.__main__ import main
from clearspan.shards import storage
from tests.conftest import ROOT

OPTIONS = ["--min-tokens", "512", "--unit-bytes", "60000"]
DASK = "--runner=apache_beam.runners.dask.dask_runner.DaskRunner"
DATAFLOW = ["--runner=DataflowRunner", "--project=clearspan-test", "--region=europe-west4", "--job_name=clearspan"]
STAGING = ["--temp_location=gs://clearspan-test/tmp", "--staging_location=gs://clearspan-test/staging"]
JOB_SERVICE = "apache_beam.runners.portability.local_job_service_main"


@pytest.fixture(scope="module")
def words(corpus: Path, roberta_tokenizer: Path) -> list[str]:
    """The command, but for --output and the runner: several units."""
    return ["documents", "--input", f"{corpus}/*.jsonl", "--tokenizer", str(roberta_tokenizer), *OPTIONS]


@pytest.fixture(scope="module")
def finished(words: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files as this process makes them."""
    folder = tmp_path_factory.mktemp("local") / "out"
    assert main([*words, "--output", str(folder)]) == 0
    return tree(folder)


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
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
        try:
            assert main([*words, "--output", str(tmp_path / "out"), *dask]) == 0
        finally:
            distributed.default_client().close()
    assert tree(tmp_path / "out") == finished
    assert len(used) == 2


@pytest.fixture(scope="module")
def job_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A portable runner's job service as a process of its own, as Flink's or Spark's would be."""
    folder = tmp_path_factory.mktemp("service")
    port_file = folder / "port"
    command = [sys.executable, "-m", JOB_SERVICE, f"--port_file={port_file}", f"--staging_dir={folder / 'staged'}"]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as service:
        deadline = time.monotonic() + 60
        while not (port_file.exists() and port_file.read_text()):
            assert service.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.02)
        yield f"localhost:{port_file.read_text()}"
        service.kill()


WORKERS = {
    "in this process": ["--environment_type=LOOPBACK"],
    "in processes of their own": [
        "--environment_type=beam:env:harness_subprocess_python:v1",
        f"--environment_config={sys.executable} -m apache_beam.runners.worker.sdk_worker_main",
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("where", WORKERS)
def test_a_job_service_runs_it_with_workers(
    words: list[str], finished: dict[str, bytes], job_service: str, tmp_path: Path, where: str
) -> None:
    runner = ["--runner=PortableRunner", f"--job_endpoint={job_service}", *WORKERS[where]]
    assert main([*words, "--output", str(tmp_path / "out"), *runner]) == 0
    assert tree(tmp_path / "out") == finished


@pytest.mark.slow
def test_a_remote_workers_error_is_the_last_line(
    words: list[str], job_service: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = ["--runner=PortableRunner", f"--job_endpoint={job_service}", *WORKERS["in processes of their own"]]
    assert main([*words, "--output", str(tmp_path / "out"), *runner, "--text-field", "body"]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith('pipelines: no field "body" in any record')


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_with_a_container_image_nothing_is_staged_but_the_graph(dataflow: list[str]) -> None:
    image = ["--sdk_container_image=example.test/clearspan:1", "--sdk_location=container"]
    assert main([*dataflow, f"--template_location={TEMPLATE}", *image]) == 0
    job = json.loads(storage.read_bytes(TEMPLATE))
    (pool,) = job["environment"]["workerPools"]
    assert {entry["containerImage"] for entry in pool["sdkHarnessContainerImages"]} == {"example.test/clearspan:1"}
    assert not [package for package in pool["packages"] if package["name"].endswith((".tar.gz", ".whl"))]
    url = job["environment"]["sdkPipelineOptions"]["options"]["pipelineUrl"]
    graph = beam_runner_api_pb2.Pipeline.FromString(storage.read_bytes(url))
    transforms = graph.components.transforms
    (root,) = graph.root_transform_ids
    steps = [transforms[name].unique_name for name in transforms[root].subtransforms]
    assert steps == ["Units", "Spread", "Process", "All done", "Commit"]
