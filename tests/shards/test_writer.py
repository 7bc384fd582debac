"""The writer: the same bytes every time, shards of bounded size, figures that are those of the files."""

import hashlib
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearspan.shards import ShardError, ShardInfo, ShardWriter
from clearspan.shards.layouts import pack
from clearspan.shards.reader import check_bytes, read_back, read_batches
from clearspan.shards.sealed import HashingFile

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


def test_tars_hold_no_time_and_no_owner(batches: list[pa.RecordBatch], tmp_path: Path) -> None:
    (shard,) = write(tmp_path, batches, 10**9)
    with tarfile.open(tmp_path / shard.name) as tar:
        members = tar.getmembers()
    assert {(m.mtime, m.uid, m.gid, m.uname, m.gname, m.mode, m.isreg()) for m in members} == {
        (0, 0, 0, "", "", 0o644, True)
    }
    assert [m.name for m in members] == [f"00003-000-{number:05d}.arrow.zst" for number in range(10)]


@given(st.integers(1, 200_000))
@settings(max_examples=25)
def test_shards_keep_to_their_size_and_lose_nothing(tmp_path_factory, batches, max_bytes: int) -> None:
    folder = tmp_path_factory.mktemp("shards")
    shards = write(folder, batches, max_bytes)
    for shard in shards:
        assert shard.bytes <= max_bytes or shard.batches == 1
    found = [batch for shard in shards for batch in read_batches(folder / shard.name, shard)]
    assert found == batches


def test_a_shard_is_as_full_as_its_size_allows(batches: list[pa.RecordBatch], tmp_path: Path) -> None:
    max_bytes = 60_000
    shards = write(tmp_path, batches, max_bytes)
    assert len(shards) > 2
    members = [512 + -(-len(pack(batch)) // 512) * 512 for batch in batches]
    position = 0
    for shard in shards[:-1]:
        held = sum(members[position : position + shard.batches])
        position += shard.batches
        assert held + members[position] + END_OF_TAR_BYTES > max_bytes


def test_figures_are_those_of_the_file(batches: list[pa.RecordBatch], tmp_path: Path) -> None:
    shards = write(tmp_path, batches, 60_000, unit=41)
    for number, shard in enumerate(shards):
        data = (tmp_path / shard.name).read_bytes()
        assert shard.name == f"documents-00041-{number:03d}.tar"
        assert (shard.unit, shard.bytes, shard.sha256) == (41, len(data), hashlib.sha256(data).hexdigest())
        check_bytes(tmp_path / shard.name, shard)
    assert sum(shard.examples for shard in shards) == 60
    assert sum(shard.tokens for shard in shards) == sum(len(b.column("tokens").flatten()) for b in batches)


def test_what_was_written_is_read_back_in_one_pass(
    batches: list[pa.RecordBatch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shard,) = write(tmp_path, batches, 10**9)
    passed, read = [], HashingFile.read

    def watched(file: HashingFile, size: int) -> bytes:
        passed.append(read(file, size))
        return passed[-1]

    monkeypatch.setattr(HashingFile, "read", watched)
    read_back(tmp_path / shard.name, shard)
    assert b"".join(passed) == (tmp_path / shard.name).read_bytes()


def damaged(data: bytes, damage: str) -> bytes:
    """A tar's bytes after a disk's mistake."""
    place = {"header": 3, "member": 5000, "padding": len(data) - 1}.get(damage)
    if place is not None:
        return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
    member = tarfile.BLOCKSIZE + -(-int(data[124:135], 8) // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
    return {"cut": data[: len(data) // 2], "cut after a member": data[:member], "longer": data + b"\0", "empty": b""}[
        damage
    ]


@pytest.mark.parametrize("damage", ["header", "member", "padding", "cut", "cut after a member", "longer", "empty"])
def test_whatever_a_disk_made_of_a_shard_is_noticed(batches: list[pa.RecordBatch], tmp_path: Path, damage: str) -> None:
    (shard,) = write(tmp_path, batches, 10**9)
    path = tmp_path / shard.name
    path.write_bytes(damaged(path.read_bytes(), damage))
    with pytest.raises(ShardError, match=shard.name):
        read_back(path, shard)


def test_a_unit_without_batches_has_no_shard(tmp_path: Path) -> None:
    assert write(tmp_path, [], 60_000) == []
    assert list(tmp_path.iterdir()) == []
