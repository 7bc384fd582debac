"""Files and rows in the cache: each is checked before use; a damaged one is reported and made again.

    file   kept(name, make) -> its path in the cache    checked by the name and SHA-256 in NAME.json, written after it
           is_whole(path, sha256)                       for a file whose hash is already known
    rows   checksums(rows, keys)                        one per row, for files of which only a few rows are read

A cached file may be damaged by a full disk, a power failure, a copied home folder or a bad block, and most formats do
not detect this: an index with a block of zeros gives wrong hits. Hashing a file reads all of it.
"""

import contextlib
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearspan.common.files import (
    cache_folder,
    move,
    remove_temporaries,
    sha256,
    temporary_folder,
    temporary_name,
    write_bytes,
)
from clearspan.common.sealed import seal, unseal
from clearspan.common.terminal import warn

RECORD = ".json"
"""Suffix of the file that holds the hash of the cached file beside it."""
STALE_S = 24 * 3600
"""Age in seconds from which a temporary file is taken to be left by a killed process."""


def is_whole(path: Path, expected: str) -> bool:
    """Return whether a file exists and has the SHA-256 `expected`; warn if it is damaged.

    A damaged file is not deleted, since another process may have replaced it by now; the new file will replace it.

    Raises:
        OSError: the file cannot be read.
    """
    if not path.exists():
        return False
    if sha256(path) == expected:
        return True
    warn(f"{path}: damaged since it was kept: made again")
    return False


@contextlib.contextmanager
def kept(name: str, make: Callable[[Path], None]) -> Iterator[Path]:
    """Yield the path of a cached file; call `make` to write it if it is missing or damaged.

    If the cache cannot be used, warn and write the file to a temporary folder.

    Args:
        name: the file's name, which identifies everything that its content depends on.
        make: function that writes the file to a path.
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
            warn(f"the cache cannot be used ({reason}): this time its content is made anew, and not kept")
            path, is_kept = Path(stack.enter_context(temporary_folder())) / name, False
        if not is_kept:
            temporary = path.with_name(temporary_name(name))
            try:
                make(temporary)
                record = seal({"name": name, "file": sha256(temporary)})
                move(temporary, path)
                write_bytes(path.with_name(name + RECORD), record)
            finally:
                temporary.unlink(missing_ok=True)
        yield path


def _is_kept(path: Path) -> bool:
    """Return whether a file matches its record; a process killed between writing the two leaves no record."""
    record = path.with_name(path.name + RECORD)
    if not path.exists() or not record.exists():
        return False
    try:
        content = unseal(record.read_bytes())
        expected = str(content["file"])
        if (name := content.get("name")) is None:  # earlier versions wrote no name
            return False
        if name != path.name:
            raise ValueError(f"of {name}")
    except (ValueError, KeyError) as error:
        warn(f"{record}: damaged since it was kept ({error}): its file is made again")
        return False
    return is_whole(path, expected)


def checksums(rows: Iterable[NDArray[Any]], keys: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the CRC-32 of each row's key and bytes, (n,). The key is included to detect a row in the place of another.

    Args:
        rows: n contiguous rows.
        keys: a number that identifies each row, (n,).
    """
    crcs = (zlib.crc32(row.data, key) for row, key in zip(rows, keys.tolist(), strict=True))
    return np.fromiter(crcs, np.uint32, len(keys))
