"""Comparison of systems that search the same documents: BM25, each model, and each model combined with BM25.

    rounds of (dev queries, test queries) ─┐
    vectors of a model and of BM25 ────────┴> RankedSystem: weight of the model, rank for each test query

BM25's k1 and b, the weight of a model that is combined with BM25, and the share of a model's trained weights, are
chosen on some queries, the development (dev) queries. The ranks are measured on other queries, the test queries.
Held-out texts, such as titles, are divided into two halves, and there is one round: the half by which training picks
checkpoints gives the dev queries, and the other half gives the test queries. A user's questions are few, so there are
two rounds: each half of the questions is tested with what was chosen on the other half.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from clearspan.retrieval.bm25 import BM25, Scores, WordCounts
from clearspan.retrieval.hybrid import MAX_DEV_QUERIES, WEIGHTS, CombinedVectors, best_weight
from clearspan.retrieval.products import Vectors
from clearspan.retrieval.ranks import Chunks, Ranks, ranks
from clearspan.retrieval.retrieval_set import Ints, RetrievalSet, is_of_dev_half
from clearspan.retrieval.scoring import GRID, Scoring, best_scoring

T = TypeVar("T")
U = TypeVar("U")
Words = tuple[Scores, BM25]
"""BM25's scores for queries, and its index of documents, in place of vectors (`retrieval.products`)."""
WITH_BM25 = " + BM25"
"""End of the name of a model that is combined with BM25."""


@dataclass(frozen=True)
class RankedSystem:
    """A system, and the ranks at which it finds the relevant documents.

    Weights and systems are selected on the dev queries. The figures of the verdict are measured on the test queries.

    Attributes:
        name: the name of the system.
        about: a description of the system in one line.
        is_trained: whether the model was trained by this run.
        weight: the weight of the model's score in a combination with BM25, from 0 to 1. It has the highest MRR on all
            dev queries. None if the system is a model or BM25 alone.
        dev_mrr: the MRR on the dev queries, from 0 to 1. The trained system and the untrained system with the highest
            values are compared by the verdict.
        ranks: for each test query, the rank of its best relevant document, from 1, and the text that ranks first.
        dev_mrrs: for each round, the MRR on its dev queries with what they chose, from 0 to 1.
        share: the share of the trained weights that all dev queries chose; None if they had no choice.
    """

    name: str
    about: str
    is_trained: bool
    weight: float | None
    dev_mrr: float
    ranks: Ranks
    dev_mrrs: tuple[float, ...] = ()
    share: float | None = None

    @property
    def reciprocal(self) -> NDArray[np.float64]:
        """The reciprocal ranks of the m test queries' relevant documents, (m,); 0 for a rank larger than 1,000."""
        return self.ranks.reciprocal


@dataclass(frozen=True)
class Chosen(Generic[T]):
    """A choice by the dev queries, such as BM25's k1 and b, or a result that follows from it.

    Attributes:
        rounds: what the dev queries of each round chose, for the test queries of this round.
        final: what all dev queries chose, to search with.
    """

    rounds: tuple[T, ...]
    final: T

    def map(self, function: Callable[[T], U]) -> "Chosen[U]":
        """Return the results of a function, which is called once for each choice, though several rounds made it."""
        results = {id(each): function(each) for each in {id(each): each for each in self.every}.values()}
        return Chosen(tuple(results[id(each)] for each in self.rounds), results[id(self.final)])

    @property
    def every(self) -> list[T]:
        return [*self.rounds, self.final]


@dataclass(frozen=True)
class SystemComparison:
    """The queries on which systems are compared, and the texts that are ranked.

    Attributes:
        collection: all queries, and the documents. Dev queries select weights and systems; test queries give the
            figures of the verdict.
        rounds: for each round, the indices of its dev queries, and the indices of its test queries.
    """

    collection: RetrievalSet
    rounds: Sequence[tuple[Ints, Ints]]

    @classmethod
    def of_halves(cls, test: RetrievalSet, dev: RetrievalSet) -> "SystemComparison":
        """Return the comparison on queries from held-out texts, such as titles. It has one round.

        Args:
            test: the queries from one half of the texts, which give the figures of the verdict, and the documents.
            dev: the same documents, and the queries from the other half, by which training picks checkpoints. At most
                2,000 of them (`MAX_DEV_QUERIES`) select the weights and the systems.
        """
        both = test.append(dev.select(range(min(MAX_DEV_QUERIES, len(dev.queries)))))
        rows = np.arange(len(both.queries))
        return cls(both, [(rows[len(test.queries) :], rows[: len(test.queries)])])

    @classmethod
    def of_questions(cls, questions: RetrievalSet) -> "SystemComparison":
        """Return the comparison on a user's questions.

        It has two rounds. The questions are divided into two halves by their hashes. In each round, one half selects
        BM25's k1 and b and the weight of a model in a combination with BM25, and the texts are ranked with them for the
        other half.
        """
        is_first = np.array([is_of_dev_half(query) for query in questions.queries])
        first, second = np.flatnonzero(is_first), np.flatnonzero(~is_first)
        return cls(questions, [(first, second), (second, first)])

    @property
    def test(self) -> Ints:
        """The indices of the queries that give the figures of the verdict, from all rounds, (m,).

        The ranks in a `RankedSystem` are in this order.
        """
        return np.concatenate([test for _, test in self.rounds])

    @property
    def dev(self) -> Ints:
        """The indices of the queries on which weights and systems are selected, from all rounds, (m,)."""
        return np.concatenate([dev for dev, _ in self.rounds])

    def uncombined(
        self,
        name: str,
        about: str,
        is_trained: bool,
        vectors: tuple[Vectors, Vectors],
        chunks: Chunks | None = None,
    ) -> RankedSystem:
        """Return the ranks by a model that is not combined with BM25.

        Args:
            name: the name of the system.
            about: a description of the system in one line.
            is_trained: whether the model was trained by this run.
            vectors: the vectors of all queries, (queries, dim), and of all documents, (documents, dim). The dot product
                of a query's and a document's vector is the score.
            chunks: the chunks of the documents, if they are cut: the vectors of documents are then those of the chunks.
        """
        all_ranks = ranks(*vectors, self.collection, chunks)
        dev_mrr = float(all_ranks.reciprocal[self.dev].mean())
        dev_mrrs = tuple(_mean(all_ranks.reciprocal[dev]) for dev, _ in self.rounds)
        return RankedSystem(name, about, is_trained, None, dev_mrr, all_ranks.select(self.test), dev_mrrs)

    def choose_scoring(self, counts: WordCounts, chunks: Chunks | None = None) -> Chosen[Scoring]:
        """Return how BM25 scores the documents: the k1 and b that the dev queries choose (`best_scoring`).

        Args:
            counts: the words of the documents, or of their chunks.
            chunks: the chunks of the documents, if they are cut.
        """
        dev = np.unique(self.dev)
        part = self.collection.select(dev.tolist())
        values = np.empty((len(GRID), len(dev)))
        for place, (k1, b) in enumerate(GRID):
            index = counts.weighted(k1, b, "float32")
            values[place] = ranks(index.scores(part.queries, np.float32), index, part, chunks).reciprocal
        scorings = [Scoring(counts.words, k1, b) for k1, b in GRID]
        chosen = [best_scoring(values[:, np.isin(dev, queries)]) for queries, _ in self.rounds]
        return Chosen(tuple(scorings[place] for place in chosen), scorings[best_scoring(values)])

    def words(self, counts: WordCounts, scoring: Chosen[Scoring]) -> Chosen[Words]:
        """Return BM25's scores for all queries, and its index of the documents.

        Args:
            counts: the words of the documents, or of their chunks.
            scoring: the result of `choose_scoring`.
        """

        def scored(each: Scoring) -> Words:
            index = counts.weighted(each.k1, each.b).astype(np.float32)
            return index.scores(self.collection.queries, np.float32), index

        return scoring.map(scored)

    def lexical(self, name: str, about: str, words: Chosen[Words], chunks: Chunks | None = None) -> RankedSystem:
        """Return the ranks by BM25 alone.

        Args:
            name: the name of the system.
            about: a description of the system in one line.
            words: the result of the method `words`.
            chunks: the chunks of the documents, if they are cut.
        """
        whole = self._ranks(
            [(scores[of], index, chunks) for (_, of), (scores, index) in zip(self.rounds, words.rounds, strict=True)]
        )
        if self._is_crossed:
            return RankedSystem(name, about, False, None, float(whole.reciprocal.mean()), whole)
        dev = self.collection.select(self.dev.tolist())
        scores, index = words.final
        dev_mrr = ranks(scores[self.dev], index, dev, chunks).reciprocal.mean()
        return RankedSystem(name, about, False, None, float(dev_mrr), whole)

    def combined(self, name: str, about: str, is_trained: bool, vectors: Chosen[CombinedVectors]) -> RankedSystem:
        """Return the ranks by a model combined with BM25.

        Each round (`rounds`) has dev queries and test queries. The weight of the model's score is the one with the
        highest MRR on the dev queries; with this weight, the documents are ranked for the test queries.

        Args:
            name: the name of the model.
            about: a description of the model in one line.
            is_trained: whether the model was trained by this run.
            vectors: the vectors of all queries and documents, from the model and from BM25.
        """
        dev = np.unique(self.dev)
        part = self.collection.select(dev.tolist())
        by_weight = vectors.map(lambda each: each.select(dev).reciprocal_ranks(part))
        of_rounds, dev_mrrs = [], []
        for (queries, test), each, of_weights in zip(self.rounds, vectors.rounds, by_weight.rounds, strict=True):
            values = of_weights[:, np.isin(dev, queries)]
            weight = best_weight(values)
            dev_mrrs.append(_mean(values[WEIGHTS.index(weight)]))
            of_rounds.append((*each.select(test).vectors(weight), each.chunks))
        whole = self._ranks(of_rounds)
        weight = best_weight(by_weight.final)
        dev_mrr = whole.reciprocal.mean() if self._is_crossed else by_weight.final[WEIGHTS.index(weight)].mean()
        called = (f"{name}{WITH_BM25}", f"{about}, with BM25")
        return RankedSystem(*called, is_trained, weight, float(dev_mrr), whole, tuple(dev_mrrs))

    def best_share(self, by_share: Mapping[float, RankedSystem]) -> RankedSystem:
        """Return the ranks by the trained model with the share of its weights that the dev queries choose.

        In each round, the share with the highest MRR on the dev queries ranks the documents for the test queries.

        Args:
            by_share: share of the trained weights -> the system that has this share. Of equally good shares, the first
                is chosen.
        """

        def best(values: Mapping[float, float]) -> float:
            return max(values, key=lambda share: round(values[share], 12))

        parts, first = [], 0
        for number, (_, test) in enumerate(self.rounds):
            chosen = best({share: system.dev_mrrs[number] for share, system in by_share.items()})
            parts.append(by_share[chosen].ranks.select(np.arange(first, first + len(test))))
            first += len(test)
        whole = Ranks.concatenate(parts)
        share = best({share: system.dev_mrr for share, system in by_share.items()})
        dev_mrr = float(whole.reciprocal.mean()) if self._is_crossed else by_share[share].dev_mrr
        return replace(by_share[share], dev_mrr=dev_mrr, ranks=whole, share=share)

    @property
    def _is_crossed(self) -> bool:
        """Return whether each half chooses for the other. Its own choice looks better on a half than it is."""
        return len(self.rounds) > 1

    def _ranks(self, of_rounds: Sequence[tuple[Vectors, Vectors, Chunks | None]]) -> Ranks:
        """Return the ranks for the test queries, from vectors of each round's test queries and of the documents."""
        by_round = []
        for (_, test), (queries, documents, chunks) in zip(self.rounds, of_rounds, strict=True):
            by_round.append(ranks(queries, documents, self.collection.select(test.tolist()), chunks))
        return Ranks.concatenate(by_round)


def _mean(values: NDArray[np.float64]) -> float:
    """Return the mean; 0 if there are no values, as in a round of a single question."""
    return float(values.mean()) if len(values) else 0.0


def combined_vectors(
    vectors: tuple[Vectors, Vectors], words: Chosen[Words], chunks: Chunks | None = None
) -> Chosen[CombinedVectors]:
    """Return the vectors of queries and documents from a model together with each of BM25's scores for the queries.

    Args:
        vectors: the model's vectors of the queries, and of the documents or of their chunks.
        words: the result of `SystemComparison.words`.
        chunks: the chunks of the documents, if they are cut.
    """
    final = CombinedVectors.of(vectors, words.final, chunks)
    return words.map(lambda each: final if each is words.final else final.with_words(each))
