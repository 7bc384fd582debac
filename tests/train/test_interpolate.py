"""Weights between those before training and those after it: exact, in a folder that other libraries load."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer

from clearspan.common.checksummed_folder import FolderChangedError, read_manifest
from clearspan.common.encoder.fingerprint import model_files
from clearspan.common.model_folder import EncoderError
from clearspan.train.interpolate import interpolate, is_interpolated, share_of
from clearspan.train.run_folder import ADAPTER, MODEL, check_model
from tests.conftest import ROOT

TEXTS = ["An owl hunts at night.", "Shares fell by two percent."]


@pytest.fixture(scope="module")
def trained(minilm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model before training with other weights, some of them in half precision."""
    folder = tmp_path_factory.mktemp("trained") / "model"
    shutil.copytree(minilm, folder)
    torch.manual_seed(0)
    weights = load_file(folder / "model.safetensors")
    moved = {
        name: (each + 0.02 * torch.randn(each.shape)) if each.is_floating_point() else each
        for name, each in weights.items()
    }
    moved = {name: each.half() if "word_embeddings" in name else each for name, each in moved.items()}
    save_file(moved, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.mark.guarantee("verdict-among-all")
@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
def test_each_weight_lies_between_the_two_by_the_share(
    minilm: Path, trained: Path, share: float, tmp_path: Path
) -> None:
    interpolate(minilm, trained, share, tmp_path / "mixed")
    before, after, mixed = (load_file(folder / "model.safetensors") for folder in (minilm, trained, tmp_path / "mixed"))
    assert mixed.keys() == after.keys()
    for name, tensor in mixed.items():
        if not tensor.is_floating_point():
            assert torch.equal(tensor, after[name])
            continue
        expected = (1 - share) * before[name].double() + share * after[name].double()
        assert tensor.dtype == after[name].dtype
        torch.testing.assert_close(
            tensor.double(),
            expected,
            rtol=1e-6 if tensor.dtype == torch.float32 else 1e-3,
            atol=1e-7 if tensor.dtype == torch.float32 else 1e-4,
        )
    assert (tmp_path / "mixed/tokenizer.json").read_bytes() == (trained / "tokenizer.json").read_bytes()
    assert read_manifest(tmp_path / "mixed", MODEL)[0]["share"] == share == share_of(tmp_path / "mixed")
    assert is_interpolated(tmp_path / "mixed", minilm, trained)
    assert not is_interpolated(tmp_path / "mixed", trained, minilm) and not is_interpolated(minilm, minilm, trained)
    check_model(tmp_path / "mixed")
    vectors = SentenceTransformer(str(tmp_path / "mixed"), device="cpu").encode(TEXTS)
    assert np.isfinite(vectors).all()


@pytest.mark.guarantee("verdict-among-all")
def test_the_ends_are_the_two_models_themselves(minilm: Path, trained: Path, tmp_path: Path) -> None:
    for share, model in ((0, minilm), (1, trained)):
        interpolate(minilm, trained, share, tmp_path / f"{share}")
        assert share_of(tmp_path / f"{share}") == share and share_of(minilm) == 1
        hashes = model_files(tmp_path / f"{share}")
        assert {name: hash for name, hash in hashes.items() if name != "manifest.json"} == model_files(model)
        check_model(tmp_path / f"{share}")


def test_an_adapter_stays_only_beside_the_weights_that_it_gives(minilm: Path, trained: Path, tmp_path: Path) -> None:
    adapted = tmp_path / "adapted"
    shutil.copytree(trained, adapted)
    (adapted / ADAPTER).mkdir()
    (adapted / ADAPTER / "adapter_config.json").write_text("{}")
    for share in (0.5, 1):
        interpolate(minilm, adapted, share, tmp_path / f"{share}")
        assert (tmp_path / f"{share}" / ADAPTER).is_dir() == (share == 1)
        check_model(tmp_path / f"{share}")


def test_a_changed_result_is_noticed(minilm: Path, trained: Path, tmp_path: Path) -> None:
    interpolate(minilm, trained, 0.5, tmp_path / "mixed")
    weights = tmp_path / "mixed/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    with pytest.raises(FolderChangedError, match=r"model\.safetensors"):
        check_model(tmp_path / "mixed")


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_a_share_is_from_0_to_1(minilm: Path, trained: Path, share: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`share`"):
        interpolate(minilm, trained, share, tmp_path / "mixed")
    assert not list(tmp_path.iterdir())


def test_models_of_other_shapes_are_refused_and_nothing_stays(minilm: Path, trained: Path, tmp_path: Path) -> None:
    config = json.loads((minilm / "config.json").read_text())
    smaller = shutil.copytree(minilm, tmp_path / "smaller")
    (smaller / "config.json").write_text(json.dumps(config | {"vocab_size": config["vocab_size"] - 1}))
    weights = load_file(minilm / "model.safetensors")
    name = "embeddings.word_embeddings.weight"
    save_file(weights | {name: weights[name][:-1].contiguous()}, smaller / "model.safetensors", {"format": "pt"})
    with pytest.raises(EncoderError, match=name):
        interpolate(smaller, trained, 0.5, tmp_path / "mixed")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["smaller"]


CARD = """---
library_name: sentence-transformers
model-index:
- name: owls
  results: []
---

# owls

A sentence encoder.
"""


def test_the_card_says_what_the_weights_are_and_keeps_no_scores_for_programs(
    minilm: Path, trained: Path, tmp_path: Path
) -> None:
    model = Path(shutil.copytree(trained, tmp_path / "trained"))
    (model / "README.md").write_text(CARD)
    cards = {}
    for share in (0, 0.25, 1):
        interpolate(minilm, model, share, tmp_path / f"{share}")
        cards[share] = (tmp_path / f"{share}" / "README.md").read_text()
        assert "model-index" not in cards[share] and "library_name" in cards[share] and "# owls" in cards[share]
    assert "0.75 x the weights before training + 0.25 x the trained weights" in cards[0.25]
    assert "Its weights are the weights before training." in cards[0] and "Its weights" not in cards[1]


def test_a_read_only_model_with_other_files_is_copied_without_them(minilm: Path, trained: Path, tmp_path: Path) -> None:
    start = Path(shutil.copytree(minilm, tmp_path / "start"))
    (start / "onnx").mkdir()
    for name in ("pytorch_model.bin", "onnx/model.onnx", ".gitattributes"):
        (start / name).write_text("other weights")
    (start / "dangling.md").symlink_to("nowhere")
    for path in [
        *start.rglob("*.json"),
        *start.rglob("*.safetensors"),
        *(each for each in start.rglob("*") if each.is_dir()),
    ]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    interpolate(start, trained, 0, tmp_path / "mixed")
    names = {path.name for path in (tmp_path / "mixed").rglob("*")}
    assert not names & {"pytorch_model.bin", "onnx", ".gitattributes", "dangling.md"}
    assert all(path.stat().st_mode & 0o200 for path in (tmp_path / "mixed").rglob("*"))
    SentenceTransformer(str(tmp_path / "mixed"), device="cpu").encode(TEXTS)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.5, 1])
def test_a_disk_that_is_full_is_an_os_error_and_nothing_stays(
    minilm: Path, trained: Path, share: float, tmp_path: Path
) -> None:
    program = f"""import resource, signal
from pathlib import Path
from clearspan.train.interpolate import interpolate
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    interpolate(Path({str(minilm)!r}), Path({str(trained)!r}), {share}, Path({str(tmp_path / "out" / "mixed")!r}))
except (OSError, ValueError) as error:
    print(str(error).count(chr(10)), type(error).__name__)
"""
    (tmp_path / "out").mkdir()
    process = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.stdout.startswith("0 ") and process.returncode == 0, process.stderr
    assert not list((tmp_path / "out").iterdir())
