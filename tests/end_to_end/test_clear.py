"""CLEAR from raw text to a model: sentences with views beside them, looked at, trained on, loaded."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from clearspan.common.encoder.library import load as load_model
from clearspan.pipelines.__main__ import main
from clearspan.shards import Dataset, storage
from clearspan.shards.__main__ import main as look
from clearspan.train.build import build_learner
from clearspan.train.config.recipe import load
from clearspan.train.data.stream import Batch, ExampleStream, StreamState
from tests.end_to_end.test_object_stores import tree
from tests.train.ranks import train_alone
from tests.train.runs import metrics

RECIPE = "clear-subs+del-span"
LINES = 1500
SMALL = [
    "model.config.hidden_size=32",
    "model.config.num_hidden_layers=2",
    "model.config.num_attention_heads=2",
    "model.config.intermediate_size=64",
    "model.config.hidden_dropout_prob=0",
    "model.config.attention_probs_dropout_prob=0",
    "model.config.initializer_range=0.1",
    "optimizer.learning_rate=3e-3",
    "optimizer.warmup_steps=2",
    "data.text.batch_size=32",
    "training.gradient_accumulation_steps=2",
    "training.max_steps=20",
    "training.logging_steps=1",
    "training.bf16=false",
]


@pytest.fixture(scope="module")
def synonyms(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The most frequent words of the list that CLEAR used."""
    table = json.loads((shared_data / "synonyms" / "counterfitted_neighbors.json").read_text())
    path = tmp_path_factory.mktemp("synonyms") / "synonyms.json"
    path.write_text(json.dumps(dict(itertools.islice(table.items(), 600))))
    return path


@pytest.fixture(scope="module")
def shards(
    shared_data: Path, roberta_tokenizer: Path, synonyms: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The first sentences of SimCSE's Wikipedia file, with three views each."""
    folder = tmp_path_factory.mktemp("clear")
    with (shared_data / "sentences" / "wiki1m_head_11914.txt").open("rb") as lines:
        (folder / "wiki.txt").write_bytes(b"".join(itertools.islice(lines, LINES)))
    words = ["sentences", "--input", folder / "wiki.txt", "--text-per", "line", "--no-split"]
    words += ["--output", folder / "shards", "--tokenizer", roberta_tokenizer, "--augment", "subs+del-span"]
    words += ["--synonyms", synonyms, "--views", "3", "--quiet"]
    assert main([str(word) for word in words]) == 0
    return folder / "shards"


@pytest.mark.exhaustive
def test_wikipedias_sentences_become_a_model(shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The recipe as published, on the stored views, but for the size of model and batch, and a rate to match."""
    manifest = Dataset(shards).manifest
    assert LINES * 0.9 < manifest.totals["examples"] <= LINES and manifest.fingerprint["options"]["views"] == 3
    assert look(["cat", str(shards), "--limit", "100", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    lines = (shards.parent / "wiki.txt").read_text(encoding="utf-8").split("\n")
    assert len(rows) == 100 and {row["tokens"] for row in rows} <= {" ".join(line.split()) for line in lines}
    assert sum("[DEL]" in row[f"view_{view}"] for row in rows for view in range(3)) > 290

    run = tmp_path / "run"
    done = train_alone(
        *SMALL, f"data.text.path={shards}", "objectives.clear.views=stored", f"output={run}", recipe=RECIPE
    )
    assert done.returncode == 0, done.stderr
    logged = metrics(run, ("clear/loss", "mlm/loss"))
    assert [line["step"] for line in logged] == list(range(1, 21))
    for name in ("clear/loss", "mlm/loss"):
        first, last = (np.mean([line[name] for line in part]) for part in (logged[:3], logged[-3:]))
        assert last < first - 0.4, name

    from sentence_transformers import SentenceTransformer

    texts = ["The film was released in [DEL].", "It is a species of moth.", ""]
    embeddings = load_model(run / "model").encode(texts)
    assert embeddings.shape == (3, 32)
    theirs = SentenceTransformer(str(run / "model"), device="cpu").encode(texts)
    np.testing.assert_allclose(theirs, embeddings, atol=1e-5)


def first_batch(*overrides: str) -> Batch:
    recipe = load(RECIPE, [*SMALL, *overrides, "output=o"])
    datasets = {name: Dataset(data.path) for name, data in recipe.data.items()}
    learner, _, _ = build_learner(recipe, datasets, 1, False)
    stream = ExampleStream("text", datasets["text"], 32, seed=1, shuffle_shards=2)
    return next(stream.batches(StreamState(), learner.columns("text"), learner.collate))[0]


@pytest.mark.exhaustive
@pytest.mark.parametrize("bucket", ["gs"], indirect=True)
def test_views_on_the_fly_take_the_shards_own_synonyms_from_a_bucket(shards: Path, synonyms: Path, bucket: str) -> None:
    """Without a file of the recipe's, what the pipeline left beside the shards is the same table."""
    for name, data in tree(shards).items():
        storage.publish_bytes(data, f"{bucket}/data/{name}")
    fly = "objectives.clear.views=fly"
    expected = first_batch(f"data.text.path={shards}", fly, f"objectives.clear.synonyms={synonyms}")
    found = first_batch(f"data.text.path={bucket}/data", fly)
    assert found.columns.keys() == expected.columns.keys() == {"clear/view_0", "clear/view_1", "mlm/tokens"}
    for name, column in expected.columns.items():
        assert torch.equal(found.columns[name].values, column.values), name
    assert not torch.equal(found.columns["clear/view_0"].values, found.columns["mlm/tokens"].values)
