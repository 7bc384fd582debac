"""CLEAR from raw text to a model: sentences with views beside them, trained on, stopped, resumed, loaded."""

import itertools
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from pipelines.__main__ import main
from shards import Dataset, storage
from tests.end_to_end.test_object_stores import tree
from tests.train.ranks import launch
from tests.train.runs import metrics, same_weights
from train.encoder import TextEncoder
from train.learner import build_learner
from train.recipe import load
from train.stream import Batch, ExampleStream, StreamState

RECIPE = "clear-subs+del-span"
LINES = 1500
FIGURES = ("loss", "clear/loss", "mlm/loss", "grad_norm", "tokens")
SMALL = [
    "model.config.hidden_size=32",
    "model.config.num_hidden_layers=2",
    "model.config.num_attention_heads=2",
    "model.config.intermediate_size=64",
    "optimizer.warmup_steps=2",
    "training.batch_size=32",
    "training.gradient_accumulation_steps=2",
    "training.max_steps=6",
    "training.logging_steps=1",
    "training.bf16=false",
]


@pytest.fixture(scope="module")
def counterfitted(shared_data: Path) -> Path:
    return shared_data / "synonyms" / "counterfitted_neighbors.json"


@pytest.fixture(scope="module")
def shards(
    shared_data: Path, roberta_tokenizer: Path, counterfitted: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The first sentences of SimCSE's Wikipedia file, with three views each."""
    folder = tmp_path_factory.mktemp("clear")
    with (shared_data / "sentences" / "wiki1m_head_11914.txt").open("rb") as lines:
        (folder / "wiki.txt").write_bytes(b"".join(itertools.islice(lines, LINES)))
    words = ["sentences", "--input", folder / "wiki.txt", "--text-per", "line", "--no-split"]
    words += ["--output", folder / "shards", "--tokenizer", roberta_tokenizer, "--augment", "subs+del-span"]
    words += ["--synonyms", counterfitted, "--views", "3", "--quiet"]
    assert main([str(word) for word in words]) == 0
    return folder / "shards"


def test_wikipedias_sentences_become_a_model_however_often_training_stops(shards: Path, tmp_path: Path) -> None:
    """The recipe as published, on the stored views, but for the size of model and batch."""
    manifest = Dataset(shards).manifest
    assert LINES * 0.9 < manifest.totals["examples"] <= LINES and manifest.fingerprint["options"]["views"] == 3
    whole, stopped, port = tmp_path / "whole", tmp_path / "stopped", 27810 + os.getpid() % 290
    arguments = ["--recipe", RECIPE, *SMALL, f"data.path={shards}", "objectives.clear.views=stored"]
    runs = [("train/run.py", whole, []), ("tests/train/terminated_at.py", stopped, [])]
    for number, (script, output, more) in enumerate([*runs, ("train/run.py", stopped, ["--resume"])]):
        done = launch(1, script, *arguments, f"output={output}", *more, port=port + number, at=3)
        assert done.returncode == 0, done.stderr
        assert (output / "model").is_dir() == (script == "train/run.py")
    found = metrics(whole, FIGURES)
    assert [line["step"] for line in found] == [1, 2, 3, 4, 5, 6] and np.isfinite(
        [line["loss"] for line in found]
    ).all()
    assert metrics(stopped, FIGURES) == found and same_weights(stopped, whole)

    from sentence_transformers import SentenceTransformer

    texts = ["The film was released in [DEL].", "It is a species of moth.", ""]
    embeddings = TextEncoder.load(whole / "model", device="cpu").encode(texts)
    assert embeddings.shape == (3, 32)
    np.testing.assert_allclose(
        SentenceTransformer(str(whole / "model"), device="cpu").encode(texts), embeddings, atol=1e-5
    )


def first_batch(*overrides: str) -> Batch:
    recipe = load(RECIPE, [*SMALL, *overrides, "output=o"])
    dataset = Dataset(recipe.data.path)
    learner, _, _ = build_learner(recipe, dataset, 1, False)
    stream = ExampleStream(dataset, "sentences", 32, seed=1, shuffle_shards=2)
    return next(stream.batches(StreamState(), learner))[0]


@pytest.mark.parametrize("bucket", ["gs"], indirect=True)
def test_views_on_the_fly_take_the_shards_own_synonyms_from_a_bucket(
    shards: Path, counterfitted: Path, bucket: str
) -> None:
    """Without a file of the recipe's, what the pipeline left beside the shards is the same table."""
    for name, data in tree(shards).items():
        storage.publish_bytes(data, f"{bucket}/data/{name}")
    fly = "objectives.clear.views=fly"
    expected = first_batch(f"data.path={shards}", fly, f"objectives.clear.synonyms={counterfitted}")
    found = first_batch(f"data.path={bucket}/data", fly)
    assert found.columns.keys() == expected.columns.keys() == {"clear/0", "clear/1", "tokens"}
    for name, column in expected.columns.items():
        assert torch.equal(found.columns[name].values, column.values), name
    assert not torch.equal(found.columns["clear/0"].values, found.columns["tokens"].values)
