"""The writer: the same bytes every time, shards of bounded size, figures that are those of the files."""

import tarfile
from pathlib import Path

import pyarrow as pa
import pytest

from clearspan.shards import ShardError, ShardInfo, ShardWriter
from clearspan.shards.layouts import pack
from clearspan.shards.reader import read_back

END_OF_TAR_BYTES = 10_240


def write(folder: Path, batches: list[pa.RecordBatch], max_bytes: int, unit: int = 3) -> list[ShardInfo]:
    folder.mkdir(parents=True, exist_ok=True)
    writer = ShardWriter(folder, "documents", unit, max_bytes)
    for batch in batches:
        writer.write(batch)
    return writer.close()


def test_the_same_batches_give_the_same_bytes(batches: list[pa.RecordBatch], tmp_path: Path) -> None:
    first, second = (write(tmp_path / name, batches, 60_000) for name in ("first", "second"))
    assert first == second
    for shard in first:
        assert (tmp_path / "first" / shard.name).read_bytes() == (tmp_path / "second" / shard.name).read_bytes()


def test_a_shard_is_as_full_as_its_size_allows(batches: list[pa.RecordBatch], tmp_path: Path) -> None:
    max_bytes = 30_000
    shards = write(tmp_path, batches, max_bytes)
    assert len(shards) > 2
    members = [512 + -(-len(pack(batch)) // 512) * 512 for batch in batches]
    position = 0
    for shard in shards[:-1]:
        held = sum(members[position : position + shard.batches])
        position += shard.batches
        assert held + members[position] + END_OF_TAR_BYTES > max_bytes


def damaged(data: bytes, damage: str) -> bytes:
    """A tar's bytes after a disk's mistake."""
    place = {"header": 3, "member": 5000, "padding": len(data) - 1}.get(damage)
    if place is not None:
        return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
    member = tarfile.BLOCKSIZE + -(-int(data[124:135], 8) // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
    return {"cut": data[: len(data) // 2], "cut after a member": data[:member], "longer": data + b"\0", "empty": b""}[
        damage
    ]


@pytest.mark.guarantee("damaged-shard")
@pytest.mark.parametrize("damage", ["header", "member", "padding", "cut", "cut after a member", "longer", "empty"])
def test_whatever_a_disk_made_of_a_shard_is_noticed(batches: list[pa.RecordBatch], tmp_path: Path, damage: str) -> None:
    (shard,) = write(tmp_path, batches, 10**9)
    path = tmp_path / shard.name
    path.write_bytes(damaged(path.read_bytes(), damage))
    with pytest.raises(ShardError, match=shard.name):
        read_back(path, shard)
