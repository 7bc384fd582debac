"""Rank the documents of a collection for each query by their similarity in the model, and score the rankings.

    retrieval/<name>/ ──> ranking of all documents ──> the first 1,000 ──> pytrec_eval ──> scores of each query

This module ranks the documents for a block of queries at a time. As in trec_eval, documents with equal scores are
ranked by their ids, in descending order. trec_eval itself computes the scores, through the package
`pytrec-eval-terrier`, which mteb and BEIR use too. The package has a release for each new Python, wheels for every
platform, and no dependencies except numpy and scipy, whereas `ranx` needs numba and a dozen other packages. trec_eval
gets 1,000 documents for each query, as is customary, so a relevant document below rank 1,000 counts as not retrieved.

All documents are ranked for each query, unless the data names the documents to rank for it, as in TREC-QA. A document
that is the query itself is left out, as in BEIR's library. This strongly affects the scores of ArguAna and Quora.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytrec_eval
from numpy.typing import NDArray

from clearspan.common.progress import ProgressBar, counted
from clearspan.eval.data.retrieval_data import LAYOUTS
from clearspan.eval.details import Answer, Cell, Details, Table
from clearspan.eval.scores import Examples, TaskScores, figure
from clearspan.eval.tasks.task import Family, Loaded, Task, TaskContext, load_each
from clearspan.retrieval.products import Floats, Vectors, score_blocks
from clearspan.retrieval.ranks import DEPTH
from clearspan.retrieval.retrieval_set import Ints, RetrievalSet
from clearspan.retrieval.topk import top_indices

MEASURES = {"mrr": "recip_rank", "recall@1": "recall_1", "recall@10": "recall_10", "ndcg@10": "ndcg_cut_10"}
"""Name of a score -> trec_eval's name for it. Recall is the share of a query's relevant documents that are found. The
gain of nDCG is a document's grade, discounted by log2(rank + 1)."""
CANDIDATE_MEASURES = {"map": "map", "mrr": "recip_rank"}
"""Name of a score -> trec_eval's name for it, if each query has its own candidates. Papers on TREC-QA report both."""
_BEIR = next(iter(LAYOUTS))
_TREC_MEASURES = ("map", "recip_rank", "recall.1,10", "ndcg_cut.10")
_BLOCK_SCORES = 1 << 25  # 128 MB of float32; two blocks are in memory while one replaces the other
_SHOWN_QUERIES, _SHOWN_NEIGHBORS, _SHOWN_CHARACTERS = 3, 3, 120


@dataclass(frozen=True)
class Ranked:
    """The rankings of the documents for m queries, and their scores.

    Attributes:
        figures: name of a score, such as `mrr` -> the score of each query, from 0 to 1, (m,) float64.
        nearest: index of a query -> (index of a document, its similarity to the query) for the three documents that
            rank first, best first. It has an entry only for the three queries that the report shows.
        first: the index of the document that ranks first for each query, (m,) int64; -1 if no document is ranked.
    """

    figures: dict[str, NDArray[np.float64]]
    nearest: dict[int, list[tuple[int, float]]]
    first: Ints

    def scores(self) -> dict[str, float]:
        """Return name of a score -> its mean over the queries, in percent."""
        return {key: 100 * float(values.mean()) for key, values in self.figures.items()}


def search(
    queries: Vectors, documents: Vectors, collection: RetrievalSet, progress: bool = False, depth: int = DEPTH
) -> Ranked:
    """Rank a collection's documents for each query by descending dot product, and score the rankings.

    Documents with equal dot products are ranked by their ids, in descending order. Memory holds the dot products of one
    block of queries, never of all queries.

    Args:
        queries: the vectors of the m queries, (m, dim).
        documents: the vectors of the n documents, (n, dim), of the same array type as `queries`.
        collection: the relevant documents of each query, and which documents to rank for it.
        progress: whether to show a progress bar on a terminal.
        depth: the number of documents in each ranking; documents below it count as not retrieved.
    """
    measures = CANDIDATE_MEASURES if collection.candidates else MEASURES
    values: dict[str, list[float]] = {key: [] for key in measures}
    nearest: dict[int, list[tuple[int, float]]] = {}
    top: list[int] = []
    names = [str(position) for position in range(documents.shape[0])]
    descending = [float(rank) for rank in range(depth, 0, -1)]  # distinct values, so that the library keeps this order
    num_queries = queries.shape[0]
    shown = set(shown_queries(num_queries))
    with ProgressBar(num_queries, f"ranking by {num_queries:,} queries", not progress, unit=" queries") as bar:
        for start, block in _blocks(queries, documents, collection, depth):
            judged, ranked = {}, {}
            for row, (positions, scores) in enumerate(block, start=start):
                grades = collection.grades[row].tolist()
                judged[str(row)] = dict(zip([names[p] for p in collection.relevant[row]], grades, strict=True))
                absent = () if collection.absent is None else collection.absent[row].tolist()
                judged[str(row)] |= {f"absent {number}": grade for number, grade in enumerate(absent)}
                ranked[str(row)] = dict(zip([names[p] for p in positions.tolist()], descending, strict=False))
                top.append(int(positions[0]) if len(positions) else -1)
                if row in shown:
                    few = slice(_SHOWN_NEIGHBORS)
                    nearest[row] = list(zip(positions[few].tolist(), scores[few].tolist(), strict=True))
            by_query = pytrec_eval.RelevanceEvaluator(judged, set(_TREC_MEASURES)).evaluate(ranked)
            for key, name in measures.items():
                values[key] += [by_query[query][name] for query in judged]
            bar.update(len(block))
    figures = {key: np.array(column, np.float64) for key, column in values.items()}
    return Ranked(figures, nearest, np.array(top, np.int64))


def shown_queries(num_queries: int) -> list[int]:
    """Return the indices of the three queries whose highest-ranked documents the report shows.

    They are evenly spaced, and are the same for every model. If there are fewer than three queries, all are shown.
    """
    step = max(1, num_queries // _SHOWN_QUERIES)
    return list(range(0, num_queries, step))[:_SHOWN_QUERIES]


def _blocks(
    queries: Vectors, documents: Vectors, collection: RetrievalSet, depth: int
) -> Iterator[tuple[int, list[tuple[Ints, Floats]]]]:
    """Yield (a block's first query, for each of its queries at most `depth` documents and their dot products)."""
    for start, scores in score_blocks(queries, documents, _BLOCK_SCORES):
        yield start, [_ranking(row, collection, start + offset, depth) for offset, row in enumerate(scores)]


def _ranking(scores: Floats, collection: RetrievalSet, query: int, depth: int) -> tuple[Ints, Floats]:
    if collection.candidates:
        positions = collection.candidates[query]
        order = top_indices(scores[positions], depth, collection.tie_keys[positions])
        return positions[order], scores[positions[order]]
    order = top_indices(scores, depth + 1, collection.tie_keys)
    if collection.own_document is not None:
        order = order[order != collection.own_document[query]]
    order = order[:depth]
    return order, scores[order]


@dataclass(frozen=True)
class RetrievalTask:
    """A task that ranks the documents of one collection.

    Attributes:
        name: the name of the task.
        collection: the queries, the documents, and the relevant documents of each query.
        files: the data files.
        headline: the names of the scores that the summary shows, of which the first is the main score; all of them have
            intervals. If it is empty, the summary shows all scores, and only the main score and MRR have intervals. The
            main score is then nDCG@10, or MAP if the collection names the documents to rank for each query.
        counts: what is counted, such as `left out (answer not in the dataset)` -> number. The report shows these
            counts in addition to the numbers of queries and documents.
        text: remarks for the report; "" for none.
        settings: the settings from which the collection was made; empty if it was read from published files.
    """

    name: str
    collection: RetrievalSet
    files: tuple[Path, ...] = ()
    headline: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    text: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def score(self, run: TaskContext) -> TaskScores:
        """Rank the documents for every query, and return the mean of each score over the queries, in percent.

        Memory holds the vectors of all queries and documents, and the dot products of one block of queries.

        Raises:
            UnscoredError: the model cannot compare the texts of this collection.
        """
        texts = self.collection
        itself = self.collection.own_document
        queries, documents, chosen = self.vectors(run)
        num_documents = len(texts.documents)
        ranked = search(queries, documents, self.collection, progress=run.progress)
        main = "map" if self.collection.candidates else "ndcg@10"
        if self.headline:
            main = self.headline[0]
        examples = {key: Examples.of("mean", ranked.figures[key]) for key in self.headline or (main, "mrr")}
        scores = ranked.scores() | {key: figure(values) for key, values in examples.items()}
        details = Details(self.text, list(self._neighbors(ranked, run.embedder.measure)), self._answers(ranked))
        counts = {"queries": len(texts.queries), "documents": num_documents}
        if itself is not None:
            counts["queries that are documents"] = int((itself >= 0).sum())
        if self.collection.num_dropped:
            counts["queries left out"] = self.collection.num_dropped
        if self.collection.num_unknown:
            counts["queries without a text"] = self.collection.num_unknown
        if self.collection.num_absent:
            counts["relevant documents not in the corpus"] = self.collection.num_absent
        return TaskScores(
            scores,
            main,
            self.headline or tuple(scores),
            {**counts, **self.counts},
            details,
            examples=examples,
            settings={**self.settings, **chosen},
        )

    def vectors(self, run: TaskContext) -> tuple[Vectors, Vectors, Mapping[str, Any]]:
        """Return the vectors of the queries, the vectors of the documents, and settings to report, here an empty dict.

        A subclass may return settings that it chose, such as the weight of a model that is combined with BM25.
        """
        return *run.embedder.ranking(self.collection.queries, self.collection.documents), {}

    def _answers(self, ranked: Ranked) -> list[Answer]:
        texts = self.collection
        ranks = [round(1 / reciprocal) if reciprocal else 0 for reciprocal in ranked.figures["mrr"]]
        right = [texts.documents[positions[0]] if len(positions) else "" for positions in texts.relevant]
        nearest = [texts.documents[position] if position >= 0 else "" for position in ranked.first]
        return [Answer(*each) for each in zip(texts.queries, right, ranks, nearest, strict=True)]

    def _neighbors(self, ranked: Ranked, measure: str) -> Iterator[Table]:
        """Yield a table for each of the three queries that the report shows.

        A table has the rank of the relevant document that the model ranks best and, as in NonLing-CSE's Table D.1, the
        three documents that the model ranks first.

        Args:
            ranked: the rankings for all queries.
            measure: the name of the model's similarity, such as `cosine`.
        """
        texts = self.collection
        for query, nearest in ranked.nearest.items():
            relevant = texts.relevant[query]
            reciprocal = ranked.figures["mrr"][query]
            rank = round(1 / reciprocal) if reciprocal else f"over {DEPTH:,}"
            cells = [
                Cell(_cut(texts.documents[position]), f"{measure} {score:.2f}", position in relevant)
                for position, score in nearest
            ]
            header = ("relevant at rank", "nearest", "second", "third")[: 1 + len(cells)]
            several = f", 1 of {len(relevant)}" if len(relevant) > 1 else ""
            text = _cut(texts.documents[relevant[0]]) if len(relevant) else "(not in the corpus)"
            named = f"relevant{several}: {text}"
            yield Table(header, [(rank, *cells)], f"{self.name}: {_cut(texts.queries[query])}\n{named}", names=0)


def remarks(tasks: Iterable[Task]) -> list[str]:
    """Return warnings for each retrieval task whose judgments name documents or queries that have no text.

    Args:
        tasks: the tasks of the run, of any family.
    """
    found = [(task.name, task.collection) for task in tasks if isinstance(task, RetrievalTask)]
    return [
        f"{name}: {counted(texts.num_absent, 'relevant document')} not in the corpus: counted as not found, as in "
        "trec_eval"
        for name, texts in found
        if texts.num_absent
    ] + [
        f"{name}: {counted(texts.num_unknown, 'query-id')} of judgments not in queries.jsonl: left out"
        for name, texts in found
        if texts.num_unknown
    ]


def load(data: Path) -> Loaded:
    """Read the collections in the folders `retrieval/<name>/` of a data folder as tasks.

    The names of the files in a folder identify the format: BEIR's, Cranfield's, Flickr8k's or TREC-QA's. If a file of a
    task does not exist, the task is left out, and `Loaded.missing` has the reason.

    Raises:
        DataError: a file is malformed.
    """
    folders = sorted(path for path in (data / "retrieval").glob("*") if path.is_dir())
    if not folders:
        return Loaded([], {"retrieval": f"no folder {data / 'retrieval'}/<name>/ with {', '.join(_BEIR)}"})
    return load_each({f"retrieval/{folder.name}": partial(_read, folder) for folder in folders})


def _read(folder: Path) -> RetrievalTask:
    layout = next((names for names in LAYOUTS if any((folder / file).is_file() for file in names)), _BEIR)
    return RetrievalTask(f"retrieval/{folder.name}", LAYOUTS[layout](folder), tuple(folder / file for file in layout))


FAMILY = Family(load, "DIR/retrieval/<name>/, in BEIR's layout, or the files of Cranfield, Flickr8k or TREC-QA")


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
