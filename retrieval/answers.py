"""Ranks of the relevant documents among the hits, for a file of queries that names the relevant document of each query.

    queries with a relevant document or its id -> rows of the relevant documents -> best rank among the first 1,000 hits
    -> MRR

The ids in the file are the ids that search results show (`Hit.name`). If several lines of the file have the same query,
they count as one query that has several relevant documents.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from clearspan.common.queries import Query
from clearspan.common.same_text import text_id
from clearspan.retrieval.ranks import DEPTH
from clearspan.retrieval.texts import DOCUMENT, Texts
from clearspan.shards.schema import FIELD


@dataclasses.dataclass(frozen=True)
class Answers:
    """Ranks of the relevant documents of queries among the hits of a search, and their mean reciprocal rank.

    Attributes:
        ranks: for each query, the rank of its best relevant document, from 1; None if no relevant document is named, or
            none of the named ones is among the hits.
        num_judged: the number of distinct queries with a relevant document in the collection.
        num_missing: the number of distinct queries whose relevant document is named, but is not in the collection.
        mrr: the mean of 1 / rank over the `num_judged` queries, in percent. A query whose relevant document is not
            among the hits adds 0.
    """

    ranks: list[int | None]
    num_judged: int
    num_missing: int
    mrr: float

    @classmethod
    def of(cls, texts: Texts, queries: Sequence[Query], results: Sequence[tuple[Sequence[int], object]]) -> "Answers":
        """Return the ranks at which queries find their relevant documents.

        Args:
            texts: the rows that were searched.
            queries: the queries with their relevant documents, as far as these are known.
            results: for each query, the indices of the rows that it finds, best first, and their scores, which are not
                used.

        Raises:
            ShardError: a shard is damaged.
        """
        relevant = _relevant_rows(texts, queries)
        ranks = []
        for query, (rows, _) in zip(queries, results, strict=True):
            of_query = relevant.get(query.text, set())
            ranks.append(next((rank for rank, row in enumerate(rows, start=1) if row in of_query), None))
        asked = {query.text for query in queries if query.has_answer}
        judged = dict(zip((query.text for query in queries), ranks, strict=True))
        judged = {text: rank for text, rank in judged.items() if relevant.get(text)}
        mrr = 100 * sum(1 / rank for rank in judged.values() if rank) / max(1, len(judged))
        return cls(ranks, len(judged), len(asked - judged.keys()), mrr)

    def __str__(self) -> str:
        lines = []
        if self.num_judged:
            lines.append(
                f"MRR {self.mrr:.1f} over {self.num_judged:,} queries whose relevant document is known (ranks to "
                f"{DEPTH:,})"
            )
        if self.num_missing:
            name = "1 query names" if self.num_missing == 1 else f"{self.num_missing:,} queries name"
            lines.append(f"{name} a relevant document that is not in the collection: left out")
        return "\n".join(lines)


def _relevant_rows(texts: Texts, queries: Sequence[Query]) -> Mapping[str, set[int]]:
    """Return the rows that hold the relevant documents of queries: text of a query -> indices of these rows.

    Queries whose relevant documents are in no row are left out of the result.
    """
    by_text: dict[str, list[str]] = {}
    by_id: dict[str, list[str]] = {}
    by_hash: dict[int, list[str]] = {}
    for query in queries:
        if query.answer_text is not None:
            by_text.setdefault(query.answer_text, []).append(query.text)
            by_hash.setdefault(text_id(query.answer_text.encode()), []).append(query.text)
        if query.answer_id is not None:
            by_id.setdefault(query.answer_id, []).append(query.text)
    relevant: dict[str, set[int]] = {}
    for start, number, batch in texts.batches("finding the relevant documents"):
        names = batch.schema.names
        ids = batch.column(DOCUMENT if DOCUMENT in names else "id").to_pylist()
        column = f"{FIELD}{texts.id_fields[number]}"
        shown = batch.column(column).to_pylist() if column in names else [None] * len(ids)
        contents = batch.column("text").to_pylist() if "text" in names and by_text else [None] * len(ids)
        for row, (identity, name, text) in enumerate(zip(ids, shown, contents, strict=True), start=start):
            named = by_id.get(str(identity if name is None else name), []) if by_id else []
            of_text = by_text.get(text.strip(), ()) if text else ()
            for query in (*named, *by_hash.get(identity, ()), *of_text):
                relevant.setdefault(query, set()).add(row)
    return relevant
