"""Integrity of files: size and sha256 of a file, and files that carry the hash of their own content.

    dict -> dump_checksummed -> JSON with a field "sha256", the hash of the other fields
    the JSON -> load_checksummed -> the dict, or a ValueError
    dict -> build -> an instance of a dataclass, or a ValueError
    bytes -> append_checksum -> the bytes, followed by their hash -> strip_checksum -> the bytes, or a ValueError

A flipped bit, a truncation or an edit of such a file is detected. The hash of a dict is computed from a canonical form
(sorted keys, no spaces), so the file may be reformatted. A user may edit the JSON and its hash, so `build` validates
the types of the fields. It does not use pydantic, which Beam workers would have to import.
"""

import dataclasses
import functools
import hashlib
import json
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from clearspan.common.files import sha256
from clearspan.common.typed import MismatchError, conform

FIELD = "sha256"
"""Name of the field that holds a record's hash."""
HASH_BYTES = 32
Made = TypeVar("Made")


@dataclasses.dataclass(frozen=True)
class FileInfo:
    """The size of a file in bytes, and its SHA-256 in hexadecimal."""

    bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> "FileInfo":
        """Return the size and the hash of a local file."""
        return cls(path.stat().st_size, sha256(path))

    def difference(self, other: "FileInfo") -> str:
        """Return a phrase that says how a file on disk differs from this size and hash; "" if it does not differ.

        Args:
            other: the size and hash of the file on disk. `self` is the size and hash that a manifest lists for it.
        """
        if other.bytes != self.bytes:
            return f"{other.bytes:,} bytes where the manifest says {self.bytes:,}"
        return "" if other.sha256 == self.sha256 else "its sha256 is not the manifest's"


class HashingFile:
    """Binary stream that writes to another stream or reads from it, and meanwhile hashes and counts the bytes.

    Args:
        stream: the other stream; it is either only written or only read, once from start to end.

    Attributes:
        bytes: the number of bytes that were written or read so far.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.bytes = 0
        self._sha256 = hashlib.sha256()

    @property
    def info(self) -> FileInfo:
        """The number and the SHA-256 of the bytes that were written or read so far."""
        return FileInfo(self.bytes, self._sha256.hexdigest())

    def write(self, data: bytes) -> int:
        self._count(data)
        return self.stream.write(data)

    def read(self, size: int = -1) -> bytes:
        data = self.stream.read(size)
        self._count(data)
        return data

    def _count(self, data: bytes) -> None:
        self._sha256.update(data)
        self.bytes += len(data)


def _hash(record: Mapping[str, Any]) -> str:
    content = {name: value for name, value in record.items() if name != FIELD}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def dump_checksummed(record: Mapping[str, Any], indent: int | None = None) -> bytes:
    """Return a dict as JSON in UTF-8, with the SHA-256 of its content as the last field, `sha256`.

    Args:
        indent: the number of spaces by which nested values are indented; None for JSON on one line.
    """
    return (json.dumps({**record, FIELD: _hash(record)}, indent=indent) + "\n").encode()


def load_checksummed(data: bytes) -> dict[str, Any]:
    """Return the dict that `dump_checksummed` turned into bytes, without its field `sha256`, after checking this hash.

    Raises:
        ValueError: the bytes are not a JSON object, or the hash does not match the other fields.
    """
    try:
        record = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(record, dict):
        raise ValueError(f"expected an object, found a {type(record).__name__}")
    stated = record.pop(FIELD, None)
    if stated != _hash(record):
        raise ValueError("its content does not match its sha256: damaged or edited")
    return record


def append_checksum(content: bytes) -> bytes:
    """Return the content of a file, followed by its SHA-256 as 32 bytes."""
    return content + hashlib.sha256(content).digest()


def strip_checksum(data: bytes) -> bytes:
    """Return the content to which `append_checksum` added a hash; raise ValueError if the hash does not match."""
    content, stated = data[:-HASH_BYTES], data[-HASH_BYTES:]
    if hashlib.sha256(content).digest() != stated:
        raise ValueError("its content does not match its sha256")
    return content


def build(cls: type[Made], record: object) -> Made:
    """Create an instance of a dataclass from a parsed JSON object, which holds the values of the dataclass's fields.

    Raises:
        ValueError: `record` is not a dict, or a field is missing, unknown or of the wrong type.
    """
    if not isinstance(record, dict):
        raise ValueError(f"a {type(record).__name__} where {cls.__name__} is expected")
    types = _types(cls)  # type: ignore[arg-type]
    for name, value in record.items():
        if name not in types:
            raise ValueError(f"{cls.__name__} has no field {name!r}")
        try:
            conform(value, types[name], exact=True)
        except MismatchError as error:
            raise ValueError(f"{cls.__name__}: {error.message(name)}") from None
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(cls)  # type: ignore[arg-type]
    required = [field.name for field in fields if field.default is field.default_factory is dataclasses.MISSING]
    if missing := [name for name in required if name not in record]:
        raise ValueError(f"{cls.__name__} lacks {missing[0]}")
    return cls(**record)


@functools.cache
def _types(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls, include_extras=True)


def has_type(value: object, expected: Any) -> bool:
    """Return whether a JSON value has a type such as dict[str, int]; a bool is not an int, and an int not a float."""
    try:
        conform(value, expected, exact=True)
    except MismatchError:
        return False
    return True
