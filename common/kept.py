"""Files and rows that are kept for later runs: each is checked before use, and a damaged one is named and made again.

    file   kept(name, make) -> its path in the cache    checked by the name and SHA-256 in NAME.json, written after it
           is_whole(path, sha256)                       if the hash is known already
    rows   checksums(rows, keys)                        one a row, if a few of many rows are read

A copy may be damaged by a full disk, a power failure, a copied home folder or a bad block, and most formats do not
notice: an index with a block of zeros gives other hits. Hashing a file reads all of it.
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
"""Suffix of the file beside a kept one that holds its hash."""
STALE_S = 24 * 3600
"""Age in seconds at which a temporary file was left by a process that is gone."""


def is_whole(path: Path, expected: str) -> bool:
    """Return whether a file is there and has the SHA-256 `expected`; say on stderr if it is damaged.

    A damaged file stays until the new one takes its place: another process may have put a whole one there by now.

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
    """Yield the path of a file in the cache, as `make` wrote it; make it if it is missing or damaged.

    Where the cache cannot be used, a line on stderr says so, and the file is made in a temporary folder.

    Args:
        name: the file's name, which says everything that its content depends on.
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
    """Return whether a file is as its record says; there is no record if a kill came between the two."""
    record = path.with_name(path.name + RECORD)
    if not path.exists() or not record.exists():
        return False
    try:
        content = unseal(record.read_bytes())
        expected = str(content["file"])
        if (name := content.get("name")) is None:  # of an earlier version
            return False
        if name != path.name:
            raise ValueError(f"of {name}")
    except (ValueError, KeyError) as error:
        warn(f"{record}: damaged since it was kept ({error}): its file is made again")
        return False
    return is_whole(path, expected)


def checksums(rows: Iterable[NDArray[Any]], keys: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the CRC-32 of each of n contiguous rows after its key (n,), so that no row passes for another: (n,)."""
    crcs = (zlib.crc32(row.data, key) for row, key in zip(rows, keys.tolist(), strict=True))
    return np.fromiter(crcs, np.uint32, len(keys))
