"""Readers for retrieval collections in their published formats.

    corpus.jsonl, queries.jsonl, qrels/test.tsv   BEIR's layout (Thakur et al. 2021)      ┐
    cran.all.1400, cran.qry, cranqrel             Cranfield                               ├──> RetrievalSet
    Flickr8k.token.txt                            Flickr8k: five captions per photograph  │
    test.csv                                      TREC-QA: questions with their answers   ┘

Each reader raises MissingDataError if a file does not exist. It raises DataError if a file is malformed, or if a
relevance judgment names an unknown query or document. Only in BEIR's layout may a document be unknown: it counts as
relevant and not found.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from clearspan.common.parsing import whole_number
from clearspan.common.records import DataError, csv_records, head, json_records, read_lines, string_field
from clearspan.eval.files import table_rows
from clearspan.retrieval.retrieval_set import RetrievalSet

_LARGEST_GRADE = 1 << 31


def read_collection(folder: Path) -> RetrievalSet:
    """Read a folder in BEIR's layout: `corpus.jsonl`, `queries.jsonl`, `qrels/test.tsv`.

    As in BEIR, a document is its title and its text, joined by a space. In ArguAna and Quora, a query may be one of the
    documents, with the same id. Such a document is not ranked for its own query, unless it is judged relevant to it.
    Queries without a document graded above 0 are left out, because their recall is undefined. As in trec_eval, a
    relevant document that the corpus lacks counts as not found.

    Raises:
        MissingDataError: one of the files does not exist.
        DataError: a file is malformed, a judgment names an unknown query, or no grade of a document of the corpus is
            above 0.
    """
    corpus = _read_jsonl(folder / "corpus.jsonl", fields=("title", "text"))
    queries = _read_jsonl(folder / "queries.jsonl", fields=("text",))
    path = folder / "qrels" / "test.tsv"
    return _collection(path, corpus, queries, _read_qrels(path), by_id=True)


def read_cranfield(folder: Path) -> RetrievalSet:
    """Read Cranfield: 1,400 abstracts, 225 queries, graded judgments.

    A judgment refers to a query by the position of the query in `cran.qry`, from 1 to 225, not by the number written
    there. A document is its abstract, with the title prepended if the abstract does not begin with it. The two empty
    documents (471 and 995) are kept, as in published figures. The codes of the judgments range from 1, a complete
    answer, to 4, of minimum interest (`cranqrel.readme`), so the grade of a document is 5 - code. Documents with the
    code 5, of no interest, or -1, which is undocumented and occurs once per query, count as not relevant.

    Raises:
        MissingDataError: one of the files does not exist.
        DataError: a file is malformed, or a judgment names an unknown query or document.
    """
    corpus: dict[str, str] = {}
    for number, fields in smart_records(folder / "cran.all.1400", "TABW"):
        title, text = fields.get("T", ""), fields.get("W", "")
        corpus[str(number)] = text if text.startswith(title) else f"{title} {text}"
    queries = {str(number): fields.get("W", "") for number, fields in smart_records(folder / "cran.qry", "W")}
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


def read_flickr8k(folder: Path) -> RetrievalSet:
    """Read Flickr8k's 40,460 captions of 8,092 photographs, for caption-to-caption search.

    Each caption is a query, whose relevant documents are the other captions of its photograph. A caption is not ranked
    for itself. Photographs of the training split are included, because nothing is trained on them, and more captions
    make the search harder. About 250 captions occur for two photographs; they get no special treatment.

    Raises:
        MissingDataError: the file `Flickr8k.token.txt` does not exist.
        DataError: the file is malformed or holds no caption, or a photograph has only one caption.
    """
    path = folder / "Flickr8k.token.txt"
    captions: dict[str, str] = {}
    of_photograph: dict[str, list[str]] = {}
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        match = re.match(r"([^#\s]+)#\d+\s+(.*\S)", line)
        if not match:
            raise DataError(f"{path}:{number}: expected photograph#number, TAB, caption, found {head(line)}")
        of_photograph.setdefault(match[1], []).append(str(number))
        captions[str(number)] = match[2]
    if alone := [name for name, ids in of_photograph.items() if len(ids) < 2]:
        raise DataError(f"{path}: {head(alone[0])} has only one caption: restore the file from the original")
    if not captions:
        raise DataError(f"{path}: holds no caption; restore it from the original")
    others = {name: dict.fromkeys(set(ids) - {name}, 1) for ids in of_photograph.values() for name in ids}
    return _collection(path, captions, {name: captions[name] for name in others}, others, by_id=True)


def read_trecqa(folder: Path) -> RetrievalSet:
    """Read TREC-QA's test questions with their candidate answers (Wang et al. 2007).

    The file is a csv with the columns qtext, label and atext. For each question, only its own candidates are ranked.
    Questions whose candidates are all right or all wrong are left out and counted, as in the papers, because every
    order of such candidates is equally good.

    Raises:
        MissingDataError: the file `test.csv` does not exist.
        DataError: the file is malformed, or all questions are left out.
    """
    path = folder / "test.csv"
    candidates: dict[str, list[tuple[str, str]]] = {}
    for place, row in csv_records(path, ("qtext", "label", "atext")):
        if row["label"] not in ("0", "1"):
            raise DataError(f"{place}: label must be 0 or 1, found {head(row['label'])}")
        candidates.setdefault(row["qtext"], []).append((row["atext"], row["label"]))
    mixed = {question: answers for question, answers in candidates.items() if len({label for _, label in answers}) == 2}
    if not mixed:
        raise DataError(f"{path}: no question has both a right and a wrong answer, so there is nothing to rank")
    documents: list[str] = []
    ranked, relevant = [], []
    for answers in mixed.values():
        positions = np.arange(len(documents), len(documents) + len(answers))
        documents += [answer for answer, _ in answers]
        ranked.append(positions)
        relevant.append(positions[[label == "1" for _, label in answers]])
    return RetrievalSet(
        documents=documents,
        queries=list(mixed),
        relevant=relevant,
        grades=[np.ones(len(positions), np.int64) for positions in relevant],
        candidates=ranked,
        num_dropped=len(candidates) - len(mixed),
    )


LAYOUTS: dict[tuple[str, ...], Callable[[Path], RetrievalSet]] = {
    ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"): read_collection,
    ("cran.all.1400", "cran.qry", "cranqrel"): read_cranfield,
    ("Flickr8k.token.txt",): read_flickr8k,
    ("test.csv",): read_trecqa,
}
"""File names of a layout -> reader. A folder has the first layout of which it contains a file, else BEIR's layout."""


def _collection(
    path: Path,
    corpus: Mapping[str, str],
    queries: Mapping[str, str],
    judged: Mapping[str, Mapping[str, int]],
    by_id: bool = False,
) -> RetrievalSet:
    """Build a collection; leave out queries without a relevant document, or without a text.

    Args:
        path: the file of the judgments, for error messages.
        corpus: document id -> text.
        queries: query id -> text.
        judged: query id -> document id -> grade; 0 or less if the document is not relevant. The document may be
            missing in `corpus`, and the query in `queries`.
        by_id: whether a query and a document with the same id are the same text. Such a document is not ranked for its
            query, unless it is judged relevant to it.

    Raises:
        DataError: no query of `queries` has a relevant document in the corpus.
    """
    position = {document: i for i, document in enumerate(corpus)}
    judged = {query: {name: grade for name, grade in graded.items() if grade > 0} for query, graded in judged.items()}
    answerable = [query for query in queries if judged.get(query)]
    unknown = [query for query in judged if judged[query] and query not in queries]
    if not answerable and unknown:
        raise DataError(f"{path}: there is no query-id {head(unknown[0])}, nor any other of it")
    if not answerable:
        raise DataError(f"{path}: grades no document above 0, so there is nothing to find")
    by_position = [
        sorted((position[name], grade) for name, grade in judged[query].items() if name in position)
        for query in answerable
    ]
    if not any(by_position):
        raise DataError(f"{path}: there is no corpus-id {head(next(iter(judged[answerable[0]])))}, nor any other of it")
    absent = [[grade for name, grade in judged[query].items() if name not in position] for query in answerable]
    itself = [position[query] if query in position and query not in judged[query] else -1 for query in answerable]
    return RetrievalSet(
        documents=list(corpus.values()),
        queries=[queries[query] for query in answerable],
        relevant=[np.array([p for p, _ in pairs], np.int64) for pairs in by_position],
        grades=[np.array([grade for _, grade in pairs], np.int64) for pairs in by_position],
        own_document=np.array(itself, np.int64) if by_id and max(itself) >= 0 else None,
        absent=[np.array(grades, np.int64) for grades in absent] if any(absent) else None,
        num_dropped=len(queries) - len(answerable),
        num_unknown=len(unknown),
        names=list(corpus),
    )


def _check_known(place: str, *ids: tuple[str, str, Mapping[str, str]]) -> None:
    for kind, name, known in ids:
        if name not in known:
            raise DataError(f"{place}: there is no {kind} {head(name)}")


def smart_records(path: Path, tags: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the records of a file in the format of the SMART system.

    A record starts with a line `.I n`. A line such as `.T` or `.W` sets the tag of the lines that follow it.

    Args:
        tags: the letters that may be tags, such as "TABW".

    Yields:
        The position of the record in the file, from 1, which may differ from its number n; and a dict from each tag to
        the text of its lines.

    Raises:
        MissingDataError: the file does not exist.
        DataError: a line with text has no tag, or the file holds no record.
    """
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
    """Return the texts of a jsonl file by their ids (the field `_id`), in the order of the file.

    A text consists of the values of `fields`, joined by spaces. All of `fields` except the last may be absent or null.
    A record that occurs twice counts once. An id that is an integer is returned as a string.

    Raises:
        MissingDataError: the file does not exist.
        DataError: the file is malformed, or two different texts have the same id.
    """
    texts: dict[str, str] = {}
    for place, row in json_records(path):
        if isinstance(row.get("_id"), int) and not isinstance(row["_id"], bool):
            row["_id"] = str(row["_id"])
        text_id = string_field(row, "_id", place)
        optional = [string_field(row, field, place) for field in fields[:-1] if row.get(field) is not None]
        text = " ".join([*optional, string_field(row, fields[-1], place)]).strip()
        if texts.setdefault(text_id, text) != text:
            raise DataError(f"{place}: _id {head(text_id)} occurs twice, with two texts: remove one, or rename its _id")
    return texts


def _read_qrels(path: Path) -> dict[str, dict[str, int]]:
    """Return the grades in a file of judgments: query id -> document id -> grade. A line that occurs twice counts once.

    Args:
        path: the file, in the format of BEIR's `qrels/test.tsv`.

    Raises:
        MissingDataError: the file does not exist.
        DataError: a line is malformed, or contradicts another one.
    """
    judged: dict[str, dict[str, int]] = {}
    for number, (query, document, score, *_) in table_rows(path, 3, "query-id"):
        place = f"{path}:{number}"
        try:
            grade = whole_number(score)
        except ValueError:
            raise DataError(f"{place}: score must be an integer, found {head(score)}") from None
        if grade >= _LARGEST_GRADE:
            raise DataError(f"{place}: score must be below {_LARGEST_GRADE:,}, found {head(score)}")
        if (before := judged.setdefault(query, {}).setdefault(document, grade)) != grade:
            raise DataError(
                f"{place}: query-id {head(query)} with corpus-id {head(document)} has the score {grade} here, and "
                f"{before} above: keep one of them"
            )
    return judged
