"""The share of the trained weights is chosen by the dev half of the held-out texts, and again if anything changed."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

from clearspan.adapt import interpolation
from clearspan.adapt.interpolation import (
    MAX_QUERIES,
    MAX_TEXTS,
    Interpolation,
    Shares,
    fingerprint,
    largest_good,
    write_model,
)
from clearspan.common.checksummed import load_checksummed
from clearspan.common.checksummed_folder import read_manifest
from clearspan.eval.data.heldout_data import HeldOutTexts
from clearspan.retrieval.retrieval_set import RetrievalSet
from clearspan.train.run_folder import MODEL, check_model


def collection(queries: list[str], documents: list[str], relevant: list[int]) -> RetrievalSet:
    ones = [np.array([1], np.int64)] * len(queries)
    return RetrievalSet(documents, queries, [np.array([number], np.int64) for number in relevant], ones)


@pytest.mark.guarantee("verdict-among-all")
@pytest.mark.parametrize(
    ("gains", "share"),
    [
        ([0, 0, 0], 0.5),
        ([0, 0.1, 0.2], 0.5),
        ([0, 0.201, 0.2], 0.5),
        ([0, 0.1, 0], 0.25),
        ([0, 0.1, 0.08], 0.25),
        ([0.3, 0.299, 0], 0.25),
        ([0.3, 0.2, 0.1], 0),
    ],
)
def test_the_largest_share_within_one_standard_error_of_the_best_is_taken(gains: list[float], share: float) -> None:
    noise = np.random.default_rng(0).normal(0, 0.05, (len(gains), 400))
    noise -= noise.mean(axis=1, keepdims=True)
    assert largest_good(0.3 + np.array(gains)[:, None] + noise) == share


@pytest.mark.guarantee("verdict-among-all")
def test_the_error_is_that_of_the_differences_of_the_same_queries() -> None:
    """Queries differ a thousand times as much as shares do; all shares find the same ones."""
    queries = np.random.default_rng(0).uniform(0, 1, 400)
    assert largest_good(np.stack([queries, queries, 0.999 * queries])) == 0.25
    ranks = np.stack([queries, queries, queries])
    ranks[2, :2] -= 0.5, -0.25  # a mean of -0.0006, with a standard error of 0.0014
    assert largest_good(ranks) == 0.5


@pytest.mark.guarantee("verdict-among-all")
def test_a_sample_holds_the_relevant_documents_and_is_the_same_each_time() -> None:
    documents = [f"text {number}" for number in range(5000)]
    relevant = [*range(0, 5000, 5)]
    dev = collection([f"query {number}" for number in relevant], documents, relevant)
    sample, again = (dev.sample(MAX_QUERIES, MAX_TEXTS) for _ in range(2))
    assert (len(sample.queries), len(sample.documents)) == (MAX_QUERIES, MAX_TEXTS)
    for number, (query, positions) in enumerate(zip(sample.queries, sample.relevant, strict=True)):
        assert query == dev.queries[number] and sample.documents[positions[0]] == f"text {relevant[number]}"
    assert sample.documents == again.documents
    small = collection(["owl", "fox"], ["owls", "foxes", "hens"], [0, 1])
    assert small.sample(MAX_QUERIES, MAX_TEXTS).documents == small.documents


QUERIES = ["alpha", "bravo", "charlie", "delta", "echo", "golf", "hotel", "india", "juliet", "lima"]
DOCUMENTS = ["owl", "fox", "hen", "cow", "pig", "dog", "cat", "rat", "bee", "ant"]


@pytest.fixture
def options(still: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Interpolation:
    """A model whose training gave each dev query the vector of its document, and each test query that of another."""
    trained = Path(shutil.copytree(still, tmp_path / "trained"))
    weights = load_file(still / "model.safetensors")
    table, known = weights["embedding.weight"].copy(), Tokenizer.from_file(str(still / "tokenizer.json")).token_to_id
    for query, document in zip(QUERIES, DOCUMENTS, strict=True):
        table[known(query)] = table[known(document)]
    save_file({"embedding.weight": table}, trained / "model.safetensors")
    for folder in ("data", "data/validation"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "manifest.json").write_text(folder)
    dev = collection(QUERIES, DOCUMENTS, [*range(10)])
    test = collection([f"the {query}" for query in QUERIES], DOCUMENTS, [*range(1, 10), 0])
    monkeypatch.setattr(interpolation.heldout_data, "read", lambda _: HeldOutTexts(test, dev, 10, ()))
    return Interpolation(data=tmp_path / "data", start=still, trained=trained, output=tmp_path / "interpolated")


def written(options: Interpolation) -> tuple[float, np.ndarray]:
    """Return the share in the folder's manifest, and the weights of the model."""
    model = options.output / "model"
    check_model(model)
    return read_manifest(model, MODEL)[0]["share"], load_file(model / "model.safetensors")["embedding.weight"]


def recorded(options: Interpolation) -> Shares:
    record = load_checksummed((options.output / "shares.json").read_bytes())
    del record["inputs"]
    return Shares(**record)


@pytest.mark.guarantee("verdict-among-all")
def test_the_dev_half_chooses_and_the_model_has_the_share(options: Interpolation) -> None:
    line = write_model(options)
    chosen = recorded(options)
    share, table = written(options)
    before, after = (
        load_file(each / "model.safetensors")["embedding.weight"] for each in (options.start, options.trained)
    )
    assert share == chosen.share == 0.5 and f"{share:g};" in line
    assert np.allclose(table, (1 - share) * before + share * after, atol=1e-6)
    assert chosen.mrr["0.5"] > chosen.mrr["0"] + 20, "the test half would have chosen the model before training"
    assert (chosen.num_queries, chosen.num_texts) == (10, 10)


@pytest.mark.guarantee("verdict-among-all")
def test_a_training_that_harms_is_not_kept(options: Interpolation) -> None:
    learned = load_file(options.trained / "model.safetensors")["embedding.weight"]
    harmful = np.random.default_rng(2).standard_normal(learned.shape, np.float32) * 20
    save_file({"embedding.weight": harmful}, options.start / "model.safetensors")
    write_model(replace(options, start=options.trained, trained=options.start))
    assert written(options)[0] == 0 and (written(options)[1] == learned).all()


@pytest.mark.guarantee("verdict-among-all")
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_given_share_is_taken(options: Interpolation, share: float) -> None:
    assert write_model(replace(options, share=share)) == ""
    assert written(options)[0] == share and recorded(options) == Shares(share)


@pytest.mark.guarantee("verdict-among-all")
def test_what_is_there_is_kept_and_what_has_changed_is_made_again(
    options: Interpolation, capsys: pytest.CaptureFixture[str]
) -> None:
    write_model(options)
    weights = options.output / "model" / "model.safetensors"
    content, stamp = weights.read_bytes(), weights.stat().st_mtime_ns
    assert write_model(options) == "" and weights.stat().st_mtime_ns == stamp
    weights.write_bytes(content[:-1] + b"?")
    assert write_model(options) and weights.read_bytes() == content
    assert (options.output / "model.damaged").is_dir() and "chosen again" in capsys.readouterr().out
    choice = options.output / "shares.json"
    choice.write_bytes(choice.read_bytes().replace(b'"share"', b'"shore"'))
    assert write_model(options) and "damaged" in capsys.readouterr().out
    assert write_model(replace(options, share=0.25)) == "" and written(options)[0] == 0.25


@pytest.mark.guarantee("verdict-among-all")
def test_everything_that_the_choice_depends_on_is_in_the_fingerprint(options: Interpolation) -> None:
    known = {fingerprint(options)}
    for change in (
        {"stemmer": "english"},
        {"share": 0.5},
        {"prompt_name": ("query",)},
        {"precision": "bf16"},
        {"start": options.trained},
        {"trained": options.start},
    ):
        known.add(fingerprint(replace(options, **change)))
    for file in ("data/manifest.json", "data/validation/manifest.json"):
        path = options.data.parent / file
        before = path.read_text()
        path.write_text(json.dumps(file))
        known.add(fingerprint(options))
        path.write_text(before)
    assert len(known) == 9 and fingerprint(options) in known
