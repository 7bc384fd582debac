"""Helpers: texts packed in all ways that the readers support, and read back."""

import bz2
import gzip
import io
import json
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from clearspan.pipelines.readers import read_splits
from clearspan.pipelines.readers.sniff import detect_format
from clearspan.pipelines.records import ReadOptions, Record
from clearspan.pipelines.units.plan import cut, describe

READING = ReadOptions(10**6)
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}


def jsonl(texts: list[str]) -> bytes:
    return b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)


def tar(members: dict[str, bytes], form: int = tarfile.GNU_FORMAT) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=form) as archive:
        folder = tarfile.TarInfo("openwebtext")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, content in members.items():
            info = tarfile.TarInfo(f"openwebtext/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return data.getvalue()


def tar_of_texts(texts: list[str], start: int = 0, **options: int) -> bytes:
    return tar({f"{number:07d}.txt": text.encode() for number, text in enumerate(texts, start)}, **options)


def original_layout(texts: list[str]) -> bytes:
    """Pack texts like OpenWebText: a tar of xz-compressed tars of ten texts."""
    starts = range(0, len(texts), 10)
    return tar({f"{start}_data.xz": lzma.compress(tar_of_texts(texts[start : start + 10], start)) for start in starts})


def parquet(table: dict[str, pa.Array] | pa.Table, **options) -> bytes:
    data = io.BytesIO()
    pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), data, row_group_size=7, **options)
    return data.getvalue()


def arrow(table: pa.Table, as_file: bool = False, rows: int = 7) -> bytes:
    data = io.BytesIO()
    with (pa.ipc.new_file if as_file else pa.ipc.new_stream)(data, table.schema) as stream:
        stream.write_table(table, max_chunksize=rows)
    return data.getvalue()


def as_files(texts: list[str]) -> dict[str, bytes]:
    return {f"corpus/{number % 3}/{number:02d}.txt": text.encode() for number, text in enumerate(texts)}


def numbers(texts: list[str]) -> pa.Array:
    return pa.array(range(len(texts)))


PACKINGS: dict[str, Callable[[list[str]], dict[str, bytes]]] = {
    "jsonl": lambda texts: {"corpus/a.jsonl": jsonl(texts)},
    **{
        f"jsonl.{suffix}": (lambda texts, suffix=suffix, pack=pack: {f"corpus/a.jsonl.{suffix}": pack(jsonl(texts))})
        for suffix, pack in COMPRESS.items()
    },
    "a folder of texts": as_files,
    "compressed texts": lambda texts: {f"{name}.xz": lzma.compress(data) for name, data in as_files(texts).items()},
    "tar of texts": lambda texts: {"corpus/a.tar": tar_of_texts(texts)},
    "pax tar of texts": lambda texts: {"corpus/a.tar": tar_of_texts(texts, form=tarfile.PAX_FORMAT)},
    "tar.gz of texts": lambda texts: {"corpus/a.tar.gz": gzip.compress(tar_of_texts(texts))},
    "OpenWebText's tar of xz of tar": lambda texts: {"corpus/urlsf_subset00.tar": original_layout(texts)},
    "the same, compressed once more": lambda texts: {
        "corpus/openwebtext.tar.xz": lzma.compress(original_layout(texts))
    },
    "parquet": lambda texts: {"corpus/a.parquet": parquet({"id": numbers(texts), "text": pa.array(texts)})},
    "parquet, its one text column found": lambda texts: {
        "corpus/a.parquet": parquet({"id": numbers(texts), "content": pa.array(texts, pa.large_string())})
    },
    "parquet of categories": lambda texts: {
        "corpus/a.parquet": parquet({"text": pa.array(texts).dictionary_encode()}, compression="zstd")
    },
    "mixed": lambda texts: {
        "corpus/a.jsonl": jsonl(texts[:10]),
        "corpus/b.jsonl.bz2": bz2.compress(jsonl(texts[10:20])),
        "corpus/deep/c.parquet": parquet({"text": pa.array(texts[20:30])}),
        "corpus/deep/d.tar": original_layout(texts[30:39]),
        "corpus/deep/e.txt": texts[39].encode(),
    },
}


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def read_all(
    files: dict[str, bytes], folder: Path, unit_bytes: int, text_per: str = "file", reading: ReadOptions = READING
) -> list[Record]:
    """Return the records that units of a size read, in order."""
    write(folder, files)
    found = {name: len(data) for name, data in sorted(files.items())}
    inputs = list(describe(str(folder), found, ReadOptions(text_per=text_per)))
    units = cut(str(folder), inputs, unit_bytes)
    return [record for unit in units for record in read_splits(str(folder), unit.splits, reading)]


def format_of(path: Path) -> tuple[str, str | None]:
    """Return the detected (format, compression) of a file."""
    with path.open("rb") as stream:
        return detect_format(stream, str(path))


def text_of(record: Record) -> str:
    return record.value["text"] if isinstance(record.value, dict) else record.value
