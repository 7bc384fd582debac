"""Cache of embeddings on disk, keyed by model fingerprint and text hash, shared by all runs.

    CACHE/<fingerprint>/<time>-<process>.rows.npy       n rows
    CACHE/<fingerprint>/<time>-<process>.hashes.npy     the hash of the text of each; written last

Each addition is two files, written atomically and never changed: no run reads the unfinished files of a killed or
concurrent run. Hashes are held in memory, 24 bytes a text; rows are memory-mapped and read on demand. A failure to read
or write is a warning, and the run continues without the cache. Any file may be deleted at any time.
"""

import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clearspan.common.files import atomic_write, remove_temporaries

Rows = NDArray[np.float32]
Hashes = NDArray[np.uint64]

_ROWS, _HASHES = ".rows.npy", ".hashes.npy"
_STALE_S = 24 * 3600
"""Age in seconds at which a temporary file was left by a process that is gone."""


class Cache:
    """The cached embeddings of one model.

    Attributes:
        blocks: the memory-mapped rows of each file, (n, dim) float32. Row numbers count through all blocks.
        takes: whether the cache still accepts rows; false after a failed write.
        warnings: one line for each file that could not be read or written.
    """

    def __init__(self, folder: Path, dim: int) -> None:
        self._folder, self._dim = folder, dim
        self.blocks: list[Rows] = []
        self.takes = True
        self.warnings: list[str] = []
        hashes: list[Hashes] = [np.empty((0, 2), np.uint64)]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            paths = sorted(folder.glob(f"[!.]*{_HASHES}"))
            remove_temporaries(folder, older_than_s=_STALE_S)
        except OSError as error:
            paths, self.takes = [], False
            self.warnings.append(
                f"{folder} cannot be used as a cache of embeddings ({error.strerror}): all are computed again"
            )
        for path in paths:
            try:
                file_hashes, rows = _read(path, dim)
            except FileNotFoundError:
                continue
            except (OSError, EOFError, ValueError) as error:
                self.warnings.append(f"{path} holds no readable embeddings ({error}): delete it")
                continue
            hashes.append(file_hashes)
            self.blocks.append(rows)
        unsorted = np.concatenate(hashes)
        # Sorted by the first half of the hash.
        self._order = np.argsort(unsorted[:, 0], kind="stable")
        self._hashes = unsorted[self._order]

    def find(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the row number of each text, (len(texts),); -1 if the row is missing."""
        if not len(self._hashes):
            return np.full(len(texts), -1)
        hashes = _hashes(texts)
        places = np.searchsorted(self._hashes[:, 0], hashes[:, 0]).clip(max=len(self._hashes) - 1)
        return np.where((self._hashes[places] == hashes).all(axis=1), self._order[places], -1)

    def add(self, texts: Sequence[str], rows: Rows) -> Rows:
        """Write embeddings, float32 (len(texts), dim), to the cache.

        Returns:
            The same rows, memory-mapped from the new file; `rows` itself if they could not be written.
        """
        if not self.takes or not len(rows):
            return rows
        path = self._folder / f"{time.time_ns():020d}-{os.getpid()}{_HASHES}"
        try:
            for target, array in ((_rows_of(path), np.ascontiguousarray(rows, "<f4")), (path, _hashes(texts))):
                with atomic_write(target) as file:
                    np.save(file, array, allow_pickle=False)
            return _read(path, self._dim)[1]
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self.takes = False
            self.warnings.append(
                f"{self._folder} cannot store more embeddings ({reason}): other runs will compute them again"
            )
            return rows


def _rows_of(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(_HASHES) + _ROWS)


def _read(path: Path, dim: int) -> tuple[Hashes, Rows]:
    """Return the hashes (n, 2) of a file, and the memory-mapped rows (n, dim) of the one beside it.

    Raises:
        OSError: a file cannot be read.
        EOFError, ValueError: `Cache.add` did not write a file, or it is truncated.
    """
    hashes, rows = np.load(path, allow_pickle=False), np.load(_rows_of(path), mmap_mode="r", allow_pickle=False)
    expected = (np.uint64, (len(rows), 2), np.float32, (len(hashes), dim))
    if (hashes.dtype, hashes.shape, rows.dtype, rows.shape) != expected:
        raise ValueError(f"arrays {hashes.shape} and {rows.shape} instead of (n, 2) hashes and (n, {dim}) rows")
    return hashes, rows


def _hashes(texts: Sequence[str]) -> Hashes:
    """Return the 128-bit BLAKE2b hash of each text's UTF-8, (len(texts), 2); lone surrogates are encoded too."""
    digests = (hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16) for text in texts)
    return np.frombuffer(b"".join(digest.digest() for digest in digests), "<u8").reshape(-1, 2)
