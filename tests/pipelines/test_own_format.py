"""An input format from outside the package: `--format module:name` names an object that recognizes and reads files."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import environment, run_commands

FORTUNES = '''
"""Fortune files: texts, each followed by a line with a percent sign alone."""

from clearspan.pipelines.records import Record


class Fortunes:
    def recognizes(self, head, path):
        return b"\\n%\\n" in head

    def read(self, stream, piece, reading):
        offset = 0
        for data in stream.read().split(b"%\\n"):
            if data:
                problem = "longer than allowed" if len(data) > reading.max_bytes else ""
                yield Record(piece.input.name, offset, None if problem else data.decode(), data, problem)
            offset += len(data) + 2


class Hasty(Fortunes):
    def read(self, stream, piece, reading):
        yield Record(piece.input.name, 0, stream.readline().decode(), b"")
'''
SAYINGS = [
    "The moving finger writes; and, having writ, moves on.",
    "Call me Ishmael.",
    "It was the best of times, it was the worst of times.",
]


@pytest.fixture
def fortunes(tmp_path: Path, own_module: Callable[[str], str]) -> str:
    """Write a format's module, two files of it, and a plain text; return the module's name."""
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.fortunes").write_text("%\n".join(f"{text}\n" for text in SAYINGS))
    (tmp_path / "texts" / "b.gz").write_bytes(gzip.compress(f"{SAYINGS[0]}\n%\n{SAYINGS[1]} Really.\n".encode()))
    (tmp_path / "texts" / "c.txt").write_text("All happy families are alike.")
    return own_module(FORTUNES)


OPTIONS = ("--input", "texts", "--min-tokens", "1", "--dedup")


@pytest.mark.exhaustive
def test_files_that_a_format_recognizes_are_read_by_it_and_others_as_before(
    fortunes: str, pipeline, tmp_path: Path, roberta_tokenizer: Path
) -> None:
    command = ["-m", "clearspan.pipelines", "documents", "--format", f"{fortunes}:Fortunes", *OPTIONS]
    more = ["--output", "out", "--tokenizer", str(roberta_tokenizer), "--workers", "2", "--unit-bytes", "60", "--json"]
    made = run_commands([*command, *more], [environment()], folder=tmp_path)
    assert made.returncode == 0, made.stderr
    summary = json.loads(made.stdout)
    assert (summary["read"], summary["kept"], summary["filtered"]["duplicate"]) == (6, 5, 1)
    printed = run_commands(["-m", "clearspan.shards", "cat", "out", "--json"], [environment()], folder=tmp_path)
    rows = [json.loads(line) for line in printed.stdout.splitlines()]
    assert [row["source"] for row in rows] == [
        "a.fortunes:0",
        f"a.fortunes:{len(SAYINGS[0]) + 3}",
        f"a.fortunes:{len(SAYINGS[0] + SAYINGS[1]) + 6}",
        f"b.gz:{len(SAYINGS[0]) + 3}",
        "c.txt",
    ]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["fingerprint"]["options"]["formats"] == [f"{fortunes}:Fortunes"]


@pytest.mark.slow
def test_records_that_a_format_calls_bad_are_rejected(fortunes: str, pipeline, tmp_path: Path) -> None:
    some_bad = ["--max-document-bytes", "30", "--max-bad-fraction", "1"]
    ended = pipeline("--format", f"{fortunes}:Fortunes", *OPTIONS, *some_bad, "--json")
    summary = json.loads(ended.out)
    assert (summary["bad"], summary["kept"]) == (3, 3)


@pytest.mark.slow
def test_a_format_that_leaves_bytes_unread_is_one_line(fortunes: str, pipeline) -> None:
    ended = pipeline("--format", f"{fortunes}:Hasty", *OPTIONS)
    assert ended.code == 1 and f"a.fortunes: {fortunes}:Hasty read " in ended.err and "bytes, not all" in ended.err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (":Nothing", "has no 'Nothing'"),
        (":Record", "not an input format: it lacks recognizes, read (see clearspan.pipelines.readers.formats.Format)"),
        ("", "not of the form module:name"),
    ],
)
def test_what_is_no_format_is_bad_usage(fortunes: str, pipeline, name: str, message: str) -> None:
    ended = pipeline("--format", f"{fortunes}{name}", *OPTIONS)
    assert ended.code == 2 and message in ended.err
