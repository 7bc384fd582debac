"""Cache of embeddings on disk, keyed by model fingerprint and text hash, shared by all runs.

    CACHE/<fingerprint>/<time>-<process>.rows.npy       n embeddings, one in each row
    CACHE/<fingerprint>/<time>-<process>.hashes.npy     for each row, the hash of its text and a checksum; written last

`Cache.add` writes two new files, atomically, and no file is changed later. So no run reads the unfinished files of a
killed or concurrent run. Hashes and checksums are held in memory, 28 bytes for each text; rows are memory-mapped.

Each row is compared with its checksum before use (`common.verified_cache`). The text of a damaged row is embedded
again, and the new row takes precedence from then on. A damaged file is deleted. If a file cannot be read or written, a
warning is printed, and the run continues without it. Any file may be deleted at any time.
"""

import hashlib
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clearspan.common import verified_cache
from clearspan.common.files import atomic_write, cache_folder, remove_temporaries
from clearspan.common.progress import counted
from clearspan.common.terminal import one_line, warn

NO_CACHE = Path("none")
"""Help text of `--cache`."""
Rows = NDArray[np.float32]
Hashes = NDArray[np.uint64]
Entries = NDArray[np.void]
"""Array of type _ENTRY."""

_ENTRY = np.dtype([("hash", "<u8", 2), ("checksum", "<u4")])
"""The hash of a text, and the checksum of its embedding, which starts from four bytes of the hash."""
_ROWS, _HASHES = ".rows.npy", ".hashes.npy"
_NAME = re.compile(rf"\d{{20}}-\d+{re.escape(_HASHES)}")
"""Pattern of the file names that this module writes; only files with such a name are deleted."""


def folder_of(option: Path | None) -> Path | None:
    """Return the folder for the cached embeddings of all models; None if embeddings are not cached.

    Args:
        option: the value of `--cache`: a folder, Path("none") for no cache, or None for the default folder. A user
            without a home folder has no default folder, so nothing is cached.
    """
    if option is not None:
        return None if option == NO_CACHE else option
    try:
        return cache_folder() / "embeddings"
    except OSError:
        return None


class Cache:
    """The cached embeddings of one model.

    Args:
        folder: the folder of the model's cached embeddings; created if it is missing.
        dim: the width of the model's embeddings.

    Attributes:
        blocks: for each file, an array of the n embeddings in it, memory-mapped, (n, dim) float32.
        accepts_new: whether the cache accepts new embeddings; false if the folder cannot be used, or after a failed
            write.
        warnings: one line for each problem with a file or the folder.
    """

    def __init__(self, folder: Path, dim: int) -> None:
        self._folder = folder
        self._dim = dim
        self.blocks: list[Rows] = []
        self.accepts_new = True
        self.warnings: list[str] = []
        self._paths: list[Path] = []  # of the blocks
        entries: list[Entries] = [np.empty(0, _ENTRY)]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # Newest first: the first row of a text is used, and a row that replaces a damaged one is newer.
            paths = sorted(folder.glob(f"[!.]*{_HASHES}"), reverse=True)
            remove_temporaries(folder, older_than_s=verified_cache.STALE_S)
        except OSError as error:
            paths = []
            self.accepts_new = False
            self.warnings.append(
                f"{folder} cannot be used as a cache of embeddings ({error.strerror}): all are computed again"
            )
        for path in paths:
            if (block := self._block(path)) is not None:
                entries.append(block[0])
                self.blocks.append(block[1])
                self._paths.append(path)
        unsorted = np.concatenate(entries)
        # Sorted by the first half of the hash. The sort is stable, so the first of equal hashes stays the first.
        self._order = np.argsort(unsorted["hash"][:, 0], kind="stable")
        self._entries = unsorted[self._order]

    def _block(self, path: Path) -> tuple[Entries, Rows] | None:
        """Read a file of hashes and the file of embeddings beside it; return None if one of them cannot be used.

        Damaged files are deleted if their names have the form that this module uses. If one of the two files is
        missing, nothing is reported. Any other problem is added to `warnings`.

        Args:
            path: the file of hashes, `.hashes.npy`.

        Returns:
            The hash and the checksum of each embedding, (n,), and the embeddings, (n, dim) float32, memory-mapped.
        """
        try:
            entries, rows = _read(path)
            if rows.shape[1] == self._dim:
                return entries, rows
            width = f"rows of {rows.shape[1]} values instead of {self._dim}"
            self.warnings.append(f"{path} holds {width}: its embeddings are computed again")
            return None
        except FileNotFoundError:
            return None
        except OSError as error:
            self.warnings.append(f"{path} cannot be read ({error.strerror}): its embeddings are computed again")
            return None
        except Exception as error:  # numpy raises errors of any type for a damaged header
            reason = one_line(error, 80)
        if not _NAME.fullmatch(path.name):
            self.warnings.append(f"{path} holds no readable embeddings ({reason}): delete it")
            return None
        try:
            for damaged in (path, _rows_of(path)):
                damaged.unlink(missing_ok=True)
            warn(
                f"{path}: damaged, or written by another version ({reason}): deleted; the embeddings are computed again"
            )
        except OSError as error:
            self.warnings.append(f"{path} is damaged, and cannot be deleted ({error.strerror}): delete it")
        return None

    def find(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the row of each text's embedding, (len(texts),); -1 if it is not in the cache, or is damaged.

        Rows are counted through the arrays of the attribute `blocks`, one for each file of embeddings, as if they were
        concatenated.
        """
        if not len(self._entries):
            return np.full(len(texts), -1)
        hashes = _hashes(texts)
        places = np.searchsorted(self._entries["hash"][:, 0], hashes[:, 0]).clip(max=len(self._entries) - 1)
        is_cached = (self._entries["hash"][places] == hashes).all(axis=1)
        is_cached[is_cached] = self._are_intact(places[is_cached])
        return np.where(is_cached, self._order[places], -1)

    def _are_intact(self, places: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether each of m cached embeddings matches its checksum, (m,) bool; warn about damaged embeddings.

        Args:
            places: for each of the m embeddings, its index in the attribute `_entries`, which holds the hashes and
                checksums of all cached embeddings, sorted by hash; (m,).
        """
        starts = np.cumsum([0, *map(len, self.blocks)])
        numbers = self._order[places]
        whole = np.zeros(len(places), bool)
        block_of = np.searchsorted(starts, numbers, side="right") - 1
        for block in np.unique(block_of):
            mine = np.flatnonzero(block_of == block)
            rows = np.asarray(self.blocks[block])  # still memory-mapped, but faster to index
            entries = self._entries[places[mine]]
            checksums = verified_cache.checksums(
                (rows[row] for row in (numbers[mine] - starts[block]).tolist()), _checksum_keys(entries)
            )
            whole[mine] = entries["checksum"] == checksums
            if num_damaged := len(mine) - int(whole[mine].sum()):
                problem = f"{counted(num_damaged, 'row')} damaged since kept: computed again"
                warn(f"{_rows_of(self._paths[block])}: {problem}")
        return whole

    def add(self, texts: Sequence[str], rows: Rows) -> Rows:
        """Write embeddings, float32 (len(texts), dim), to the cache.

        Returns:
            The same embeddings, memory-mapped from the new file; `rows` itself if they could not be written.
        """
        if not self.accepts_new or not len(rows):
            return rows
        path = self._folder / f"{time.time_ns():020d}-{os.getpid()}{_HASHES}"
        content = np.ascontiguousarray(rows, "<f4")
        entries = np.empty(len(rows), _ENTRY)
        entries["hash"] = _hashes(texts)
        entries["checksum"] = verified_cache.checksums(content, _checksum_keys(entries))
        try:
            for target, array in ((_rows_of(path), content), (path, entries)):
                with atomic_write(target) as file:
                    np.save(file, array, allow_pickle=False)
            return _read(path)[1]
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self.accepts_new = False
            self.warnings.append(
                f"{self._folder} cannot store more embeddings ({reason}): other runs will compute them again"
            )
            return rows


def _rows_of(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(_HASHES) + _ROWS)


def _checksum_keys(entries: Entries) -> NDArray[np.uint32]:
    """Return a key for each embedding's checksum: four bytes of its text's hash, (n,), so that a swap is noticed."""
    keys: NDArray[np.uint32] = entries["hash"][:, 1].astype(np.uint32)
    return keys


def _read(path: Path) -> tuple[Entries, Rows]:
    """Read a `.hashes.npy` file and the `.rows.npy` file beside it.

    Returns:
        The hash and the checksum of each embedding, (n,), and the embeddings, (n, dim), memory-mapped.

    Raises:
        OSError: a file cannot be read.
        EOFError, ValueError: a file is not an array that `Cache.add` wrote, or its header or size is damaged.
    """
    beside = _rows_of(path)
    entries, rows = np.load(path, allow_pickle=False), np.load(beside, mmap_mode="r", allow_pickle=False)
    if (entries.dtype, rows.dtype, rows.ndim) != (_ENTRY, np.float32, 2) or entries.shape != rows.shape[:1]:
        raise ValueError(f"arrays {entries.shape} and {rows.shape} instead of n entries and n rows")
    if beside.stat().st_size != rows.offset + rows.nbytes:
        raise ValueError(f"rows {rows.shape} do not fill {beside.name}")
    return entries, rows


def _hashes(texts: Sequence[str]) -> Hashes:
    """Return the 128-bit BLAKE2b hash of each text in UTF-8, lone surrogates too, as two uint64, (len(texts), 2)."""
    digests = (hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16) for text in texts)
    return np.frombuffer(b"".join(digest.digest() for digest in digests), "<u8").reshape(-1, 2)
