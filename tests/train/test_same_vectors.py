"""An export of a folder whose weights no step has changed gives the folder's vectors, whatever its settings are."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import (
    Dense,
    Normalize,
    Pooling,
    StaticEmbedding,
    Transformer,
    WordWeights,
)
from torch import nn
from transformers import AutoModel, AutoTokenizer, RobertaConfig

from clearspan.common.encoder.library import load_with_library
from clearspan.train.config.options import ModelConfig, Recipe
from clearspan.train.export import save_model
from clearspan.train.model.embedding import encode_texts
from clearspan.train.model.tokenizer import load_tokenizer
from clearspan.train.start.build_encoder import build_encoder
from tests.train.conftest import TINY_MODEL, VOCABULARY

PROMPTS = {"query": "Find: ", "document": "Passage of words: ", "Fund": "Finde, was ähnlich ist: "}
TEXTS = [
    "",
    "An owl.",
    " Another One, of Ünusual words [MASK] and more. ",
    " ".join(f"owl {number}" for number in range(90)),
    "x",
]
MODELS = ("dense", "weighted", "static")


def of_kind(kind: str, folder: Path, tokenizer_folder: Path) -> SentenceTransformer:
    """Return a model with a prompt by default, and with two layers after the pooling, token weights, or a table."""
    torch.manual_seed(0)
    options = {"prompts": PROMPTS, "default_prompt_name": "document", "truncate_dim": 12, "device": "cpu"}
    tokenizer = load_tokenizer(tokenizer_folder)
    if kind == "static":
        table = StaticEmbedding(tokenizer.backend_tokenizer, embedding_dim=32)
        return SentenceTransformer(modules=[table, Normalize()], similarity_fn_name="dot", **options)
    values = [option.removeprefix("model.config.").split("=") for option in TINY_MODEL[2:]]
    config = RobertaConfig(vocab_size=VOCABULARY, pad_token_id=1, **{key: json.loads(value) for key, value in values})
    AutoModel.from_config(config).save_pretrained(folder / "plain")
    tokenizer.save_pretrained(folder / "plain")
    transformer = Transformer(str(folder / "plain"), processor_kwargs={"model_max_length": 40})
    modules: list[nn.Module] = [transformer, Pooling(32, "cls"), Dense(32, 32), Dense(32, 32), Normalize()]
    if kind == "weighted":
        vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda pair: pair[1])
        weights = {token: 1 / (3 + number) for token, number in vocabulary}
        modules = [transformer, WordWeights([token for token, _ in vocabulary], weights), Pooling(32, "mean")]
    return SentenceTransformer(modules=modules, similarity_fn_name="dot", **options)


@pytest.mark.slow
@pytest.mark.guarantee("same-vectors")
@pytest.mark.parametrize("kind", MODELS)
def test_an_export_gives_the_vectors_of_the_folder_with_each_prompt_and_with_none_named(
    kind: str, tokenizer_folder: Path, tmp_path: Path
) -> None:
    shards = tmp_path / "tokenizer"  # states no length; with token weights, the end of a long text is read
    load_tokenizer(tokenizer_folder).save_pretrained(shards)
    (path := shards / "tokenizer_config.json").write_text(
        json.dumps(json.loads(path.read_text()) | {"truncation_side": "left" if kind == "weighted" else "right"})
    )
    of_kind(kind, tmp_path, shards).save_pretrained(str(tmp_path / "given"))
    if kind != "static":  # as earlier versions saved it
        (path := tmp_path / "given" / "sentence_bert_config.json").write_text(
            json.dumps(json.loads(path.read_text()) | {"do_lower_case": True})
        )
    given, out = SentenceTransformer(str(tmp_path / "given"), device="cpu"), tmp_path / "export"
    tokenizer = load_tokenizer(shards)
    encoder = build_encoder(Recipe(output="unused", model=ModelConfig(path=str(tmp_path / "given"))), tokenizer).eval()
    before = encode_texts(encoder, tokenizer, TEXTS)
    for _ in range(2):  # an export leaves the encoder as it is
        save_model(encoder, tokenizer, out, "")
    theirs = SentenceTransformer(str(out), device="cpu", local_files_only=True)
    for name in (None, *PROMPTS):
        expected = given.encode(TEXTS, prompt_name=name)
        np.testing.assert_allclose(theirs.encode(TEXTS, prompt_name=name), expected, atol=1e-6, err_msg=f"{name}")
        assert expected.shape == (len(TEXTS), 12)
    ours = load_with_library(out)
    np.testing.assert_allclose(ours.encode(TEXTS), given.encode(TEXTS), atol=1e-6)
    np.testing.assert_array_equal(encode_texts(encoder, tokenizer, TEXTS), before)
    assert (theirs.prompts, theirs.default_prompt_name, theirs.truncate_dim) == (PROMPTS, "document", 12)
    assert (theirs.similarity_fn_name, theirs.max_seq_length) == ("dot", given.max_seq_length)
    if kind == "static":
        return
    alone, plain = AutoTokenizer.from_pretrained(out), AutoModel.from_pretrained(out, add_pooling_layer=False)
    assert (alone.model_max_length, alone.truncation_side) == (40, tokenizer.truncation_side)
    states = [plain(**alone(text.lower(), truncation=True, return_tensors="pt"))[0] for text in TEXTS]
    library = [theirs[0](theirs.preprocess([text]))["token_embeddings"] for text in TEXTS]
    for found, expected in zip(states, library, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    for (key, value), mine in zip(plain.state_dict().items(), encoder.base.state_dict().values(), strict=True):
        assert torch.equal(value, mine) and value.dtype == torch.float32, key
