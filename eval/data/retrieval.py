"""Readers of retrieval collections, each in the files that it is published in.

corpus.jsonl, queries.jsonl, qrels/test.tsv   BEIR's layout (Thakur et al. 2021) ┐
cran.all.1400, cran.qry, cranqrel             Cranfield                          ├──> Collection
Flickr8k.token.txt                            captions, five a photograph        │
test.csv                                      TREC-QA, answers a question        ┘
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearspan.common.parsing import whole_number
from clearspan.eval.files import DataError, csv_rows, head, read_lines

_SURROGATE = re.compile("[\ud800-\udfff]")
_LARGEST_GRADE = 1 << 31

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Collection:
    """Documents, the queries that have relevant ones, and which those are.

    Attributes:
        documents: n texts.
        queries: m texts.
        relevant: for each query the positions of its relevant documents, int64, at least one, ascending.
        grades: for each of these its grade, int64, above 0.
        itself: for each query the position of the document that it is, which is not ranked, int64 (m,); -1 where it is
            none; None: no query is a document.
        candidates: for each query the positions of the documents that are ranked for it, ascending; None: all.
        num_dropped: queries left out, for want of something to find or to tell apart.
    """

    documents: list[str]
    queries: list[str]
    relevant: list[Ints]
    grades: list[Ints]
    itself: Ints | None = None
    candidates: list[Ints] | None = None
    num_dropped: int = 0


@dataclass(frozen=True)
class Layout:
    """A way in which collections are published: the files that a folder of it has, and what reads them."""

    files: tuple[str, ...]
    name: str
    read: Callable[[Path], Collection]


def read_collection(folder: Path) -> Collection:
    """Read a folder in BEIR's layout: `corpus.jsonl`, `queries.jsonl`, `qrels/test.tsv`.

    A document is its title and text joined by a space, as in BEIR. A query that is itself a document (ArguAna, Quora)
    has that document's id, and does not rank it, as in BEIR. A document that is relevant to the query of its id is not
    that query: it is ranked. Queries without a document graded above 0 are left out: their recall is not defined.

    Raises:
        MissingDataError: a file is not there.
        DataError: a file is malformed, or the judgements name a query or document that is not there.
    """
    corpus = _read_jsonl(folder / "corpus.jsonl", fields=("title", "text"))
    queries = _read_jsonl(folder / "queries.jsonl", fields=("text",))
    path = folder / "qrels" / "test.tsv"
    return _collection(path, corpus, queries, _read_qrels(path, corpus, queries), by_id=True)


def read_cranfield(folder: Path) -> Collection:
    """Cranfield: 1,400 abstracts, 225 queries, judgements by degree.

    Queries go by their place in `cran.qry`, 1-225, as the judgements count them, not by the numbers written there. A
    document is its abstract, which begins with the title; the title is put before it where it does not. Two are empty
    (471 and 995) and stay, as in other people's figures. The judgements' codes run from 1, a complete answer, to 4, of
    minimum interest (`cranqrel.readme`), so a document's grade is 5 - code. The code -1, once a query, is explained
    nowhere; it and 5, of no interest, count as not relevant.

    Raises:
        MissingDataError: a file is not there.
        DataError: a file is malformed, or the judgements name a query or document that is not there.
    """
    corpus: dict[str, str] = {}
    for number, fields in _smart_records(folder / "cran.all.1400", "TABW"):
        title, text = fields.get("T", ""), fields.get("W", "")
        corpus[str(number)] = text if text.startswith(title) else f"{title} {text}"
    queries = {str(number): fields.get("W", "") for number, fields in _smart_records(folder / "cran.qry", "W")}
    judged: dict[str, dict[str, int]] = {}
    path = folder / "cranqrel"
    for number, line in enumerate(read_lines(path), start=1):
        fields_of_line = line.split()
        if not fields_of_line:
            continue
        if len(fields_of_line) != 3 or fields_of_line[2] not in ("-1", "1", "2", "3", "4", "5"):
            raise DataError(f"{path}:{number}: expected query, document and a code (1-5, -1), found {head(line)}")
        query, document, code = fields_of_line
        _check_known(f"{path}:{number}", ("query", query, queries), ("document", document, corpus))
        if 1 <= int(code) <= 4:
            judged.setdefault(query, {})[document] = 5 - int(code)
    return _collection(path, corpus, queries, judged)


def read_flickr8k(folder: Path) -> Collection:
    """Flickr8k's captions of all 8,092 photographs, caption to caption: each of the 40,460 is a query, the others of
    its photograph are relevant, and itself is left out of the ranking.

    Nothing is trained on them, so training photographs are in: the more captions, the harder the search. The few
    captions that are written alike of two photographs (250 or so) count as any others.

    Raises:
        MissingDataError: the file is not there.
        DataError: a line is malformed, or a photograph has one caption.
    """
    path = folder / "Flickr8k.token.txt"
    captions: list[str] = []
    of_photograph: dict[str, list[int]] = {}
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        found = re.match(r"([^#\s]+)#\d+\s+(.*\S)", line)
        if not found:
            raise DataError(f"{path}:{number}: expected photograph#number, TAB, caption, found {head(line)}")
        of_photograph.setdefault(found[1], []).append(len(captions))
        captions.append(found[2])
    if alone := [name for name, rows in of_photograph.items() if len(rows) < 2]:
        raise DataError(f"{path}: {head(alone[0])} has one caption: restore the file from the original")
    if not captions:
        raise DataError(f"{path}: holds no caption; restore it from the original")
    relevant = [
        np.array([other for other in rows if other != row], np.int64) for rows in of_photograph.values() for row in rows
    ]
    order = np.array([row for rows in of_photograph.values() for row in rows], np.int64)
    return Collection(
        documents=captions,
        queries=[captions[row] for row in order],
        relevant=relevant,
        grades=[np.ones(len(rows), np.int64) for rows in relevant],
        itself=order,
    )


def read_trecqa(folder: Path) -> Collection:
    """TREC-QA's test questions with their candidate answers (Wang et al. 2007), as a csv: qtext, label, atext.

    Each question ranks its own candidates. Questions whose candidates are all right or all wrong are left out and
    counted, as in the papers: every order of them is as good.

    Raises:
        MissingDataError: the file is not there.
        DataError: a row is malformed, or no question is left.
    """
    path = folder / "test.csv"
    candidates: dict[str, list[tuple[str, str]]] = {}
    for number, row in csv_rows(path):
        if number == 1:
            if row != ["qtext", "label", "atext"]:
                raise DataError(f"{path}:1: expected the header qtext,label,atext, found {head(','.join(row))}")
            continue
        if len(row) != 3 or row[1] not in ("0", "1"):
            raise DataError(f"{path}:{number}: expected a question, 0 or 1, and an answer, found {head(','.join(row))}")
        candidates.setdefault(row[0], []).append((row[2], row[1]))
    kept = {question: found for question, found in candidates.items() if len({label for _, label in found}) == 2}
    if not kept:
        raise DataError(f"{path}: no question has both a right and a wrong answer, so there is nothing to rank")
    documents: list[str] = []
    ranked, relevant = [], []
    for found in kept.values():
        positions = np.arange(len(documents), len(documents) + len(found))
        documents += [answer for answer, _ in found]
        ranked.append(positions)
        relevant.append(positions[[label == "1" for _, label in found]])
    return Collection(
        documents=documents,
        queries=list(kept),
        relevant=relevant,
        grades=[np.ones(len(positions), np.int64) for positions in relevant],
        candidates=ranked,
        num_dropped=len(candidates) - len(kept),
    )


LAYOUTS = (
    Layout(("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"), "BEIR's layout", read_collection),
    Layout(("cran.all.1400", "cran.qry", "cranqrel"), "Cranfield", read_cranfield),
    Layout(("Flickr8k.token.txt",), "Flickr8k's captions", read_flickr8k),
    Layout(("test.csv",), "TREC-QA", read_trecqa),
)
"""In the order in which a folder is taken for one of them: the first of which it has a file; BEIR's where none has."""


def _collection(
    path: Path,
    corpus: Mapping[str, str],
    queries: Mapping[str, str],
    judged: Mapping[str, Mapping[str, int]],
    by_id: bool = False,
) -> Collection:
    """Texts and grades by id -> positions; queries without a relevant document left out.

    Args:
        by_id: a query is the document of its id, unless that is relevant to it.
    """
    position = {document: i for i, document in enumerate(corpus)}
    kept = [query for query in queries if judged.get(query)]
    if not kept:
        raise DataError(f"{path}: grades no document above 0, so there is nothing to find")
    by_position = [sorted((position[document], grade) for document, grade in judged[query].items()) for query in kept]
    own = [position[query] if by_id and query in position and query not in judged[query] else -1 for query in kept]
    itself = np.array(own, np.int64)
    return Collection(
        documents=list(corpus.values()),
        queries=[queries[query] for query in kept],
        relevant=[np.array([p for p, _ in pairs], np.int64) for pairs in by_position],
        grades=[np.array([grade for _, grade in pairs], np.int64) for pairs in by_position],
        itself=itself if (itself >= 0).any() else None,
        num_dropped=len(queries) - len(kept),
    )


def _check_known(place: str, *ids: tuple[str, str, Mapping[str, str]]) -> None:
    for what, name, known in ids:
        if name not in known:
            raise DataError(f"{place}: there is no {what} {head(name)}")


def _smart_records(path: Path, tags: str) -> Iterator[tuple[int, dict[str, str]]]:
    """(place from 1, tag -> text) of a file of SMART's records: `.I n`, then lines under `.T`, `.W` and so on."""
    number, tag = 0, ""
    fields: dict[str, list[str]] = {}
    for row, line in enumerate(read_lines(path), start=1):
        if line.startswith(".I "):
            if number:
                yield number, _joined(fields)
            number, tag, fields = number + 1, "", {}
        elif re.fullmatch(rf"\.[{tags}]", line):
            tag = line[1]
        elif tag:
            fields.setdefault(tag, []).append(line)
        elif line.strip():
            raise DataError(f"{path}:{row}: expected .I and a number, or .{tags[0]}, found {head(line)}")
    if not number:
        raise DataError(f"{path}: holds no record (.I); restore it from the original")
    yield number, _joined(fields)


def _joined(fields: Mapping[str, list[str]]) -> dict[str, str]:
    return {tag: " ".join(" ".join(lines).split()) for tag, lines in fields.items()}


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
            value = whole_number(grade)
        except ValueError:
            raise DataError(f"{path}:{number}: score must be a whole number, found {head(grade)}") from None
        if value >= _LARGEST_GRADE:
            raise DataError(f"{path}:{number}: score must be below {_LARGEST_GRADE:,}, found {head(grade)}")
        if value > 0:
            judged.setdefault(query, {})[document] = value
    return judged
