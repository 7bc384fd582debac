"""Files that are packed in a way that nothing here unpacks: they are named, whatever their name and encoding."""

import bz2
import gzip
import io
import json
import lzma
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard

from clearspan.common.compressions import packing_of
from clearspan.common.errors import PipelineError
from clearspan.common.queries import read_queries
from clearspan.common.records import DataError
from clearspan.pipelines.readers.sniff import detect_format
from tests.pipelines.conftest import Command, summary
from tests.pipelines.packings import jsonl, read_all, tar

TEXT = "The owl hunts at night over quiet fields, while the farmers sleep. " * 9
LINES = jsonl([TEXT] * 3)


def arrow_compressed(name: str, data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, name) as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def zipped(data: bytes) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("a.txt", data)
    return sink.getvalue()


PACKED = {
    ".lz4": ("compressed with lz4", arrow_compressed("lz4", LINES)),
    ".br": ("compressed with brotli", arrow_compressed("brotli", LINES)),
    ".lzma": ("compressed with lzma", lzma.compress(LINES, lzma.FORMAT_ALONE)),
    ".lzo": ("compressed with lzop", b"\x89LZO\0\r\n\x1a\n\x10\x40\x20\xa0" + bytes(20)),
    ".sz": ("compressed with snappy", b"\xff\x06\0\0sNaPpY\x01\x10" + bytes(20)),
    ".Z": ("compressed with compress", b"\x1f\x9d\x90T\xd0\x94" + bytes(20)),
    ".lz": ("compressed with lzip", b"LZIP\x01\x0c\0\x2a" + bytes(20)),
    ".7z": ("an archive of files", b"7z\xbc\xaf\x27\x1c\0\4" + bytes(20)),
    ".rar": ("an archive of files", b"Rar!\x1a\x07\x01\0" + bytes(20)),
    ".zip": ("an archive of files", zipped(LINES)),
    ".deb": ("an archive of files", b"!<arch>\ndebian-binary   1342943816  0     0     100644  4         `\n2.0\n\0"),
    ".cpio": ("an archive of files", b"070701" + b"0" * 104 + b"a.txt\0"),
    ".lzh": ("an archive of files", b"\x21\xb6-lh5-\x9f\x13\0\0" + bytes(20)),
}


@pytest.mark.parametrize("encoding", [None, "cp1252", "auto"])
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.tar", "a"])
@pytest.mark.parametrize("suffix", PACKED)
def test_how_a_file_is_packed_is_told(suffix: str, name: str, encoding: str | None) -> None:
    said, data = PACKED[suffix]
    for each in [f"{name}{suffix}", name]:
        if each == name and suffix == ".br":
            continue  # brotli has no first bytes of its own
        with pytest.raises(PipelineError, match=f"{said}: unpack it"):
            detect_format(io.BytesIO(data), f"corpus/{each}", encoding)


def test_an_extension_of_a_compression_may_be_that_of_a_text(tmp_path: Path) -> None:
    text = "Ur gaouenn a chase e-pad an noz."
    assert [record.value for record in read_all({"Europarl.br": text.encode()}, tmp_path, 10**9)] == [text]
    assert len(read_all({"lines.jsonl.br": LINES}, tmp_path / "lines", 10**9)) == 3


def test_in_a_folder_packed_files_may_be_skipped_and_in_a_tar_they_are_bad(direct: Command, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt.lz4").write_bytes(PACKED[".lz4"][1])
    (tmp_path / "in" / "b.jsonl").write_bytes(LINES)
    refused = direct("--input", tmp_path / "in")
    assert refused.code == 1 and "a.txt.lz4 is compressed with lz4: unpack it first" in refused.err
    assert summary(direct("--input", tmp_path / "in", "--min-tokens", "1", "--skip-unknown", "--json"))["read"] == 3
    (record,) = read_all({"c.tar": tar({"a.txt.lz4": PACKED[".lz4"][1]})}, tmp_path / "tar", 10**9)
    assert record.problem.startswith("compressed with lz4: unpack it first")


@pytest.mark.parametrize("name", ["q.txt", "q.jsonl", "q.csv"])
@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, PACKED])
def test_packed_queries_are_told(name: str, pack, tmp_path: Path) -> None:
    data = PACKED[".lz4"][1] if pack is PACKED else pack(json.dumps({"query": TEXT}).encode())
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=rf"{name}: compressed with (gzip|bzip2|xz|lz4)"):
        read_queries(tmp_path / name)


def test_queries_in_a_spreadsheet_are_told(tmp_path: Path) -> None:
    (tmp_path / "q.xlsx").write_bytes(zipped(b"sheet"))
    with pytest.raises(DataError, match=r"q\.xlsx: a zip archive .*\.csv"):
        read_queries(tmp_path / "q.xlsx")


@pytest.mark.parametrize("has_id", [True, False])
def test_a_dictionary_of_zstd_is_told(has_id: bool, tmp_path: Path) -> None:
    samples = [json.dumps({"id": number, "text": TEXT[number % 60 :]}).encode() for number in range(300)]
    dictionary = zstandard.train_dictionary(2000, samples)
    settings = zstandard.ZstdCompressionParameters(write_dict_id=has_id)
    data = zstandard.ZstdCompressor(dict_data=dictionary, compression_params=settings).compress(b"\n".join(samples))
    for name in ("a.jsonl.zst", "a.txt.zst"):
        with pytest.raises(PipelineError, match=rf"{name}: compressed .*dictionary"):
            read_all({name: data}, tmp_path, 10**9)


@pytest.mark.parametrize("text", ["BZh", "PK", "LZIP", "070707 4423", "!<arch> n", "Rar!", "x9-lh5- is a name", ""])
def test_texts_that_begin_alike_are_texts(text: str) -> None:
    assert packing_of(text.encode()) == ""
    assert detect_format(io.BytesIO(text.encode()), "a.txt") == ("text", None)
