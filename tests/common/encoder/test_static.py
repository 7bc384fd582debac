"""Static models embed as with sentence-transformers, which is not imported, and other folders are left to it."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, StaticEmbedding
from tokenizers import Tokenizer

from clearspan.common.encoder import library, static
from clearspan.common.encoder.folder import load_folder
from clearspan.common.fast_tokenizer import AWKWARD
from clearspan.common.model_folder import EncoderError
from tests.conftest import ROOT
from tests.processes import environment

SETTINGS = {"prompts": {"query": "Find: ", "passage": "Read: "}, "default_prompt_name": "query", "truncate_dim": 10}


MAX_TOKENS = 128


@pytest.fixture(scope="module")
def made(
    shared_data: Path, minilm: Path, roberta_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """Write a folder with a table of random vectors, a real tokenizer and other modules after it."""

    def make(tokenizer: str = "wordpiece", *after: torch.nn.Module) -> Path:
        bert = shared_data / "tokenizers" / "bert-base-uncased"
        folder = {"wordpiece": bert, "truncating": minilm, "bytes": roberta_tokenizer}[tokenizer]
        torch.manual_seed(0)
        table = StaticEmbedding(Tokenizer.from_file(str(folder / "tokenizer.json")), embedding_dim=16)
        path = tmp_path_factory.mktemp("static") / "model"
        SentenceTransformer(modules=[table, *after], device="cpu").save_pretrained(str(path))
        return path

    return make


def configured(folder: Path, **settings: object) -> Path:
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="module")
def texts(shared_data: Path) -> list[str]:
    path = shared_data / "sentences" / "wiki1m_head_11914.txt"
    lines = path.read_text(encoding="utf-8").split("\n")[:500]
    return [*lines, " ".join(lines[:50]), *(text[:500] for text in AWKWARD), "<s>a</s> [MASK] b"]


@pytest.mark.guarantee("embeds-as-the-library")
@pytest.mark.parametrize("settings", [{}, SETTINGS], ids=["plain", "prompts, cut"])
@pytest.mark.parametrize("after", [(), (Normalize(),)], ids=["mean", "unit"])
@pytest.mark.parametrize("tokenizer", ["wordpiece", "truncating", "bytes"])
def test_a_static_folder_encodes_as_its_library_does(
    made: Callable[..., Path],
    texts: list[str],
    tokenizer: str,
    after: tuple[torch.nn.Module, ...],
    settings: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(static, "BLOCK_CHARACTERS", 20_000)
    folder = configured(made(tokenizer, *after), **settings)
    model, theirs = load_folder(folder), SentenceTransformer(str(folder), device="cpu")
    theirs[0].tokenizer.encode_special_tokens = True
    assert isinstance(model, static.StaticEncoder) and model._tokenizer.is_fast is (tokenizer != "truncating")
    assert (model.name, model.dim) == (folder.parent.name, settings.get("truncate_dim", 16))
    embedded = model.embed(texts)
    np.testing.assert_allclose(embedded.vectors, theirs.encode(texts), atol=1e-5)
    whole = Tokenizer.from_str(theirs[0].tokenizer.to_str())
    whole.no_truncation()
    whole.encode_special_tokens = True
    read = [model.prompts.of_side("other") + text for text in texts]
    lengths = [len(each) for each in whole.encode_batch(read, add_special_tokens=False)]
    assert model.most_tokens == (MAX_TOKENS if tokenizer == "truncating" else None)
    assert embedded.truncated.tolist() == [model.most_tokens is not None and each > MAX_TOKENS for each in lengths]
    assert embedded.truncated.any() == (tokenizer == "truncating") and model.encode([]).shape == (0, model.dim)
    if settings:
        others = theirs.encode(texts, prompt_name="passage")
        np.testing.assert_allclose(model.encode(texts, prompt_name="passage"), others, atol=1e-5)
        np.testing.assert_allclose(model.encode_query(texts), theirs.encode_query(texts), atol=1e-5)
        np.testing.assert_allclose(model.encode_document(texts), theirs.encode_document(texts), atol=1e-5)
        assert model.cache_key("Read: ") != model.cache_key("")


@pytest.mark.parametrize("name", [*static.SIMILARITIES, "maxsim"])
def test_the_similarity_is_the_librarys(made: Callable[..., Path], texts: list[str], name: str) -> None:
    folder = configured(made(), similarity_fn_name=name)
    ours, theirs = load_folder(folder), library.load_with_library(folder)
    assert ours.similarity_name == theirs.similarity_name and ours.fingerprint != theirs.fingerprint
    rows = ours.encode(texts[:20])
    np.testing.assert_allclose(
        ours.similarity(rows[:5], rows), theirs.similarity(rows[:5], rows), atol=2e-3 * (name == "euclidean") + 1e-5
    )


@pytest.mark.parametrize("change", ["half", "surplus", "dense", "tokens", "device"])
def test_another_folder_is_left_to_the_library(made: Callable[..., Path], change: str) -> None:
    folder = made("wordpiece", *{"dense": [Dense(16, 8)], "tokens": [Normalize("token_embeddings")]}.get(change, []))
    table = load_file(folder / "model.safetensors") if change in ("half", "surplus") else {}
    if change == "half":
        save_file({"embedding.weight": table["embedding.weight"].half()}, folder / "model.safetensors")
    if change == "surplus":
        save_file({**table, "weights": torch.ones(30522)}, folder / "model.safetensors")
    assert isinstance(load_folder(folder, device="cpu:0" if change == "device" else "cpu"), library.Model)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (torch.full((30522, 16), torch.nan), "embedding.weight holds a NaN or an infinity"),
        (torch.ones(2000, 16), "its tokenizer has 30,522 tokens, and its model 2,000 embeddings"),
        (torch.ones(30000, 16), "id 30,521, but its model has 30,000 embeddings|takes value 30521 which is not"),
        (torch.ones(30522), "no usable model"),
        (None, "no tokenizer here"),
    ],
    ids=["not a number", "another tokenizer", "too few", "no table", "no tokenizer"],
)
def test_a_damaged_folder_is_refused(made: Callable[..., Path], table: torch.Tensor | None, said: str) -> None:
    folder = made()
    last = Tokenizer.from_file(str(folder / "tokenizer.json")).id_to_token(30521).removeprefix("##")
    if table is None:
        (folder / "tokenizer.json").unlink()
    else:
        save_file({"embedding.weight": table}, folder / "model.safetensors")
    for loader in (load_folder, library.load_with_library):
        with pytest.raises(EncoderError, match=said) as error:
            loader(folder).encode(f"a{last}")
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"default_prompt_name": "query"}, "default_prompt_name 'query' is not the name of one of its prompts"),
        ({"truncate_dim": 0}, "truncate_dim must be a positive integer, not 0"),
        ({"truncate_dim": -3}, "truncate_dim must be a positive integer, not -3"),
        ({"truncate_dim": "8"}, "truncate_dim must be a positive integer, not '8'"),
        ({"truncate_dim": True}, "truncate_dim must be a positive integer, not True"),
    ],
)
def test_a_setting_of_the_wrong_type_is_refused(
    made: Callable[..., Path], settings: dict[str, object], said: str
) -> None:
    folder = configured(made(), **settings)
    for loader in (load_folder, library.load_with_library):
        with pytest.raises(EncoderError, match=rf"config_sentence_transformers\.json: {said}"):
            loader(folder)


def test_a_text_that_is_not_utf_8_is_one_line(made: Callable[..., Path]) -> None:
    with pytest.raises(EncoderError, match="cannot encode every text"):
        load_folder(made("bytes")).encode(["An owl.", "\ud800"])


def test_texts_are_tokenized_exactly_where_the_sample_differs(
    made: Callable[..., Path], texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_folder(made("bytes"))
    expected, tokenizer = model.encode(texts), model._tokenizer
    quick = tokenizer.quick
    monkeypatch.setattr(tokenizer, "quick", lambda texts: quick([text.lower() for text in texts]))
    np.testing.assert_array_equal(model.encode(texts), expected)


@pytest.mark.slow
def test_nothing_is_imported_that_a_static_model_does_not_need(
    made: Callable[..., Path], texts: list[str], tmp_path: Path
) -> None:
    """By the commands either, which run in one process here. (ReadOptions shards imports torch.)"""
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts[:50]))
    program = """import sys
from clearspan.pipelines.__main__ import main
folder, model = sys.argv[1:]
assert main(["embed", "--input", f"{folder}/texts.jsonl", "--output", f"{folder}/out", "--model", model]) == 0
print("torch" in sys.modules)
assert main(["search", f"{folder}/out", "--model", model, "--query", "An owl"]) == 0
print(bool({"transformers", "sentence_transformers"} & set(sys.modules)))"""
    words = [sys.executable, "-c", program, str(tmp_path), str(made("bytes"))]
    ended = subprocess.run(words, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert ended.stdout.count("\nFalse\n") == 2, ended.stdout + ended.stderr
