"""Embeddings on disk, by (model fingerprint, text hash), so that another run does not compute them again.

    CACHE/<fingerprint>/<when>-<process>.embeddings     header, n x (hash of a text, checksum of its row), n rows

Each addition is one file, which gets its name once it is whole and is never changed: a killed run leaves nothing half
written that is read, and runs at the same time do not see one another's work in progress. Hashes and checksums are held
in memory, 28 bytes a text; rows are mapped and read on demand. A row that does not match its checksum is not used: the
text is embedded again. What cannot be written or read is a warning, and the run continues without it. Any file may be
deleted at any time.
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
    """The embeddings of one model.

    Attributes:
        blocks: the rows of each file, (n, dim) float32, mapped. A row's number counts through all of them.
        takes: whether it still takes rows; false after a write failed.
        num_damaged: how many rows were asked for and did not match their checksums.
        warnings: what could not be read or written, in one line each.
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
            # The newest first: of a text that is there twice the first counts, and a row that replaces a damaged one
            # is the newer one.
            paths = sorted(folder.glob(f"[!.]*{_SUFFIX}"), reverse=True)
            remove_temporaries(folder, older_than_s=_STALE_S)
        except OSError as error:
            paths, self.takes = [], False
            self.warnings.append(
                f"{folder} cannot be used as a cache of embeddings ({error.strerror}): all are computed"
            )
        for path in paths:
            try:
                found = _read(path, dim)
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                self.warnings.append(f"{path} holds no embeddings that can be read ({error}): delete it")
                continue
            entries.append(found[0])
            self.blocks.append(found[1])
        whole = np.concatenate(entries)
        # The first half of a hash decides the order; the sort is stable, so that the first of equal hashes counts.
        self._order = np.argsort(whole["hash"][:, 0], kind="stable")
        self._entries = whole[self._order]
        self._starts = np.cumsum([0, *map(len, self.blocks)])

    def find(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of each distinct text's row, (len(texts),); -1 where there is none, or a damaged one."""
        if not len(self._entries):
            return np.full(len(texts), -1)
        wanted = _hashes(texts)
        places = np.searchsorted(self._entries["hash"][:, 0], wanted[:, 0]).clip(max=len(self._entries) - 1)
        there = (self._entries["hash"][places] == wanted).all(axis=1) & (self._order[places] >= 0)
        places_there = places[there]
        numbers = self._order[places_there]
        blocks = np.searchsorted(self._starts, numbers, side="right") - 1
        rows = numbers - self._starts[blocks]
        plain = [np.asarray(block) for block in self.blocks]  # still mapped; a memmap is slow to index
        crcs = [zlib.crc32(plain[block][row]) for block, row in zip(blocks.tolist(), rows.tolist(), strict=True)]
        damaged = places_there[self._entries["crc"][places_there] != np.array(crcs, np.uint32)]
        self._order[damaged] = -1  # so that it is counted once
        self.num_damaged += len(damaged)
        return np.where(there, self._order[places], -1)

    def add(self, texts: Sequence[str], rows: Rows) -> Rows:
        """Keeps embeddings for other runs: float32 (len(texts), dim).

        Returns:
            The same rows, mapped where they were written, so that memory need not hold them; `rows` where they were
            not.
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
                f"{self._folder} takes no more embeddings ({reason}): other runs will compute them again"
            )
            return rows


def _read(path: Path, dim: int) -> tuple[Entries, Rows]:
    """Return one file's entries (n,) and its rows (n, dim), mapped.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is not what `Cache.add` writes, or is cut off.
    """
    with path.open("rb") as file:
        start = file.read(_HEADER.size)
        size = os.fstat(file.fileno()).st_size
        if len(start) < _HEADER.size or not start.startswith(_MAGIC):
            is_ours = start.startswith(_MAGIC[:-1])
            raise ValueError("another version's file" if is_ours else "another program's file")
        _, number, width, crc = _HEADER.unpack(start)
        if width != dim:
            raise ValueError(f"of {width} dimensions, where the model has {dim}")
        if size != _HEADER.size + number * (_ENTRY.itemsize + 4 * dim):
            raise ValueError(f"{size:,} bytes, which is not the length that it says")
        content = file.read(number * _ENTRY.itemsize)
    if zlib.crc32(content) != crc:
        raise ValueError("its hashes are damaged")
    offset = _HEADER.size + len(content)
    return np.frombuffer(content, _ENTRY), np.memmap(path, "<f4", "r", offset, (number, dim))


def _hashes(texts: Sequence[str]) -> NDArray[np.uint64]:
    """Return 128 bits of each text, (len(texts), 2), by BLAKE2b of its UTF-8; a lone surrogate is written as itself."""
    digests = (hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_KEY_BYTES) for text in texts)
    return np.frombuffer(b"".join(digest.digest() for digest in digests), "<u8").reshape(-1, 2)
