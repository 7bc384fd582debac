"""Exports for ONNX Runtime and OpenVINO: equal vectors, int8 near them, and what is refused."""

import functools
import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clearspan.cli.main import main
from clearspan.common.encoder.folder import load_folder
from clearspan.common.encoder.library import load_with_library
from clearspan.common.errors import PipelineError
from clearspan.retrieval.retrieval_set import RetrievalSet
from clearspan.train import runtimes
from clearspan.train.export import export_folder
from clearspan.train.runtimes import Formats, add_formats, cosine_distances, embed, runner, sample_texts, summary
from tests.conftest import exit_code
from tests.train.conftest import prepare
from tests.train.test_portable import CONFIGS, TEXTS


@pytest.fixture(scope="module", params=["bert", "mean"])
def model(request: pytest.FixtureRequest, shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A transformer of two layers with random weights, as a sentence-transformers folder with pooling and Normalize."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import AutoConfig, AutoModel

    folder = tmp_path_factory.mktemp(request.param)
    name = {"bert": "bert-base-uncased", "mean": "roberta-base"}[request.param]
    shutil.copytree(shared_data / "tokenizers" / name, folder / "plain")
    config = dict(CONFIGS[request.param])
    vocabulary = len(json.loads((folder / "plain/tokenizer.json").read_text())["model"]["vocab"])
    torch.manual_seed(0)
    made = AutoModel.from_config(AutoConfig.for_model(**{**config, "vocab_size": vocabulary}))
    made.save_pretrained(folder / "plain")
    transformer = Transformer(str(folder / "plain"), processor_kwargs={"model_max_length": 64})
    modules = [transformer, Pooling(32, "mean"), Normalize()]
    dim = 16 if request.param == "mean" else None
    SentenceTransformer(modules=modules, device="cpu", truncate_dim=dim).save_pretrained(str(folder / "model"))
    return folder / "model"


@functools.cache
def held_out() -> RetrievalSet:
    """Docstrings, which their last four words ask for."""
    documents = sample_texts()
    asked = [" ".join(text.split()[-4:]) for text in documents]
    rows = [np.array([number], np.int64) for number in range(len(documents))]
    return RetrievalSet(documents, asked, rows, [np.ones(1, np.int64)] * len(rows))


@pytest.fixture(scope="module")
def exported(model: Path) -> tuple[Path, list[runtimes.FormatFigures]]:
    pytest.importorskip("onnxscript")
    pytest.importorskip("openvino")
    folder = model.parent / "exported"
    return folder, export_folder(model, folder, Formats(onnx=True, openvino=True, int8=True), held_out())


@pytest.mark.exhaustive
@pytest.mark.guarantee("same-vectors")
def test_fp32_gives_the_vectors_of_the_model_and_int8_vectors_near_them(
    exported: tuple[Path, list[runtimes.FormatFigures]], model: Path
) -> None:
    folder, figures = exported
    layers = list(load_with_library(folder).modules)
    expected = load_folder(model).encode(TEXTS)
    dim = expected.shape[1]
    np.testing.assert_array_equal(load_folder(folder).encode(TEXTS), expected)
    for name in ("onnx/model.onnx", "openvino/openvino_model.xml"):
        np.testing.assert_allclose(embed(layers, runner(folder / name), TEXTS)[:, :dim], expected, atol=1e-5)
    for name in ("onnx/model_qint8.onnx", "openvino/openvino_model_qint8.xml"):
        distances = cosine_distances(embed(layers, runner(folder / name), TEXTS)[:, :dim], expected)
        assert 0 < distances.max() < 0.05
    by_name = {each.name: each for each in figures}
    assert [*by_name] == ["model.safetensors", *Formats(onnx=True, openvino=True, int8=True).files]
    assert by_name["onnx/model.onnx"].max_distance < 1e-6 < by_name["onnx/model_qint8.onnx"].mean_distance
    assert by_name["onnx/model_qint8.onnx"].num_bytes < 0.4 * by_name["onnx/model.onnx"].num_bytes
    assert all(each.texts_per_s > 0 for each in figures)
    texts = held_out()
    vectors = [load_with_library(folder).modules.encode(list(each)) for each in (texts.queries, texts.documents)]
    queries, documents = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in vectors)
    scores = queries @ documents.T
    expected_mrr = 100 * np.mean(1 / (scores >= np.diag(scores)[:, None] - 1e-9).sum(axis=1))
    for name in ("model.safetensors", "onnx/model.onnx", "openvino/openvino_model.xml"):
        assert by_name[name].mrr == pytest.approx(expected_mrr, abs=0.5)
    assert all(0 < (each.mrr or 0) <= 100 for each in figures)
    assert f"MRR of {len(texts.queries)} held-out texts among {len(texts.documents)}" in summary(figures, texts)


@pytest.mark.exhaustive
def test_a_signal_after_two_models_ran_does_no_harm(exported: tuple[Path, list[runtimes.FormatFigures]]) -> None:
    code = """
import faulthandler, pathlib, signal, sys
from clearspan.train.runtimes import runner
faulthandler.enable()
first, second = (runner(pathlib.Path(sys.argv[1])) for _ in range(2))
del first
del second
signal.signal(signal.SIGCHLD, lambda *_: print("told"))
signal.raise_signal(signal.SIGCHLD)
"""
    command = [sys.executable, "-c", code, str(exported[0] / "openvino/openvino_model.xml")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "told\n"), done.stderr


@pytest.mark.exhaustive
def test_the_command_prints_the_figures_and_replaces_only_an_export(
    model: Path,
    roberta_tokenizer: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("openvino")
    rows = [{"title": text.partition("\n")[0], "text": text.partition("\n")[2]} for text in sample_texts()]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    line = ["pairs", "--input", tmp_path / "rows.jsonl", "--fields", "title,text", "--holdout-fraction", "0.8"]
    prepare(*line, "--tokenizer", roberta_tokenizer, "--output", tmp_path / "pairs")
    looked_up: list[Any] = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *words, **_: looked_up.append(words) or [])
    words = ["export", str(model), str(tmp_path / "out"), "--openvino", "--data", str(tmp_path / "pairs")]
    assert exit_code(main, *words) == 0
    printed = capsys.readouterr().out
    assert "openvino/openvino_model.xml" in printed and "cosine distance from safetensors" in printed
    assert "held-out texts among" in printed
    assert not (tmp_path / "out" / "onnx").exists()
    assert not looked_up, "OpenVINO comes with telemetry"
    (tmp_path / "out" / "config.json").write_text("{}")
    assert exit_code(main, *words) == 1
    assert "holds something other than an unchanged export" in capsys.readouterr().err


@pytest.mark.guarantee("one-line-errors")
@pytest.mark.usefixtures("command_line")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--int8"], "--int8 has no effect without --onnx or --openvino"),
        (["--data", "texts"], "--data has no effect without --onnx or --openvino"),
        (["--onnx", "--checkpoint", "last"], "--checkpoint has no effect"),
    ],
)
def test_options_without_effect_are_refused(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(main, "export", str(tmp_path), str(tmp_path / "out"), *words) == 2
    assert said in capsys.readouterr().err


@pytest.mark.guarantee("one-line-errors")
def test_a_model_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxscript")
    assert exit_code(main, "export", str(tmp_path / "nowhere"), str(tmp_path / "out"), "--onnx") != 0
    said = capsys.readouterr().err
    assert "nowhere: no such folder" in said and said.count("\n") == 1


@pytest.mark.guarantee("one-line-errors")
@pytest.mark.parametrize(
    ("formats", "missing", "said"),
    [
        (Formats(onnx=True), "onnxscript", r"writing ONNX needs onnxscript: .*'\.\[onnx\]'"),
        (Formats(openvino=True), "openvino", r"writing for OpenVINO needs openvino: .*'\.\[openvino\]'"),
    ],
)
def test_a_package_that_is_not_installed_is_one_line(
    formats: Formats, missing: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else object())
    with pytest.raises(PipelineError, match=said):
        formats.check()


@pytest.mark.guarantee("one-line-errors")
def test_a_static_model_has_nothing_to_write(shared_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(shared_data / "tokenizers/bert-base-uncased/tokenizer.json"))
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=8)], device="cpu").save(str(tmp_path))
    with pytest.raises(ValueError, match="StaticEmbedding has no transformer"):
        add_formats(tmp_path, Formats(onnx=True))


def test_the_compared_texts_are_of_mixed_lengths_and_the_same_each_time() -> None:
    texts = sample_texts()
    assert len(texts) == runtimes.NUM_TEXTS and texts == sample_texts()
    assert len(texts[0]) < 80 and len(texts[-1]) > 1_000
    code = "from clearspan.train.runtimes import sample_texts; print(len(sample_texts()))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == str(runtimes.NUM_TEXTS)
