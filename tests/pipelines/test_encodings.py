"""Text in another encoding than UTF-8: `--encoding` reads it in every format and packing, as UTF-8."""

import gzip
import shutil
from pathlib import Path

import pytest

from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.kinds.text_inputs import encoding_named
from clearspan.pipelines.readers import read_pieces, streams
from clearspan.pipelines.records import Reading, Record
from clearspan.pipelines.units.plan import cut, describe
from clearspan.shards import Dataset
from tests.pipelines.conftest import Command
from tests.pipelines.packings import tar

GERMAN = ["Größe lässt sich streiten.", 'Müller rief: "Schöne Grüße,\naus Köln!"', "Über Äpfel – nur für 5 €."]
JAPANESE = ["吾輩は猫である。", "名前はまだ無い。", "表示できる能力"]
"""The last one has letters whose second byte in Shift JIS is an ASCII backslash."""


def read(name: str, data: bytes, folder: Path, encoding: str, text_per: str = "file") -> list[Record]:
    """Read a file in units of 10 bytes, if it can be cut."""
    (folder / name).write_bytes(data)
    reading = Reading(10**6, encoding=encoding, text_per=text_per)
    entries = list(describe(str(folder), {name: len(data)}, reading))
    pieces = [piece for unit in cut(entries, 10, whole=reading.uncut) for piece in unit.pieces]
    return list(read_pieces(str(folder), pieces, reading))


def csv_of(texts: list[str]) -> str:
    cells = (text.replace('"', '""') for text in texts)
    return "größe,text\n" + "".join(f'{number},"{cell}"\n' for number, cell in enumerate(cells))


@pytest.mark.parametrize("packing", ["plain", "gzip", "tar"])
def test_a_table_of_a_windows_program_is_read(packing: str, tmp_path: Path) -> None:
    data = csv_of(GERMAN).encode("cp1252")
    name, packed = {
        "plain": ("a.csv", data),
        "gzip": ("a.csv.gz", gzip.compress(data)),
        "tar": ("a.tar", tar({"b.csv": data})),
    }[packing]
    assert [record.value for record in read(name, packed, tmp_path, "cp1252")] == GERMAN


@pytest.mark.parametrize("encoding", ["shift_jis", "euc_jp", "gb18030", "utf-16", "utf-32-be"])
def test_lines_in_an_encoding_of_several_bytes_are_read(encoding: str, tmp_path: Path) -> None:
    data = "".join(f"{text}\r\n" for text in JAPANESE).encode(encoding)
    assert [record.value for record in read("a.txt", data, tmp_path, encoding, "line")] == JAPANESE


def test_a_character_may_lie_across_two_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "BUFFER_BYTES", 3)
    assert [record.value for record in read("a.txt", "".join(JAPANESE).encode("utf-16"), tmp_path, "utf-16")] == [
        "".join(JAPANESE)
    ]


@pytest.mark.parametrize(
    ("encoding", "data"),
    [("shift_jis", b"A\n\x82\xff\nB\n"), ("cp1252", b"A\n\x81\xc3\xa4\nB\n"), ("ascii", b"A\n\xe4\nB\n")],
)
def test_a_byte_that_the_encoding_does_not_have_is_a_bad_record(encoding: str, data: bytes, tmp_path: Path) -> None:
    found = read("a.txt", data, tmp_path, encoding, "line")
    assert [record.value for record in found] == ["A", None, "B"]
    assert found[1].problem.startswith("invalid UTF-8 at byte 0")


def test_utf_16_without_its_mark_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="--encoding utf-16: UTF-16 stream does not start with BOM: name that of"):
        read("a.txt", "hello there".encode("utf-16-le"), tmp_path, "utf-16")


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_a_file_that_is_utf8_is_not_read_as_another_encoding(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        PipelineError, match=f"{name}: UTF-8, not cp1252: leave --encoding out, or use auto if files differ"
    ):
        read(name, "\n".join(GERMAN).encode(), tmp_path, "cp1252", "line")


@pytest.mark.parametrize(("name", "usual"), [("windows-1252", "cp1252"), ("Latin1", "iso8859-1"), ("UTF8", None)])
def test_an_encoding_has_one_name_and_utf8_is_none(name: str, usual: str | None) -> None:
    assert encoding_named(name) == usual


@pytest.mark.parametrize("name", ["cp1225", "base64", "", "undefined", "\0"])
def test_what_is_no_encoding_of_text_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no such encoding of text: give one that Python knows"):
        encoding_named(name)


def test_the_dataset_records_the_encoding_and_does_not_continue_with_another(direct: Command, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(csv_of(GERMAN).encode("cp1252"))
    words = ("--input", tmp_path / "a.csv", "--min-tokens", "1")
    refused = direct(*words)
    assert refused.code == 1 and "name the encoding of text that is not UTF-8, e.g. --encoding cp1252" in refused.err
    shutil.rmtree(tmp_path / "out")
    assert direct(*words, "--encoding", "Windows-1252").code == 0
    dataset = Dataset(tmp_path / "out")
    assert dataset.num_examples == 3 and dataset.manifest.fingerprint["options"]["encoding"] == "cp1252"
    other = direct(*words, "--encoding", "cp1250")
    assert other.code == 1 and 'options.encoding: "cp1252" there, "cp1250" now' in other.err
