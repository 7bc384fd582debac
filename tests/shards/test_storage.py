"""Publishing is all or nothing, on a disk and on an object store."""

import os
import threading
from pathlib import Path

import pytest

from clearspan.shards import storage


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


@pytest.mark.parametrize("kind", ["local", "remote"])
def test_paths_behave_alike_on_a_disk_and_on_an_object_store(kind: str, tmp_path: Path, store) -> None:
    folder = str(tmp_path / "set") if kind == "local" else "mem://bucket/set/"
    path = storage.join(folder, "a.tar")
    assert storage.list_files(folder) == [] and not storage.exists(path)
    storage.remove(path)
    storage.publish_bytes(b"12345", path)
    storage.publish_bytes(b"1", storage.join(folder, "_done", "00000.json"))
    assert storage.file_sizes(folder) == {"a.tar": 5}
    assert storage.exists(path) and storage.read_bytes(path) == b"12345"
    storage.remove(path)
    assert storage.list_files(folder) == []


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


def test_what_is_written_at_a_path_with_brackets_is_read_listed_and_removed_there(tmp_path: Path, store) -> None:
    for folder in (str(tmp_path / "run[1]"), "mem://bucket/run[1]"):
        storage.publish_bytes(b"123", storage.join(folder, "a.jsonl"))
        assert storage.size(storage.join(folder, "a.jsonl")) == 3
        assert storage.file_sizes(folder) == {"a.jsonl": 3} and storage.tree(folder) == ["a.jsonl"]


HIDDEN = ("._a.txt", ".DS_Store", "Thumbs.db", "b/desktop.ini", "b/._c.txt", "__MACOSX/a.txt", ".git/d.txt")


@pytest.mark.parametrize("kind", ["local", "remote"])
def test_folders_and_globs_hold_no_hidden_names_unless_they_are_named(kind: str, tmp_path: Path, store) -> None:
    folder = str(tmp_path / ".set") if kind == "local" else "mem://bucket/.set"
    for name in ("a.txt", "b/c.txt", *HIDDEN):
        storage.publish_bytes(b"1", storage.join(folder, name))
    both = [storage.join(folder, "a.txt"), storage.join(folder, "b/c.txt")]
    assert list(storage.find(f"{folder}/")) == list(storage.find(f"{folder}/**")) == both
    for name in HIDDEN:
        assert list(storage.find(storage.join(folder, name))) == [storage.join(folder, name)]
    assert list(storage.find(f"{folder}/.g*/*")) == [storage.join(folder, ".git/d.txt")]
