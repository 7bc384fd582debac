"""A model's fingerprint covers everything that affects an embedding."""

import json
from pathlib import Path

import pytest

import clearspan.common.encoder.fingerprint
from clearspan.common.encoder.fingerprint import folder_fingerprint

PATHS = ("", "1_Pooling")
"""Folders of the model's modules."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "1_Pooling").mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json", "1_Pooling/config.json"):
        (folder / name).write_text(name)
    modules = [{"name": str(n), "type": "sentence_transformers.models.Any", "path": p} for n, p in enumerate(PATHS)]
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def fingerprint(folder: Path, **settings: str) -> str:
    return folder_fingerprint(folder, settings)


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


def test_settings_and_the_libraries_versions_count(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {fingerprint(folder), fingerprint(folder, pooling="cls"), fingerprint(folder, dtype="cls")}
    monkeypatch.setattr(clearspan.common.encoder.fingerprint, "version", lambda name: "1.0")
    assert len(found | {fingerprint(folder)}) == 4
    monkeypatch.setattr(clearspan.common.encoder.fingerprint, "TOKENIZATION", "0")
    assert fingerprint(folder) not in found, "of ids that another version of this project makes"
