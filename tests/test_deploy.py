"""What `deploy/` describes: by Kubernetes' and Dataflow's own schemas, and by the versions installed here."""

import re
import runpy
from typing import Any

import pytest
import yaml
from apache_beam.options.pipeline_options import FlinkRunnerOptions
from apache_beam.version import __version__ as beam

from clearspan.pipelines.__main__ import GROUP
from tests.conftest import ROOT

DEPLOY = ROOT / "deploy"
MANIFESTS = [manifest for path in sorted(DEPLOY.glob("*.yaml")) for manifest in yaml.safe_load_all(path.read_text())]


def names(manifest: dict[str, Any]) -> str:
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def pods() -> dict[str, dict[str, Any]]:
    """The template of each deployment's and job's pods, by name."""
    return {m["metadata"]["name"]: m["spec"]["template"] for m in MANIFESTS if "template" in m.get("spec", {})}


def containers() -> dict[str, dict[str, Any]]:
    return {container["name"]: container for pod in pods().values() for container in pod["spec"]["containers"]}


@pytest.mark.parametrize("manifest", MANIFESTS, ids=names)
def test_a_manifest_follows_kubernetes_schema(manifest: dict[str, Any]) -> None:
    schemas = pytest.importorskip(
        "kubernetes_validate", reason="`pip install kubernetes-validate` checks deploy/*.yaml"
    )
    assert schemas.validate(manifest, schemas.latest_version(), strict=True)
    with pytest.raises(schemas.ValidationError):
        schemas.validate({**manifest, "spce": {}}, schemas.latest_version(), strict=True)


def test_services_lead_to_ports_of_pods() -> None:
    for service in (manifest for manifest in MANIFESTS if manifest["kind"] == "Service"):
        (pod,) = (
            pod for pod in pods().values() if service["spec"]["selector"] == pod.get("metadata", {}).get("labels")
        )
        open_ports = {port["name"]: port["containerPort"] for one in pod["spec"]["containers"] for port in one["ports"]}
        for port in service["spec"]["ports"]:
            assert open_ports[port["targetPort"]] == port["port"]


def test_the_versions_are_those_of_the_beam_that_is_installed() -> None:
    (server,) = re.findall(r"^apache/beam_flink([\d.]+)_job_server:(.+)$", containers()["job-server"]["image"])
    assert server[0] in FlinkRunnerOptions.PUBLISHED_FLINK_VERSIONS and server[1] == beam
    for name in ("jobmanager", "taskmanager"):
        assert containers()[name]["image"].startswith(f"flink:{server[0]}-")
    page = (ROOT / "docs" / "runners.md").read_text()
    listed = re.findall(r"^\| Flink ([\d.]+) \| `apache/beam_flink([\d.]+)_job_server:([\d.]+)`", page, re.MULTILINE)
    assert listed == [(version, version, beam) for version in FlinkRunnerOptions.PUBLISHED_FLINK_VERSIONS]
    assert f"FROM apache/beam_python3.11_sdk:{beam}\n" in (ROOT / "Dockerfile").read_text()


def test_the_run_on_kubernetes_is_a_command_of_ours_that_uses_every_slot() -> None:
    assert GROUP.parsed(containers()["clearspan"]["args"])
    options = dict(re.findall(r"--(\w+)=(.*)", "\n".join(containers()["clearspan"]["args"])))
    (managers,) = (m["spec"]["replicas"] for m in MANIFESTS if names(m) == "Deployment flink-taskmanager")
    (properties,) = (variable["value"] for variable in containers()["taskmanager"]["env"])
    slots = int(re.findall(r"numberOfTaskSlots: (\d+)", properties)[0])
    assert (
        int(options["sdk_worker_parallelism"])
        == slots
        == int(containers()["sdk-worker"]["resources"]["requests"]["cpu"])
    )
    assert int(options["parallelism"]) == managers * slots
    assert options["environment_config"] == f"localhost:{containers()['sdk-worker']['ports'][0]['containerPort']}"


def test_the_flex_templates_spec_is_one() -> None:
    dataflow = pytest.importorskip("google.cloud.dataflow_v1beta3", reason="`pip install google-cloud-dataflow-client`")
    spec = dataflow.ContainerSpec.from_json((DEPLOY / "flex" / "spec.json").read_text(), ignore_unknown_fields=False)
    assert spec.sdk_info.language == dataflow.SDKInfo.Language.PYTHON
    assert spec.default_environment.sdk_container_image == spec.image
    main = runpy.run_path(str(DEPLOY / "flex" / "main.py"))
    named = {f"{main['INPUT']}gs://b/*.jsonl", "--output=gs://b/out", "--tokenizer=gs://b/t"}
    names = [parameter.name for parameter in spec.metadata.parameters]
    assert names == ["kind", "input", "output", "tokenizer", "options"]
    assert GROUP.parsed(main["words"]([*named, "--options=--dedup --limit 3"])).options.limit == 3


def test_the_flex_templates_parameters_become_words() -> None:
    words = runpy.run_path(str(DEPLOY / "flex" / "main.py"))["words"]
    given = [
        "--input=gs://b/a/ 'gs://b/with space/*'",
        "--kind=images",
        "--options=--size 64",
        "--runner=DataflowRunner",
    ]
    assert words(given) == [
        *("images", "--input=gs://b/a/", "--input=gs://b/with space/*", "--runner=DataflowRunner", "--size", "64")
    ]
