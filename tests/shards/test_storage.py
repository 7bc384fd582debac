"""Publishing is all or nothing, on a disk and on an object store."""

import io
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from clearspan.shards import storage


@pytest.mark.guarantee("full-disk", "object-stores")
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
def test_a_file_is_published_below_folders_that_exist_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(storage, "_upload")
    monkeypatch.delattr(storage, "_beam")
    for name in ("a.tar", "b.tar"):
        (tmp_path / name).write_bytes(name.encode())
        storage.publish_file(tmp_path / name, str(tmp_path / "new" / "set" / name))
        storage.publish_bytes(name.encode(), str(tmp_path / "other" / "set" / name))
    for folder in ("new", "other"):
        assert {path.name: path.read_bytes() for path in (tmp_path / folder / "set").iterdir()} == {
            "a.tar": b"a.tar",
            "b.tar": b"b.tar",
        }


@pytest.mark.guarantee("object-stores")
def test_what_a_store_lists_is_sorted_and_what_it_refuses_names_the_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    def listed(pattern: str) -> list[SimpleNamespace]:
        names = ["gs://owls/b.txt", "gs://owls/a.txt", "gs://owls/a/c.txt"]
        return [SimpleNamespace(path=name, size_in_bytes=3, last_updated_in_seconds=1.5) for name in names]

    monkeypatch.setattr(storage, "_matched", listed)
    found = storage.find("gs://owls/")
    assert list(found) == ["gs://owls/a.txt", "gs://owls/a/c.txt", "gs://owls/b.txt"]
    assert found["gs://owls/a.txt"] == (3, 1_500_000_000, 0, 0)
    monkeypatch.setattr(storage, "_matched", lambda pattern: 1 / 0)
    with pytest.raises(storage.StoreError, match=r"^gs://owls/\*\.txt: ZeroDivisionError: division by zero$"):
        storage.find("gs://owls/*.txt")


class Chunks(io.BytesIO):
    """An object as Google's client reads it: in requests of `_chunk_size` bytes."""

    _chunk_size = 7

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.requests: list[int] = []

    def read(self, size: int | None = -1) -> bytes:
        self.requests.append(self._chunk_size)
        return super().read(size)


@pytest.mark.guarantee("object-stores")
@pytest.mark.parametrize("form", ["chunks", "buffered", "plain"])
def test_a_part_of_an_object_is_read_by_one_request_of_its_size_and_nothing_moves(form: str) -> None:
    data = bytes(range(100))
    raw = Chunks(data) if form == "chunks" else io.BytesIO(data)
    stream = io.BufferedReader(raw, 16) if form == "buffered" else raw  # type: ignore[type-var]
    an_object = storage._Object("gs://owls/a.tar", stream)
    buffer = bytearray(b"-" * 12)
    assert an_object.readinto(buffer) == 12 and buffer == data[:12]
    place = raw.tell()
    assert an_object.read_at(40, 20) == data[40:60]
    assert an_object.read_at(95, 20) == data[95:]
    assert raw.tell() == place and an_object.tell() == 12
    rest = bytearray(b"-" * 200)
    assert an_object.readinto(rest) == 88 and rest == data[12:] + b"-" * 112
    assert an_object.readinto(rest) == 0
    if isinstance(raw, Chunks):
        assert raw.requests == [7, 20, 20, 7, 7] and raw._chunk_size == 7
    else:
        assert not hasattr(raw, "_chunk_size")


@pytest.mark.guarantee("object-stores")
def test_a_read_that_fails_names_the_object_and_moves_nothing() -> None:
    raw = Chunks(bytes(100))
    an_object = storage._Object("gs://owls/a.tar", raw)
    raw.seek(5)
    raw.read = lambda size: 1 / 0  # type: ignore[assignment,return-value,misc]
    for read in (lambda: an_object.read_at(40, 20), lambda: an_object.readinto(bytearray(4))):
        with pytest.raises(storage.StoreError, match=r"^gs://owls/a\.tar: ZeroDivisionError: division by zero$"):
            read()
        assert (raw.tell(), raw._chunk_size) == (5, 7)


@pytest.mark.guarantee("object-stores")
def test_many_reads_of_an_object_store_are_under_way_at_a_time_and_keep_their_order() -> None:
    both = threading.Barrier(2, timeout=20)

    def read(number: int) -> int:
        both.wait()
        return -number

    assert list(storage.each("gs://bucket/folder", read, range(4))) == [0, -1, -2, -3]
    assert list(storage.each("gs://bucket/folder", str, range(2500))) == [*map(str, range(2500))]


@pytest.mark.guarantee("object-stores")
def test_a_store_that_does_not_answer_is_no_store_without_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        def __getattr__(self, name: str) -> object:
            raise ConnectionError("no answer")

    monkeypatch.setattr(storage, "_beam", Silent)
    for ask in (storage.exists, storage.status, storage.find, storage.list_files, storage.tree, storage.open_input):
        with pytest.raises(storage.StoreError, match=r"^gs://owls/a\.tar.*: ConnectionError: no answer$"):
            ask("gs://owls/a.tar")


def test_of_many_reads_the_first_failure_in_order_is_raised() -> None:
    def read(number: int) -> float:
        return 1 / (3 - number)

    results = storage.each("s3://bucket", read, [1, 2, 3, 4])
    assert [next(results), next(results)] == [0.5, 1.0]
    with pytest.raises(ZeroDivisionError):
        next(results)
