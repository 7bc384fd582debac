"""Special tokens that a text spells out are text for an encoder too, unless a prompt of the model spells out one."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer

from clearspan.common.encoder import library
from clearspan.common.encoder.folder import load_folder

TEXT = "An owl [SEP] hunts [MASK] by ear [CLS]"


@pytest.fixture(scope="module", params=["transformer", "static", "static in the library"])
def model(
    request: pytest.FixtureRequest, minilm: Path, shared_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Callable]:
    """A folder, and the function that loads it."""
    folder = tmp_path_factory.mktemp("models") / "model"
    if request.param == "transformer":
        shutil.copytree(minilm, folder)
    else:
        torch.manual_seed(0)
        tokenizer = Tokenizer.from_file(str(shared_data / "tokenizers" / "bert-base-uncased" / "tokenizer.json"))
        modules = [StaticEmbedding(tokenizer, embedding_dim=16)]
        SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(folder))
    return folder, load_folder if request.param == "static" else library.load_with_library


@pytest.mark.guarantee("special-tokens-are-text")
@pytest.mark.slow
def test_a_text_with_special_tokens_is_embedded_as_text(model: tuple[Path, Callable]) -> None:
    """BERT lower-cases text, but not special tokens: as text, `[SEP]` is `[sep]`."""
    folder, loading = model
    ours, theirs = loading(folder), SentenceTransformer(str(folder), device="cpu")
    np.testing.assert_allclose(ours.encode([TEXT]), theirs.encode([TEXT.lower()]), atol=1e-5)
    assert np.abs(ours.encode([TEXT]) - theirs.encode([TEXT])).max() > 1e-3


@pytest.mark.guarantee("special-tokens-are-text")
@pytest.mark.slow
def test_a_prompt_with_a_special_token_works_as_in_the_library(model: tuple[Path, Callable], tmp_path: Path) -> None:
    folder, loading = shutil.copytree(model[0], tmp_path / "model"), model[1]
    settings = {"prompts": {"query": "[MASK] find: "}, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    ours, theirs = loading(folder), SentenceTransformer(str(folder), device="cpu")
    np.testing.assert_allclose(ours.encode(["An owl"]), theirs.encode(["An owl"]), atol=1e-5)
    assert np.abs(ours.encode(["An owl"]) - theirs.encode(["An owl"], prompt="[mask] find: ")).max() > 1e-3
