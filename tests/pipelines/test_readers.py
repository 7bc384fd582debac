"""Readers: each record once, wherever the file is cut, in bounded memory."""

import bz2
import dataclasses
import gzip
import io
import json
import lzma
import os
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from clearspan.common.errors import PipelineError
from clearspan.pipelines.readers import plain_text, read_splits
from clearspan.pipelines.readers.jsonl import JsonlFiles
from clearspan.pipelines.records import Input, ReadOptions, Record, Split
from clearspan.pipelines.units.numbering import numbered
from clearspan.pipelines.units.plan import cut, describe
from clearspan.shards import storage
from tests.pipelines.packings import format_of, tar_of_texts

LIMIT = 10_000
READING = ReadOptions(LIMIT)
Compress = Callable[[bytes], bytes]
ZSTD = zstandard.ZstdCompressor(write_checksum=True).compress  # as zstd's own tool
COMPRESS: list[Compress] = [gzip.compress, ZSTD, bz2.compress, lzma.compress]
CONTAINERS = ["a.parquet", "a.tar", "a.gz", "a.txt.gz", "a.jsonl.bz2", "a.xz", "a.zst", "a.tgz", "a.tbz2", "a.tar.gz"]
SKIPPABLE = b"\x5a\x2a\x4d\x18\x04\0\0\0skip"


def read_lines(data: bytes, start: int = 0, end: int | None = None, limit: int = LIMIT) -> list[Record]:
    piece = Split(Input("a.jsonl", len(data), "jsonl", None, ""), start, end)
    return list(JsonlFiles().read(io.BytesIO(data), piece, ReadOptions(limit)))


lines = st.lists(
    st.one_of(
        st.text(max_size=30).map(lambda text: json.dumps({"text": text}).encode()),
        st.sampled_from([b"", b"  ", b"{", b"\xff", b"[]", b"x" * 60]),
    ),
    max_size=12,
)


@pytest.mark.guarantee("nested-fields")
@pytest.mark.slow
@given(lines, st.integers(1, 80), st.booleans(), st.sampled_from([b"\n", b"\r\n"]))
@settings(max_examples=300)
def test_pieces_of_a_file_hold_every_line_once(lines: list[bytes], size: int, final: bool, end: bytes) -> None:
    data = end.join(lines) + (end if final else b"")
    whole = read_lines(data, limit=50)
    entry = Input("a.jsonl", len(data), "jsonl", None, "")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, entry.name).write_bytes(data)
        units = numbered(folder, cut(folder, [entry], size))
    pieces = [piece for unit in units for piece in unit.splits]
    found = [record for piece in pieces for record in JsonlFiles().read(io.BytesIO(data), piece, ReadOptions(50))]
    assert found == whole
    assert len(whole) == sum(1 for line in lines if line.strip())
    for record in whole:
        assert record.offset is not None and data[record.offset :].startswith(record.raw)
        assert lines[record.number - 1].startswith(record.raw.rstrip(b"\r\n"))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"text": "Ishmael', "broken JSON: "),
        (b'{"text": "caf\xe9"}', "invalid UTF-8 at byte 13 of the line"),
        (b"[1, 2]", "not a JSON object but an array"),
        (b'"Call me Ishmael."', "not a JSON object but a string"),
        (b"null", "not a JSON object but null"),
        (b"3", "not a JSON object but a number"),
        (b"[" * 100_000, "broken JSON: "),
    ],
)
def test_what_is_wrong_with_a_line_is_said(line: bytes, problem: str) -> None:
    (record,) = read_lines(line, limit=10**6)
    assert record.problem.startswith(problem)
    assert record.is_not_utf8 == problem.startswith("invalid UTF-8")
    assert record.source == "a.jsonl:0"


@pytest.mark.guarantee("nested-fields")
@pytest.mark.guarantee("hostile-archives")
def test_a_line_of_the_limit_is_read_and_a_longer_one_is_not() -> None:
    line = json.dumps({"text": "x" * 100}).encode()
    data = line + b"\n" + b'{"text": "next"}\n'
    assert [record.problem for record in read_lines(data, limit=len(line))] == ["", ""]
    first, second = read_lines(data, limit=len(line) - 1)
    assert first.problem == f"longer than {len(line) - 1:,} bytes: {len(line) + 1:,}"
    assert second.value == {"text": "next"}
    assert second.offset == len(line) + 1


def piece(path: Path) -> list[Split]:
    (entry,) = describe(str(path.parent), {path.name: path.stat().st_size}, ReadOptions())
    return [Split(entry, 0, None)]


@pytest.mark.guarantee("hostile-archives")
@pytest.mark.exhaustive
@pytest.mark.parametrize("opened", [gzip.open, zstandard.open, bz2.open, lzma.open])
def test_a_bomb_of_one_line_takes_little_memory(tmp_path: Path, opened: Callable[..., BinaryIO]) -> None:
    with opened(tmp_path / "bomb.jsonl", "wb") as file:
        file.write(b'{"text": "')
        for _ in range(100):
            file.write(b"a" * 1_000_000)
    assert (tmp_path / "bomb.jsonl").stat().st_size < 200_000
    pieces = piece(tmp_path / "bomb.jsonl")
    tracemalloc.start()
    (record,) = read_splits(str(tmp_path), pieces, ReadOptions(1_000_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert record.problem == "longer than 1,000,000 bytes: 100,000,010"
    assert peak < 20_000_000  # xz: a window of 8 MiB


@pytest.mark.guarantee("truncated-input")
@pytest.mark.parametrize("compress", COMPRESS)
@pytest.mark.parametrize("name", ["a.jsonl", "a.txt"])
def test_joined_compressed_files_are_read_to_the_end(
    tmp_path: Path, texts: list[str], name: str, compress: Compress
) -> None:
    parts = [json.dumps({"text": text}).encode() + b"\n" for text in texts[:6]]
    (tmp_path / name).write_bytes(compress(b"".join(parts[:3])) + compress(b"".join(parts[3:])))
    found = list(read_splits(str(tmp_path), piece(tmp_path / name), ReadOptions(10**6)))
    assert [record.value["text"] for record in found] == texts[:6]


@pytest.mark.guarantee("truncated-input")
@pytest.mark.parametrize("compress", COMPRESS)
@pytest.mark.parametrize("damage", ["cut", "last byte", "flipped", "trailing", "zeros", "second header", "second cut"])
def test_a_damaged_compressed_file_is_an_error_that_names_it(
    tmp_path: Path, texts: list[str], compress: Compress, damage: str
) -> None:
    data = compress(b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts[:50]))
    middle = len(data) // 2
    damaged = {
        "cut": data[:middle],
        "last byte": data[:-1],
        "flipped": data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :],
        "trailing": data + b"garbage",
        "zeros": data + bytes(510),
        "second header": data + bytes([data[0] ^ 1]) + data[1:],
        "second cut": data + data[:9],
    }[damage]
    path = tmp_path / "a.jsonl.packed"
    path.write_bytes(damaged)
    with pytest.raises(PipelineError, match=r"a\.jsonl\.packed: damaged or cut short"):
        list(read_splits(str(tmp_path), piece(path), ReadOptions(10**6)))


@pytest.mark.guarantee("truncated-input")
def test_padding_between_xz_streams_and_frames_to_skip_are_no_end(tmp_path: Path, texts: list[str]) -> None:
    parts = [json.dumps({"text": text}).encode() + b"\n" for text in texts[:4]]
    xz, zstd = ([pack(part) for part in parts] for pack in (lzma.compress, ZSTD))
    (tmp_path / "a.xz").write_bytes(bytes(4).join(xz) + bytes(8))
    (tmp_path / "a.zst").write_bytes(SKIPPABLE + SKIPPABLE.join(zstd) + SKIPPABLE)
    for name in ("a.xz", "a.zst"):
        found = list(read_splits(str(tmp_path), piece(tmp_path / name), ReadOptions(10**6)))
        assert [record.value["text"] for record in found] == texts[:4]


@pytest.mark.guarantee("truncated-input")
@pytest.mark.guarantee("hostile-archives")
def test_a_window_that_takes_too_much_memory_is_said_to(tmp_path: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=31, enable_ldm=True)
    packing = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 28, "preset": 0}]
    wide = {"zstd": packing.compress(b"a" * 5000) + packing.flush(), "xz": lzma.compress(b"a" * 5000, filters=filters)}
    for kind, data in wide.items():
        (tmp_path / "a").write_bytes(data)
        with pytest.raises(PipelineError, match=rf"^\S+/a: its {kind} window .*128 MiB"):
            list(read_splits(str(tmp_path), piece(tmp_path / "a"), READING))


@pytest.mark.guarantee("changed-input")
@pytest.mark.parametrize("size", [14, 50_000, 5_000_000])
@pytest.mark.parametrize("place", [0, 0.5, 1])
def test_a_file_that_changed_since_the_plan_is_refused(tmp_path: Path, size: int, place: float) -> None:
    path = tmp_path / "a.txt"
    data = bytearray(b"a" * size)
    path.write_bytes(data)
    pieces, times = piece(path), path.stat()
    assert piece(path) == pieces
    data[int(place * (size - 1))] = ord("b")
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert piece(path) != pieces
    with pytest.raises(PipelineError, match="has changed since the run was planned: restore the earlier file"):
        list(read_splits(str(tmp_path), pieces, ReadOptions(10**7)))


@pytest.mark.guarantee("changed-input")
@pytest.mark.parametrize("name", ["a.jsonl", "a.tar", "a.jsonl.zst", "a.txt"])
def test_a_file_that_is_shortened_while_it_is_read_is_an_error(
    tmp_path: Path, texts: list[str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)
    packed = {"a.jsonl": lines, "a.txt": lines[1:], "a.jsonl.zst": ZSTD(lines), "a.tar": tar_of_texts(texts)}[name]
    (tmp_path / name).write_bytes(packed)
    (entry,) = describe(str(tmp_path), {name: len(packed)}, ReadOptions())
    end = len(packed) if name == "a.jsonl" else None
    monkeypatch.setattr(storage, "open_input", lambda path: shortening(Path(path), len(packed) // 2))
    with pytest.raises(PipelineError, match=f"{name}: has changed"):
        list(read_splits(str(tmp_path), [Split(entry, 0, end)], ReadOptions(10**7)))


def shortening(path: Path, size: int) -> BinaryIO:
    """Open a file; truncate it after its samples are read."""

    class Shortened(io.FileIO):
        def readinto(self, buffer) -> int:
            os.truncate(path, size)
            return super().readinto(buffer)

    return cast(BinaryIO, io.BufferedReader(Shortened(path), 4096))


@pytest.mark.guarantee("truncated-input")
@pytest.mark.parametrize("kind", ["jsonl", "lines", "text"])
def test_a_hole_is_damage_and_a_few_zero_bytes_are_none(tmp_path: Path, kind: str) -> None:
    name = {"jsonl": "a.jsonl", "lines": "lines.txt", "text": "a.txt"}[kind]
    good = b'{"text": "Call me Ishmael."}\n' * 20

    def read(num: int) -> list[Record]:
        (tmp_path / name).write_bytes(good + bytes(num) + good)
        (entry,) = describe(
            str(tmp_path), {name: 2 * len(good) + num}, ReadOptions(text_per="line" if kind == "lines" else "file")
        )
        entry = dataclasses.replace(entry, format=kind)
        return list(read_splits(str(tmp_path), [Split(entry, 0, None)], READING))

    assert [bool(record.problem) for record in read(512)] == {
        "jsonl": [False] * 20 + [True] + [False] * 19,
        "lines": [False] * 40,
        "text": [False],
    }[kind]
    with pytest.raises(
        PipelineError, match=rf"{name}: damaged .*more than 512 zero bytes in a row at byte {len(good)}\)"
    ):
        read(513)


def test_a_text_file_that_is_no_utf8_or_too_long_is_a_problem() -> None:
    (latin,) = plain_text.records(io.BytesIO("naïve".encode("latin-1")), "moby.txt", READING)
    assert latin.problem == "invalid UTF-8 at byte 2 of the file" and latin.is_not_utf8
    (long,) = plain_text.records(io.BytesIO(b"x" * (LIMIT + 1)), "moby.txt", READING)
    assert long.problem == "longer than 10,000 bytes"


@pytest.mark.guarantee("no-markup")
@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("a.jsonl", b'{"text": "a"}\n', ("jsonl", None)),
        ("a.jsonl", b"not JSON at all\n", ("jsonl", None)),
        ("a.jsonl.gz", gzip.compress(b'{"text": "a"}\n', mtime=0), ("jsonl", "gzip")),
        ("renamed", gzip.compress(b'{"text": "a"}\n', mtime=0), ("jsonl", "gzip")),
        ("corpus.txt", b'{"text": "a"}\n{"text": "b"}\n', ("jsonl", None)),
        ("corpus.txt", b'{"text": "' + b"a" * 100_000 + b'"}\n', ("jsonl", None)),
        ("story.txt", b"{curly} beginnings\n", ("text", None)),
        ("story", zstandard.compress(b"Call me Ishmael.\n"), ("text", "zstd")),
        ("story.txt", b"", ("text", None)),
        ("story.jsonl.txt", b"Call me Ishmael.", ("jsonl", None)),
        ("scores", b'{"text": "a", "score": NaN}\n', ("jsonl", None)),
        ("corpus", b'\xef\xbb\xbf\n \r\n{"text": "a", "score": -Infinity}\r\n', ("jsonl", None)),
        ("corpus", b'{ "text" : "' + b"a" * 100_000 + b'"}\n', ("jsonl", None)),
        ("proof.txt", b"{" + b"a" * 100_000, ("text", None)),
        ("crawl", b'{"text": "a", oops}\n{"text": "b"}\n', ("jsonl", None)),
        ("crawl.txt", b'{"text": "caf\xe9"}\nnone\n{"text": "' + b"a" * 50_000 + b'"}\n', ("jsonl", None)),
        ("crawl", b'{"text": "a", oops}\n {"text": "b"},\n', ("text", None)),
        ("frames", b"\x50\x2a\x4d\x18\0\0\0\0" + ZSTD(b"Call me Ishmael.\n"), ("text", "zstd")),
    ],
)
def test_the_content_decides_then_the_name(tmp_path: Path, name: str, data: bytes, expected: tuple) -> None:
    (tmp_path / name).write_bytes(data)
    assert format_of(tmp_path / name) == expected


@pytest.mark.guarantee("no-markup")
@pytest.mark.parametrize("name", CONTAINERS)
def test_an_empty_container_and_one_that_begins_otherwise_are_refused(tmp_path: Path, name: str) -> None:
    for data, found in ((b"", "is empty"), (bytes(2000), "does not begin as one"), (b"\x1f", "does not begin as one")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(PipelineError, match=rf"{name}: damaged or misnamed \(a \.\w+ that {found}\)"):
            format_of(tmp_path / name)
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(b""))
    with pytest.raises(PipelineError, match=r"a \.tar that is empty"):
        format_of(tmp_path / "a.tar.gz")
