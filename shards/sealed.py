"""Integrity of files: size and sha256 of a file, and JSON records that carry the hash of their own content.

    record -> seal -> {..., "sha256": hash of the other fields} -> unseal -> the same record, or a ValueError

A flipped bit, a truncation or an edit of a sealed record is detected. The hash is computed from a canonical form
(sorted keys, no spaces), so reformatting the file is allowed.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from clearspan.common.files import sha256

FIELD = "sha256"
"""Name of the field that holds a record's hash."""


@dataclasses.dataclass(frozen=True)
class FileInfo:
    """Size and SHA-256 of a local file as it was written."""

    bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> "FileInfo":
        """Measure a file."""
        return cls(path.stat().st_size, sha256(path))

    def difference(self, other: "FileInfo") -> str:
        """Describe how another file differs from this one, by size or else by hash; empty if it does not."""
        if other.bytes != self.bytes:
            return f"{other.bytes:,} bytes where the manifest says {self.bytes:,}"
        return "" if other.sha256 == self.sha256 else "its sha256 is not the manifest's"


class HashingFile:
    """Stream that hashes and counts the bytes of a file which is written or read once from start to end."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.bytes = 0
        self._sha256 = hashlib.sha256()

    @property
    def info(self) -> FileInfo:
        """Size and hash of the bytes so far."""
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


def seal(record: Mapping[str, Any], indent: int | None = None) -> bytes:
    """Return a record as JSON with its hash as the last field; equal records give equal bytes."""
    return (json.dumps({**record, FIELD: _hash(record)}, indent=indent) + "\n").encode()


def unseal(data: bytes) -> dict[str, Any]:
    """Return the record in bytes from `seal`, without its hash.

    Raises:
        ValueError: the bytes are not a JSON object, or its hash does not match its content.
    """
    try:
        record = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(record, dict):
        raise ValueError(f"a {type(record).__name__}, not an object")
    if record.pop(FIELD, None) != _hash(record):
        raise ValueError("its own sha256 is not that of its content: damaged or edited")
    return record
