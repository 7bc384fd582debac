"""The cache returns the embeddings that were written, and never the content of damaged or foreign files."""

import errno
import multiprocessing
import os
import signal
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
import pytest

from clearspan.common.files import TEMPORARY
from clearspan.eval.models.cache import Cache

DIM = 6
FORK = multiprocessing.get_context("fork")


def rows_of(texts: list[str]) -> np.ndarray:
    """Return known vectors, a different one for each text."""
    return np.array([[len(text), *np.frombuffer(text.encode()[:5].ljust(5), np.uint8)] for text in texts], np.float32)


def found(folder: Path, texts: list[str]) -> list[list[float] | None]:
    """Return the embeddings that a new run reads."""
    cache = Cache(folder, DIM)
    assert cache.warnings == []
    rows = np.concatenate([np.empty((0, DIM), np.float32), *cache.blocks])
    return [rows[number].tolist() if number >= 0 else None for number in cache.find(texts)]


def test_another_run_finds_what_was_kept(tmp_path: Path) -> None:
    first, second = ["one", "two", "", "drei und mehr", "\ud800"], ["four"]
    cache = Cache(tmp_path, DIM)
    for texts in (first, second):
        rows = np.random.default_rng(0).normal(size=(len(texts), DIM)).astype(np.float32)
        np.testing.assert_array_equal(cache.add(texts, rows), rows)
    assert found(tmp_path, ["four", "five", "one"]) == [
        np.random.default_rng(0).normal(size=DIM).astype(np.float32).tolist(), None,
        np.random.default_rng(0).normal(size=(len(first), DIM)).astype(np.float32)[0].tolist(),
    ]  # fmt: skip
    assert found(tmp_path, ["\ud800", ""]) != [None, None]


def test_an_empty_cache_finds_nothing(tmp_path: Path) -> None:
    assert found(tmp_path / "new" / "folder", ["one", "two"]) == [None, None]


def test_of_a_text_that_was_kept_twice_the_newest_row_counts(tmp_path: Path) -> None:
    for value in (1, 2):
        Cache(tmp_path, DIM).add(["text"], np.full((1, DIM), value, np.float32))
    assert found(tmp_path, ["text"]) == [[2] * DIM]


def test_a_file_that_was_cut_off_anywhere_gives_no_row(tmp_path: Path) -> None:
    texts = [f"text {number}" for number in range(4)]
    Cache(tmp_path, DIM).add(texts, rows_of(texts))
    (path,) = tmp_path.glob("*.embeddings")
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        cache = Cache(tmp_path, DIM)
        assert (cache.find(texts) == -1).all()
        assert len(cache.warnings) == 1 and str(path) in cache.warnings[0]


@pytest.mark.parametrize("place", [0, 9, 17, 25, 40])
def test_a_header_or_a_hash_that_was_changed_gives_no_row(tmp_path: Path, place: int) -> None:
    Cache(tmp_path, DIM).add(["a", "b"], rows_of(["a", "b"]))
    (path,) = tmp_path.glob("*.embeddings")
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    cache = Cache(tmp_path, DIM)
    assert (cache.find(["a", "b"]) == -1).all()
    assert "delete it" in cache.warnings[0]


@pytest.mark.parametrize("damage", ["zeroed", "a bit flipped", "two rows exchanged"])
def test_a_damaged_row_is_not_found_but_counted_until_a_new_one_replaces_it(tmp_path: Path, damage: str) -> None:
    texts = ["one", "two", "drei und mehr"]
    Cache(tmp_path, DIM).add(texts, rows_of(texts))
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    first, second = (slice(-row * 4 * DIM, -(row - 1) * 4 * DIM or None) for row in (3, 2))
    if damage == "zeroed":
        content[first] = bytes(4 * DIM)
    elif damage == "a bit flipped":
        content[first.start + 5] ^= 64
    else:
        content[first], content[second] = content[second], content[first]
    path.write_bytes(content)
    num_damaged = 2 if "exchanged" in damage else 1

    cache = Cache(tmp_path, DIM)
    for _ in range(2):
        assert cache.find(texts).tolist() == [-1] * num_damaged + list(range(num_damaged, 3))
        assert cache.num_damaged == num_damaged
    cache.add(texts[:num_damaged], rows_of(texts[:num_damaged]))
    assert found(tmp_path, texts) == rows_of(texts).tolist()
    mended = Cache(tmp_path, DIM)
    mended.find(texts)
    assert mended.num_damaged == 0


def test_foreign_files_and_other_widths_are_told_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "2026-notes.embeddings").write_text("a list of rows, by hand, that is longer than a header")
    (tmp_path / "notes.txt").write_text("more")
    Cache(tmp_path / "other", DIM + 1).add(["text"], np.ones((1, DIM + 1), np.float32))
    (other,) = (tmp_path / "other").glob("*.embeddings")
    other.rename(tmp_path / other.name)
    cache = Cache(tmp_path, DIM)
    assert cache.find(["text"]).tolist() == [-1]
    assert sorted("another program" in warning for warning in cache.warnings) == [False, True]
    cache.add(["text"], rows_of(["text"]))  # still works
    assert Cache(tmp_path, DIM).find(["text"]).tolist() == [0]
    assert len(list(tmp_path.glob("*.embeddings"))) == 3


def killed(folder: Path) -> None:
    """Add an embedding, and die before its complete file is renamed."""
    os.fsync = lambda file: os.kill(os.getpid(), signal.SIGKILL)
    Cache(folder, DIM).add(["during"], rows_of(["during"]))


def test_a_run_killed_while_it_writes_leaves_nothing_that_is_read(tmp_path: Path) -> None:
    Cache(tmp_path, DIM).add(["before"], rows_of(["before"]))
    process = FORK.Process(target=killed, args=(tmp_path,))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert found(tmp_path, ["before", "during"]) == [rows_of(["before"])[0].tolist(), None]
    (part,) = tmp_path.glob(f"{TEMPORARY}*")
    two_days_ago = time.time() - 2 * 24 * 3600
    mine = tmp_path / f"{TEMPORARY}notes"
    mine.touch()
    for path in (part, mine):
        os.utime(path, (two_days_ago, two_days_ago))
    Cache(tmp_path, DIM)
    assert (part.exists(), mine.exists()) == (False, True)


def write(folder: Path, name: str, barrier: Barrier) -> None:
    cache = Cache(folder, DIM)
    barrier.wait()
    for number in range(20):
        texts = [f"{number} by {name}", f"{number} by both"]
        cache.add(texts, rows_of(texts))


def test_two_processes_write_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    barrier = FORK.Barrier(2)
    processes = [FORK.Process(target=write, args=(tmp_path, name, barrier)) for name in ("one", "two")]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    texts = [f"{number} by {name}" for number in range(20) for name in ("one", "two", "both")]
    assert found(tmp_path, texts) == rows_of(texts).tolist()


def test_a_full_disk_is_a_warning_and_the_rows_are_still_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    cache = Cache(tmp_path, DIM)
    monkeypatch.setattr(os, "fsync", full)
    rows = rows_of(["a"])
    assert cache.add(["a"], rows) is rows
    assert cache.add(["b"], rows) is rows
    (warning,) = cache.warnings
    assert "cannot store more embeddings (No space left on device)" in warning
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["/proc/no-folder-can-be-here", f"{__file__}/below-a-file"])
def test_a_folder_that_cannot_be_made_is_a_warning(place: str) -> None:
    cache = Cache(Path(place), DIM)
    rows = rows_of(["a"])
    assert cache.add(["a"], rows) is rows
    assert cache.find(["a"]).tolist() == [-1]
    (warning,) = cache.warnings
    assert place in warning and "\n" not in warning


def test_no_text_is_written(tmp_path: Path) -> None:
    Cache(tmp_path, DIM).add(["a private sentence"], rows_of(["a"]))
    (path,) = tmp_path.glob("*.embeddings")
    assert b"private" not in path.read_bytes()
