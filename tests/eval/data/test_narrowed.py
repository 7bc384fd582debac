"""Fewer documents for the score in training: the relevant ones, and those that BM25 ranks near."""

from pathlib import Path

import numpy as np
import pytest
from bm25s import BM25

from clearspan.eval.data.narrowed import narrowed
from clearspan.retrieval.retrieval_set import RetrievalSet
from clearspan.retrieval.stemming import PLAIN


@pytest.fixture(scope="module")
def collection(shared_data: Path) -> RetrievalSet:
    """Sentences of Wikipedia, the first twenty found by some of their words."""
    texts = (shared_data / "sentences/wiki1m_head_11914.txt").read_text("utf-8").splitlines()[:400]
    right = [np.array([row]) for row in range(20)]
    return RetrievalSet(texts, [" ".join(text.split()[1:9:2]) for text in texts[:20]], right, right)


def test_the_relevant_texts_and_the_nearest_by_words_are_kept(collection: RetrievalSet) -> None:
    few = narrowed(collection, 100)
    assert len(few.documents) == 100 and few.queries == collection.queries
    for row, (relevant,) in enumerate(few.relevant):
        assert few.documents[relevant] == collection.documents[row]
    index = BM25()
    index.index([PLAIN(text) for text in collection.documents], show_progress=False)
    for query in collection.queries:
        scores = index.get_scores(PLAIN(query))
        assert collection.documents[int(scores.argmax())] in few.documents
    twice = narrowed(collection, 100)
    assert twice.documents == few.documents


def test_as_many_as_there_are_stay_and_right_ones_always_do(collection: RetrievalSet) -> None:
    assert narrowed(collection, 400) is collection
    assert narrowed(collection, 5).documents == collection.documents[:20]
    strange = RetrievalSet(collection.documents, ["zzzz qqqq"], collection.relevant[:1], collection.grades[:1])
    assert len(narrowed(strange, 30).documents) == 30, "others fill up where no word is shared"
