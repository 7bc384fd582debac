"""What a file holds, by its first bytes, then by its name; and a hash of bytes spread over it, to know it again."""

import hashlib
import re
import tarfile
from collections.abc import Sequence
from typing import BinaryIO

from pipelines.errors import PipelineError
from pipelines.readers.jsonl import parse
from pipelines.readers.streams import BOM, decompressed, naming
from shards import storage

HEAD_BYTES = 1 << 16
MAGIC = re.compile(
    rb"(?P<gzip>\x1f\x8b)|(?P<zstd>\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18)"
    rb"|(?P<bz2>BZh[1-9](?:1AY&SY|\x17rE8P\x90))|(?P<xz>\xfd7zXZ\0)"
)
"""How compressed files begin; one of zstd may do so with a frame to skip."""
MAGIC_BYTES = 10
PARQUET = b"PAR1"
LINES = (".jsonl", ".ndjson")
TEXTS = (".txt", ".text", ".md")
TARS = (".tar", ".tgz", ".tbz", ".tbz2", ".txz", ".tzst")
CONTAINERS = (".gz", ".bz2", ".xz", ".zst", ".parquet", *TARS)
"""Ends of names of files that are never empty, nor of bytes that begin otherwise."""
KNOWN = "JSON lines, UTF-8 text, tar (plain, .gz, .bz2, .xz or .zst) or parquet"
SAMPLES = 9
SAMPLE_BYTES = 1 << 13
WHOLE_BYTES = SAMPLES * SAMPLE_BYTES
_OPENING = re.compile(rb'\{\s*("(?:[^"\\]|\\.)*"\s*:|$)')
"""How a JSON object begins, whole or not."""


def sample(stream: BinaryIO, size: int) -> str:
    """A hash of an opened file's size and of bytes spread over it, its head, middle and tail among them; of all the
    bytes of a small one. Leaves the stream at its start.

    The same content gives the same wherever it lies, as its modification time would not.
    """
    if size <= WHOLE_BYTES:
        data = stream.read(size)
        stream.seek(0)
    else:
        starts = (number * (size - SAMPLE_BYTES) // (SAMPLES - 1) for number in range(SAMPLES))
        data = b"".join(storage.read_at(stream, start, SAMPLE_BYTES) for start in starts)
    return hashlib.blake2b(size.to_bytes(8, "little") + data, digest_size=16).hexdigest()


def compression_of(head: bytes) -> str | None:
    """What a file's first bytes say it is compressed with."""
    magic = MAGIC.match(head)
    return magic.lastgroup if magic else None


def look(stream: BinaryIO, path: str) -> tuple[str, str | None]:
    """An opened file's (format, compression): "jsonl", "text", "tar" or "parquet". Leaves the stream somewhere,
    or closed.

    Raises:
        PipelineError: it holds none of them.
    """
    magic = stream.read(MAGIC_BYTES)
    stream.seek(0)
    if magic.startswith(PARQUET):
        return "parquet", None
    compression = compression_of(magic)
    suffixes = suffixes_of(path)
    if set(LINES) & set(suffixes) and not _claims(suffixes, compression):
        return "jsonl", compression
    with naming(path, compression), decompressed(stream, compression) as content:
        head = content.read(HEAD_BYTES)
    if is_tar(head):
        return "tar", compression
    check_claims(path, compression, head)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise PipelineError(f"{path}: UTF-16 text: convert it to UTF-8, e.g. iconv -f UTF-16 -t UTF-8")
    if b"\0" in head and not set(TEXTS) & set(suffixes):
        raise PipelineError(f"{path}: binary: expected {KNOWN}")
    try:
        return text_format(head, suffixes, len(head) < HEAD_BYTES), compression
    except ValueError as error:
        raise PipelineError(f"{path}: {error}") from None


def check_claims(name: str, compression: str | None, head: bytes) -> None:
    """Raises PipelineError if a file or a member, which is no tar and begins so when decompressed, is by its name a
    container that it is not by its bytes.
    """
    if claims := _claims(suffixes_of(name), compression):
        found = "does not begin as one" if head else "is empty"
        raise PipelineError(f"{name}: damaged or misnamed (a {claims[0]} that {found}): fetch it again, or rename it")


def _claims(suffixes: Sequence[str], compression: str | None) -> list[str]:
    """The ends of a name that only a tar bears out, where this compression was found."""
    last = [suffix for suffix in suffixes[-1:] if suffix in CONTAINERS and not compression]
    return last + [suffix for suffix in suffixes if suffix in TARS and not set(LINES) & set(suffixes)]


def suffixes_of(path: str) -> list[str]:
    """The last two ends of a file's name: ".tar" and ".gz". What macOS keeps beside a file bears its name in vain."""
    name = path.rpartition("/")[2]
    _, *ends = [""] if name.startswith("._") else name.lstrip(".").split(".")
    return [f".{end}" for end in ends[-2:]]


def is_tar(head: bytes) -> bool:
    """Whether a file's first block is the header of a tar's member."""
    if head[257:262] != b"ustar":
        return False
    try:
        tarfile.TarInfo.frombuf(head[: tarfile.BLOCKSIZE], tarfile.ENCODING, "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def text_format(head: bytes, suffixes: Sequence[str], is_whole: bool) -> str:
    """Whether a text is "jsonl" or "text", by its head (or all of it) and the ends of its name.

    Raises:
        ValueError: it is JSON in another form than lines.
    """
    if set(LINES) & set(suffixes):
        return "jsonl"
    head = head.removeprefix(BOM).lstrip()
    if ".json" in suffixes and head.startswith(b"["):
        raise ValueError("one JSON array: make it one object a line, e.g. jq -c '.[]'")
    if _starts_with_object(head, is_whole):
        return "jsonl"
    if ".json" in suffixes:
        raise ValueError("not one JSON object a line: make it so, e.g. jq -c .")
    return "jsonl" if _starts_with_bad_line(head, is_whole) else "text"


def _starts_with_object(head: bytes, is_whole: bool) -> bool:
    """Whether the first line is a JSON object, as far as the head shows it."""
    if not head.startswith(b"{"):
        return False
    line, newline, _ = head.partition(b"\n")
    if newline or is_whole:
        return parse(line)[0] is not None
    return bool(_OPENING.match(line))


def _starts_with_bad_line(head: bytes, is_whole: bool) -> bool:
    """Whether the first line begins as an object, and a later whole one is one: the first is damaged, not a text."""
    first, *rest = head.split(b"\n")
    rest = rest if is_whole else rest[:-1]
    return bool(_OPENING.match(first)) and any(line.startswith(b"{") and parse(line)[0] is not None for line in rest)
