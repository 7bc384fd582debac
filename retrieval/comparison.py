"""Comparison of systems that search the same documents: BM25, each model, and each model combined with BM25.

    rounds of (dev queries, test queries) ─┐
    vectors of a model and of BM25 ────────┴> RankedSystem: weight of the model, rank for each test query

If a model is combined with BM25, the weight of its score is chosen on some queries, the development (dev) queries. The
ranks are measured on other queries, the test queries. Held-out texts, such as titles, are divided into two halves, and
there is one round: the half by which training picks checkpoints gives the dev queries, and the other half gives the
test queries. A user's questions are few, so there are two rounds: each half of the questions is tested with the weight
that was chosen on the other half.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clearspan.retrieval.hybrid import MAX_DEV_QUERIES, WEIGHTS, CombinedVectors, best_weight
from clearspan.retrieval.products import Vectors
from clearspan.retrieval.ranks import Chunks, Ranks, ranks
from clearspan.retrieval.retrieval_set import Ints, RetrievalSet, is_of_dev_half

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
    """

    name: str
    about: str
    is_trained: bool
    weight: float | None
    dev_mrr: float
    ranks: Ranks

    @property
    def reciprocal(self) -> NDArray[np.float64]:
        """The reciprocal ranks of the m test queries' relevant documents, (m,); 0 for a rank larger than 1,000."""
        return self.ranks.reciprocal


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
        the weight of a model in a combination with BM25, and the texts are ranked for the other half with this weight.
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
        """Return the ranks by a model, or by BM25, that is not combined with another system.

        Args:
            name: the name of the system.
            about: a description of the system in one line.
            is_trained: whether the model was trained by this run; False for BM25.
            vectors: the vectors of all queries, (queries, dim), and of all documents, (documents, dim). The dot product
                of a query's and a document's vector is the score. BM25 has its scores for the
                queries, and its index of the documents, in place of vectors (`retrieval.products`).
            chunks: the chunks of the documents, if they are cut: the vectors of documents are then those of the chunks.
        """
        all_ranks = ranks(*vectors, self.collection, chunks)
        dev_mrr = float(all_ranks.reciprocal[self.dev].mean())
        return RankedSystem(name, about, is_trained, None, dev_mrr, all_ranks.select(self.test))

    def combined(self, name: str, about: str, is_trained: bool, vectors: CombinedVectors) -> RankedSystem:
        """Return the ranks by a model combined with BM25.

        Each round (`rounds`) has dev queries and test queries. The weight of the model's score is the one with the
        highest MRR on the dev queries; with this weight, the documents are ranked for the test queries.

        Args:
            name: the name of the model.
            about: a description of the model in one line.
            is_trained: whether the model was trained by this run.
            vectors: the vectors of all queries and documents, from the model and from BM25.
        """
        all_dev = np.unique(self.dev)
        by_weight = vectors.select(all_dev).reciprocal_ranks(self.collection.select(all_dev.tolist()))
        by_round = []
        for dev, test in self.rounds:
            weight = best_weight(by_weight[:, np.isin(all_dev, dev)])
            part = self.collection.select(test.tolist())
            by_round.append(ranks(*vectors.select(test).vectors(weight), part, vectors.chunks))
        whole = Ranks.concatenate(by_round)
        weight = best_weight(by_weight)
        is_crossed = len(self.rounds) > 1  # on the queries that chose it, a weight looks better than it is
        dev_mrr = whole.reciprocal.mean() if is_crossed else by_weight[WEIGHTS.index(weight)].mean()
        return RankedSystem(f"{name}{WITH_BM25}", f"{about}, with BM25", is_trained, weight, float(dev_mrr), whole)
