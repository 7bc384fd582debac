"""`adapt --chunk-tokens`: the verdict ranks the chunks that the delivered folder searches."""

import json
from pathlib import Path

import numpy as np
import pytest

import clearspan
from clearspan.adapt import __main__ as adapt
from clearspan.adapt.judging import chunks_of
from clearspan.common.encoder.folder import load_folder
from clearspan.common.encoder.sentence_encoder import FolderEncoder
from clearspan.eval.models.lexical import Lexical
from clearspan.eval.models.prompted import Prompted
from clearspan.pipelines.__main__ import main as pipelines
from clearspan.retrieval.comparison import Chosen, SystemComparison
from clearspan.retrieval.hybrid import WEIGHTS, CombinedVectors, best_weight
from clearspan.retrieval.ranks import Chunks, ranks
from clearspan.retrieval.retrieval_set import RetrievalSet
from clearspan.shards import Dataset
from tests.adapt.conftest import Ran
from tests.pipelines.conftest import without_beam

TOKENS = 24


@pytest.fixture(scope="module")
def collection(shared_data: Path) -> RetrievalSet:
    """40 texts of six sentences of Wikipedia each; a query is every sixth word of the last sentence of its text."""
    lines = (shared_data / "sentences" / "wiki1m_head_11914.txt").read_text("utf-8").splitlines()
    long = [each.strip() for each in lines if len(each.split()) > 12][:240]
    texts = [" ".join(long[first : first + 6]) for first in range(0, 240, 6)]
    queries = [" ".join(last.split()[1::6]) for last in long[5::6]]
    relevant = [np.array([row]) for row in range(40)]
    return RetrievalSet(texts, queries, relevant, [np.ones(1, np.int64)] * 40)


@pytest.fixture
def model(still: Path) -> FolderEncoder:
    return load_folder(still)


@pytest.fixture
def vectors(collection: RetrievalSet, model: FolderEncoder) -> tuple[Chunks, CombinedVectors]:
    chunks = chunks_of(TOKENS, model, "", collection.documents)
    dense = Prompted.of(model, (), None, 1024, False).ranking(collection.queries, chunks.texts)
    return chunks, CombinedVectors.of(dense, Lexical("bm25").ranking(collection.queries, chunks.texts), chunks)


@pytest.fixture
def embedded(collection: RetrievalSet, still: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The texts as `embed --chunk-tokens` stores them."""
    monkeypatch.setattr("clearspan.pipelines.run._run_beam", without_beam)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in collection.documents))
    line = ["embed", "--input", str(tmp_path / "a.jsonl"), "--model", str(still), "--keep-text", "--quiet"]
    assert pipelines([*line, "--chunk-tokens", str(TOKENS), "--output", str(tmp_path / "vectors")]) == 0
    return tmp_path / "vectors"


@pytest.mark.guarantee("verdict-among-all")
def test_the_chunks_of_the_verdict_are_those_that_are_searched(
    vectors: tuple[Chunks, CombinedVectors], embedded: Path
) -> None:
    rows = [row for batch in Dataset(embedded) for row in batch.to_pylist()]
    assert [row["text"] for row in rows] == vectors[0].texts and len(rows) > 150
    assert [row["record"] for row in rows] == (vectors[0].documents + 1).tolist()


@pytest.mark.guarantee("verdict-among-all")
@pytest.mark.parametrize("weight", [0.0, 0.3, 0.7, 1.0])
def test_the_ranks_of_the_verdict_are_those_of_a_search_in_chunks(
    collection: RetrievalSet, vectors: tuple[Chunks, CombinedVectors], embedded: Path, still: Path, weight: float
) -> None:
    chunks, combined = vectors
    found = ranks(*combined.vectors(weight), collection, chunks)
    hits = clearspan.open_collection(embedded, model=still).search(collection.queries, 40, weight=weight)
    places = [[hit.record for hit in of_query].index(row) + 1 for row, of_query in enumerate(hits, start=1)]
    assert found.ranks.tolist() == places and max(places) > 1
    best = [{hit.record - 1 for hit in of_query if hit.score == of_query[0].score} for of_query in hits]
    assert [first in those for first, those in zip(found.first.tolist(), best, strict=True)] == [True] * len(hits)


def test_the_weight_is_chosen_by_the_ranks_that_each_weight_gives(
    collection: RetrievalSet, vectors: tuple[Chunks, CombinedVectors]
) -> None:
    chunks, combined = vectors
    found = combined.reciprocal_ranks(collection)
    expected = [ranks(*combined.vectors(weight), collection, chunks).reciprocal for weight in WEIGHTS]
    np.testing.assert_array_equal(found, expected)
    whole = CombinedVectors(combined.dense, combined.words, combined.dense_moments, combined.words_moments)
    assert (found < 1).any() and whole.chunks is None


@pytest.mark.guarantee("chosen-apart")
def test_a_comparison_of_chunks_tests_each_half_by_the_weight_of_the_other_among_chunks(
    collection: RetrievalSet, vectors: tuple[Chunks, CombinedVectors]
) -> None:
    chunks, combined = vectors
    rows = np.arange(40)
    halves = [(rows[20:], rows[:20]), (rows[:20], rows[20:])]
    found = SystemComparison(collection, halves).combined(
        "trained", "a model", True, Chosen((combined, combined), combined)
    )
    expected = np.empty(40)
    for dev, test in halves:
        weight = best_weight(combined.select(dev).reciprocal_ranks(collection.select(dev.tolist())))
        expected[test] = ranks(*combined.vectors(weight), collection, chunks).reciprocal[test]
    np.testing.assert_array_equal(found.reciprocal, expected)


@pytest.mark.slow
@pytest.mark.guarantee("adapted-folder-searches")
def test_a_finished_folder_is_judged_and_embedded_again_in_chunks(
    line: list[str], ran: Ran, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = [*line, str(tmp_path / "owls.jsonl"), "--chunk-tokens", "12"]
    (tmp_path / "adapted" / "vectors" / "notes.txt").write_text("mine")
    ran.clear()
    assert adapt.main(again) == 0, capsys.readouterr().err
    commands = {words[1] if words[0] == "pipelines" else words[0]: words for words in ran}
    assert all("--chunk-tokens=12" in commands[name] for name in ("adapt.judging", "embed"))
    assert not any("--chunk-tokens=12" in commands[name] for name in commands.keys() - {"adapt.judging", "embed"})
    (hits,) = clearspan.open_collection(tmp_path / "adapted").search(["the barns of county 7"], 3)
    assert [hit.chunk for hit in hits] != [None] * 3 and "county" in (hits[0].text or "")
    assert (tmp_path / "adapted" / "vectors.earlier" / "notes.txt").read_text() == "mine"
    ran.clear()
    assert adapt.main(again) == 0 and len(Dataset(tmp_path / "adapted" / "vectors").manifest.shards) > 0
