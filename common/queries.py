"""A file of queries: texts to search for and, if known, the text that each query should find.

    questions.txt      one query per line
    questions.csv      a column `query` and, if the answers are known, a column `text` with the text to find, or a
                       column `id` with the id of this text, as search results show it
    .tsv, .jsonl       the same columns or fields

`read_queries` returns one `Query` per row. If several rows have the same query, callers merge them into one query with
several relevant documents.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearspan.common.delimited import TABLE_SUFFIXES
from clearspan.common.parsing import normalized_name
from clearspan.common.records import DataError, MissingDataError, csv_records, json_records, read_lines, string_field

JSON_LINES = (".jsonl", ".json")


@dataclass(frozen=True)
class Query:
    """A query.

    Attributes:
        text: the query.
        answer_text: the text that the query should find; None if it is unknown, or identified by `answer_id`.
        answer_id: the id of the text that the query should find, as search results show it; None if it is unknown, or
            given as `answer_text`.
        place: the file and line of the query, for messages.
    """

    text: str
    answer_text: str | None = None
    answer_id: str | None = None
    place: str = ""

    @property
    def has_answer(self) -> bool:
        """Return whether it is known which text this query should find."""
        return self.answer_text is not None or self.answer_id is not None


def read_queries(path: str | Path) -> list[Query]:
    """Read a file of queries: a csv, tsv or jsonl file, or any other text file with one query per line.

    A csv, tsv or jsonl file has a column or field `query`, and optionally `text`, the text that the query should find,
    or `id`, the id of this text. A blank `text` or `id` counts as missing. Letter case and surrounding spaces of a
    column's name do not matter. Blank lines are skipped, but in a csv or tsv file they are errors.

    Raises:
        DataError: the file cannot be read, is malformed or holds no query; or a row has no query, or has both a text
            and an id.
    """
    path = Path(path)
    try:
        queries = list(_read(path))
    except MissingDataError as error:
        raise DataError(str(error)) from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None
    if not queries:
        raise DataError(f"{path}: holds no query: write one on each line")
    return queries


def _read(path: Path) -> Iterator[Query]:
    suffix = path.suffix.lower()
    if suffix in TABLE_SUFFIXES:
        for place, row in csv_records(path, ("query",), normalized_name, ("text", "id")):
            yield _query(row, place)
    elif suffix in JSON_LINES:
        for place, record in json_records(path):
            yield _query({normalized_name(name): value for name, value in record.items()}, place)
    else:
        for number, line in enumerate(read_lines(path), start=1):
            if line.strip():
                yield Query(line.strip(), place=f"{path}:{number}")


def _query(record: Mapping[str, Any], place: str) -> Query:
    text = string_field(record, "query", place).strip()
    if not text:
        raise DataError(f"{place}: the query is empty: write one, or remove the row")
    answers = {name: _answer(record, name, place) for name in ("text", "id")}
    if None not in answers.values():
        raise DataError(f"{place}: has both a text and an id: give one of them, by which to find the relevant document")
    return Query(text, answers["text"], answers["id"], place)


def _answer(record: Mapping[str, Any], name: str, place: str) -> str | None:
    """Return the content of the field `text` or `id`, an integer as a string; None if it is missing or blank."""
    value = record.get(name)
    if value is None:
        return None
    if name == "id" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return string_field(record, name, place).strip() or None
