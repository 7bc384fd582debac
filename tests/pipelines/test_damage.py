"""Damage at seeded random places of all containers: it is noticed (an error or a bad record), or the data is unchanged.

Only damage that no reader can notice is left out: a flip in unchecked bytes (plain text, the contents of a tar, parquet
without checksums); a cut where a shorter file could end (between lines or streams); a hole of at most 512 bytes in a
text, of the whole rest of a tar, or of short texts in parquet without checksums. The plan still notices a changed size,
and damage to the bytes that it samples.
"""

import csv
import io
import json
import random
import tarfile
from collections.abc import Callable, Collection
from pathlib import Path

import pyarrow as pa
import pytest

from clearspan.common.errors import PipelineError
from tests.pipelines.packings import (
    COMPRESS,
    arrow,
    jsonl,
    numbers,
    original_layout,
    parquet,
    read_all,
    tar_of_texts,
)

TIMES = 150
HOLE = 1024
"""The least that is more than a block of zero bytes within one text of a tar, whatever its padding."""


def lines(texts: list[str]) -> bytes:
    return "\n".join(" ".join(text.split()) for text in texts).encode()


def joined(pack: Callable[[bytes], bytes], unpacked: Callable[[list[str]], bytes]) -> Callable[[list[str]], bytes]:
    return lambda texts: b"".join(pack(unpacked(texts[start : start + 4]) + b"\n") for start in range(0, len(texts), 4))


def table(**options) -> Callable[[list[str]], bytes]:
    return lambda texts: parquet({"id": numbers(texts), "text": pa.array(texts)}, **options)


def quoted(texts: list[str]) -> bytes:
    data = io.StringIO()
    rows = ((text, str(number)) for number, text in enumerate(texts))
    csv.writer(data, quoting=csv.QUOTE_ALL).writerows([("text", "id"), *rows])
    return data.getvalue().encode()


PLAIN: dict[str, tuple[str, Callable[[list[str]], bytes]]] = {
    "jsonl": ("a.jsonl", jsonl),
    "lines": ("lines.txt", lines),
    "text": ("a.txt", lines),
    "tar": ("a.tar", tar_of_texts),
    "pax tar": ("a.tar", lambda texts: tar_of_texts(texts, form=tarfile.PAX_FORMAT)),
    "tar of jsonl": ("a.tar", lambda texts: tar_of_texts([jsonl(texts[:6]).decode(), jsonl(texts[6:]).decode()])),
    "csv": ("a.csv", quoted),
    "json": ("a.json", lambda texts: json.dumps([{"text": text} for text in texts], indent=1).encode()),
    "arrow": ("a.arrow", lambda texts: arrow(pa.table({"id": numbers(texts), "text": texts}))),
    **{f"parquet, {kind}": ("a.parquet", table(compression=kind)) for kind in ("none", "snappy", "zstd")},
}
CHECKED: dict[str, tuple[str, Callable[[list[str]], bytes]]] = {
    **{
        f"{name}.{suffix}": (f"{file}.{suffix}", lambda texts, pack=pack, inner=inner: pack(inner(texts)))
        for suffix, pack in COMPRESS.items()
        for name, (file, inner) in PLAIN.items()
        if "parquet" not in name
    },
    **{
        f"{name}.{suffix}, joined": (f"{file}.{suffix}", joined(pack, inner))
        for suffix, pack in COMPRESS.items()
        for name, (file, inner) in PLAIN.items()
        if name in ("jsonl", "lines", "text")
    },
    "OpenWebText's layout": ("a.tar", original_layout),
    "the same in xz": ("a.tar.xz", lambda texts: COMPRESS["xz"](original_layout(texts))),
    **{
        f"parquet, {kind}, checksums, pages {version}": (
            "a.parquet",
            table(compression=kind, write_page_checksum=True, data_page_version=version),
        )
        for kind in ("none", "snappy", "zstd")
        for version in ("1.0", "2.0")
    },
}


def flipped(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]


def cut(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data))]


def zeroed(data: bytes, draw: random.Random) -> bytes:
    """Zero a part of a file that ends before the last nonzero byte: a tar's padding would hide a lost end."""
    length = draw.randrange(HOLE, 2 * HOLE)
    at = draw.randrange(len(data.rstrip(b"\0")) - length)
    return data[:at] + bytes(length) + data[at + length :]


@pytest.fixture
def short(texts: list[str]) -> list[str]:
    """Twelve texts of a few kilobytes."""
    return [text[:3000] for text in texts if len(text) >= 3000][:12]


def unnoticed(
    folder: Path,
    file: str,
    data: bytes,
    damage: Callable[[bytes, random.Random], bytes],
    whole: Collection[int] = (),
) -> list[list]:
    """Return the unnoticed wrong readings of damaged files, except for cuts to `whole` bytes."""

    def read(data: bytes) -> tuple[list, bool]:
        records = read_all({file: data}, folder, 10**9, "line" if "lines" in file else "file")
        return [(record.value, record.source) for record in records], any(record.problem for record in records)

    expected, _ = read(data)
    found = []
    for number in range(TIMES):
        damaged = damage(data, random.Random(f"{file} {len(data)} {number}"))
        if len(damaged) in whole:
            continue
        try:
            values, bad = read(damaged)
        except PipelineError:
            continue
        if values != expected and not bad:
            found.append(values)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("damage", [flipped, cut, zeroed])
@pytest.mark.parametrize("packing", CHECKED)
def test_damage_in_a_container_with_checksums_is_noticed(
    short: list[str], tmp_path: Path, packing: str, damage: Callable[[bytes, random.Random], bytes]
) -> None:
    file, pack = CHECKED[packing]
    streams = [len(pack(short[:count])) for count in (4, 8)] if "joined" in packing else []
    assert unnoticed(tmp_path, file, pack(short), damage, streams) == []


@pytest.mark.slow
@pytest.mark.parametrize("packing", [name for name in PLAIN if "parquet, none" not in name])
def test_a_hole_in_a_container_without_checksums_is_noticed(short: list[str], tmp_path: Path, packing: str) -> None:
    file, pack = PLAIN[packing]
    assert unnoticed(tmp_path, file, pack(short), zeroed) == []


@pytest.mark.guarantee("truncated-input")
@pytest.mark.parametrize("packing", [name for name in PLAIN if name not in ("lines", "text")])
def test_a_cut_is_noticed_or_leaves_whole_records(short: list[str], tmp_path: Path, packing: str) -> None:
    file, pack = PLAIN[packing]
    whole = [{"text": text} for text in short] if "json" in packing else short
    for values in unnoticed(tmp_path, file, pack(short), cut):
        assert packing in ("jsonl", "csv") and [value for value, _ in values] == whole[: len(values)]


@pytest.mark.guarantee("truncated-input")
@pytest.mark.parametrize("packing", ["tar", "pax tar"])
def test_a_flip_in_a_tars_header_is_noticed(short: list[str], tmp_path: Path, packing: str) -> None:
    file, pack = PLAIN[packing]
    data = pack(short)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        headers = [info.offset_data - tarfile.BLOCKSIZE for info in archive]

    def in_header(data: bytes, draw: random.Random) -> bytes:
        at = draw.choice(headers)
        return data[:at] + flipped(data[at : at + tarfile.BLOCKSIZE], draw) + data[at + tarfile.BLOCKSIZE :]

    assert unnoticed(tmp_path, file, data, in_header) == []
