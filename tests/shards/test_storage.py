"""Publishing is all or nothing, on a disk and on an object store."""

import os
import threading
from pathlib import Path

import pytest

from clearspan.shards import storage


@pytest.mark.guarantee("full-disk")
def test_a_published_shard_is_the_spools_own_file_and_was_on_disk_before_it_had_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, folder = tmp_path / "spool", tmp_path / "set"
    spool.mkdir()
    local = spool / "documents-00000-000.tar"
    local.write_bytes(b"whole")
    number, synced, real = local.stat().st_ino, [], os.fsync

    def watched(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, [path.name for path in folder.iterdir()]))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    storage.publish_file(local, str(folder / local.name))
    assert (folder / local.name).stat().st_ino == number
    assert (folder / local.name).read_bytes() == b"whole" and not local.exists()
    assert synced == [(number, []), (folder.stat().st_ino, [local.name])]


@pytest.mark.guarantee("object-stores")
def test_many_reads_of_an_object_store_are_under_way_at_a_time_and_keep_their_order() -> None:
    both = threading.Barrier(2, timeout=20)

    def read(number: int) -> int:
        both.wait()
        return -number

    assert list(storage.each("gs://bucket/folder", read, range(4))) == [0, -1, -2, -3]


def test_of_many_reads_the_first_failure_in_order_is_raised() -> None:
    def read(number: int) -> float:
        return 1 / (3 - number)

    results = storage.each("s3://bucket", read, [1, 2, 3, 4])
    assert [next(results), next(results)] == [0.5, 1.0]
    with pytest.raises(ZeroDivisionError):
        next(results)
