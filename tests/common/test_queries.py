"""Files of queries, in each form."""

import json
from pathlib import Path

import pytest

from clearspan.common.queries import Query, read_queries
from clearspan.common.records import DataError

ROWS = [
    {"query": "how do owls hunt, in the dark?", "text": 'By ear: "facial discs" gather sound,\nmostly.'},
    {"query": "wo nisten Eulen?", "id": "17"},
    {"query": "梟はどこ", "text": ""},
]
EXPECTED = [
    (ROWS[0]["query"], ROWS[0]["text"], None),
    (ROWS[1]["query"], None, "17"),
    (ROWS[2]["query"], None, None),
]


def _plain(queries: list[Query]) -> list[tuple[str, str | None, str | None]]:
    return [(each.text, each.answer_text, each.answer_id) for each in queries]


def _table(delimiter: str) -> str:
    quoted = [["query", "text", "id"], *([row.get(name, "") for name in ("query", "text", "id")] for row in ROWS)]
    return "\n".join(delimiter.join('"' + cell.replace('"', '""') + '"' for cell in row) for row in quoted) + "\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("q.csv", _table(",")),
        ("q.csv", "\ufeff" + _table(";").replace("\n", "\r\n").replace(",\r\n", ",\n")),
        ("q.TSV", _table("\t")),
        ("q.csv", _table(",").replace('"query","text","id"', "Query, Text, ID")),
        ("q.jsonl", "\n".join(json.dumps({name.title(): each for name, each in row.items()}) for row in ROWS)),
        ("q.jsonl", "\n\n".join(json.dumps({**row, "other": 1}) for row in ROWS)),
    ],
)
def test_a_table_gives_queries_with_their_answers(name: str, content: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode())
    assert _plain(read_queries(path)) == EXPECTED
    assert [each.has_answer for each in read_queries(str(path))] == [True, True, False]


def test_a_text_file_gives_a_query_a_line(tmp_path: Path) -> None:
    path = tmp_path / "queries.txt"
    path.write_bytes("\ufeff  how do owls hunt, in the dark? \r\n\n\nquery\n".encode())
    assert _plain(read_queries(path)) == [("how do owls hunt, in the dark?", None, None), ("query", None, None)]
    assert [each.place for each in read_queries(path)] == [f"{path}:1", f"{path}:4"]


def test_an_id_may_be_a_number_in_json(tmp_path: Path) -> None:
    path = tmp_path / "queries.jsonl"
    path.write_text('{"query": "owls", "id": -9007199254740993}')
    assert _plain(read_queries(path)) == [("owls", None, "-9007199254740993")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("q.txt", b"\n  \n", "{path}: holds no query"),
        ("q.txt", b"owls\n\xff\xfe\n", "{path}:2: not UTF-8"),
        ("q.csv", b"query,text\n", "{path}: holds no query"),
        ("q.csv", b"question,text\nowls,Owls hunt.\n", "{path}:1: expected a header with query"),
        ("q.csv", b"query,text\n ,Owls hunt.\n", "{path}:2: the query is empty"),
        ("q.csv", b"query,text,id\nowls,Owls hunt.,3\n", "{path}:2: has both"),
        ("q.jsonl", b'{"query": "owls"}\n{"text": "owls"}\n', "{path}:2: field query must"),
        ("q.jsonl", b'{"query": "owls", "id": true}\n', "{path}:1: field id must"),
        ("q.jsonl", b'{"query": "owls", "text": ["a"]}\n', "{path}:1: field text must"),
        ("q.jsonl", b'["owls"]\n', "{path}:1: expected a JSON object"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_row(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError) as error:
        read_queries(path)
    assert str(error.value).startswith(message.format(path=path))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["query", "text", "id"])
def test_two_columns_of_one_name_are_refused(name: str, tmp_path: Path) -> None:
    """The second one would have been read, without a word."""
    path = tmp_path / "questions.csv"
    path.write_text(f"query,{name.upper()} ,{name},note,note\nhow do owls hunt?,by ear,17,,\n")
    with pytest.raises(DataError, match=rf'questions.csv:1: [23] columns are named "{name}": keep one'):
        read_queries(path)
    path.write_text("query,note,note\nhow do owls hunt?,,\n")
    assert len(read_queries(path)) == 1


def test_the_text_to_find_may_be_longer_than_pythons_limit_of_a_cell(tmp_path: Path) -> None:
    path, text = tmp_path / "questions.csv", "owl, " * 60_000
    path.write_text(f'query,text\nhow do owls hunt?,"{text}"\n')
    assert _plain(read_queries(path)) == [("how do owls hunt?", text.strip(), None)]


def test_a_missing_file_or_a_folder_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.txt", tmp_path):
        with pytest.raises(DataError, match=str(path)):
            read_queries(path)
