"""Writer of shards to a local spool folder: reproducible bytes, bounded size, hashed while they are written.

    batches -> the kind's layout -> members "00003-001-00004.arrow.zst" -> documents-00003-001.tar -> ShardInfo

Each writer writes the shards of one work unit, a part of the input. The same batches give the same bytes on any machine
(USTAR, time 0, owner 0). The caller publishes the shards (`storage`).
"""

from pathlib import Path

import pyarrow as pa

from clearspan.common.checksummed import HashingFile
from clearspan.common.files import path_in_errors
from clearspan.shards import ustar
from clearspan.shards.contents import Contents
from clearspan.shards.manifest import ShardInfo
from clearspan.shards.schema import KINDS

DEFAULT_MAX_BYTES = 128 * 1000 * 1000
BUFFER_BYTES = 1 << 18
"""Size of the write buffer: images are many and small."""


class ShardWriter:
    """Writer of the batches of one work unit, a part of the input, to tars of at most `max_bytes`.

    A batch is not split, so a batch larger than `max_bytes` makes a tar that exceeds the limit.

    Args:
        spool: local folder in which the tars are written.
        kind: name of the kind of dataset.
        unit: number of the work unit, which is a part of the shards' names.
        max_bytes: the limit on the size of a tar.
    """

    def __init__(self, spool: Path, kind: str, unit: int, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.spool = spool
        self.kind = kind
        self.unit = unit
        self.max_bytes = max_bytes
        self.finished: list[ShardInfo] = []
        self._file: HashingFile | None = None
        self._contents = Contents()

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch of examples; an empty batch writes nothing."""
        if not batch.num_rows:
            return
        # The batch is packed without its key: the key names the shard, which depends on the size of the packed batch.
        members = list(KINDS[self.kind].layout.members(batch, ""))
        size = sum(ustar.BLOCK + len(data) + -len(data) % ustar.BLOCK for _, data in members)
        if self._file is not None:
            size += self._file.bytes
            if size + len(ustar.ending(size)) > self.max_bytes:
                self._finish_shard()
        if self._file is None:
            self._start_shard()
        assert self._file is not None
        key = f"{self.unit:05d}-{len(self.finished):03d}-{self._contents.batches:05d}"
        with path_in_errors(self.spool / self._name):
            for name, data in members:
                self._file.write(ustar.header(key + name, len(data)))
                self._file.write(data)
                self._file.write(ustar.padding(len(data)))
        self._contents.add(batch, KINDS[self.kind])

    def close(self) -> list[ShardInfo]:
        """Finish the last shard; return the manifest entries of all shards, in order (empty if nothing was written)."""
        if self._file is not None:
            self._finish_shard()
        return self.finished

    def _start_shard(self) -> None:
        self._name = f"{self.kind}-{self.unit:05d}-{len(self.finished):03d}.tar"
        self._file = HashingFile((self.spool / self._name).open("wb", BUFFER_BYTES))
        self._contents = Contents()

    def _finish_shard(self) -> None:
        assert self._file is not None
        with path_in_errors(self.spool / self._name):
            self._file.write(ustar.ending(self._file.bytes))
            self._file.stream.close()
        info = self._file.info
        self.finished.append(
            ShardInfo(name=self._name, bytes=info.bytes, sha256=info.sha256, unit=self.unit, **self._contents.figures)
        )
        self._file = None
