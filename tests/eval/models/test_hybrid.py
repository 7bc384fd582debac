"""A model with BM25: the scores of a slow reference, and one line for tasks that rank no documents."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bm25s import BM25

from clearspan.eval.data.retrieval_data import read_cranfield
from clearspan.eval.models.embed import EmbeddingSimilarity
from clearspan.eval.models.hybrid import Hybrid
from clearspan.eval.models.load import default_name
from clearspan.eval.models.similarity import UnscoredError
from clearspan.retrieval.hybrid import HYBRID_WEIGHT
from clearspan.retrieval.products import products
from clearspan.retrieval.retrieval_set import RetrievalSet
from clearspan.retrieval.scoring import K1, B
from clearspan.retrieval.stemming import Words

STEMS = Words("english")


@pytest.fixture(scope="module")
def cranfield(shared_data: Path) -> RetrievalSet:
    """1,400 abstracts and 225 queries, of which the first ten are kept, and one whose words no abstract holds."""
    whole = read_cranfield(shared_data / "retrieval/cranfield")
    queries = [*whole.queries[:9], "zyzzyva qwxy"]
    return replace(whole, queries=queries, relevant=whole.relevant[:10], grades=whole.grades[:10])


def letters(texts: list[str]) -> np.ndarray:
    """Return how often each text has each letter: a model that is worse than words, but not useless."""
    return np.array([[text.count(chr(letter)) for letter in range(97, 123)] for text in texts], np.float32)


def z(scores: np.ndarray) -> np.ndarray:
    return (scores - scores.mean()) / scores.std() if scores.std() else 0 * scores


@pytest.mark.slow
@pytest.mark.parametrize("weight", [HYBRID_WEIGHT, 0.0, 1.0])
def test_the_scores_are_those_of_scoring_each_query_alone(
    weight: float, cranfield: RetrievalSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clearspan.retrieval.products.BLOCK_SCORES", 3 * 1400)
    made = products(*Hybrid(EmbeddingSimilarity(letters), weight).ranking(cranfield.queries, cranfield.documents))
    index = BM25(k1=K1, b=B)
    index.index([STEMS(text) for text in cranfield.documents], show_progress=False)
    rows = letters(cranfield.documents)
    lengths = np.linalg.norm(rows, axis=1)
    for query, scores in zip(cranfield.queries, made, strict=True):
        of_query = letters([query])[0]
        cosine = np.divide(rows @ of_query, lengths * np.linalg.norm(of_query), np.zeros(1400), where=lengths > 0)
        of_words = index.get_scores(STEMS(query))
        np.testing.assert_allclose(scores, weight * z(cosine) + (1 - weight) * z(of_words), atol=2e-5)


def test_tasks_without_documents_are_not_scored() -> None:
    made = Hybrid(EmbeddingSimilarity(letters))
    with pytest.raises(UnscoredError, match="which a baseline or a hybrid does not have"):
        made.embed(["a"])
    with pytest.raises(UnscoredError, match="scores pairs, and a hybrid ranks documents"):
        made.pairs({"all": (["a"], ["b"])})


def test_a_hybrid_is_named_by_its_model(tmp_path: Path) -> None:
    (tmp_path / "mine" / "model").mkdir(parents=True)
    assert default_name(f"hybrid:{tmp_path}/mine/model") == "hybrid-mine"
