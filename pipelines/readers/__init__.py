"""Readers turn splits of input files into records. Each format is a class in a separate file (`formats.Format`).

    file -> decompressed as it is read (`streams`) -> Format.read -> Record(name, offset, value, raw, problem)

For a record that cannot be read, a reader yields a Record with a `problem`. If a file cannot be read, has changed since
planning, or is not read to its last byte, a PipelineError that names the file is raised.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from numbers import Integral
from typing import Any, BinaryIO

from clearspan.common.errors import PipelineError
from clearspan.common.typed import short_repr
from clearspan.pipelines.errors import InputChangedError
from clearspan.pipelines.readers import columns, encodings, sniff
from clearspan.pipelines.readers.encodings import AUTO
from clearspan.pipelines.readers.formats import built_in, format_named, naming_own_format
from clearspan.pipelines.readers.streams import chunks, decompressed, naming_damage, transcoded
from clearspan.pipelines.records import Input, ReadOptions, Record, Split
from clearspan.shards import storage

FIRST_FILES = 64
"""Maximum number of inputs whose first records are read."""
MODIFIED = "was modified during the run: run again, which compares the file with the part that was read"
HASHED_BYTES = 1 << 18
ATTRIBUTES: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("name", "problem", "skipped", "label", "encoding"), (str, "a text")),
    "offset": (Integral | None, "an integer or None"),
    "number": (Integral, "an integer"),
    "raw": (bytes, "bytes"),
}
"""Attributes of a record that are used without a further check -> their types, and these in words."""


def read_splits(
    root: str, splits: Iterable[Split], reading: ReadOptions, contents: list[str] | None = None
) -> Iterator[Record]:
    """Yield all records of the splits, in order.

    A record of more than `reading.max_bytes` bytes is yielded with a `problem` in place of its value, so that memory
    stays bounded.

    Args:
        root: the folder that the names of the inputs are relative to.
        splits: the byte ranges of input files to read.
        reading: the rules for finding records, such as the names of columns.
        contents: list to which a hash of each split's content is added, by which a later run notices that the inputs
            have changed; None if no hashes are needed.

    Raises:
        PipelineError: a file is damaged, has changed since planning, or lacks the columns to read.
    """
    with ThreadPoolExecutor(1) as beside:  # it hashes while the records are read
        for split in splits:
            yield from _read_split(root, split, reading, contents, beside)


def _read_split(
    root: str, split: Split, reading: ReadOptions, contents: list[str] | None, executor: Executor
) -> Iterator[Record]:
    """Yield the records of a split, and meanwhile compute the hash of its content in another thread.

    Args:
        root: the folder that the names of the inputs are relative to.
        split: the byte range of an input file to read.
        reading: the rules for finding records.
        contents: list to which the hash is added; None if it is not needed.
        executor: thread pool that computes the hash.

    Raises:
        PipelineError: the file is damaged, has changed since planning, or lacks the columns to read.
    """
    entry, path = split.input, storage.join(root, split.input.name)
    with storage.open_input(path) as stored:
        status = storage.status(path)
        is_planned = not entry.sample or sniff.sample(stored, entry.bytes) == entry.sample
        if status.bytes != entry.bytes or not is_planned:
            raise InputChangedError.of(path)
        if entry.status and entry.status.written != status.written:
            raise PipelineError(f"{path}: {MODIFIED}")
        known = executor.submit(_identity, root, split) if contents is not None else None
        try:
            with _content(path, stored, entry) as stream:
                yield from _records(root, stream, split, reading)
                num_read = stored.tell()
        except PipelineError:
            if (now := storage.status(path)).written != status.written:
                if now.bytes < entry.bytes:
                    raise InputChangedError.of(path) from None
                raise PipelineError(f"{path}: {MODIFIED}") from None
            raise
        is_cut = split.end is None and num_read < entry.bytes and not format_named(entry.format).seeks
        if is_cut and entry.format not in built_in() and storage.size(path) == entry.bytes:
            raise PipelineError(f"{path}: {entry.format} read {num_read:,} of {entry.bytes:,} bytes, not all")
        if is_cut or num_read > entry.bytes:
            raise InputChangedError.of(path)
        if contents is not None and known is not None:
            contents.append(known.result())
        if storage.status(path).written != status.written:
            raise PipelineError(f"{path}: {MODIFIED}")


def _identity(root: str, split: Split) -> str:
    """Return the hash of a split's content, by which a later run notices that the content has changed.

    It is the hash that `content_hash` computes. For a whole local file of at most 72 KiB, it is taken from the plan.

    Args:
        root: the folder that the names of the inputs are relative to.
    """
    is_known = split.input.sample and _is_small(storage.join(root, split.input.name), split)
    return split.input.sample if is_known else content_hash(root, split)


def content_hash(root: str, split: Split) -> str:
    """Return a hash, as a text, of all bytes that are read for a split. A later run notices by it that they have
    changed.

    These are the bytes of the split, and others of its file that the format needs, such as metadata at the file's end.
    The hash is usually their SHA-256. For a whole file of at most 72 KiB (`sniff.WHOLE_BYTES`) it is `sniff.sample`, a
    hash that the plan holds as well. For a file on an object store it is the store's checksum of the whole file, which
    needs no download.

    Args:
        root: the folder that the names of the inputs are relative to.
    """
    path = storage.join(root, split.input.name)
    if storage.is_remote(path):
        return storage.checksum(path)
    digest, buffer = hashlib.sha256(), memoryview(bytearray(HASHED_BYTES))
    with storage.open_input(path) as stream:
        if _is_small(path, split):
            return sniff.sample(stream, os.fstat(stream.fileno()).st_size)
        start, end = split.start, split.start + split.bytes
        is_whole = (start, end) == (0, split.input.bytes)
        with naming_own_format(split.input.format, path):
            beside = [] if is_whole else format_named(split.input.format).ranges_outside(stream, split)
        for first, last in [(start, end), *beside]:
            stream.seek(first)
            while first < last and (size := stream.readinto(buffer[: last - first])):  # type: ignore[attr-defined]
                digest.update(buffer[:size])
                first += size
    return digest.hexdigest()


def _is_small(path: str, split: Split) -> bool:
    """Return whether a split is a whole local file of at most 72 KiB (`sniff.WHOLE_BYTES`).

    The plan then holds a hash of all its bytes (`sniff.sample`).

    Args:
        path: the path of the file.
    """
    return not storage.is_remote(path) and split.start == 0 and split.bytes == split.input.bytes <= sniff.WHOLE_BYTES


def first_records(
    root: str, entries: Iterable[Input], reading: ReadOptions, number: int, any_format: bool = False
) -> list[Record]:
    """Return the first records of the inputs: `number` records in all, about equally many from each input.

    If there are more than 64 inputs (FIRST_FILES), only 64 of them are read, evenly spaced.

    Args:
        root: the folder that the names of the inputs are relative to.
        entries: the inputs.
        reading: the rules for finding records.
        number: the maximum number of records. There may be fewer if an input has only a few.
        any_format: if true, inputs of all formats are read; otherwise only those of formats whose records have columns
            or fields.

    Raises:
        PipelineError: the beginning of a file is damaged, or a table lacks the columns to read.
    """
    chosen = [entry for entry in entries if any_format or format_named(entry.format).has_fields]
    num_files = min(FIRST_FILES, number, len(chosen))
    if not num_files:
        return []
    spread = [chosen[place * len(chosen) // num_files] for place in range(num_files)]
    each = -(-number // num_files)
    heads = (_head(root, entry, reading, each) for entry in spread)
    return list(itertools.islice(itertools.chain.from_iterable(heads), number))


def _head(root: str, entry: Input, reading: ReadOptions, number: int) -> list[Record]:
    """Return the first `number` records of an input.

    Args:
        root: the folder that the name of the input is relative to.
        entry: the input.
        reading: the rules for finding records.

    Raises:
        PipelineError: the beginning of the file is damaged, or the file is a table that lacks the columns to read.
    """
    of_head = dataclasses.replace(reading, is_head=True)
    with open_content(root, entry) as stream:
        return list(itertools.islice(_records(root, stream, Split(entry, 0, None), of_head), number))


def columns_read(root: str, entries: Iterable[Input], reading: ReadOptions) -> list[str]:
    """Return a list with one line for the user: the columns that are read from the first input that has columns.

    The list is empty if records are texts instead of rows, or if the first record does not have the columns.

    Args:
        root: the folder that the names of the inputs are relative to.
        entries: the inputs.
        reading: the rules for finding records. Its `columns` are the sets of column names to look for.
    """
    if not reading.columns:
        return []
    records = first_records(root, entries, reading, 1)
    read = [columns.chosen(list(record.value), reading) for record in records if isinstance(record.value, dict)]
    return [f"read from {records[0].name}: {', '.join(names)}" for names in read if names]


@contextlib.contextmanager
def open_content(root: str, entry: Input) -> Iterator[BinaryIO]:
    """Context manager that opens an input, and returns a stream of its content, which is decompressed as it is read.

    Args:
        root: the folder that the name of the input is relative to.

    Raises:
        PipelineError: the part of the file that is read within the context is damaged.
    """
    path = storage.join(root, entry.name)
    with storage.open_input(path) as stored, _content(path, stored, entry) as stream:
        yield stream


@contextlib.contextmanager
def _content(path: str, stored: BinaryIO, entry: Input) -> Iterator[BinaryIO]:
    """Context manager that returns a stream of the content of an input file, which is decompressed as it is read.

    All readers open inputs with it, so that every error about damage names the file.

    Args:
        path: the path of the file, for error messages.
        stored: the open file, whose bytes may be compressed.
        entry: the input, which states the compression.

    Raises:
        PipelineError: the part of the file that is read within the context is damaged.
    """
    container = entry.compression or (entry.format if format_named(entry.format).is_container else None)
    with naming_damage(path, container), decompressed(stored, entry.compression) as stream:
        yield stream


def _records(root: str, stream: BinaryIO, split: Split, reading: ReadOptions) -> Iterator[Record]:
    """Yield the records of a split of a file. If the file's format does not number its records, they get numbers from
    1.

    Args:
        root: the folder that the names of the inputs are relative to.
        stream: the content of the whole file, decompressed.
        reading: the rules for finding records.

    Raises:
        PipelineError: a format of the user's own raises an error, or yields something other than records.
    """
    entry, encoding = split.input, _encoding(root, split, reading)
    file_format, nested = format_named(entry.format), columns.dotted(reading)
    with naming_own_format(entry.format, storage.join(root, entry.name), entry.compression):
        records = file_format.read(transcoded(stream, encoding), split, reading)
        if entry.format not in built_in():
            records = map(_checked, records)
        if not file_format.is_numbered:
            records = _with_numbers(records)
        if nested:
            records = columns.with_nested(records, nested)
        yield from encodings.with_encoding(records, encoding) if reading.encoding == AUTO else records


def _with_numbers(records: Iterable[Record]) -> Iterator[Record]:
    """Yield the records with their numbers from 1."""
    return (dataclasses.replace(record, number=number) for number, record in enumerate(records, 1))


def _checked(record: object) -> Record:
    """Return a record that a format of the user's own yields, after checking the types of its attributes.

    Raises:
        TypeError: it is no record, or an attribute has a wrong type. The value may have any type, because a value that
            cannot be used is the problem of one record.
    """
    if not isinstance(record, Record):
        raise TypeError(f"read must yield records, not {short_repr(record)}")
    for name, (kinds, words) in ATTRIBUTES.items():
        if not isinstance(value := getattr(record, name), kinds):
            raise TypeError(f"the {name} of a record must be {words}, not {short_repr(value)}")
    if isinstance(record.value, dict) and (odd := [name for name in record.value if not isinstance(name, str)]):
        raise TypeError(f"the names of a record's fields must be texts, not {short_repr(odd[0])}")
    if isinstance(record.offset, int | None) and isinstance(record.number, int):
        return record
    offset = None if record.offset is None else int(record.offset)
    return dataclasses.replace(record, offset=offset, number=int(record.number))  # numbers of numpy


def _encoding(root: str, split: Split, reading: ReadOptions) -> str | None:
    """Return Python's name of the encoding in which to read a split; None for UTF-8, and for files that are not texts.

    With `--encoding auto`, the whole file is read to detect its encoding, so that all splits of a file have the same
    encoding. If only the first records are wanted (`reading.is_head`), only the beginning of the file is read.
    """
    if not format_named(split.input.format).is_text:
        return None
    if reading.encoding != AUTO:
        return reading.encoding
    with open_content(root, split.input) as stream:
        return encodings.detected(itertools.islice(chunks(stream), 1 if reading.is_head else None))
