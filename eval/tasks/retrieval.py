"""Retrieval: does a query's embedding find the documents that answer it?

    retrieval/<name>/... ──> cosine ranking of the documents ──> the first 1,000 ──> pytrec_eval ──> figures a query

Rankings are ours: blocks of scores, documents of equal scores in the collection's order. Figures are trec_eval's own,
through `pytrec-eval-terrier`: it has a release for each new Python, wheels for every platform and no dependency but
numpy and scipy, where `ranx` compiles with numba and brings a dozen packages; mteb and BEIR have moved to it too. It is
handed 1,000 documents a query as trec_eval is by custom, so a first relevant document below them counts as none.

Every document is ranked for every query, except the document that is the query itself: BEIR's own library leaves out
the document that has the query's id, which decides the figures of ArguAna and Quora.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytrec_eval
from numpy.typing import NDArray
from tqdm import tqdm

from clearspan.eval.data.retrieval import LAYOUTS, Collection, Ints
from clearspan.eval.models.embed import Floats, unit_vectors
from clearspan.eval.report import plots
from clearspan.eval.report.html import Section
from clearspan.eval.report.table import Cell, Table
from clearspan.eval.scores import Examples, TaskScores, figure
from clearspan.eval.tasks.task import Family, Loaded, Run, Task

DEPTH = 1000
"""Documents a query that are ranked."""
MEASURES = {"mrr": "recip_rank", "recall@1": "recall_1", "recall@10": "recall_10", "ndcg@10": "ndcg_cut_10"}
"""Key of the scores -> trec_eval's name. Recall is the share of a query's relevant documents; the gain of nDCG is the
grade, discounted by log2(rank + 1)."""
CANDIDATE_MEASURES = {"map": "map", "mrr": "recip_rank"}
"""The same where each query has candidates of its own, as the papers on TREC-QA report."""
_ASKED = ("map", "recip_rank", "recall.1,10", "ndcg_cut.10")
_BLOCK_SCORES = 1 << 25  # 128 MB of float32; two blocks are alive while one replaces the other
_SHOWN_QUERIES, _SHOWN_NEIGHBOURS, _SHOWN_CHARACTERS = 5, 3, 160


@dataclass(frozen=True)
class Found:
    """What a search gives.

    Attributes:
        figures: key of the scores -> share of 1 for each query, float64 (m,).
        nearest: query -> the positions of its nearest documents, best first, and their scores; of a few queries.
    """

    figures: dict[str, NDArray[np.float64]]
    nearest: dict[int, list[tuple[int, float]]]

    def scores(self) -> dict[str, float]:
        """The means over queries, in percent."""
        return {key: 100 * float(values.mean()) for key, values in self.figures.items()}


def search(
    queries: Floats,
    documents: Floats,
    collection: Collection,
    progress: bool = False,
    depth: int = DEPTH,
    block_scores: int = _BLOCK_SCORES,
) -> Found:
    """Ranks a collection's documents for each query by descending dot product, and scores the rankings.

    Documents of equal scores rank in the collection's order. Never holds queries x documents.

    Args:
        queries: (m, dim).
        documents: (n, dim).
        progress: show a bar when the work goes to a terminal.
        depth: how many documents a query are ranked.
        block_scores: how many scores to hold at once (4 bytes each); one query's are held in any case.
    """
    measures = CANDIDATE_MEASURES if collection.candidates else MEASURES
    values: dict[str, list[float]] = {key: [] for key in measures}
    nearest: dict[int, list[tuple[int, float]]] = {}
    names = [str(position) for position in range(len(documents))]
    descending = [float(rank) for rank in range(depth, 0, -1)]  # distinct, so that the library keeps our order
    shown = set(shown_queries(len(queries)))
    with tqdm(total=len(queries), desc="ranking", unit=" queries", disable=None if progress else True) as bar:
        for start, block in _blocks(queries, documents, collection, depth, block_scores):
            judged, ranked = {}, {}
            for row, (positions, scores) in enumerate(block, start=start):
                grades = collection.grades[row].tolist()
                judged[str(row)] = dict(zip([names[p] for p in collection.relevant[row]], grades, strict=True))
                ranked[str(row)] = dict(zip([names[p] for p in positions.tolist()], descending, strict=False))
                if row in shown:
                    few = slice(_SHOWN_NEIGHBOURS)
                    nearest[row] = list(zip(positions[few].tolist(), scores[few].tolist(), strict=True))
            found = pytrec_eval.RelevanceEvaluator(judged, set(_ASKED)).evaluate(ranked)
            for key, name in measures.items():
                values[key] += [found[query][name] for query in judged]
            bar.update(len(block))
    return Found({key: np.array(column, np.float64) for key, column in values.items()}, nearest)


def shown_queries(num_queries: int) -> list[int]:
    """The queries whose nearest documents are shown: five, evenly over the collection, whatever the model."""
    step = max(1, num_queries // _SHOWN_QUERIES)
    return list(range(0, num_queries, step))[:_SHOWN_QUERIES]


def _blocks(
    queries: Floats, documents: Floats, collection: Collection, depth: int, block_scores: int
) -> Iterator[tuple[int, list[tuple[Ints, Floats]]]]:
    """(first query, the positions and scores of each query's ranking) of blocks of queries."""
    num_rows = max(1, block_scores // len(documents))
    for start in range(0, len(queries), num_rows):
        scores = queries[start : start + num_rows] @ documents.T  # (rows, n)
        yield start, [_ranking(row, collection, start + offset, depth) for offset, row in enumerate(scores)]


def _ranking(scores: Floats, collection: Collection, query: int, depth: int) -> tuple[Ints, Floats]:
    if collection.candidates:
        positions = collection.candidates[query]
        order = first(scores[positions], depth)
        return positions[order], scores[positions[order]]
    order = first(scores, depth + 1)
    if collection.itself is not None:
        order = order[order != collection.itself[query]]
    order = order[:depth]
    return order, scores[order]


def first(scores: Floats, depth: int) -> Ints:
    """The positions of the `depth` highest of `scores` (n,), highest first, equal ones in their order: int64."""
    if depth >= len(scores):
        return np.argsort(-scores, kind="stable")
    lowest = np.partition(scores, len(scores) - depth)[len(scores) - depth]
    above = np.flatnonzero(scores > lowest)
    rows = np.concatenate([above, np.flatnonzero(scores == lowest)[: depth - len(above)]])
    return rows[np.argsort(-scores[rows], kind="stable")]


@dataclass(frozen=True)
class RetrievalTask:
    """One collection."""

    name: str
    collection: Collection
    files: tuple[Path, ...] = ()

    def score(self, run: Run) -> TaskScores:
        """Rank the documents for every query by cosine; figures are means over queries.

        Holds the documents' embeddings and a bounded block of scores, never queries x documents.
        """
        texts, itself = self.collection, self.collection.itself
        documents = unit_vectors(run.embedder.embed(texts.documents, keep=False))
        if itself is not None and texts.queries == [texts.documents[own] for own in itself if own >= 0]:
            queries = documents[itself]
        else:
            queries = unit_vectors(run.embedder.embed(texts.queries))
        found = search(queries, documents, self.collection, progress=run.progress)
        main = "map" if self.collection.candidates else "ndcg@10"
        examples = {key: Examples.of("mean", found.figures[key]) for key in (main, "mrr")}
        scores = found.scores() | {key: figure(one) for key, one in examples.items()}
        reciprocal = found.figures["mrr"]
        first_ranks = np.round(
            np.divide(1, reciprocal, out=np.full(len(queries), float(len(documents))), where=reciprocal > 0)
        )
        section = Section(
            heading=self.name,
            tables=list(self._neighbours(found)),
            figures=[plots.share_within_rank(first_ranks.astype(np.int64), len(documents))],
        )
        counts = {"queries": len(queries), "documents": len(documents)}
        if itself is not None:
            counts["queries that are documents"] = int((itself >= 0).sum())
        if self.collection.num_dropped:
            counts["queries left out"] = self.collection.num_dropped
        return TaskScores(scores, main, tuple(scores), counts, section, examples=examples)

    def _neighbours(self, found: Found) -> Iterator[Table]:
        """Yield a table for each of a few queries, with the three nearest documents, as NonLing-CSE's Table D.1."""
        texts = self.collection
        for query, nearest in found.nearest.items():
            rows = []
            for rank, (position, cosine) in enumerate(nearest, start=1):
                note = f"cosine {cosine:.2f}" + ", relevant" * (position in texts.relevant[query])
                rows.append((rank, Cell(_cut(texts.documents[position]), note)))
            yield Table(("rank", "nearest"), rows, f"{self.name}: {_cut(texts.queries[query])}")


def load(data: Path) -> Loaded:
    """Read every collection `retrieval/<name>/` of a data folder, each in the layout that its files show.

    Raises:
        DataError: a file is malformed.
    """
    tasks: list[Task] = []
    missing: dict[str, str] = {}
    folders = sorted(path for path in (data / "retrieval").glob("*") if path.is_dir())
    if not folders:
        beir = LAYOUTS[0]
        reason = f"no folder {data / 'retrieval'}/<name>/ with {', '.join(beir.files)} ({beir.name})"
        return Loaded([], {"retrieval": reason})
    for folder in folders:
        name = f"retrieval/{folder.name}"
        layout = next((one for one in LAYOUTS if any((folder / file).is_file() for file in one.files)), LAYOUTS[0])
        absent = [file for file in layout.files if not (folder / file).is_file()]
        if absent:
            missing[name] = f"no {', '.join(absent)} in {folder} ({layout.name})"
        else:
            files = tuple(folder / file for file in layout.files)
            tasks.append(RetrievalTask(name, layout.read(folder), files))
    return Loaded(tasks, missing)


FAMILY = Family(
    load,
    "DIR/retrieval/<name>/, BEIR's layout, or Cranfield's, Flickr8k's or TREC-QA's files",
)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
