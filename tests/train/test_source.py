"""Training on from a folder: what its model did besides its weights is kept, and the export does it again."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

from clearspan.train.config.options import RecipeError
from clearspan.train.export import save_model
from clearspan.train.model.embedding import encode_texts
from clearspan.train.model.encoder import TrainableEncoder
from clearspan.train.model.tokenizer import load_tokenizer
from clearspan.train.recipe import load_recipe
from clearspan.train.start.build_encoder import build_encoder

TEXTS = ["", "A short one.", "An Owl of the northern woods hunts by ear, at night and in snow.", "owl " * 300]


def trained_on(folder: Path, *overrides: str) -> TrainableEncoder:
    given = ["data.text.path=d", "output=o", f"model.path={folder}", "model.pooling=null", *overrides]
    encoder = build_encoder(load_recipe("mlm-only", given), load_tokenizer(folder))
    encoder.drop_mlm_head()
    return encoder


def exported(encoder: TrainableEncoder, source: Path, folder: Path) -> SentenceTransformer:
    save_model(encoder, load_tokenizer(source), folder, "")
    return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


@pytest.fixture
def rich(minilm: Path, tmp_path: Path) -> Path:
    """all-MiniLM-L6-v2 pooled by its first token, with a Dense module, prompts and cut dimensions."""
    torch.manual_seed(0)
    modules = [Transformer(str(minilm)), Pooling(384, "cls"), Dense(384, 384), Normalize()]
    prompts = {"query": "Find: ", "document": ""}
    model = SentenceTransformer(modules=modules, device="cpu", prompts=prompts, default_prompt_name="query")
    model.truncate_dim = 64
    model.save_pretrained(str(tmp_path / "rich"))
    return tmp_path / "rich"


@pytest.mark.slow
def test_another_pooling_is_the_recipes_word_and_said(rich: Path) -> None:
    encoder = trained_on(rich, "model.pooling=mean")
    assert encoder.pooling == "mean"
    assert encoder.notes == [f"model.path {rich}: has cls pooling, this run uses mean"]


@pytest.mark.exhaustive
def test_a_pooling_that_cannot_be_trained_is_named(minilm: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(minilm, tmp_path / "model")
    (folder / "1_Pooling" / "config.json").write_text('{"word_embedding_dimension": 384, "pooling_mode": "max"}')
    with pytest.raises(RecipeError, match="pooling 'max' is not one of mean, cls"):
        trained_on(folder)
    assert trained_on(folder, "model.pooling=mean").pooling == "mean"


@pytest.mark.exhaustive
def test_a_head_is_drawn_anew_by_the_seed_where_the_folder_has_none(minilm: Path, rich: Path, tmp_path: Path) -> None:
    heads = [trained_on(minilm, "model.head=tanh", f"training.seed={seed}").head for seed in (1, 1, 2)]
    first, same, other = (head[0].linear.weight for head in heads)
    assert torch.equal(first, same) and not torch.equal(first, other)
    assert len(trained_on(rich, "model.head=tanh").head) == 1
    encoder = trained_on(minilm, "model.head=tanh")
    ours = encode_texts(encoder, load_tokenizer(minilm), TEXTS)
    np.testing.assert_allclose(exported(encoder, minilm, tmp_path / "model").encode(TEXTS), ours, atol=1e-5)
    modules = json.loads((tmp_path / "model" / "modules.json").read_text())
    assert [one["type"].rsplit(".")[-1] for one in modules] == ["Transformer", "Pooling", "Dense", "Normalize"]


@pytest.mark.slow
def test_modules_that_training_cannot_keep_are_refused(minilm: Path, tmp_path: Path) -> None:
    for number, (after, named) in enumerate(
        (
            ([Normalize(), Dense(384, 384)], "not Transformer, Pooling, Normalize, Dense"),
            ([Dense(384, 64)], "not Transformer, Pooling, Dense"),
        )
    ):
        folder = tmp_path / str(number)
        modules = [Transformer(str(minilm)), Pooling(384), *after]
        SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(folder))
        with pytest.raises(RecipeError, match=named):
            trained_on(folder)
