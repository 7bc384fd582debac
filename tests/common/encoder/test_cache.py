"""The cache returns the embeddings that were written, and never the content of unfinished or foreign files."""

import errno
import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from clearspan.common.encoder.cache import Cache
from clearspan.common.encoder.embedder import Embedder
from clearspan.common.files import TEMPORARY

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


@pytest.mark.guarantee("kept-things-checked")
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


@pytest.mark.guarantee("kept-things-checked")
def test_foreign_files_and_other_widths_are_told_and_left_alone(tmp_path: Path) -> None:
    Cache(tmp_path, DIM + 1).add(["text"], np.ones((1, DIM + 1), np.float32))
    (tmp_path / "2026.hashes.npy").write_text("a list of hashes, by hand")
    (tmp_path / "2026.rows.npy").write_text("a list of rows, by hand")
    cache = Cache(tmp_path, DIM)
    assert cache.find(["text"]).tolist() == [-1] and len(cache.warnings) == 2
    cache.add(["text"], rows_of(["text"]))  # still works
    assert Cache(tmp_path, DIM).find(["text"]).tolist() == [0]
    assert len(list(tmp_path.glob("*.npy"))) == 6


@pytest.mark.guarantee("kept-things-checked")
@pytest.mark.parametrize("damage", ["zeroed", "flipped", "moved"])
def test_a_damaged_row_is_named_and_computed_again_and_the_others_are_used(
    tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["one", "two", "three", "four"]
    Cache(tmp_path, DIM).add(texts, rows_of(texts))
    (path,) = tmp_path.glob("*.rows.npy")
    rows = np.load(path)
    if damage == "moved":
        rows[:2] = rows[:2][::-1]
    else:
        rows[:2] = 0 if damage == "zeroed" else (rows[:2].view(np.uint32) ^ (1 << 7)).view(np.float32)
    np.save(path, rows)
    calls: list[list[str]] = []

    def encode(texts: Sequence[str]) -> np.ndarray:
        calls.append(sorted(texts))
        return rows_of(list(texts))

    np.testing.assert_array_equal(Embedder(encode, Cache(tmp_path, DIM)).embed(texts), rows_of(texts))
    assert capsys.readouterr().err == f"{path}: 2 rows damaged since kept: computed again\n"
    np.testing.assert_array_equal(Embedder(encode, Cache(tmp_path, DIM)).embed(texts), rows_of(texts))
    assert calls == [["one", "two"]] and capsys.readouterr().err == ""


@pytest.mark.guarantee("kept-things-checked")
def test_any_damage_to_a_file_of_the_cache_is_noticed_or_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each seventh byte flipped, and cuts: the right rows or none, and the next run is quiet again."""
    texts = ["one", "two", "three"]
    Cache(tmp_path, DIM).add(texts, rows_of(texts))
    whole = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for path, content in whole.items():
        flips = [content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :] for at in range(0, len(content), 7)]
        for damaged in [*flips, *(content[:size] for size in (0, 40, 128, len(content) - 5))]:
            for each, bytes_of in whole.items():
                each.write_bytes(bytes_of)
            path.write_bytes(damaged)
            embedder = Embedder(lambda texts: rows_of(list(texts)), Cache(tmp_path, DIM))
            np.testing.assert_array_equal(embedder.embed(texts), rows_of(texts))
            capsys.readouterr()
            again = Embedder(lambda texts: rows_of(list(texts)), Cache(tmp_path, DIM))
            np.testing.assert_array_equal(again.embed(texts), rows_of(texts))
            assert again.num_cached == 3 and capsys.readouterr().err == ""
            for new in set(tmp_path.iterdir()) - whole.keys():
                new.unlink()


def killed(folder: Path) -> None:
    """Add an embedding, and die before its complete file is renamed."""
    os.fsync = lambda file: os.kill(os.getpid(), signal.SIGKILL)
    Cache(folder, DIM).add(["during"], rows_of(["during"]))


@pytest.mark.guarantee("kept-things-checked")
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
