"""Cache of embeddings on disk, keyed by model fingerprint and text hash, shared by all runs.

    CACHE/<fingerprint>/<time>-<process>.embeddings     header, n x (hash of a text, checksum of its row), n rows

Each addition is one file, written atomically and never changed: no run reads the unfinished files of a killed or
concurrent run. Hashes and checksums are held in memory, 28 bytes a text; rows are memory-mapped and read on demand. If
a row does not match its checksum, the text is embedded again. A failure to read or write is a warning, and the run
continues without the cache. Any file may be deleted at any time.
"""

import hashlib
import os
import struct
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clearspan.common.files import atomic_write, remove_temporaries

Rows = NDArray[np.float32]

_HEADER = struct.Struct("<8sQQI4x")  # magic, texts, dimensions, CRC-32 of the entries
_MAGIC = b"clspEMB2"
_SUFFIX = ".embeddings"
_ENTRY = np.dtype([("hash", "<u8", 2), ("crc", "<u4")])
"""The hash of a text and the CRC-32 of its row."""
Entries = NDArray[np.void]
_KEY_BYTES = 16
_STALE_S = 24 * 3600
"""Age in seconds at which a temporary file was left by a process that is gone."""


class Cache:
    """The cached embeddings of one model.

    Attributes:
        blocks: the memory-mapped rows of each file, (n, dim) float32. Row numbers count through all blocks.
        takes: whether the cache still accepts rows; false after a failed write.
        num_damaged: number of requested rows that did not match their checksums.
        warnings: one line for each file that could not be read or written.
    """

    def __init__(self, folder: Path, dim: int) -> None:
        self._folder, self._dim = folder, dim
        self.blocks: list[Rows] = []
        self.takes = True
        self.num_damaged = 0
        self.warnings: list[str] = []
        entries = [np.empty(0, _ENTRY)]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # Newest first: the first row of a text counts, and the replacement of a damaged row is newer.
            paths = sorted(folder.glob(f"[!.]*{_SUFFIX}"), reverse=True)
            remove_temporaries(folder, older_than_s=_STALE_S)
        except OSError as error:
            paths, self.takes = [], False
            self.warnings.append(
                f"{folder} cannot be used as a cache of embeddings ({error.strerror}): all are computed again"
            )
        for path in paths:
            try:
                file_entries, rows = _read(path, dim)
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                self.warnings.append(f"{path} holds no readable embeddings ({error}): delete it")
                continue
            entries.append(file_entries)
            self.blocks.append(rows)
        unsorted = np.concatenate(entries)
        # Entries are sorted by the first half of the hash; the sort is stable, so the first of equal hashes counts.
        self._order = np.argsort(unsorted["hash"][:, 0], kind="stable")
        self._entries = unsorted[self._order]
        self._starts = np.cumsum([0, *map(len, self.blocks)])

    def find(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the row number of each distinct text, (len(texts),); -1 if the row is missing or damaged."""
        if not len(self._entries):
            return np.full(len(texts), -1)
        hashes = _hashes(texts)
        places = np.searchsorted(self._entries["hash"][:, 0], hashes[:, 0]).clip(max=len(self._entries) - 1)
        is_cached = (self._entries["hash"][places] == hashes).all(axis=1) & (self._order[places] >= 0)
        cached = places[is_cached]
        numbers = self._order[cached]
        blocks = np.searchsorted(self._starts, numbers, side="right") - 1
        rows = numbers - self._starts[blocks]
        plain = [np.asarray(block) for block in self.blocks]  # still memory-mapped, but faster to index than np.memmap
        crcs = [zlib.crc32(plain[block][row]) for block, row in zip(blocks.tolist(), rows.tolist(), strict=True)]
        damaged = cached[self._entries["crc"][cached] != np.array(crcs, np.uint32)]
        self._order[damaged] = -1  # counts each damaged row once
        self.num_damaged += len(damaged)
        return np.where(is_cached, self._order[places], -1)

    def add(self, texts: Sequence[str], rows: Rows) -> Rows:
        """Write embeddings, float32 (len(texts), dim), to the cache.

        Returns:
            The same rows, memory-mapped from the new file; `rows` itself if they could not be written.
        """
        if not self.takes or not len(rows):
            return rows
        name = f"{time.time_ns():020d}-{os.getpid()}"
        path = self._folder / f"{name}{_SUFFIX}"
        content = np.ascontiguousarray(rows, "<f4")
        entries = np.empty(len(rows), _ENTRY)
        entries["hash"], entries["crc"] = _hashes(texts), [zlib.crc32(row) for row in content]
        header = _HEADER.pack(_MAGIC, len(rows), self._dim, zlib.crc32(entries.data))
        try:
            with atomic_write(path) as file:
                file.writelines([header, entries.data, content.data])
            return _read(path, self._dim)[1]
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self.takes = False
            self.warnings.append(
                f"{self._folder} cannot store more embeddings ({reason}): other runs will compute them again"
            )
            return rows


def _read(path: Path, dim: int) -> tuple[Entries, Rows]:
    """Return the entries (n,) and the memory-mapped rows (n, dim) of a file.

    Raises:
        OSError: the file cannot be read.
        ValueError: `Cache.add` did not write the file, or it is truncated.
    """
    with path.open("rb") as file:
        start = file.read(_HEADER.size)
        size = os.fstat(file.fileno()).st_size
        if len(start) < _HEADER.size or not start.startswith(_MAGIC):
            is_ours = start.startswith(_MAGIC[:-1])
            raise ValueError("a file of another version" if is_ours else "a file of another program")
        _, number, width, crc = _HEADER.unpack(start)
        if width != dim:
            raise ValueError(f"{width} dimensions instead of the model's {dim}")
        if size != _HEADER.size + number * (_ENTRY.itemsize + 4 * dim):
            raise ValueError(f"{size:,} bytes, which does not match its header")
        content = file.read(number * _ENTRY.itemsize)
    if zlib.crc32(content) != crc:
        raise ValueError("its hashes are damaged")
    offset = _HEADER.size + len(content)
    return np.frombuffer(content, _ENTRY), np.memmap(path, "<f4", "r", offset, (number, dim))


def _hashes(texts: Sequence[str]) -> NDArray[np.uint64]:
    """Return the 128-bit BLAKE2b hash of each text's UTF-8, (len(texts), 2); lone surrogates are encoded too."""
    digests = (hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_KEY_BYTES) for text in texts)
    return np.frombuffer(b"".join(digest.digest() for digest in digests), "<u8").reshape(-1, 2)
