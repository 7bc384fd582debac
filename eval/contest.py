"""Ranks that a verdict's systems give to the relevant documents: BM25, each model, and each model combined with BM25.

    rounds of (choosing queries, judged queries) ─┐
    vectors of a model and of BM25 ───────────────┴> ContestResult: weight of the model, rank for each judged query

If a model is combined with BM25, the weight of its score is chosen on some queries, the choosing queries. The ranks are
measured on other queries, the judged queries. Held-out texts, such as titles, are divided into two halves, and there is
one round: the half by which training picks checkpoints gives the choosing queries, and the other half gives the judged
queries. A user's questions are few, so there are two rounds: each half of the questions is judged with the weight that
was chosen on the other half.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clearspan.common.records import DataError
from clearspan.eval.data.heldout_data import MIN_TEXTS, HeldOutTexts, hold_out_more, is_of_picking_half
from clearspan.eval.data.retrieval_data import Ints, RetrievalSet
from clearspan.eval.models.hybrid import MAX_CHOOSING, WEIGHTS, CombinedVectors, best_weight
from clearspan.eval.models.ranks import Chunks, Ranks, ranks
from clearspan.eval.models.similarity import Vectors

BESIDE = " + BM25"
"""End of the name of a model that is combined with BM25."""


@dataclass(frozen=True)
class ContestResult:
    """A system, and the ranks at which it finds the relevant documents.

    Weights and systems are selected on some queries, the choosing queries. The figures of the verdict are measured on
    the judged queries.

    Attributes:
        name: the name of the system.
        about: a description of the system in one line.
        is_trained: whether the model was trained by this run.
        weight: the weight of the model's score in a combination with BM25, from 0 to 1. It has the highest MRR on all
            choosing queries. None if the system is a model or BM25 alone.
        choosing_mrr: the MRR on the choosing queries, from 0 to 1. The trained system and the untrained system with the
            highest values are compared by the verdict.
        ranks: for each judged query, the rank of its best relevant document, from 1, and the text that ranks first.
    """

    name: str
    about: str
    is_trained: bool
    weight: float | None
    choosing_mrr: float
    ranks: Ranks

    @property
    def reciprocal(self) -> NDArray[np.float64]:
        """The reciprocal ranks of the m judged queries' relevant documents, (m,); 0 for a rank larger than 1,000."""
        return self.ranks.reciprocal


@dataclass(frozen=True)
class Contest:
    """The queries of a verdict, and the texts that are ranked.

    Attributes:
        collection: all queries, and the documents. Choosing queries select weights and systems; judged queries give the
            figures of the verdict.
        rounds: for each round, the indices of its choosing queries, and the indices of its judged queries.
    """

    collection: RetrievalSet
    rounds: Sequence[tuple[Ints, Ints]]

    @classmethod
    def of_halves(cls, held_out: HeldOutTexts) -> "Contest":
        """Return the contest with queries from held-out texts, such as titles.

        It has one round. Training picks checkpoints by queries from one half of the texts; at most 2,000 of these
        select the weights and the systems. The queries from the other half give the figures of the verdict.

        Raises:
            DataError: there are fewer than 10 queries (`MIN_TEXTS`) by which training picks checkpoints.
        """
        judged = held_out.collection
        if held_out.picking is None or len(held_out.picking.queries) < MIN_TEXTS:
            raise DataError(
                f"{held_out.files[0].parent}: too few texts to choose the weights ({MIN_TEXTS} are needed): "
                f"{hold_out_more()}"
            )
        number = min(MAX_CHOOSING, len(held_out.picking.queries))
        both = judged.append(held_out.picking.select(range(number)))
        rows = np.arange(len(both.queries))
        return cls(both, [(rows[len(judged.queries) :], rows[: len(judged.queries)])])

    @classmethod
    def of_questions(cls, questions: HeldOutTexts) -> "Contest":
        """Return the contest with a user's questions as queries.

        It has two rounds. The questions are divided into two halves by their hashes. In each round, one half selects
        the weight of a model in a combination with BM25, and the texts are ranked for the other half with this weight.
        """
        collection = questions.collection
        is_first = np.array([is_of_picking_half(query) for query in collection.queries])
        first, second = np.flatnonzero(is_first), np.flatnonzero(~is_first)
        return cls(collection, [(first, second), (second, first)])

    @property
    def judged(self) -> Ints:
        """The indices of the queries that give the figures of the verdict, from all rounds, (m,).

        The ranks in a `ContestResult` are in this order.
        """
        return np.concatenate([judged for _, judged in self.rounds])

    @property
    def choosing(self) -> Ints:
        """The indices of the queries on which weights and systems are selected, from all rounds, (m,)."""
        return np.concatenate([choosing for choosing, _ in self.rounds])

    def uncombined(
        self,
        name: str,
        description: str,
        is_trained: bool,
        vectors: tuple[Vectors, Vectors],
        chunks: Chunks | None = None,
    ) -> ContestResult:
        """Return the result of a model, or of BM25, that is not combined with another system.

        Args:
            name: the name of the system.
            description: a description of the system in one line.
            is_trained: whether the model was trained by this run; False for BM25.
            vectors: the vectors of all queries, (queries, dim), and of all documents, (documents, dim). The dot product
                of a query's and a document's vector is the score. A model's vectors are dense; those of BM25 are
                sparse, with a component for each word.
            chunks: the chunks of the documents, if they are cut: the vectors of documents are then those of the chunks.
        """
        all_ranks = ranks(*vectors, self.collection, chunks)
        choosing_mrr = all_ranks.reciprocal[self.choosing].mean()
        return ContestResult(name, description, is_trained, None, float(choosing_mrr), all_ranks.select(self.judged))

    def combined(self, name: str, description: str, is_trained: bool, vectors: CombinedVectors) -> ContestResult:
        """Return the result of a model combined with BM25.

        Each round (`rounds`) has choosing queries and judged queries. The weight of the model's score is the one with
        the highest MRR on the choosing queries; with this weight, the documents are ranked for the judged queries.

        Args:
            name: the name of the model.
            description: a description of the model in one line.
            is_trained: whether the model was trained by this run.
            vectors: the vectors of all queries and documents, from the model and from BM25.
        """
        choosing = np.unique(self.choosing)
        grid = vectors.select(choosing).reciprocal_ranks(self.collection.select(choosing.tolist()))
        by_round = []
        for chooses, judged in self.rounds:
            weight = best_weight(grid[:, np.isin(choosing, chooses)])
            part = self.collection.select(judged.tolist())
            by_round.append(ranks(*vectors.select(judged).vectors(weight), part, vectors.chunks))
        whole = Ranks.concatenate(by_round)
        weight = best_weight(grid)
        is_crossed = len(self.rounds) > 1  # on the queries that chose it, a weight looks better than it is
        choosing_mrr = whole.reciprocal.mean() if is_crossed else grid[WEIGHTS.index(weight)].mean()
        return ContestResult(
            f"{name}{BESIDE}", f"{description}, with BM25", is_trained, weight, float(choosing_mrr), whole
        )
