"""Retrieval: does a query's embedding find the documents that answer it?

    retrieval/<name>/{corpus.jsonl, queries.jsonl, qrels/test.tsv} ──> cosine ranking of every document ──> ranks of the
    relevant ones ──> MRR, recall, nDCG

Reads BEIR's layout (Thakur et al. 2021). All four metrics follow from the ranks of the relevant documents alone, so no
top-k lists are kept and no rank is cut off. Every document is ranked for every query: BEIR's own library leaves out the
document that bears the query's id, which changes ArguAna and Quora.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from eval.files import DataError, head, read_lines
from eval.models.embed import Floats, unit_vectors
from eval.report import plots
from eval.report.html import Section, Table
from eval.scores import TaskScores
from eval.tasks.task import Family, Loaded, Run, Task

_FILES = ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv")
_BLOCK_SCORES = 1 << 25  # 128 MB of float32; two blocks are alive while one replaces the other

_SURROGATE = re.compile("[\ud800-\udfff]")
_LARGEST_GRADE = 1 << 31

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Collection:
    """Documents, the queries that have relevant ones, and which those are.

    Attributes:
        documents: title and text joined by a space, as in BEIR.
        relevant: for each query the positions of its relevant documents, int64, at least one, ascending.
        grades: for each of these its grade, int64, above 0.
    """

    documents: list[str]
    queries: list[str]
    relevant: list[Ints]
    grades: list[Ints]


def relevant_ranks(
    queries: Floats,
    documents: Floats,
    relevant: Sequence[Ints],
    progress: bool = False,
    block_scores: int = _BLOCK_SCORES,
) -> list[Ints]:
    """The rank, from 1, of each relevant document among all documents, by descending dot product.

    Documents with equal scores rank in their corpus order.

    Args:
        queries: (num_queries, dim).
        documents: (num_documents, dim).
        relevant: for each query the positions of its relevant documents.
        progress: show a bar when the work goes to a terminal.
        block_scores: how many scores to hold at once (4 bytes each); one query's are held in any case.

    Returns:
        For each query the ranks of its relevant documents, in the order of `relevant`.
    """
    num_rows = max(1, block_scores // len(documents))
    ranks = []
    with tqdm(total=len(queries), desc="ranking", unit=" queries", disable=None if progress else True) as bar:
        for start in range(0, len(queries), num_rows):
            block = queries[start : start + num_rows] @ documents.T  # (rows, num_documents)
            for scores, positions in zip(block, relevant[start : start + num_rows], strict=True):
                better = [
                    np.count_nonzero(scores > scores[p]) + np.count_nonzero(scores[:p] == scores[p]) for p in positions
                ]
                ranks.append(np.array(better, np.int64) + 1)
            bar.update(len(block))
    return ranks


def metrics_of(ranks: Sequence[Ints], grades: Sequence[Ints]) -> dict[str, float]:
    """MRR, recall@1, recall@10 and nDCG@10, means over queries, in percent.

    MRR is of the whole ranking. nDCG is as in trec_eval: gain grade / log2(rank + 1), over that of the ideal ranking.

    Args:
        ranks: for each query the ranks, from 1, of its relevant documents (at least one).
        grades: the grade of each, above 0.
    """

    def recall(k: int) -> float:
        return float(np.mean([np.mean(query_ranks <= k) for query_ranks in ranks]))

    def ndcg(k: int) -> float:
        values = []
        for query_ranks, query_grades in zip(ranks, grades, strict=True):
            gain = np.sum(query_grades / np.log2(query_ranks + 1), where=query_ranks <= k)
            ideal = np.sort(query_grades)[::-1][:k]
            values.append(gain / np.sum(ideal / np.log2(np.arange(2, len(ideal) + 2))))
        return float(np.mean(values))

    return {
        "mrr": 100 * float(np.mean([1 / query_ranks.min() for query_ranks in ranks])),
        "recall@1": 100 * recall(1),
        "recall@10": 100 * recall(10),
        "ndcg@10": 100 * ndcg(10),
    }


@dataclass(frozen=True)
class RetrievalTask:
    """One collection."""

    name: str
    collection: Collection
    files: tuple[Path, ...] = ()

    def score(self, run: Run) -> TaskScores:
        """Rank every document for every query by cosine.

        Holds the documents' embeddings and a bounded block of scores, never queries x documents.
        """
        queries = unit_vectors(run.embedder.embed(self.collection.queries))
        documents = unit_vectors(run.embedder.embed(self.collection.documents, keep=False))
        ranks = relevant_ranks(queries, documents, self.collection.relevant, progress=run.progress)
        scores = metrics_of(ranks, self.collection.grades)
        first_ranks = np.array([query_ranks.min() for query_ranks in ranks])
        section = Section(
            heading=self.name,
            tables=[Table(header=tuple(scores), rows=[tuple(scores.values())])],
            figures=[plots.share_within_rank(first_ranks, len(documents))],
        )
        counts = {"queries": len(queries), "documents": len(documents)}
        return TaskScores(scores, main="ndcg@10", headline=tuple(scores), counts=counts, section=section)


def read_collection(folder: Path) -> Collection:
    """Read a folder in BEIR's layout: `corpus.jsonl`, `queries.jsonl`, `qrels/test.tsv`.

    Queries without a document graded above 0 are left out: their recall is not defined.

    Raises:
        DataError: a file is malformed, or the judgements name a query or document that is not there.
        OSError: a file cannot be read.
    """
    corpus = _read_jsonl(folder / "corpus.jsonl", fields=("title", "text"))
    queries = _read_jsonl(folder / "queries.jsonl", fields=("text",))
    judged = _read_qrels(folder / "qrels" / "test.tsv", corpus, queries)
    position = {document: i for i, document in enumerate(corpus)}
    kept = [query for query in queries if judged.get(query)]
    if not kept:
        raise DataError(f"{folder / 'qrels' / 'test.tsv'}: grades no document above 0, so there is nothing to find")
    by_position = [sorted((position[document], grade) for document, grade in judged[query].items()) for query in kept]
    return Collection(
        documents=list(corpus.values()),
        queries=[queries[query] for query in kept],
        relevant=[np.array([p for p, _ in pairs], np.int64) for pairs in by_position],
        grades=[np.array([grade for _, grade in pairs], np.int64) for pairs in by_position],
    )


def load(data: Path) -> Loaded:
    """Read every collection `retrieval/<name>/` of a data folder.

    Raises:
        DataError: a file is malformed.
    """
    tasks: list[Task] = []
    missing: dict[str, str] = {}
    folders = sorted(path for path in (data / "retrieval").glob("*") if path.is_dir())
    if not folders:
        return Loaded(
            [], {"retrieval": f"no folder {data / 'retrieval'}/<name>/ with {', '.join(_FILES)} (BEIR's layout)"}
        )
    for folder in folders:
        name = f"retrieval/{folder.name}"
        absent = [file for file in _FILES if not (folder / file).is_file()]
        if absent:
            missing[name] = f"no {', '.join(absent)} in {folder} (BEIR's layout)"
        else:
            tasks.append(RetrievalTask(name, read_collection(folder), tuple(folder / file for file in _FILES)))
    return Loaded(tasks, missing)


FAMILY = Family(load, "DATA/retrieval/<name>/{corpus.jsonl,queries.jsonl,qrels/test.tsv}, BEIR's layout")


def _read_jsonl(path: Path, fields: tuple[str, ...]) -> dict[str, str]:
    """Id -> the fields joined by a space, in file order. The last field is required; others may be absent or null."""
    texts: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{path}:{number}: not JSON: {error.msg} at column {error.colno}: {head(line)}") from None
        except (ValueError, RecursionError) as error:  # a number of thousands of digits, or nesting without end
            raise DataError(f"{path}:{number}: cannot be read as JSON: {error}: {head(line)}") from None
        if not isinstance(row, dict):
            raise DataError(f"{path}:{number}: expected a JSON object with _id and {fields[-1]}, found {head(line)}")
        text_id = _string(row, "_id", place := f"{path}:{number}")
        if text_id in texts:
            raise DataError(f"{place}: _id {head(text_id)} is there twice; ids must be unique")
        optional = [_string(row, field, place) for field in fields[:-1] if row.get(field) is not None]
        texts[text_id] = " ".join([*optional, _string(row, fields[-1], place)]).strip()
    return texts


def _string(row: dict[str, Any], field: str, place: str) -> str:
    value = row.get(field)
    if not isinstance(value, str):
        raise DataError(f"{place}: field {field} must be a string, found {repr(value)[:60]}")
    if found := _SURROGATE.search(value):
        raise DataError(f"{place}: field {field} holds {found[0]!r}, half of a character: write the whole one")
    return value


def _read_qrels(path: Path, corpus: dict[str, str], queries: dict[str, str]) -> dict[str, dict[str, int]]:
    """Query id -> document id -> grade, of the grades above 0."""
    judged: dict[str, dict[str, int]] = {}
    seen: set[tuple[str, str]] = set()
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t")
        if number == 1:
            if columns != ["query-id", "corpus-id", "score"]:
                raise DataError(f"{path}:1: expected the header query-id, corpus-id, score (TABs), found {head(line)}")
            continue
        if not line.strip():
            continue
        if len(columns) != 3:
            raise DataError(f"{path}:{number}: expected 3 TAB-separated fields, found {len(columns)}: {head(line)}")
        query, document, grade = columns
        if query not in queries:
            raise DataError(f"{path}:{number}: query-id {head(query)} is not in queries.jsonl")
        if document not in corpus:
            raise DataError(f"{path}:{number}: corpus-id {head(document)} is not in corpus.jsonl")
        if (query, document) in seen:
            raise DataError(f"{path}:{number}: query-id {head(query)} with corpus-id {head(document)} is there twice")
        seen.add((query, document))
        try:
            value = int(grade)
        except ValueError:
            raise DataError(f"{path}:{number}: score must be a whole number, found {head(grade)}") from None
        if value >= _LARGEST_GRADE:
            raise DataError(f"{path}:{number}: score must be below {_LARGEST_GRADE:,}, found {head(grade)}")
        if value > 0:
            judged.setdefault(query, {})[document] = value
    return judged
