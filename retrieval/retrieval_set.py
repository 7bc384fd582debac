"""Documents, queries, and the relevant documents of each query: what rankings are scored on, without the scores."""

import functools
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clearspan.common import same_text

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class RetrievalSet:
    """Documents, queries, and the relevant documents of each query.

    Attributes:
        documents: the texts of the n documents.
        queries: the texts of the m queries, each of which has at least one relevant document, maybe an absent one.
        relevant: for each query, the positions in `documents` of its relevant documents, int64, ascending.
        grades: for each query, the grades of its relevant documents in the same order, int64, above 0.
        own_document: for each query, the position of the document that is the query itself, (m,) int64; -1 if there is
            none. This document is not ranked for the query. None if no query is a document.
        absent: for each query, the grades of its relevant documents that are not among `documents`, int64, above 0;
            they count as not found. None if no query has such a document.
        candidates: for each query, the positions of the documents to rank, int64, ascending; None if all documents are
            ranked for each query.
        num_dropped: the number of queries that were left out, because they have no relevant document, or because all of
            their candidates are relevant.
        num_unknown: the number of queries with a relevant document whose text is missing; they are left out, too.
        names: the ids of the documents, which break ties between equal scores; None to break ties by the hashes of the
            texts.
    """

    documents: list[str]
    queries: list[str]
    relevant: list[Ints]
    grades: list[Ints]
    own_document: Ints | None = None
    absent: list[Ints] | None = None
    candidates: list[Ints] | None = None
    num_dropped: int = 0
    num_unknown: int = 0
    names: Sequence[str] | None = None

    def select(self, rows: Iterable[int]) -> "RetrievalSet":
        """Return a collection of all documents and of the queries with the indices `rows`, in the order of `rows`."""
        rows = list(rows)
        return replace(
            self,
            queries=[self.queries[row] for row in rows],
            relevant=[self.relevant[row] for row in rows],
            grades=[self.grades[row] for row in rows],
            own_document=None if self.own_document is None else self.own_document[rows],
            absent=None if self.absent is None else [self.absent[row] for row in rows],
            candidates=None if self.candidates is None else [self.candidates[row] for row in rows],
        )

    def select_documents(self, kept_positions: Ints) -> "RetrievalSet":
        """Return a collection with all queries, but only with the documents at the positions `kept_positions`.

        The caller ensures that `own_document` and `candidates` are None.

        Args:
            kept_positions: ascending positions in `documents`, int64. They include the positions of all relevant
                documents.
        """
        return replace(
            self,
            documents=[self.documents[position] for position in kept_positions],
            relevant=[np.searchsorted(kept_positions, positions) for positions in self.relevant],
            names=None if self.names is None else [self.names[position] for position in kept_positions],
        )

    def sample(self, max_queries: int, max_documents: int) -> "RetrievalSet":
        """Return the first queries, their relevant documents, and others that are drawn in the same way each time.

        The caller ensures that `own_document` and `candidates` are None.

        Args:
            max_queries: the most queries.
            max_documents: the most documents, unless the queries have more relevant ones.
        """
        queries = self.select(range(min(max_queries, len(self.queries))))
        relevant = np.unique(np.concatenate(queries.relevant))
        others = np.setdiff1d(np.arange(len(self.documents)), relevant)
        drawn = np.random.default_rng(0).permutation(others)[: max(0, max_documents - len(relevant))]
        return queries.select_documents(np.sort(np.concatenate([relevant, drawn])))

    def append(self, others: "RetrievalSet") -> "RetrievalSet":
        """Return a collection with the queries of this set, followed by the queries of `others`.

        The caller ensures that both sets have the same documents, and that their `own_document` and `candidates` are
        None.
        """
        return replace(
            self,
            queries=[*self.queries, *others.queries],
            relevant=[*self.relevant, *others.relevant],
            grades=[*self.grades, *others.grades],
        )

    @property
    def num_absent(self) -> int:
        """The number of judgments that grade a document above 0 which is not among `documents`."""
        return sum(map(len, self.absent or ()))

    @functools.cached_property
    def tie_keys(self) -> Ints:
        """Return the tie-break key of each document, (n,) int64. Among equal scores, the larger key ranks first.

        A key is the index of the document's id in the list of all ids, sorted as strings; trec_eval breaks ties in the
        same way. If the documents have no ids, the hashes of their texts are sorted instead, so that the order of the
        documents in a file has no effect.
        """
        names = self.names or [
            hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest() for text in self.documents
        ]
        numbers = np.empty(len(names), np.int64)
        numbers[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        return numbers


def is_of_dev_half(text: str) -> bool:
    """Return whether a text belongs to the half of the held-out texts, or of a user's questions, for development.

    Development (dev) queries choose checkpoints, weights and systems. The other half has the test queries, which
    evaluations score.

    Args:
        text: the text, or the first text of a pair.
    """
    return bool(same_text.digest(text)[0] & 1)
