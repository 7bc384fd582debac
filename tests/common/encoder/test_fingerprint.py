"""A model's fingerprint covers everything that affects an embedding."""

import shutil
from pathlib import Path

import pytest

import clearspan.common.encoder.fingerprint
from clearspan.common.encoder.fingerprint import folder_fingerprint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "1_Pooling").mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json", "1_Pooling/config.json"):
        (folder / name).write_text(name)
    return folder


def fingerprint(folder: Path, **settings: str) -> str:
    return folder_fingerprint(folder, [folder, folder / "1_Pooling"], settings)


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "tokenizer.json", "1_Pooling/config.json", "sentence_bert_config.json"]
)
def test_a_file_that_the_model_is_loaded_from_counts(folder: Path, name: str) -> None:
    before = fingerprint(folder)
    (folder / name).write_text("other")
    assert fingerprint(folder) != before


@pytest.mark.parametrize("name", ["README.md", "tf_model.h5", "onnx/model.onnx", ".gitattributes", ".git/HEAD"])
def test_what_only_lies_beside_it_does_not(folder: Path, name: str) -> None:
    before = fingerprint(folder)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("other")
    assert fingerprint(folder) == before


def test_a_copy_elsewhere_has_the_same(folder: Path, tmp_path: Path) -> None:
    assert fingerprint(folder) == fingerprint(shutil.copytree(folder, tmp_path / "copy"))


def test_settings_and_the_libraries_versions_count(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {fingerprint(folder), fingerprint(folder, pooling="cls"), fingerprint(folder, dtype="cls")}
    monkeypatch.setattr(clearspan.common.encoder.fingerprint, "version", lambda name: "1.0")
    assert len(found | {fingerprint(folder)}) == 4


def test_content_that_moves_to_another_file_counts(folder: Path) -> None:
    before = fingerprint(folder)
    (folder / "config.json").rename(folder / "other.json")
    assert fingerprint(folder) != before
