"""Check cached files, and rows of cached files, before use: damage is reported, and the file or row is made again.

    cached_file(name, make)     the path of a cached file; NAME.json, written after the file, holds its SHA-256
    has_sha256(path, sha256)    check of a file whose hash is already known
    checksums(rows, keys)       a checksum for each row of a file

A cached file may be damaged by a full disk, a power failure, a copied home folder or a bad block, and most file formats
do not detect this; for example, an index with a block of zeros returns wrong hits. To check a file's hash, all of the
file is read. So a file of which only a few rows are read has a checksum for each row instead.
"""

import contextlib
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearspan.common.checksummed import dump_checksummed, load_checksummed
from clearspan.common.files import (
    cache_folder,
    move,
    remove_temporaries,
    sha256,
    temporary_folder,
    temporary_name,
    write_bytes,
)
from clearspan.common.terminal import warn

RECORD = ".json"
"""Suffix of the file that holds the hash of the cached file beside it."""
STALE_S = 24 * 3600
"""Age in seconds from which a temporary file is taken to be left by a killed process."""


def has_sha256(path: Path, expected_sha256: str) -> bool:
    """Return whether a file exists and has the SHA-256 `expected_sha256`; warn if the hash differs.

    A damaged file is not deleted, since another process may just have replaced it. The caller writes a new file in its
    place.

    Raises:
        OSError: the file cannot be read.
    """
    if not path.exists():
        return False
    if sha256(path) == expected_sha256:
        return True
    warn(f"{path}: damaged in the cache: made again")
    return False


@contextlib.contextmanager
def cached_file(name: str, make: Callable[[Path], None]) -> Iterator[Path]:
    """Yield the path of a cached file; call `make` to write it if it is missing or damaged.

    If the cache cannot be used, warn, and write the file to a temporary folder, which is deleted at the end of the
    `with` statement.

    Args:
        name: the file's name in the cache; two files with different content must have different names.
        make: function that writes the file to the path that it is given, which is temporary.
    """
    with contextlib.ExitStack() as stack:
        try:
            path = cache_folder() / name
            if not (is_kept := _is_kept(path)):
                path.parent.mkdir(parents=True, exist_ok=True)
                remove_temporaries(path.parent, older_than_s=STALE_S)
                (probe := path.with_name(temporary_name(name))).touch()
                probe.unlink()
        except OSError as error:
            reason = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            warn(f"the cache cannot be used ({reason}): the content is made again, and not cached")
            path, is_kept = Path(stack.enter_context(temporary_folder())) / name, False
        if not is_kept:
            temporary = path.with_name(temporary_name(name))
            try:
                make(temporary)
                record = dump_checksummed({"name": name, "file": sha256(temporary)})
                move(temporary, path)
                write_bytes(path.with_name(name + RECORD), record)
            finally:
                temporary.unlink(missing_ok=True)
        yield path


def _is_kept(path: Path) -> bool:
    """Return whether a cached file has the hash in its NAME.json (False if there is none); warn if one is damaged."""
    record = path.with_name(path.name + RECORD)
    if not path.exists() or not record.exists():
        return False
    try:
        content = load_checksummed(record.read_bytes())
        expected = str(content["file"])
        if content["name"] != path.name:
            raise ValueError(f"it belongs to {content['name']}")
    except (ValueError, KeyError) as error:
        warn(f"{record}: damaged in the cache ({error}): the file is made again")
        return False
    return has_sha256(path, expected)


def checksums(rows: Iterable[NDArray[Any]], keys: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the CRC-32 of each of n rows, (n,).

    It also covers the row's key, so that a row in the place of another one is detected.

    Args:
        rows: n contiguous arrays, one for each row.
        keys: a number that identifies each row, (n,).
    """
    crcs = (zlib.crc32(row.data, key) for row, key in zip(rows, keys.tolist(), strict=True))
    return np.fromiter(crcs, np.uint32, len(keys))
