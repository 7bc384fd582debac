"""A static encoder: token vectors that are averaged, trained by every pooled objective, exported as StaticEmbedding."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, StaticEmbedding
from tokenizers import Tokenizer
from transformers import AutoModel

from clearspan.common.encoder.library import load_with_library
from clearspan.train.config.options import ALL, RecipeError
from clearspan.train.export import _trained
from clearspan.train.model.embedding import encode_texts
from tests.train.conftest import TINY_MODEL
from tests.train.ranks import train_alone
from tests.train.runs import last_weights
from tests.train.test_learner import learner_and_batch, pretrained, step

STATIC = ["model.config=null", "model.config.model_type=static", "model.config.hidden_size=24"]
RATE = ["optimizer.learning_rate=0.1", "optimizer.weight_decay=0", "objectives.mlm=null"]


@pytest.fixture(scope="module")
def static(tiny: list[str]) -> list[str]:
    """Overrides that train a table of weighted vectors on spans."""
    return [*(o for o in tiny if o not in TINY_MODEL), *STATIC, "model.config.weights=true", *RATE]


@pytest.fixture(scope="module")
def run(static: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("runs") / "run"
    train_alone(*static, "training.save_steps=3", f"output={output}")
    return output


@pytest.fixture(scope="module")
def sample(texts: list[str]) -> list[str]:
    """1,000 pieces of the language reference of all lengths, and texts that nothing is left of."""
    pieces = [
        text[start : start + size]
        for text in texts
        for start in range(0, 4000, 700)
        for size in (20, 90, 400, 2000, 9000)
    ]
    return ["", " ", *dict.fromkeys(filter(None, pieces))][:1000]


@pytest.mark.exhaustive
def test_the_export_is_a_static_embedding_that_gives_what_training_and_evaluation_give(
    run: Path, sample: list[str]
) -> None:
    model = SentenceTransformer(str(run / "model"), device="cpu", local_files_only=True)
    assert [type(module) for module in model] == [StaticEmbedding]
    encoder, tokenizer, _ = _trained(run, last_weights(run))
    ours, theirs = encode_texts(encoder, tokenizer, sample), model.encode(sample)
    assert len(sample) == 1000 and theirs.std() > 0.01
    np.testing.assert_allclose(ours, theirs, atol=1e-6, rtol=1e-6)
    np.testing.assert_allclose(load_with_library(run / "model").encode(sample), theirs, atol=1e-6, rtol=1e-6)
    assert not ours[0].any() and not theirs[0].any()


def test_a_static_export_does_not_load_in_transformers_as_its_card_says(run: Path) -> None:
    assert "loads in sentence-transformers (since 3.2) and in model2vec" in (run / "model" / "README.md").read_text()
    with pytest.raises((OSError, ValueError)):
        AutoModel.from_pretrained(run / "model", local_files_only=True)


def test_weights_are_trained_and_folded_into_the_exported_table(run: Path) -> None:
    encoder, _, _ = _trained(run, last_weights(run))
    table = encoder.base.embeddings
    assert table.scale.std() > 0.01
    exported = load_file(run / "model" / "model.safetensors")
    assert exported.keys() == {"embedding.weight"}
    assert torch.equal(exported["embedding.weight"], table.weight * table.scale[:, None])
    card = (run / "model" / "README.md").read_text()
    assert "the mean of static token vectors of 24 dimensions, over texts of any length" in card


@pytest.mark.slow
def test_an_export_is_continued_with_its_normalization(run: Path, static: list[str], tmp_path: Path) -> None:
    """At a rate of almost 0 nothing changes; a head that the recipe adds comes behind the table."""
    folder = tmp_path / "start"
    table = StaticEmbedding(
        Tokenizer.from_file(str(run / "model" / "tokenizer.json")),
        embedding_weights=load_file(run / "model" / "model.safetensors")["embedding.weight"],
    )
    SentenceTransformer(modules=[table, Normalize()], device="cpu").save_pretrained(str(folder))
    given = [o for o in static if "model.config." not in o and "learning_rate" not in o]
    given += [f"model.path={folder}", "optimizer.learning_rate=1e-12", "training.max_steps=2"]
    train_alone(*given, f"output={tmp_path / 'run'}")
    texts = ["An Owl", "", "a longer text of several words"]
    model = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
    assert [type(module) for module in model] == [StaticEmbedding, Normalize]
    np.testing.assert_allclose(model.encode(texts), SentenceTransformer(str(folder)).encode(texts), atol=1e-6)
    learner, _, _ = learner_and_batch([*given, "model.head=tanh", "model.config={model_type: static, weights: true}"])
    assert isinstance(learner.encoder.head[0], Dense) and learner.encoder.base.embeddings.scale is not None


@pytest.mark.slow
def test_a_table_begins_with_a_transformers_token_embeddings(
    tiny: list[str], static: list[str], tokenizer_folder: Path, tmp_path: Path
) -> None:
    transformer = learner_and_batch(tiny)[0].encoder.base
    given = pretrained([*static], transformer, tokenizer_folder, tmp_path / "model")
    both = [*given, "model.config.model_type=static"]
    learner, _, _ = learner_and_batch(both)
    rows = transformer.get_input_embeddings().weight
    assert torch.equal(learner.encoder.base.embeddings.weight, rows) and learner.encoder.dim == rows.shape[1]
    other = {
        "model.config.hidden_size=24": "24 dimensions, those of model.path have 32: set model.config.hidden_size=32",
        "model.config.vocab_size=100": "vocab_size 100: model.path has 1,500 token embeddings: leave vocab_size out",
        "model.config={model_type: distilbert, dim: 24, n_heads: 2}": "set model.config.dim=32, or model.config=null",
        "model.config={model_type: electra}": "128 dimensions, those of model.path have 32: set model.config.embedding",
    }
    for option, reason in other.items():
        with pytest.raises(RecipeError, match=re.escape(reason)):
            learner_and_batch([*both, option])


def test_tokens_that_a_table_lacks_get_vectors_of_their_own(run: Path, static_sentences: list[str]) -> None:
    """The sentences were made with a tokenizer that has [DEL] besides."""
    given = [o for o in static_sentences if not o.startswith("model.config.")]
    given += ["objectives.simcse.data=text", f"model.path={run / 'model'}"]
    table = learner_and_batch(given)[0].encoder.base.embeddings.weight
    before = load_file(run / "model" / "model.safetensors")["embedding.weight"]
    assert len(table) == len(before) + 1 and torch.equal(table[:-1], before)
    assert 0.1 < table[-1].norm() < 3
    with pytest.raises(RecipeError, match=r"model\.train heads freezes the token embeddings"):
        learner_and_batch([*given, "model.train=heads", "model.head=tanh"])


@pytest.fixture(scope="module")
def static_sentences(static: list[str], sentences_folder: Path) -> list[str]:
    """The same over sentences, without an objective."""
    given = [o for o in static if not o.startswith(("objectives.spans", "data.text"))]
    return [*given, "objectives.spans=null", f"data.text.path={sentences_folder}", "data.text.batch_size=32"]


@pytest.mark.parametrize(
    ("objective", "options"),
    [
        ("spans", []),
        ("simcse", ["temperature=0.05"]),
        ("clear", ["augment=del-span", "views=stored"]),
        ("clear", ["augment=del-span", "views=stored", "pool=mean"]),
    ],
)
def test_every_contrastive_objective_trains_the_vectors_of_all_tokens_and_adds_no_special_ones(
    static: list[str], static_sentences: list[str], objective: str, options: list[str]
) -> None:
    given = static if objective == "spans" else [*static_sentences, *(f"objectives.{objective}.{o}" for o in options)]
    learner, batches, _ = learner_and_batch(given)
    loss, _ = learner(batches)
    loss.backward()
    packed = learner.prepare(batches, ALL).packed
    trained = learner.encoder.base.embeddings.weight.grad.any(dim=1).nonzero()[:, 0]
    assert torch.equal(trained, packed.ids.unique()) and packed.content.all()


def test_a_static_budget_gives_the_loss_of_an_exact_forward(static_sentences: list[str]) -> None:
    given = [*static_sentences, "objectives.simcse.temperature=0.05"]
    exact, fixed = (step(given, static=static) for static in (False, True))
    for first, second in zip(exact, fixed, strict=True):
        torch.testing.assert_close(first, second, atol=1e-6, rtol=1e-5)


def test_dropout_of_vectors_gives_simcse_its_positives(static_sentences: list[str]) -> None:
    given = [*static_sentences, "objectives.simcse.temperature=0.05"]
    for options, equal in (([], True), (["model.config.dropout=0.1"], False)):
        learner, _, _ = learner_and_batch([*given, *options])
        assert learner.encoder.has_dropout is not equal
        notes = learner.of_turn(ALL)[0].notes(1.0)
        assert any("dropout" in note for note in notes) is equal


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (
            ["objectives.mlm.input=anchor"],
            "model: static has no masked-LM head",
        ),
        (
            ["model.pooling=cls"],
            "model: a static encoder always averages",
        ),
        (["model.config.num_hidden_layers=2"], "static has no option 'num_hidden_layers'"),
        (["model.config.hidden_size=0"], "model: hidden_size 0 must be"),
        (["model.config.dropout=1"], "model: dropout 1 must be"),
        (["training.activation_checkpointing=true"], "'static' has no activation checkpointing"),
    ],
)
def test_what_a_table_cannot_do_is_refused_with_a_reason(static: list[str], overrides: list[str], reason: str) -> None:
    given = [o for o in static if not o.startswith("objectives.mlm")]
    with pytest.raises(RecipeError, match=re.escape(reason)):
        learner_and_batch([*given, *overrides] if "mlm" in overrides[0] else [*static, *overrides])
