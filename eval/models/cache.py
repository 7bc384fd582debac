"""Embeddings on disk, by (model fingerprint, text hash), so that another run does not compute them again.

    CACHE/<fingerprint>/<when>-<process>.rows     one file an addition: header, hashes of n texts, n rows of float32

A file gets its name once it is whole, and is never changed: of a run that is killed nothing half written is read, and
runs at once do not see one another's work in progress. Hashes are held in memory, 24 bytes a text; rows are mapped, and
read when they are asked for. What cannot be written or read is a warning, and the run goes on without it. Any file may
be deleted at any time.
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

Rows = NDArray[np.float32]
Keys = NDArray[np.uint64]

_HEADER = struct.Struct("<8sQQI4x")  # magic, texts, dimensions, CRC-32 of the hashes
_MAGIC = b"clspEMB1"
_KEY_BYTES = 16
_STALE_S = 24 * 3600  # after which a file that never got its name was left by a run that is gone


class Cache:
    """The embeddings of one model.

    Attributes:
        blocks: the rows of each file, (n, dim) float32, mapped. A row's number counts through all of them.
        takes: whether it still takes rows; not once it could not.
        warnings: what could not be read or written, in one line each.
    """

    def __init__(self, folder: Path, dim: int) -> None:
        self._folder, self._dim = folder, dim
        self.blocks: list[Rows] = []
        self.takes = True
        self.warnings: list[str] = []
        keys = [np.empty((0, 2), np.uint64)]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            paths = sorted(folder.glob("*.rows"))
            self._clear(folder)
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
            keys.append(found[0])
            self.blocks.append(found[1])
        whole = np.concatenate(keys)
        # Of two halves of a hash the first orders; stable, so that of a text that is there twice the first counts.
        self._order = np.argsort(whole[:, 0], kind="stable")
        self._keys = whole[self._order]

    def find(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """The number of each text's row, (len(texts),); -1 where there is none."""
        if not len(self._keys):
            return np.full(len(texts), -1)
        wanted = _hashes(texts)
        places = np.searchsorted(self._keys[:, 0], wanted[:, 0]).clip(max=len(self._keys) - 1)
        there = (self._keys[places] == wanted).all(axis=1)
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
        part, path = self._folder / f".{name}.part", self._folder / f"{name}.rows"
        keys = _hashes(texts)
        header = _HEADER.pack(_MAGIC, len(rows), self._dim, zlib.crc32(keys.data))
        try:
            try:
                with part.open("xb") as file:
                    file.writelines([header, keys.data, np.ascontiguousarray(rows, "<f4").data])
                    file.flush()
                    os.fsync(file.fileno())  # or after a crash the name might be there before the rows
                part.rename(path)
            finally:
                part.unlink(missing_ok=True)
            return _read(path, self._dim)[1]
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self.takes = False
            self.warnings.append(
                f"{self._folder} takes no more embeddings ({reason}): other runs will compute them again"
            )
            return rows

    def _clear(self, folder: Path) -> None:
        for part in folder.glob(".*.part"):
            if time.time() - part.stat().st_mtime > _STALE_S:
                part.unlink(missing_ok=True)


def _read(path: Path, dim: int) -> tuple[Keys, Rows]:
    """(hashes (n, 2), rows (n, dim), mapped) of one file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not what `Cache.add` writes, or is cut off.
    """
    with path.open("rb") as file:
        start = file.read(_HEADER.size)
        size = os.fstat(file.fileno()).st_size
        if len(start) < _HEADER.size or not start.startswith(_MAGIC):
            raise ValueError("another program's file")
        _, number, width, crc = _HEADER.unpack(start)
        if width != dim:
            raise ValueError(f"of {width} dimensions, where the model has {dim}")
        if size != _HEADER.size + number * (_KEY_BYTES + 4 * dim):
            raise ValueError(f"{size:,} bytes, which is not the length that it says")
        content = file.read(number * _KEY_BYTES)
    if zlib.crc32(content) != crc:
        raise ValueError("its hashes are damaged")
    keys = np.frombuffer(content, "<u8").reshape(number, 2)
    offset = _HEADER.size + number * _KEY_BYTES
    return keys, np.memmap(path, "<f4", "r", offset, (number, dim))


def _hashes(texts: Sequence[str]) -> Keys:
    """(len(texts), 2): 128 bits of each, by BLAKE2b of its UTF-8; a lone surrogate is written as itself."""
    digests = (hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_KEY_BYTES) for text in texts)
    return np.frombuffer(b"".join(digest.digest() for digest in digests), "<u8").reshape(-1, 2)
