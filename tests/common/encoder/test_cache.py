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

from clearspan.common.encoder import cache as module
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


def numbered(first: int, number: int) -> np.ndarray:
    return np.arange(3 * first, 3 * (first + number), dtype=np.float32).reshape(number, 3)


@pytest.mark.guarantee("kept-things-checked")
def test_each_text_finds_its_own_row_whatever_lies_in_other_files(tmp_path: Path) -> None:
    """Of a text that was kept twice, the newer row."""
    texts = [f"owl {number}" for number in range(40)]
    for first, last in ((0, 1), (1, 9), (9, 40), (5, 7)):
        Cache(tmp_path, 3).add(texts[first:last], numbered(first + 100 * (last == 7), last - first))
    again = Cache(tmp_path, 3)
    rows = np.concatenate(again.blocks)
    expected = np.array([number + 100 * (5 <= number < 7) for number in range(40)])
    for order in (range(40), range(39, -1, -1), [7, 7, 0], [39], []):
        places = again.find([texts[number] for number in order])
        np.testing.assert_array_equal(rows[places][:, 0], 3 * expected[list(order)])
    assert again.find(["heron", texts[3], "", "owl 40"]).tolist()[:1] == [-1]
    assert (again.find(["heron", texts[3], "", "owl 40"]) >= 0).tolist() == [False, True, False, False]
    others = [
        "Owl 3",
        " owl 3",
        "owl 3 ",
        "owl  3",
        "owl\u00a03",
        "owl 3\n",
        "owl 3\0",
        "\uff4fwl 3",
        "owl 03",
        "OWL 3",
    ]
    assert again.find(others).tolist() == [-1] * len(others), "which differ from a text that is kept"
    unknown = [f"heron {number}" for number in range(200)]
    assert again.find(unknown).tolist() == [-1] * 200, "whose hashes are before, between and behind the others"
    assert Cache(tmp_path / "empty", 3).find(["owl", "rain"]).tolist() == [-1, -1]


@pytest.mark.guarantee("kept-things-checked")
def test_half_a_hash_is_not_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = {"owl": (5, 7), "rain": (5, 8), "moss": (6, 7), "snow": (4, 9)}
    monkeypatch.setattr(
        module, "_hashes", lambda texts: np.array([hashes[text] for text in texts], "<u8").reshape(-1, 2)
    )
    Cache(tmp_path, 3).add(["owl", "snow"], numbered(0, 2))
    again = Cache(tmp_path, 3)
    assert [place >= 0 for place in again.find(["owl", "rain", "moss", "snow"])] == [True, False, False, True]


@pytest.mark.guarantee("kept-things-checked")
def test_any_of_many_rows_that_is_damaged_between_two_uses_is_not_used_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the run that found it whole before, nor by another one; asked for alone, among others, or several times."""
    texts, dim = [f"owl {number}" for number in range(3000)], 32
    rows = np.random.default_rng(0).normal(size=(3000, dim)).astype(np.float32)
    for first, last in ((0, 1700), (1700, 3000)):
        Cache(tmp_path, dim).add(texts[first:last], rows[first:last])
    cache = Cache(tmp_path, dim)
    assert (cache.find(texts) >= 0).all() and capsys.readouterr().err == ""
    bad = {0, 5, 1699, 1700, 2500, 2999}
    for path, first in zip(sorted(tmp_path.glob("*.rows.npy")), (0, 1700), strict=True):
        mapped = np.load(path, mmap_mode="r+")
        for number in bad:
            if 0 <= number - first < len(mapped):
                mapped[number - first, number % dim] += 1e-3
        mapped.flush()
    asked = [*range(3000), 5, 2999, 5]
    for again in (cache, cache, Cache(tmp_path, dim)):
        kept = again.find([texts[number] for number in asked])
        assert [number for number, place in zip(asked, kept, strict=True) if place < 0] == [*sorted(bad), 5, 2999, 5]
        assert [again.find([texts[number]])[0] >= 0 for number in (4, 5, 2999)] == [True, False, False]
        assert "damaged since kept: computed again" in capsys.readouterr().err
        found = np.concatenate(again.blocks)[kept[kept >= 0]]
        np.testing.assert_array_equal(found, rows[[number for number in asked if number not in bad]])


@pytest.mark.guarantee("kept-things-checked")
def test_damaged_rows_of_each_file_are_counted_and_no_other_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [f"owl {number}" for number in range(12)]
    for first, last in ((0, 4), (4, 8), (8, 12)):
        Cache(tmp_path, 3).add(texts[first:last], numbered(first, last - first))
    oldest, middle, newest = sorted(tmp_path.glob("*.rows.npy"))
    damaged = {oldest: [1], newest: [0, 3]}
    for path, rows in damaged.items():
        content = np.load(path)
        content[rows] += 0.5
        np.save(path, content)
    again = Cache(tmp_path, 3)
    kept = again.find(texts)
    assert [place >= 0 for place in kept] == [number not in (1, 8, 11) for number in range(12)]
    np.testing.assert_array_equal(
        np.concatenate(again.blocks)[kept[kept >= 0]][:, 0] // 3, [0, 2, 3, 4, 5, 6, 7, 9, 10]
    )
    lines = sorted(capsys.readouterr().err.splitlines())
    assert lines == [
        f"{oldest}: 1 row damaged since kept: computed again",
        f"{newest}: 2 rows damaged since kept: computed again",
    ]
    assert middle.exists()


@pytest.mark.guarantee("kept-things-checked")
@pytest.mark.parametrize(
    ("entries", "rows"),
    [
        (np.zeros(2, module._ENTRY), np.zeros((2, 3), np.float64)),
        (np.zeros(2, module._ENTRY), np.zeros((2, 3), np.float16)),
        (np.zeros(2, module._ENTRY), np.zeros(2, np.float32)),
        (np.zeros(2, module._ENTRY), np.zeros((2, 3, 1), np.float32)),
        (np.zeros(2, module._ENTRY), np.zeros((3, 3), np.float32)),
        (np.zeros((2, 3), module._ENTRY), np.zeros((2, 3), np.float32)),
        (np.zeros(2, np.float32), np.zeros((2, 3), np.float32)),
        (np.zeros(2, np.uint64), np.zeros((2, 3), np.float32)),
    ],
)
def test_arrays_that_no_cache_wrote_are_refused(entries: np.ndarray, rows: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "a.hashes.npy"
    np.save(path, np.zeros(2, module._ENTRY))
    np.save(tmp_path / "a.rows.npy", np.zeros((2, 3), np.float32))
    read, mapped = module._read(path)
    assert len(read) == 2 and mapped.shape == (2, 3) and isinstance(mapped, np.memmap)
    np.save(path, entries)
    np.save(tmp_path / "a.rows.npy", rows)
    with pytest.raises(ValueError, match=r"arrays .* instead of n entries and n rows"):
        module._read(path)


@pytest.mark.guarantee("kept-things-checked")
def test_a_pickle_or_a_longer_file_is_refused(tmp_path: Path) -> None:
    path, rows = tmp_path / "a.hashes.npy", tmp_path / "a.rows.npy"
    np.save(path, np.zeros(2, module._ENTRY))
    np.save(rows, np.zeros((2, 3), np.float32))
    rows.write_bytes(rows.read_bytes() + b"more")
    with pytest.raises(ValueError, match=r"rows \(2, 3\) do not fill a\.rows\.npy"):
        module._read(path)
    np.save(rows, np.array([{}, {}], object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"allow_pickle|objects"):
        module._read(path)
    np.save(rows, np.zeros((2, 3), np.float32))
    np.save(path, np.array([{}, {}], object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle"):
        module._read(path)
