"""A model of the hub, `hf:ORG/NAME[@REVISION]`, at each door: commands, recipes, and functions of Python."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from huggingface_hub import constants

import clearspan
from clearspan.adapt.options import Adapt
from clearspan.cli.main import main
from clearspan.common import hub
from clearspan.common.errors import PipelineError
from clearspan.pipelines.builders.vectors import Vectors
from clearspan.shards.manifest import Manifest
from clearspan.train.config.options import RecipeError
from clearspan.train.recipe import load_recipe, pinned, stated, to_yaml
from tests.conftest import ROOT, exit_code
from tests.hub_server import HubServer, files_in

NAME = "owls/static-owls"
TEXTS = ["Owls hunt at night.", "A barn owl hears a mouse under the snow.", "Finches eat seeds.", "The sea is deep."]


@pytest.fixture(scope="module")
def model_files(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A static model of random vectors: a real sentence-transformers folder, which needs no torch."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    folder = tmp_path_factory.mktemp("static") / "model"
    tokenizer = Tokenizer.from_file(str(shared_data / "tokenizers/bert-base-uncased/tokenizer.json"))
    torch.manual_seed(0)
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=8)], device="cpu").save(str(folder))
    return files_in(folder)


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("texts.txt").write_text("\n".join(TEXTS) + "\n")
    return Path("texts.txt")


def embed(*more: str, output: str = "vectors", model: str = f"hf:{NAME}") -> int:
    words = [
        "--input",
        "texts.txt",
        "--text-per",
        "line",
        "--output",
        output,
        "--model",
        model,
        "--keep-text",
        "--quiet",
    ]
    return exit_code(main, "embed", *words, *more)


@pytest.mark.usefixtures("texts")
def test_vectors_of_a_model_of_the_hub_name_its_commit_and_are_searched_with_it(
    hub_server: HubServer, model_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = hub_server.push(NAME, model_files)
    assert embed() == 0
    fingerprint = Manifest.load("vectors").fingerprint
    assert fingerprint["hub"] == {"model": f"hf:{NAME}@{commit}"}
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub_server.requests.clear()
    found = [
        clearspan.search("vectors", TEXTS[1], f"hf:{NAME}")[0].text,
        clearspan.open_collection("vectors", f"hf:{NAME}").search(TEXTS[1])[0].text,
        clearspan.open_collection("vectors", f"hf:{NAME}@{commit}").search(TEXTS[1])[0].text,
    ]
    assert found == [TEXTS[1]] * 3 and not hub_server.requests


@pytest.mark.usefixtures("texts")
def test_the_same_model_from_a_folder_gives_the_same_hash(
    hub_server: HubServer, model_files: dict[str, bytes], tmp_path: Path
) -> None:
    hub_server.push(NAME, {**model_files, "README.md": b"# Owls", "train.py": b"1 / 0"})
    for name, data in model_files.items():
        (tmp_path / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / name).write_bytes(data)
    assert embed() == embed(output="others", model="folder") == 0
    from_hub, from_folder = (Manifest.load(name).fingerprint for name in ("vectors", "others"))
    assert from_hub["options"]["model"] == from_folder["options"]["model"]
    assert "hub" not in from_folder
    assert clearspan.search("others", TEXTS[0], f"hf:{NAME}")[0].text == TEXTS[0]


@pytest.mark.guarantee("no-network")
@pytest.mark.usefixtures("texts")
def test_a_branch_that_moved_to_the_same_files_goes_on_with_the_recorded_commit(
    hub_server: HubServer, model_files: dict[str, bytes]
) -> None:
    commit = hub_server.push(NAME, model_files)
    assert embed() == 0
    before = Path("vectors/manifest.json").read_bytes()
    hub_server.push(NAME, {**model_files, "README.md": b"# The same owls"})
    assert embed() == 0
    assert Path("vectors/manifest.json").read_bytes() == before
    with Path("texts.txt").open("a") as file:
        file.write("An eagle owl calls.\n")
    assert embed("--update") == 0
    assert Manifest.load("vectors").fingerprint["hub"] == {"model": f"hf:{NAME}@{commit}"}


@pytest.mark.guarantee("no-network")
@pytest.mark.usefixtures("texts")
def test_a_branch_that_moved_to_other_weights_is_refused(
    hub_server: HubServer, model_files: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    commit = hub_server.push(NAME, model_files)
    assert embed() == 0
    weights = next(name for name in model_files if name.endswith("model.safetensors"))
    other = bytearray(model_files[weights])
    other[-1] ^= 64
    hub_server.push(NAME, {**model_files, weights: bytes(other)})
    capsys.readouterr()
    for more in ((), ("--update",)):
        assert embed(*more) == 1
        assert "vectors" in capsys.readouterr().err.splitlines()[-1]
    with pytest.raises(PipelineError, match="not the model that made these vectors"):
        clearspan.search("vectors", TEXTS[0], f"hf:{NAME}")
    assert clearspan.search("vectors", TEXTS[0], f"hf:{NAME}@{commit}")[0].text == TEXTS[0]


@pytest.mark.usefixtures("texts")
def test_a_tokenizer_of_the_hub_is_recorded_and_its_weights_stay_there(
    hub_server: HubServer, model_files: dict[str, bytes]
) -> None:
    commit = hub_server.push(NAME, model_files)
    words = ["--input", "texts.txt", "--text-per", "line", "--min-tokens", "1", "--output", "documents", "--quiet"]
    assert exit_code(main, "documents", *words, "--tokenizer", f"hf:{NAME}") == 0
    assert Manifest.load("documents").fingerprint["hub"] == {"tokenizer": f"hf:{NAME}@{commit}"}
    assert not any(name.endswith(".safetensors") for name in hub_server.downloads)


def test_pairs_take_the_prompts_of_a_tokenizer_of_the_hub_and_are_mined_with_its_model(
    hub_server: HubServer, model_files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = json.loads(model_files["config_sentence_transformers.json"])
    settings["prompts"] = {"query": "query: ", "document": "passage: "}
    prompted = {**model_files, "config_sentence_transformers.json": json.dumps(settings).encode()}
    commit = hub_server.push(NAME, prompted)
    rows = [{"title": f"owl {n}", "text": f"{TEXTS[n % 4]} Number {n}."} for n in range(12)]
    Path("pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["--input", "pairs.jsonl", "--fields", "title,text", "--min-tokens", "1", "--output", "pairs", "--quiet"]
    assert exit_code(main, "pairs", *words, "--tokenizer", f"hf:{NAME}") == 0
    assert Manifest.load("pairs").prompts == {"tokens": "query: ", "positive": "passage: "}
    words = ["pairs", "--output", "mined", "--negatives", "2", "--quiet"]
    assert exit_code(main, "mine", *words, "--model", f"hf:{NAME}") == 0
    made_of = {"tokenizer": f"hf:{NAME}@{commit}", "mining": f"hf:{NAME}@{commit}"}
    assert Manifest.load("mined").fingerprint["hub"] == made_of
    before = Path("mined/manifest.json").read_bytes()
    hub_server.push(NAME, {**prompted, "README.md": b"# The same owls"})
    assert exit_code(main, "mine", *words, "--model", f"hf:{NAME}") == 0
    assert Path("mined/manifest.json").read_bytes() == before


@pytest.mark.slow
def test_scores_name_the_commit_and_the_model(
    hub_server: HubServer, model_files: dict[str, bytes], tmp_path: Path
) -> None:
    commit = hub_server.push(NAME, model_files)
    rows = [f"{first},{second},{n}\n" for n, (first, second) in enumerate(zip(TEXTS, TEXTS[::-1], strict=True))]
    (tmp_path / "pairs.csv").write_text("text1,text2,score\n" + "".join(rows))
    models = [f"hf:{NAME}", f"hybrid:hf:{NAME}@{commit}"]
    words = [word for model in models for word in ("--model", model)]
    more = ["--pairs", str(tmp_path / "pairs.csv"), "--output", str(tmp_path / "scores"), "--cache", "none", "--quiet"]
    exit_code(main, "eval", *words, *more)
    results = json.loads((tmp_path / "scores" / "static-owls" / "results.json").read_text())
    assert (results["model"], results["spec"]) == ("static-owls", f"hf:{NAME}@{commit}")
    assert f"the model hf:{NAME}@{commit}" in (tmp_path / "scores" / "report.html").read_text()


def test_a_model_of_the_hub_embeds_from_python(hub_server: HubServer, model_files: dict[str, bytes]) -> None:
    hub_server.push(NAME, model_files)
    vectors = clearspan.load_model(f"hf:{NAME}").encode(TEXTS)
    assert vectors.shape == (len(TEXTS), 8) and np.isfinite(vectors).all()


def test_distill_takes_a_tokenizer_of_the_hub(
    hub_server: HubServer, model_files: dict[str, bytes], tmp_path: Path
) -> None:
    hub_server.push(NAME, model_files)
    words = ["--tokenizer", f"hf:{NAME}", "--dims", "8", "--output", str(tmp_path / "static")]
    assert exit_code(main, "distill", *words) == 0
    assert clearspan.load_model(tmp_path / "static").encode(TEXTS[:1]).shape == (1, 8)


@pytest.mark.guarantee("no-network")
@pytest.mark.parametrize("key", ["model.path", "model.distill", "data.images.modality.path"])
def test_a_recipe_states_the_commit_of_each_model_and_reads_its_folder(
    key: str, hub_server: HubServer, model_files: dict[str, bytes]
) -> None:
    commit = hub_server.push(NAME, model_files)
    name, keys = {
        "model.path": ("pairs", []),
        "model.distill": ("static", ["model.init=distill"]),
        "data.images.modality.path": ("visualcse-bert-base", ["model.path=BERT", "data.images.path=images"]),
    }[key]
    recipe = load_recipe(name, ["output=run", "data.text.path=shards", *keys, f"{key}=hf:{NAME}"])
    assert pinned(recipe) == [f"{key}=hf:{NAME}@{commit}"]
    content = stated(recipe)
    for part in key.split("."):
        content = content[part]
    assert content == f"hf:{NAME}@{commit}"
    hub_server.push(NAME, {**model_files, "README.md": b"# Moved"})
    hub_server.requests.clear()
    assert load_recipe(json.dumps(yaml.safe_load(to_yaml(recipe)))) == recipe
    assert hub.model_folder(f"hf:{NAME}@{commit}") in str(recipe)
    assert not hub_server.requests


@pytest.mark.guarantee("one-line-errors")
def test_a_recipe_names_the_key_of_a_model_that_does_not_exist(hub_server: HubServer) -> None:
    with pytest.raises(RecipeError, match=r"^model\.path: hf:owls/none: no such model on the hub"):
        load_recipe("pairs", ["output=run", "data.text.path=shards", "model.path=hf:owls/none"])
    assert hub_server.requests


@pytest.mark.guarantee("one-line-errors")
@pytest.mark.parametrize(
    "words",
    [
        ["embed", "--input", "texts.txt", "--model", "hf:owls/none", "--output", "out"],
        ["documents", "--input", "texts.txt", "--tokenizer", "hf:owls/none", "--output", "out"],
        ["search", "vectors", "owls", "--model", "hf:owls/none"],
        ["mine", "pairs", "--model", "hf:owls/none", "--output", "out"],
        ["distill", "--model", "hf:owls/none", "--output", "out"],
        ["eval", "--model", "hybrid:hf:owls/none", "--pairs", "pairs.csv", "--output", "out"],
        ["adapt", "--input", "texts.txt", "--model", "static:hf:owls/none", "--output", "out"],
    ],
    ids=lambda words: words[0],
)
@pytest.mark.usefixtures("texts", "hub_server")
def test_each_command_names_a_model_that_does_not_exist_in_one_line(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("pairs.csv").write_text("a,b,1\n")
    assert exit_code(main, *words) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1 and "hf:owls/none: no such model on the hub" in printed
    assert not Path("out").exists()


@pytest.mark.usefixtures("texts")
def test_options_hold_the_folder_and_fetch_nothing_when_they_are_made_again(
    hub_server: HubServer, model_files: dict[str, bytes], tmp_path: Path
) -> None:
    import dataclasses

    commit = hub_server.push(NAME, model_files)
    builder = Vectors(model=f"hf:{NAME}")
    assert builder.model == str(tmp_path / "hub" / "models--owls--static-owls" / "snapshots" / commit)
    options = Adapt(inputs=("texts.txt",), output=tmp_path / "adapted", model=f"static:hf:{NAME}")
    assert options.model == f"static:{builder.model}"
    hub_server.requests.clear()
    assert dataclasses.replace(builder, keep_text=True).model == builder.model
    assert dataclasses.replace(options, dry_run=True).encoder == Path(builder.model)
    assert not hub_server.requests


def command(words: list[str], folder: Path, server: HubServer, **more: str) -> subprocess.CompletedProcess[str]:
    """Run `clearspan WORDS` in a process of its own, which asks this server."""
    variables = {
        "HF_ENDPOINT": server.url,
        "HF_HOME": str(folder / "hf"),
        "HF_HUB_OFFLINE": "0",
        "PYTHONPATH": str(ROOT),
    }
    line = [sys.executable, "-m", "clearspan", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables, **more}
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=400)


@pytest.mark.guarantee("no-network")
@pytest.mark.exhaustive
def test_workers_of_a_run_and_stages_of_adapt_fetch_nothing(
    hub_server: HubServer, model_files: dict[str, bytes], tmp_path: Path
) -> None:
    """Each command asks the hub once, before its work; a later call stays on the commit of the first."""
    commit = hub_server.push(NAME, model_files)
    ends = [f"Text {n} of the owls {n * 7} {n * 13}." for n in range(900)]
    rows = [f"{n},owl {n} {TEXTS[n % 4][:8]},{TEXTS[n % 4]} {end}\n" for n, end in enumerate(ends)]
    (tmp_path / "texts.csv").write_text("id,title,text\n" + "".join(rows))
    words = ["embed", "--input", "texts.csv", "--output", "vectors", "--model", f"hf:{NAME}", "--num-workers", "2"]
    ended = command([*words, "--keep-text", "--unit-bytes", "20000"], tmp_path, hub_server)
    assert ended.returncode == 0, ended.stderr
    weights = next(name for name in model_files if name.endswith("model.safetensors"))
    assert hub_server.downloads.count(weights) == 1
    assert sum("/revision/" in each for each in hub_server.requests) == 1
    hub_server.requests.clear()
    words = ["adapt", "--input", "texts.csv", "--model", f"hf:{NAME}", "--output", "adapted"]
    words += ["--holdout-fraction", "0.4", "training.max_steps=4"]
    ended = command(words, tmp_path, hub_server)
    assert ended.returncode == 0, ended.stderr
    assert [each for each in hub_server.requests if NAME in each] == [f"GET /api/models/{NAME}/revision/main"]
    record = (tmp_path / "adapted" / "adapt.json").read_text()
    assert f"hf:{NAME}@{commit}" in record and str(tmp_path / "hf") not in record
    recipe = yaml.safe_load((tmp_path / "adapted" / "run" / "recipe.yaml").read_text())
    assert recipe["model"]["path"] == f"hf:{NAME}@{commit}"
    front = (tmp_path / "adapted" / "run" / "model" / "README.md").read_text()
    assert f"base_model: {NAME}" in front and f"from `hf:{NAME}@{commit}`" in front
    hub_server.push(NAME, {**model_files, "README.md": b"# The same owls"})
    again = command(words, tmp_path, hub_server)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "adapted" / "adapt.json").read_text() == record
    weights_of_others = {**model_files, weights: model_files[weights][:-4] + b"\0\0\0\x3f"}
    hub_server.push(NAME, weights_of_others)
    refused = command(words, tmp_path, hub_server)
    assert refused.returncode == 2
    assert f"with which adapted/adapt.json was made, hf:{NAME}@{commit}: name that one" in refused.stderr
    offline = command([*words[:4], f"hf:{NAME}@{commit}", *words[5:]], tmp_path, hub_server, HF_HUB_OFFLINE="1")
    assert offline.returncode == 0, offline.stderr
