"""Models of the hub, fetched from a server on this machine that speaks the hub's API."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import constants

from clearspan.common import hub
from clearspan.common.encoder.fingerprint import model_files, model_sha256
from clearspan.common.model_folder import EncoderError, model_name
from tests.hub_server import HubServer

NAME = "owls/all-owls"
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"},
    {"idx": 3, "name": "3", "path": "3_Normalize", "type": "sentence_transformers.models.Normalize"},
]
SETTINGS = {
    "modules.json": json.dumps(MODULES).encode(),
    "config.json": b'{"model_type": "bert"}',
    "tokenizer.json": b"{}",
    "vocab.txt": b"[PAD]\nowl\n",
    "sentencepiece.bpe.model": b"\0\1",
    "1_Pooling/config.json": b'{"embedding_dimension": 8}',
    "2_Dense/config.json": b'{"in_features": 8}',
}
WEIGHTS = {"model.safetensors": b"w" * 100_000, "2_Dense/model.safetensors": b"d" * 5_000}
UNWANTED = {
    "README.md": b"# Owls",
    ".gitattributes": b"*.bin filter=lfs",
    "pytorch_model.bin": b"\x80\x04pickle",
    "training_args.bin": b"\x80\x04pickle",
    "2_Dense/pytorch_model.bin": b"\x80\x04pickle",
    "optimizer.pt": b"\x80\x04pickle",
    "modeling_owls.py": b"raise SystemExit('foreign code')",
    "onnx/config.json": b"{}",
    "onnx/model.onnx": b"o" * 100,
    "openvino/openvino_model.bin": b"o" * 100,
    "checkpoint-1/model.safetensors": b"c" * 100,
    "tf_model.h5": b"h" * 100,
}


@pytest.fixture
def server(hub_server: HubServer) -> HubServer:
    return hub_server


def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def refused(value: str, resolve: Callable[[str], str] = hub.model_folder) -> str:
    """Return the message with which a reference is refused."""
    with pytest.raises(EncoderError) as error:
        resolve(value)
    assert "\n" not in str(error.value)
    return str(error.value)


def names_in(folder: str | Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file()}


@pytest.mark.guarantee("no-network")
def test_settings_and_safetensors_are_fetched_but_no_code_and_no_pickle(server: HubServer) -> None:
    commit = server.push(NAME, {**SETTINGS, **WEIGHTS, **UNWANTED})
    folder = hub.model_folder(f"hf:{NAME}")
    assert names_in(folder) == {*SETTINGS, *WEIGHTS}
    assert {name: Path(folder, name).read_bytes() for name in names_in(folder)} == {**SETTINGS, **WEIGHTS}
    assert hub.reference(folder) == f"hf:{NAME}@{commit}"
    assert model_name(folder) == "all-owls"
    assert {name for name in server.downloads if name} == {*SETTINGS, *WEIGHTS}
    assert server.downloads.index("model.safetensors") > server.downloads.index("1_Pooling/config.json")


@pytest.mark.guarantee("no-network")
@pytest.mark.parametrize(
    "value", ["owls/all-owls", "all-owls", "", "static:owls/all-owls", "bm25", "my_module:function"]
)
def test_a_value_without_the_prefix_is_used_as_it_is(value: str, server: HubServer) -> None:
    server.push(NAME, {**SETTINGS, **WEIGHTS})
    assert hub.model_folder(value) == hub.tokenizer_folder(value) == hub.reference(value) == value
    assert not server.requests


@pytest.mark.guarantee("no-network")
def test_a_folder_of_that_name_is_the_folder(
    server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hf:owls/all-owls").mkdir(parents=True)
    assert hub.model_folder("hf:owls/all-owls") == "hf:owls/all-owls"
    assert not server.requests


@pytest.mark.guarantee("no-network")
def test_a_commit_that_is_in_the_cache_needs_no_request(server: HubServer) -> None:
    commit = server.push(NAME, {**SETTINGS, **WEIGHTS})
    folder = hub.model_folder(f"hf:{NAME}@{commit}")
    server.requests.clear()
    assert hub.model_folder(hub.reference(folder)) == hub.model_folder(f"hf:{NAME}@{commit}") == folder
    assert hub.tokenizer_folder(f"hf:{NAME}@{commit}") == folder
    assert not server.requests


def test_what_the_cache_has_is_not_fetched_again(server: HubServer) -> None:
    server.push(NAME, {**SETTINGS, **WEIGHTS})
    folder = hub.model_folder(f"hf:{NAME}")
    server.requests.clear()
    assert hub.model_folder(f"hf:{NAME}@main") == hub.model_folder(f"hf:{NAME}") == folder
    assert not any("/resolve/" in each for each in server.requests)


def test_a_branch_that_has_moved_is_another_folder_and_the_old_commit_stays(server: HubServer) -> None:
    first = server.push(NAME, {**SETTINGS, **WEIGHTS})
    folder = hub.model_folder(f"hf:{NAME}")
    second = server.push(NAME, {**SETTINGS, **WEIGHTS, "model.safetensors": b"v" * 100_000})
    moved = hub.model_folder(f"hf:{NAME}")
    assert [hub.reference(each) for each in (folder, moved)] == [f"hf:{NAME}@{first}", f"hf:{NAME}@{second}"]
    assert model_sha256(Path(folder)) != model_sha256(Path(moved))
    assert hub.model_folder(f"hf:{NAME}@{first}") == folder
    assert Path(folder, "model.safetensors").read_bytes() == WEIGHTS["model.safetensors"]


def test_the_card_alone_changes_no_hash(server: HubServer) -> None:
    server.push(NAME, {**SETTINGS, **WEIGHTS})
    folder = hub.model_folder(f"hf:{NAME}")
    server.push(NAME, {**SETTINGS, **WEIGHTS, "README.md": b"# More owls"})
    moved = hub.model_folder(f"hf:{NAME}")
    assert folder != moved and model_sha256(Path(folder)) == model_sha256(Path(moved))


@pytest.mark.guarantee("no-network")
def test_the_cached_copy_is_used_offline(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = server.push(NAME, {**SETTINGS, **WEIGHTS})
    folder = hub.model_folder(f"hf:{NAME}")
    server.requests.clear()
    offline(monkeypatch)
    assert [hub.model_folder(f"hf:{NAME}{at}") for at in ("", "@main", f"@{commit}")] == [folder] * 3
    assert not server.requests


@pytest.mark.guarantee("one-line-errors")
@pytest.mark.parametrize(("at", "more"), [("", ""), ("@main", ""), ("@v2", " --revision v2")])
def test_offline_without_a_copy_the_command_to_run_is_named(
    at: str, more: str, server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.push(NAME, {**SETTINGS, **WEIGHTS})
    offline(monkeypatch)
    for resolve in (hub.model_folder, hub.tokenizer_folder):
        said = refused(f"hf:{NAME}{at}", resolve)
        assert f"`hf download {NAME}{more}`" in said and "HF_HUB_OFFLINE is set" in said
    assert not server.requests


@pytest.mark.guarantee("one-line-errors")
def test_without_a_network_the_copy_is_used_or_the_command_is_named(
    server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.push(NAME, {**SETTINGS, **WEIGHTS})
    folder = hub.model_folder(f"hf:{NAME}")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # where nothing listens
    assert hub.model_folder(f"hf:{NAME}") == folder
    assert "`hf download owls/others`" in refused("hf:owls/others")


@pytest.mark.guarantee("no-network")
def test_a_download_that_breaks_is_taken_up_where_it_broke(server: HubServer) -> None:
    server.push(NAME, {**SETTINGS, **WEIGHTS})
    server.repositories[NAME].cut["model.safetensors"] = 1
    folder = hub.model_folder(f"hf:{NAME}")
    assert Path(folder, "model.safetensors").read_bytes() == WEIGHTS["model.safetensors"]


@pytest.mark.guarantee("no-network")
@pytest.mark.guarantee("one-line-errors")
def test_half_a_model_is_never_used(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)  # the library waits longer before each further try
    server.push(NAME, {**SETTINGS, **WEIGHTS})
    server.repositories[NAME].cut["model.safetensors"] = 1_000
    assert f"`hf download {NAME}`" in refused(f"hf:{NAME}")
    with monkeypatch.context() as patch:
        patch.setattr(constants, "HF_HUB_OFFLINE", True)
        assert f"`hf download {NAME}`" in refused(f"hf:{NAME}")
    server.repositories[NAME].cut.clear()
    folder = hub.model_folder(f"hf:{NAME}")
    assert Path(folder, "model.safetensors").read_bytes() == WEIGHTS["model.safetensors"]


@pytest.mark.guarantee("no-network")
@pytest.mark.parametrize("missing", sorted({*WEIGHTS, "config.json", "1_Pooling/config.json"}))
def test_a_copy_that_lacks_a_file_is_completed_or_refused(
    missing: str, server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = server.push(NAME, {**SETTINGS, **WEIGHTS})
    folder = Path(hub.model_folder(f"hf:{NAME}"))
    (folder / missing).unlink()
    with monkeypatch.context() as patch:
        patch.setattr(constants, "HF_HUB_OFFLINE", True)
        refused(f"hf:{NAME}")
        refused(f"hf:{NAME}@{commit}")
    assert hub.model_folder(f"hf:{NAME}@{commit}") == str(folder)
    assert names_in(folder) == {*SETTINGS, *WEIGHTS}


@pytest.mark.guarantee("one-line-errors")
def test_a_model_that_does_not_exist_and_a_revision_that_does_not(server: HubServer) -> None:
    server.push(NAME, {**SETTINGS, **WEIGHTS})
    assert "no such model on the hub" in refused("hf:owls/none")
    assert "owls/all-owls has no revision v9" in refused(f"hf:{NAME}@v9")
    assert f"has no revision {'0' * 40}" in refused(f"hf:{NAME}@{'0' * 40}")


@pytest.mark.guarantee("one-line-errors")
def test_a_gated_model_says_where_to_ask(server: HubServer) -> None:
    server.push(NAME, {**SETTINGS, **WEIGHTS})
    server.repositories[NAME].is_gated = True
    assert "must grant access" in refused(f"hf:{NAME}")


@pytest.mark.guarantee("no-network")
@pytest.mark.guarantee("one-line-errors")
@pytest.mark.parametrize("lacking", sorted(WEIGHTS))
def test_pickled_weights_alone_are_refused(lacking: str, server: HubServer) -> None:
    server.push(NAME, {**SETTINGS, **UNWANTED, **{name: data for name, data in WEIGHTS.items() if name != lacking}})
    assert "has only pickled weights" in refused(f"hf:{NAME}")
    assert not any(name.endswith((".bin", ".pt", ".safetensors")) for name in server.downloads)


@pytest.mark.guarantee("no-network")
def test_pickled_weights_that_another_program_fetched_are_refused_offline(
    server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import snapshot_download

    server.push(NAME, {**SETTINGS, **UNWANTED})
    snapshot_download(NAME)
    offline(monkeypatch)
    assert "has only pickled weights" in refused(f"hf:{NAME}")


def test_what_another_program_fetched_changes_no_hash(server: HubServer) -> None:
    from huggingface_hub import snapshot_download

    server.push(NAME, {**SETTINGS, **WEIGHTS, **UNWANTED})
    folder = Path(hub.model_folder(f"hf:{NAME}"))
    before = model_files(folder)
    snapshot_download(NAME)
    assert (folder / "pytorch_model.bin").is_file() and model_files(folder) == before
    assert before.keys() == {*SETTINGS, *WEIGHTS}


@pytest.mark.guarantee("one-line-errors")
def test_a_model_without_weights_is_refused(server: HubServer) -> None:
    server.push(NAME, {"config.json": b"{}", "model.gguf": b"g"})
    assert "has no weights in safetensors" in refused(f"hf:{NAME}")


def test_weights_in_several_files_are_whole_when_all_are_there(
    server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = {f"model-0000{n}-of-00002.safetensors": b"p" * 1_000 * n for n in (1, 2)}
    index = {"model.safetensors.index.json": json.dumps({"weight_map": dict(zip("ab", parts, strict=True))}).encode()}
    plain = {"config.json": b"{}", "tokenizer.json": b"{}"}
    server.push("owls/large", {**plain, **index, **parts})
    folder = Path(hub.model_folder("hf:owls/large"))
    assert names_in(folder) == {*plain, *index, *parts}
    (folder / max(parts)).unlink()
    offline(monkeypatch)
    assert "`hf download owls/large`" in refused("hf:owls/large")


@pytest.mark.guarantee("no-network")
@pytest.mark.parametrize(
    "name", ["../../escaped.json", "/escaped.json", "1_Pooling/../../../escaped.json", "..\\escaped.json"]
)
def test_an_evil_file_name_is_never_written(name: str, server: HubServer, tmp_path: Path) -> None:
    server.push(NAME, {**SETTINGS, **WEIGHTS, name: b"evil"})
    folder = hub.model_folder(f"hf:{NAME}")
    assert names_in(folder) == {*SETTINGS, *WEIGHTS}
    assert not list(tmp_path.rglob("*escaped*"))
    assert not Path("/escaped.json").exists()


@pytest.mark.guarantee("no-network")
@pytest.mark.parametrize("path", ["../../elsewhere", "/etc", "a/../../b", ".hidden"])
def test_a_module_outside_of_the_model_is_refused(path: str, server: HubServer) -> None:
    modules = [{**MODULES[0], "path": path}]
    server.push(NAME, {**SETTINGS, **WEIGHTS, "modules.json": json.dumps(modules).encode()})
    said = refused(f"hf:{NAME}")
    assert "modules.json" in said and repr(path) in said


def test_a_tokenizer_is_fetched_without_the_weights(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = server.push(NAME, {**SETTINGS, **UNWANTED})
    folder = hub.tokenizer_folder(f"hf:{NAME}")
    assert Path(folder, "tokenizer.json").read_bytes() == b"{}"
    assert not any(name.endswith((".safetensors", ".bin")) for name in server.downloads)
    offline(monkeypatch)
    assert hub.tokenizer_folder(f"hf:{NAME}@{commit}") == folder


def test_the_tokenizer_of_a_model_in_a_module_is_found_there(server: HubServer) -> None:
    modules = [{"idx": 0, "name": "0", "path": "0_Transformer", "type": MODULES[0]["type"]}]
    files = {"modules.json": json.dumps(modules).encode(), "0_Transformer/tokenizer.json": b"{}"}
    commit = server.push("owls/old", files)
    folder = hub.tokenizer_folder("hf:owls/old")
    assert Path(folder).name == "0_Transformer" and Path(folder, "tokenizer.json").is_file()
    assert hub.reference(folder) == f"hf:owls/old@{commit}"


@pytest.mark.guarantee("one-line-errors")
@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("hf:", "is not hf:ORG/NAME"),
        ("hf:owls/all-owls@", "is not hf:ORG/NAME"),
        ("hf:https://huggingface.co/owls/all-owls", "write hf:owls/all-owls"),
        ("hf://owls/all-owls", "write hf:owls/all-owls"),
        ("hf:owls/all-owls/1_Pooling", "write hf:owls/all-owls"),
        ("hf:huggingface.co/owls/all-owls/tree/main", "write hf:owls/all-owls"),
        ("hf:../owls", "is not hf:ORG/NAME"),
        ("hf:owls all", "is not hf:ORG/NAME"),
    ],
)
def test_another_form_is_refused_with_what_to_write(value: str, said: str, server: HubServer) -> None:
    assert said in refused(value)
    assert not server.requests


def test_a_folder_elsewhere_has_no_reference(tmp_path: Path, server: HubServer) -> None:
    folder = tmp_path / "other" / "models--owls--all-owls" / "snapshots" / ("0" * 40)
    folder.mkdir(parents=True)
    assert hub.reference(folder) == str(folder)
    assert hub.hub_record(model=folder) == {}


def test_the_hubs_progress_bars_and_warnings_are_silent_without_a_terminal(
    server: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    commit = server.push(NAME, {**SETTINGS, **WEIGHTS})
    hub.model_folder(f"hf:{NAME}")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"hf:{NAME}@{commit}: fetching it into the cache of the Hugging Face hub\n"


def test_a_repository_without_an_organization_has_a_reference(server: HubServer) -> None:
    commit = server.push("gpt-owl", {"config.json": b"{}", "model.safetensors": b"w"})
    assert hub.reference(hub.model_folder("hf:gpt-owl")) == f"hf:gpt-owl@{commit}"
