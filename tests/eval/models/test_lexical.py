"""Baselines of words: the figures of scikit-learn and bm25s themselves."""

from pathlib import Path
from unicodedata import normalize

import numpy as np
import pytest
from bm25s import BM25
from scipy.sparse import issparse
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.metrics.pairwise import cosine_similarity

from clearspan.eval.data.retrieval_data import read_cranfield
from clearspan.eval.models.lexical import BASELINES, Lexical, is_baseline
from clearspan.eval.models.similarity import UnscoredError
from clearspan.eval.tasks import geometry, retrieval
from clearspan.eval.tasks.retrieval import RetrievalTask, search
from clearspan.eval.tasks.task import TaskContext
from clearspan.retrieval.products import products
from clearspan.retrieval.retrieval_set import RetrievalSet
from clearspan.retrieval.scoring import K1, B
from clearspan.retrieval.stemming import PLAIN


@pytest.fixture(scope="module")
def cranfield(shared_data: Path) -> RetrievalSet:
    """1,400 abstracts, two of them empty, and 225 queries."""
    return read_cranfield(shared_data / "retrieval/cranfield")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "vectorizer"), [("bow", CountVectorizer()), ("tfidf", TfidfVectorizer())])
def test_cosines_are_those_of_scikit_learn(
    name: str, vectorizer: CountVectorizer | TfidfVectorizer, cranfield: RetrievalSet
) -> None:
    queries, documents = Lexical(name).ranking(cranfield.queries, cranfield.documents)
    assert issparse(queries) and issparse(documents)
    documents_there = vectorizer.fit_transform(cranfield.documents)
    expected = cosine_similarity(vectorizer.transform(cranfield.queries), documents_there)
    np.testing.assert_allclose(products(queries, documents), expected, atol=1e-6)


def test_a_stemmer_finds_other_forms_of_a_word() -> None:
    texts = ["The owl hunts mice.", "Rain in the north."]
    for stemmer, found in (("none", 0), ("english", 1)):
        queries, documents = Lexical(f"bm25:{stemmer}").ranking(["owls hunting"], texts)
        assert np.count_nonzero(products(queries, documents)) == found


def test_bm25_takes_the_stemmer_of_the_texts_and_records_it() -> None:
    texts = ["The owl hunts mice at night.", "It rains in the north of the country."]
    for spec, stemmer in (("bm25", "english"), ("bm25:none", "none"), ("bm25:german", "german")):
        lexical = Lexical(spec)
        lexical.ranking(["owls"], texts)
        assert lexical.settings["stemmer"] == stemmer and is_baseline(spec)
    assert "stemmer" not in Lexical("tfidf").settings and not is_baseline("tfidf:english")


@pytest.mark.parametrize("name", BASELINES)
def test_a_word_is_found_in_every_form_of_unicode(name: str) -> None:
    texts = [normalize("NFD", "Die Häuser am See"), "STRASSENBAHN", "An owl."]
    queries, documents = Lexical(name).ranking(["häuser", "straßenbahn"], texts)
    assert (products(queries, documents) > 0).tolist() == [[True, False, False], [False, True, False]]


@pytest.mark.parametrize(("name", "num_found"), [("bow", 0), ("tfidf", 0), ("bm25", 1)])
def test_scikit_learn_alone_ignores_words_of_one_letter(name: str, num_found: int) -> None:
    queries, documents = Lexical(name).ranking(["C"], ["A tutorial of C++", "An owl in snow"])
    assert np.count_nonzero(products(queries, documents)) == num_found


@pytest.mark.slow
def test_bm25_scores_are_those_of_bm25s(cranfield: RetrievalSet) -> None:
    queries, documents = Lexical("bm25:none").ranking(cranfield.queries, cranfield.documents)
    index = BM25(k1=K1, b=B)
    index.index([PLAIN(text) for text in cranfield.documents], show_progress=False)
    expected = [index.get_scores(PLAIN(text)) for text in cranfield.queries]
    np.testing.assert_allclose(products(queries, documents), expected, rtol=1e-5, atol=1e-5)
    counts = [PLAIN(text) for text in cranfield.queries]
    assert any(len(set(each)) < len(each) for each in counts)  # a word that a query repeats counts twice


@pytest.mark.slow
@pytest.mark.parametrize("name", BASELINES)
def test_a_search_of_texts_by_words_is_one_of_all_scores(
    name: str, cranfield: RetrievalSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries, documents = Lexical(name).ranking(cranfield.queries, cranfield.documents)
    monkeypatch.setattr(retrieval, "_BLOCK_SCORES", 50 * 1400)
    assert not isinstance(queries, np.ndarray) and not isinstance(documents, np.ndarray)
    found = search(queries, documents, cranfield).scores()
    scores = products(queries, documents)
    assert found == search(scores, np.eye(1400, dtype=np.float32), cranfield).scores()
    assert {"bow": 15, "tfidf": 30, "bm25": 30}[name] < found["ndcg@10"] < 45


@pytest.mark.parametrize("name", BASELINES)
def test_pairs_are_compared_in_both_directions_and_by_subset(name: str, cranfield: RetrievalSet) -> None:
    left, right = cranfield.documents[:40], cranfield.documents[40:80]
    whole = Lexical(name).pairs({"all": (left, right)})["all"]
    swapped = Lexical(name).pairs({"a": (right[:10], left[:10]), "b": (right[10:], left[10:])})
    np.testing.assert_array_equal(whole, np.concatenate([swapped["a"], swapped["b"]]))
    queries, documents = Lexical(name).ranking([*left, *right], [*left, *right])
    scores = products(queries, documents).astype(float)
    expected = [(scores[i, 40 + i] + scores[40 + i, i]) / 2 for i in range(40)]
    np.testing.assert_allclose(whole, expected, rtol=1e-5, atol=1e-6)


def test_a_task_that_takes_embeddings_is_not_scored(shared_data: Path) -> None:
    (task,) = geometry.load(shared_data / "senteval").tasks
    with pytest.raises(UnscoredError, match=r"embeddings, which a baseline or a hybrid does not have"):
        task.score(TaskContext(Lexical("tfidf")))
    with pytest.raises(UnscoredError, match="embeddings"):
        Lexical("bm25").embed(["a text"])


def test_texts_without_words_are_not_compared() -> None:
    collection = RetrievalSet(["...", "!"], ["?"], [np.array([0])], [np.array([1])])
    with pytest.raises(UnscoredError, match=r"no word .* bow"):
        RetrievalTask("none", collection).score(TaskContext(Lexical("bow")))
    with pytest.raises(UnscoredError, match=r"no word.* bm25"):
        RetrievalTask("none", collection).score(TaskContext(Lexical("bm25")))
