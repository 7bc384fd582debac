"""Tars of texts, and tars of compressed tars of texts (OpenWebText). They are streamed; nothing is unpacked to disk.

    urlsf_subset00.tar -> urlsf_subset00-1_data.xz -> (xz) tar -> 0000000-….txt -> one document each

A member is a text, JSON, csv, or a tar of these, which may be compressed. As for files outside of tars, its format is
inferred from its first bytes, and if they do not decide, from its name. A tar must be complete: it ends with an end
mark, and only zero padding may follow. This module checks that, because Python's tarfile takes a damaged or truncated
tar for a shorter one; and it limits the size of headers, which tarfile does not.
"""

import dataclasses
import io
import tarfile
from collections.abc import Iterator
from typing import Any, BinaryIO, Literal, Self, cast

from clearspan.pipelines.readers import encodings, formats, samples, sniff
from clearspan.pipelines.readers.encodings import AUTO
from clearspan.pipelines.readers.formats import FirstBytes, Format
from clearspan.pipelines.readers.refused import refusal
from clearspan.pipelines.readers.samples import CLASS_FILE, LINK, Member
from clearspan.pipelines.readers.streams import (
    BUFFER_BYTES,
    COMPRESSION_BYTES,
    compression_of,
    decompressed,
    naming_damage,
    opened,
    transcoded,
)
from clearspan.pipelines.records import HEAD_BYTES, Input, ReadOptions, Record, Split
from clearspan.pipelines.suffixes import TARS, type_suffix
from clearspan.shards import storage
from clearspan.shards.finding import is_below_auxiliary, is_below_hidden

PEEK_BYTES = 1 << 14
HEADER_BYTES = 1 << 20
"""Maximum size of the header of a member that holds a long name or attributes; far more than any path needs."""
HEADERS = b"LKxgX"
"""Types of tar entries that belong to the header of the next member: a long name, a long link, attributes."""
PADDING_BYTES = tarfile.RECORDSIZE
"""Maximum number of zero bytes after a tar's end mark, where writers fill up a record.
More zeros may be lost members.
"""
CLASS_LABEL, UNKNOWN_TYPE, AUXILIARY = "class_label", "unknown_type", "auxiliary_name"
"""Reasons for which a member is skipped: it states the class of a sample (webdataset's .cls); it holds no plain text,
and the user chose to skip files of unknown type; or its name, or that of a folder in it, begins with an underscore, as
engines name files that are not data (`finding.is_auxiliary`).
"""
SPARSE = "a sparse member, which is not supported: pack it without --sparse"


class Tars(Format):
    """Format of tars of texts, and of tars of images or audio clips."""

    name = "tar"
    described = "tar (plain, .gz, .bz2, .xz or .zst)"
    suffixes = TARS
    is_container = is_numbered = True

    def recognizes(self, head: FirstBytes, path: str) -> bool:
        return is_tar(head)

    def read(self, stream: BinaryIO, split: Split, reading: ReadOptions) -> Iterator[Record]:
        """Yield the documents in the members that start in the split, in order.

        The name of a document is FILE/MEMBER, or FILE/MEMBER/MEMBER if it is in a tar within the tar. If
        `reading.as_bytes` is true, yield the images or audio clips among the members instead, as bytes.
        """
        if split.start:
            stream.seek(split.start)
        length = None if split.end is None else split.end - split.start
        members = _members(stream, split.input.name, length)
        if reading.as_bytes:
            yield from samples.read(members, reading)
            return
        reading = dataclasses.replace(reading, text_per="file")  # --text-per line does not apply to members of tars
        for name, _, member in members:
            if member is None:
                yield Record(name, None, None, b"", LINK)
            elif _is_auxiliary(name, split.input.name):
                yield Record(name, None, None, b"", skipped=AUXILIARY)
            else:
                yield from unpack(member, name, reading)

    def cut(self, path: str, num_bytes: int, unit_bytes: int, whole: bool) -> list[tuple[int, int | None]]:
        """Return the splits of a tar, as (start, end) in bytes; an `end` of None is the end of the tar.

        A large local tar is cut between members; a tar on an object store is not cut.

        Args:
            num_bytes: the size of the tar.
            unit_bytes: the desired size of a split.
            whole: true if texts and tables must not be cut; not used, because a tar is cut only between its members.
        """
        if num_bytes <= unit_bytes or storage.is_remote(path):
            return [(0, None)]
        with naming_damage(path, self.name), opened(path, None) as stream:
            starts = cuts(stream, unit_bytes)
        return list(zip(starts, [*starts[1:], None], strict=True))


def is_tar(head: bytes) -> bool:
    """Return whether a file begins like a tar, with the header of a member.

    Args:
        head: the first bytes of the file, at least 512.
    """
    if head[257:262] != b"ustar":
        return False
    try:
        tarfile.TarInfo.frombuf(head[: tarfile.BLOCKSIZE], tarfile.ENCODING, "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def unpack(stream: BinaryIO, name: str, reading: ReadOptions) -> Iterator[Record]:
    """Yield the documents in a member of a tar. The member may itself be a tar, and may be compressed.

    Args:
        stream: the content of the member.
        name: the name of the member, as FILE/MEMBER.

    Raises:
        PipelineError: the member is damaged, or its content contradicts its extension.
    """
    buffered = _peeking(stream)
    compression = compression_of(buffered.peek(COMPRESSION_BYTES))
    with naming_damage(name, compression or "tar"), decompressed(cast(BinaryIO, buffered), compression) as content:
        head = _head(content)
        if not is_tar(head):
            yield from _documents(content, head, name, compression, reading)
            return
        for inner, _, member in _members(content, name):
            if member is None:
                yield Record(inner, None, None, b"", LINK)
            elif _is_auxiliary(inner, name):
                yield Record(inner, None, None, b"", skipped=AUXILIARY)
            else:
                with naming_damage(inner, "tar"):
                    buffered = _peeking(member)
                    head = _head(buffered)
                    yield from _documents(cast(BinaryIO, buffered), head, inner, compression_of(head), reading)


def _is_auxiliary(name: str, archive: str) -> bool:
    """Return whether the name of a member, ARCHIVE/MEMBER, is one that engines give to files that are not data."""
    return is_below_auxiliary(name.removeprefix(f"{archive}/"), "")


def _peeking(stream: BinaryIO) -> io.BufferedReader:
    return io.BufferedReader(cast(io.RawIOBase, stream), PEEK_BYTES)


def _head(stream: Any) -> FirstBytes:
    """Return the first bytes of a buffered stream, at most 16 KiB, without consuming them."""
    data = stream.peek(PEEK_BYTES)[:PEEK_BYTES]
    return FirstBytes(data, is_whole=len(data) < PEEK_BYTES)


def _documents(
    stream: BinaryIO, head: FirstBytes, name: str, compression: str | None, reading: ReadOptions
) -> Iterator[Record]:
    """Yield the documents in a member that is not a tar: the records of its JSON or table, or its text.

    If the member cannot be read, or is skipped, yield one record that says why.

    Args:
        stream: the decompressed content of the member.
        head: the first bytes of this content, which `stream` still yields.
        name: the name of the member, as FILE/MEMBER.
        compression: the compression of the member; None if it is not compressed.

    Raises:
        PipelineError: the content of the member contradicts its extension.
    """
    if (unread := _unread(name, head, reading)) is not None:
        yield unread
        return
    sniff.check_extensions(name, compression, head)
    if reading.encoding == AUTO:
        with encodings.copied_and_detected(stream) as (copy, encoding):
            content = transcoded(copy, encoding) if encoding else cast(BinaryIO, _peeking(copy))
            yield from encodings.with_encoding(_texts(content, name, reading), encoding)
        return
    yield from _texts(transcoded(stream, reading.encoding), name, reading)


def _unread(name: str, head: FirstBytes, reading: ReadOptions) -> Record | None:
    """Return a record that says why a member cannot be read or is skipped; None if it may be read."""
    containers = [known for known in formats.containers() if known.name != Tars.name]
    if any(known.recognizes(head, name) for known in containers):
        *names, last = [known.described for known in containers]
        return Record(name, None, None, b"", f"{', '.join(names)} or {last} in a tar: unpack the tar")
    if type_suffix(name) == CLASS_FILE:
        return Record(name, None, None, b"", skipped=CLASS_LABEL)
    if reason := refusal(name, head):
        problem = "" if reading.skip_unknown else f"{reason}, or leave it out with `skip_unknown`"
        return Record(name, None, None, head[:HEAD_BYTES], problem, skipped="" if problem else UNKNOWN_TYPE)
    return None


def _texts(stream: BinaryIO, name: str, reading: ReadOptions) -> Iterator[Record]:
    """Yield the documents in a member that is a text; or one record that says that it is markup, which shows only when
    it is converted to UTF-8.

    Args:
        stream: buffered stream of the text in UTF-8.
        name: the name of the member, as FILE/MEMBER.
    """
    head = _head(stream)
    if reading.encoding and (unread := _unread(name, head, reading)) is not None:  # markup in UTF-16 shows only now
        yield unread
        return
    try:
        member_format = formats.format_named(sniff.text_format(head, name).read_as(reading))
    except ValueError as error:
        yield Record(name, None, None, head[:HEAD_BYTES], str(error))
        return
    split = Split(Input(name, 0, member_format.name, None, ""), 0, None)
    yield from member_format.read(stream, split, reading)


def listing(stream: BinaryIO, name: str, seekable: bool) -> Iterator[Member]:
    """Yield (name, offset, content) of each member of a tar. Folders and hidden files are skipped.

    The name is FILE/MEMBER, the offset is where the member's header begins in the tar, and the content is a stream, or
    None if the member is not a file but, for example, a link.

    Args:
        stream: the tar, at its start.
        name: name of the tar.
        seekable: whether `stream` can seek; contents that the caller does not read are then passed over unread.

    Raises:
        tarfile.TarError: the tar is damaged or cut short.
    """
    return _members(stream, name, mode="r:" if seekable else "r|")


def cuts(stream: BinaryIO, size: int) -> list[int]:
    """Return the offsets at which the splits of a tar begin: 0, and offsets of members at least `size` bytes apart.

    Args:
        stream: the tar, at its start; it must be able to seek.
        size: the smallest size of a split in bytes; the last split may be smaller.

    Raises:
        tarfile.TarError: the tar is damaged or cut short.
    """
    starts = [0]
    with _Archive.open(fileobj=stream, mode="r:") as archive:
        while (info := archive.next()) is not None:
            archive.members.clear()  # type: ignore[attr-defined]
            if info.offset - starts[-1] >= size:
                starts.append(info.offset)
    return starts


class _Header(tarfile.TarInfo):
    """Header of a member. Reading it raises tarfile.ReadError if it is incomplete, which tarfile would take for the end
    of the tar, or if it is larger than HEADER_BYTES (1 MiB).
    """

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except (tarfile.HeaderError, ValueError, RecursionError) as error:
            raise tarfile.ReadError(f"no whole member at byte {archive.offset}: {error}") from None

    def _proc_member(self, archive: tarfile.TarFile) -> Self:
        """Raise tarfile.ReadError if the header is larger than HEADER_BYTES (1 MiB), before tarfile reads it.

        This is a method of `tarfile.TarInfo` that subclasses may override.
        """
        if self.type in HEADERS and self.size > HEADER_BYTES:
            raise tarfile.ReadError(f"a name or attributes of {self.size:,} bytes at byte {self.offset:,}")
        return cast(Self, super()._proc_member(archive))  # type: ignore[misc]


class _Archive(tarfile.TarFile):
    tarinfo = _Header


def _members(
    stream: BinaryIO, name: str, length: int | None = None, mode: Literal["r:", "r|"] = "r|"
) -> Iterator[Member]:
    """Yield (name, offset, content) of each member of a tar. Folders and hidden files are skipped.

    The name is FILE/MEMBER, the offset is where the member's header begins, counted from the first byte that is read,
    and the content is a stream, or None if the member is not a file but, for example, a link.

    Args:
        stream: the tar, at the header of the first member to read.
        name: name of the tar.
        length: number of bytes after which to stop; a member must begin there. None to read to the end of the tar.
        mode: "r:" if the stream can seek, otherwise "r|" (see `tarfile.open`).

    Raises:
        tarfile.TarError: the tar is damaged or cut short, or no member begins where `length` bytes end.
    """
    with _Archive.open(fileobj=stream, mode=mode) as archive:
        while (info := archive.next()) is not None:
            if length is not None and info.offset >= length:
                if info.offset > length:
                    raise tarfile.ReadError(f"no member at byte {length:,} of the split, where one was planned")
                return
            archive.members.clear()  # type: ignore[attr-defined]
            if info.issparse():
                raise tarfile.ReadError(SPARSE)
            if not info.isdir() and not is_below_hidden(info.name):
                content = archive.extractfile(info) if info.isfile() else None
                shown = info.name if info.name.isprintable() else ascii(info.name)[1:-1]  # a source must be one line
                yield f"{name}/{shown}", info.offset, cast(BinaryIO | None, content)
        if mode == "r:":
            return
        if length is not None:
            raise tarfile.ReadError(f"its end is before byte {length:,} of the split, where a member was planned")
        _check_end(cast(BinaryIO, archive.fileobj))


def _check_end(rest: BinaryIO) -> None:
    """Raise tarfile.ReadError if anything but padding follows the end mark of a tar.

    Args:
        rest: the tar, behind its end mark.
    """
    padding = 0
    while data := rest.read(BUFFER_BYTES):
        padding += len(data)
        if data.strip(b"\0"):
            raise tarfile.ReadError("data follows its end: two tars joined, or damage")
        if padding > PADDING_BYTES:
            raise tarfile.ReadError(f"more than {PADDING_BYTES:,} zero bytes after its end")
