"""Detect the format of a file from its first bytes and its name, and hash a sample of a file to detect changes."""

import codecs
import hashlib
import io
import re
from collections.abc import Sequence
from typing import BinaryIO, cast

from clearspan.common.compressions import PACKED_BYTES, SUFFIXES, packing_of
from clearspan.common.errors import PipelineError
from clearspan.pipelines.readers import formats
from clearspan.pipelines.readers.encodings import AUTO, detected
from clearspan.pipelines.readers.formats import PLAIN_TEXT, FirstBytes, Format
from clearspan.pipelines.readers.refused import refusal
from clearspan.pipelines.readers.streams import (
    COMPRESSION_BYTES,
    compression_of,
    decompressed,
    naming_damage,
    opened,
    transcoded,
)
from clearspan.pipelines.suffixes import COMPRESSED, TARS, suffixes_of
from clearspan.shards import storage

FIRST_BYTES = 1 << 16
"""Number of first bytes of a file from which its format is inferred."""
ABOUT = re.compile(r"(licen[sc]es?|readme|copying|citation|notice)(?![a-z])", re.IGNORECASE)
"""Pattern of the names of files that describe a dataset and hold no data."""
PACKED = SUFFIXES.keys()
UTF8_CHARACTERS = 3
"""If the first bytes of a file are valid UTF-8 and hold this many multi-byte characters,
the file has no other encoding.
"""
SAMPLES = 9
SAMPLE_BYTES = 1 << 13
WHOLE_BYTES = SAMPLES * SAMPLE_BYTES
_MULTIBYTE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
"""Pattern of a multi-byte character in UTF-8."""


class UnknownFormatError(PipelineError):
    """A file has none of the supported formats.

    Attributes:
        reason: the type of the file, such as a spreadsheet, and advice to the user; "" if the type is unknown.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


def is_about(path: str) -> bool:
    """Return whether a file, by its name, describes a dataset, as README.md or LICENSE does.

    Such files are skipped if they are found in folders or by globs.
    """
    return bool(ABOUT.match(path.rpartition("/")[2]))


def sample(stream: BinaryIO, size: int) -> str:
    """Return a hash, as 32 hex digits, of the size of an open file and of a sample of its bytes.

    The sample is spread over the file; if the file has at most 72 KiB (WHOLE_BYTES), it is the whole file. Unlike a
    modification time, the hash is the same for a copy of the file.

    Args:
        stream: the file, at its start. Afterwards it is at its start again.
        size: the size of the file in bytes.
    """
    if size <= WHOLE_BYTES:
        data = stream.read(size)
        stream.seek(0)
    else:
        starts = (number * (size - SAMPLE_BYTES) // (SAMPLES - 1) for number in range(SAMPLES))
        data = b"".join(storage.read_at(stream, start, SAMPLE_BYTES) for start in starts)
    return hashlib.blake2b(size.to_bytes(8, "little") + data, digest_size=16).hexdigest()


def recognized(path: str, own_formats: Sequence[str]) -> tuple[str, str | None] | None:
    """Return (format, compression) of a file that one of the user's own formats recognizes; None if none of them does.

    The format is the first that recognizes the file, as `module:name`. The compression is None if the file is not
    compressed.

    Args:
        own_formats: the user's own formats, as `module:name`.

    Raises:
        PipelineError: the compressed file is damaged, a package that the format needs is not installed, or the code of
            a format raises an error.
    """
    if not own_formats:
        return None
    with storage.open_input(path) as stream:
        compression = compression_of(stream.read(COMPRESSION_BYTES))
    with naming_damage(path, compression), opened(path, compression) as content:
        head = _head(content)
    for spec in own_formats:
        own = formats.own_format(spec)
        with formats.naming_own_format(spec, path):
            if not (own.seeks and compression) and own.recognizes(head, path):
                own.check(path)
                return spec, compression
    return None


def detect_format(stream: BinaryIO, path: str, encoding: str | None = None) -> tuple[str, str | None]:
    """Return (name of the built-in format, compression) of an open file; the compression is None if it has none.

    Args:
        stream: the file as stored, at its start. Afterwards it is at an arbitrary position, or closed.
        encoding: Python's name for the encoding of the file if it is a text; None for UTF-8; `auto` to detect the
            encoding from the first bytes.

    Raises:
        UnknownFormatError: the file has no built-in format, or is of a type that holds no plain text.
        PipelineError: the file is damaged, has an extension that its content contradicts, is a text in a different
            encoding, or needs a package that is not installed.
    """
    magic = FirstBytes(stream.read(PACKED_BYTES), is_whole=False)
    stream.seek(0)
    containers = formats.containers()
    if found := next((known for known in containers if known.seeks and known.recognizes(magic, path)), None):
        found.check(path)
        return found.name, None
    compression = compression_of(magic)
    suffixes = suffixes_of(path)
    may_be_packed = compression is None and (packing_of(magic) or not PACKED.isdisjoint(suffixes[-1:]))
    sure = None if may_be_packed else _of_name(suffixes)
    if sure and not _contradicted(suffixes, compression) and encoding in (None, AUTO):
        return sure.name, compression
    with naming_damage(path, compression), decompressed(stream, compression) as content:
        head = _head(content)
    if found := next((known for known in containers if not known.seeks and known.recognizes(head, path)), None):
        found.check(path)
        return found.name, compression
    if reason := refusal(path, head):
        raise UnknownFormatError(f"{path}: {reason}", reason)
    check_extensions(path, compression, head)
    if encoding == AUTO:
        encoding = detected([head])
    elif encoding and len(_MULTIBYTE.findall(head)) >= UTF8_CHARACTERS and is_utf8(head, head.is_whole):
        raise PipelineError(f"{path}: UTF-8, not {encoding}: leave `encoding` out, or use auto if files differ")
    if encoding:
        head = FirstBytes(transcoded(cast(BinaryIO, io.BytesIO(head)), encoding).read(), head.is_whole)
        if reason := refusal(path, head):  # markup in UTF-16 does not show before the conversion
            raise UnknownFormatError(f"{path}: {reason}", reason)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise PipelineError(f"{path}: UTF-16 text: convert it to UTF-8, or pass `encoding` utf-16 or auto")
    is_named = any(known.is_text and not known.by_name for known in formats.with_suffixes(suffixes))
    if 0 in head and not is_named:
        raise UnknownFormatError(f"{path}: binary: expected {formats.described()}")
    try:
        return text_format(head, path).name, compression
    except ValueError as error:
        raise PipelineError(f"{path}: {error}") from None


def _head(content: BinaryIO) -> FirstBytes:
    data = content.read(FIRST_BYTES)
    return FirstBytes(data, is_whole=len(data) < FIRST_BYTES)


def _of_name(suffixes: tuple[str, ...]) -> Format | None:
    """Return the format that a file's extensions determine whatever its content is; None if the content decides."""
    return next((known for known in formats.with_suffixes(suffixes) if known.by_name), None)


def check_extensions(name: str, compression: str | None, head: bytes) -> None:
    """Raise PipelineError if a file, or a member of a tar, has an extension that its content contradicts.

    An example is a file `a.gz` that is not compressed. Call this only for content that is not a tar: the extension .tar
    is then an error.

    Args:
        name: the name of the file or member.
        compression: the compression that the content has; None if it is not compressed.
        head: the first bytes of the content, decompressed.
    """
    if wrong := _contradicted(suffixes_of(name), compression):
        fault = "does not begin as one" if head else "is empty"
        raise PipelineError(f"{name}: damaged or misnamed (a {wrong[0]} that {fault}): fetch it again, or rename it")


def _contradicted(suffixes: tuple[str, ...], compression: str | None) -> list[str]:
    """Return the extensions of a file's name that its content contradicts. The content must not be a tar.

    These are the extensions of tars, such as .tar. But if another extension alone determines the format, as .jsonl
    does, an extension of tars is accepted. If the content is not compressed, the last extension is returned also if it
    names a compression or a binary format, such as .gz or .parquet.

    Args:
        suffixes: the last extensions of the file's name, at most two.
        compression: the compression of the content; None if it is not compressed.
    """
    last = [suffix for suffix in suffixes[-1:] if not compression and (suffix in COMPRESSED or _is_container(suffix))]
    return last + [suffix for suffix in suffixes if suffix in TARS and not _of_name(suffixes)]


def _is_container(suffix: str) -> bool:
    return any(known.is_container for known in formats.with_suffixes((suffix,)))


def is_utf8(head: bytes, is_whole: bool) -> bool:
    """Return whether the first bytes of a text are valid UTF-8.

    Args:
        is_whole: whether `head` is the whole text; if it is not, its last character may be cut off.
    """
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, final=is_whole)
    except UnicodeDecodeError:
        return False
    return True


def text_format(head: FirstBytes, path: str) -> Format:
    """Return the format of a text, which its first bytes and its extensions show.

    The formats to which these extensions belong are tried first. A text that no format recognizes is plain text, unless
    it has an extension that plain text cannot have.

    Raises:
        ValueError: no format recognizes the text, and it has such an extension, e.g. .json. The message says what to
            do.
    """
    named = [known for known in formats.with_suffixes(suffixes_of(path)) if known.is_text]
    for known in (*named, *formats.texts()):
        if known.name != PLAIN_TEXT and known.recognizes(head, path):
            return known
    if reason := next((known.otherwise for known in named if known.otherwise), ""):
        raise ValueError(reason)
    return formats.built_in()[PLAIN_TEXT]
