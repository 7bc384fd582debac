"""A truncated input of any format and packing ends every command that reads it with one line that names the file."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from clearspan.adapt.fields import find_titles
from clearspan.common.errors import PipelineError
from clearspan.pipelines.text.exclude import read_texts
from tests.pipelines.conftest import Command
from tests.pipelines.packings import COMPRESS, arrow, parquet, tar

NUM_ROWS = 120


@pytest.fixture(scope="module")
def rows(texts: list[str]) -> list[tuple[str, str]]:
    """Titles and texts, whose compressed forms are many times longer than their headers."""
    return [(text.split("\n")[0][:60], " ".join(text.split())[:900]) for text in texts[:NUM_ROWS]]


def jsonl(rows: list[tuple[str, str]]) -> bytes:
    return b"".join(json.dumps({"title": title, "text": text}).encode() + b"\n" for title, text in rows)


def table(rows: list[tuple[str, str]], delimiter: str = ",") -> bytes:
    data = io.StringIO()
    csv.writer(data, delimiter=delimiter).writerows([("title", "text"), *rows])
    return data.getvalue().encode()


def columns(rows: list[tuple[str, str]]) -> dict[str, pa.Array]:
    return {"title": pa.array([title for title, _ in rows]), "text": pa.array([text for _, text in rows])}


PLAIN: dict[str, Callable[[list[tuple[str, str]]], bytes]] = {
    "jsonl": jsonl,
    "json": lambda rows: json.dumps([{"title": title, "text": text} for title, text in rows]).encode(),
    "csv": table,
    "tsv": lambda rows: table(rows, "\t"),
    "txt": lambda rows: "\n".join(text for _, text in rows).encode(),
    "tar": lambda rows: tar({"a.csv": table(rows), "b.jsonl": jsonl(rows)}),
}
CUTTABLE = {
    "json": PLAIN["json"],
    "tar": PLAIN["tar"],
    "parquet": lambda rows: parquet(columns(rows)),
    "arrow": lambda rows: arrow(pa.table(columns(rows))),
    **{
        f"{name}.{end}": lambda rows, pack=pack, inner=inner: pack(inner(rows))
        for end, pack in COMPRESS.items()
        for name, inner in PLAIN.items()
    },
}
"""Formats in which the loss of an end shows, by extension."""
ENDS = (0.3, 0.97)
"""Parts of a file that are left."""


@pytest.mark.guarantee("truncated-input")
@pytest.mark.parametrize("command", ["documents", "pairs", "vocabulary"])
@pytest.mark.parametrize("form", CUTTABLE)
def test_a_truncated_input_ends_a_command_with_a_line_that_names_it(
    direct: Command, tmp_path: Path, rows: list[tuple[str, str]], form: str, command: str
) -> None:
    if command == "pairs" and form.startswith("txt"):
        pytest.skip("a text without columns has no pairs")
    words = {"documents": ("--min-tokens", "1"), "pairs": (), "vocabulary": ("--output", tmp_path / "out")}[command]
    data = CUTTABLE[form](rows)
    path = tmp_path / f"a.{form}"
    for left in ENDS:
        path.write_bytes(data[: int(left * len(data))])
        outcome = direct(command, "--input", path, *words)
        assert outcome.code == 1 and outcome.err.count("\n") == 1, outcome.err
        assert path.name in outcome.err, outcome.err


@pytest.mark.guarantee("truncated-input")
@pytest.mark.parametrize("form", CUTTABLE)
def test_a_truncated_input_is_named_before_its_kind_is_chosen_and_among_excluded_texts(
    tmp_path: Path, rows: list[tuple[str, str]], form: str
) -> None:
    data = CUTTABLE[form](rows)
    path = tmp_path / f"a.{form}"
    for left in ENDS:
        path.write_bytes(data[: int(left * len(data))])
        assert find_titles([str(path)]).names in (None, ("title", "text"))  # the command that reads it names it
        with pytest.raises(PipelineError, match=str(path)):
            list(read_texts([str(path)]))
