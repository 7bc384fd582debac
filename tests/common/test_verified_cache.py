"""A kept file is checked before each use: a damaged one is named, made again, and never used."""

import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearspan.common import verified_cache as module
from clearspan.common.checksummed import dump_checksummed
from clearspan.common.files import temporary_name
from clearspan.common.verified_cache import RECORD, cached_file, checksums
from clearspan.common.words import VERSION
from clearspan.retrieval.stemming import PLAIN

CONTENT = b"An index of many texts. " * 400


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLEARSPAN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Maker:
    """Writer of a file that counts its calls."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, path: Path) -> None:
        self.times += 1
        path.write_bytes(CONTENT)


def read(make: Maker) -> bytes:
    with cached_file("a.index", make) as path:
        return path.read_bytes()


@pytest.mark.guarantee("kept-things-checked")
def test_a_file_is_made_once(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make = Maker()
    assert [read(make) for _ in range(3)] == [CONTENT] * 3 and make.times == 1
    assert sorted(path.name for path in cache.iterdir()) == ["a.index", f"a.index{RECORD}"]
    assert capsys.readouterr().err == ""


@pytest.mark.guarantee("kept-things-checked")
@pytest.mark.parametrize("name", ["a.index", f"a.index{RECORD}"])
def test_any_damage_is_named_and_the_file_is_made_again(
    cache: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make, draws = Maker(), random.Random(name)
    read(make)
    path = cache / name
    whole = path.read_bytes()
    zeroed = whole[:32] + bytes(min(4096, len(whole) - 40)) + whole[32 + min(4096, len(whole) - 40) :]
    flips = [draws.randrange(len(whole) - 1) for _ in range(20)]
    damages = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in flips]
    for damaged in [*damages, whole[: len(whole) // 2], b"", zeroed]:
        path.write_bytes(damaged)
        before = make.times
        assert read(make) == CONTENT and make.times == before + 1
        said = capsys.readouterr().err
        assert said.startswith(f"{path}: damaged in the cache") and said.count("\n") == 1
        assert read(make) == CONTENT and make.times == before + 1


def damage(path: Path, place: int) -> None:
    """Flip a bit as a bad block does, which changes neither the size nor the times of a file."""
    content, times = bytearray(path.read_bytes()), path.stat()
    content[place] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.guarantee("kept-things-checked")
@pytest.mark.parametrize("end", ["", RECORD])
@pytest.mark.parametrize("place", [3, -5])
def test_what_a_bad_block_damages_between_two_uses_is_named_and_made_again_each_time(
    cache: Path, end: str, place: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of several files in a folder, only the damaged one; it is named every time, also in one process."""
    made: list[str] = []

    def use(name: str) -> bytes:
        content = f"An index of {name}. ".encode() * (100_000 if name.startswith("h") else 400)
        with cached_file(name, lambda path: made.append(name) or (path.write_bytes(content) and None)) as path:
            assert path.read_bytes() == content
        return content

    names = ["owls.index", "herons.index", "Owls.index"]
    for name in names:
        use(name)
    for name in [*names, *names]:
        made.clear()
        for each in names:
            use(each)
        assert made == [] and capsys.readouterr().err == ""
        damage(cache / f"{name}{end}", place)
        for each in [*names, *names]:
            use(each)
        said = capsys.readouterr().err
        assert (
            made == [name] and said.startswith(f"{cache / name}{end}: damaged in the cache") and said.count("\n") == 1
        )


@pytest.mark.guarantee("kept-things-checked")
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("no texts"), KeyboardInterrupt()])
def test_a_damaged_file_is_not_used_where_it_cannot_be_made_again(cache: Path, error: BaseException) -> None:
    read(Maker())
    damage(cache / "a.index", 7)
    used: list[Path] = []

    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise error

    for _ in range(2):
        with pytest.raises(type(error)), cached_file("a.index", fail) as path:
            used.append(path)
    assert used == []
    make = Maker()
    assert read(make) == CONTENT and make.times == 1


@pytest.mark.guarantee("kept-things-checked")
def test_a_checksum_is_of_every_bit_of_a_row() -> None:
    rows = np.random.default_rng(0).normal(size=(2, 1024)).astype(np.float32)
    keys = np.array([7, 8], np.uint32)
    found = checksums(rows, keys)
    for place in (0, 1, 15, 16, 63, 64, 255, 256, 700, 1023):
        for bit in (0, 13, 31):
            other = rows.copy()
            other.view(np.uint32)[1, place] ^= np.uint32(1 << bit)
            assert (checksums(other, keys) == found).tolist() == [True, False], (place, bit)


@pytest.mark.guarantee("kept-things-checked")
def test_a_whole_file_under_the_name_of_another_one_is_made_again(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its record is whole, too, and fits it; but it is the index of other texts."""
    make = Maker()
    read(make)
    with cached_file("b.index", lambda path: path.write_bytes(b"An index of other texts.") and None):
        pass
    for end in ("", RECORD):
        (cache / f"b.index{end}").replace(cache / f"a.index{end}")
    assert read(make) == CONTENT and make.times == 2
    said = capsys.readouterr().err
    assert (
        said == f"{cache / 'a.index'}{RECORD}: damaged in the cache (it belongs to b.index): the file is made again\n"
    )
    assert read(make) == CONTENT and make.times == 2


@pytest.mark.guarantee("kept-things-checked")
def test_a_file_whose_record_was_not_written_is_made_again(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As after a kill between the two."""
    make = Maker()
    read(make)
    (cache / f"a.index{RECORD}").unlink()
    (cache / "a.index").write_bytes(b"of another run")
    assert read(make) == CONTENT and make.times == 2 and capsys.readouterr().err == ""


@pytest.mark.guarantee("kept-things-checked")
@pytest.mark.parametrize("place", ["/proc/no-folder-can-be-here", f"{__file__}/below-a-file"])
def test_without_a_cache_the_file_is_made_for_this_time(
    place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLEARSPAN_CACHE", place)
    make = Maker()
    with cached_file("a.index", make) as path:
        assert path.read_bytes() == CONTENT
    assert not path.exists()
    said = capsys.readouterr().err
    assert said.startswith(f"the cache cannot be used ({place}") and said.count("\n") == 1


@pytest.mark.guarantee("kept-things-checked")
def test_a_file_that_is_not_ours_to_read_is_not_used(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make = Maker()
    read(make)

    def refuse(path: Path) -> str:
        raise PermissionError(13, os.strerror(13), str(path))

    monkeypatch.setattr(module, "has_sha256", lambda path, _: refuse(path))
    assert read(make) == CONTENT
    assert f"the cache cannot be used ({cache / 'a.index'}: Permission denied)" in capsys.readouterr().err


@pytest.mark.guarantee("kept-things-checked")
def test_a_damaged_file_stays_until_a_whole_one_takes_its_place(cache: Path) -> None:
    """Another process may have put a whole one there since, and read it now."""
    read(Maker())
    path, was_there = cache / "a.index", list[bool]()
    path.write_bytes(b"damaged")

    def make(target: Path) -> None:
        was_there.append(path.exists())
        target.write_bytes(CONTENT)

    with cached_file("a.index", make) as made:
        assert made.read_bytes() == CONTENT and was_there == [True]


@pytest.mark.guarantee("kept-things-checked")
def test_a_failed_try_leaves_nothing(cache: Path) -> None:
    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise ValueError("no texts")

    with pytest.raises(ValueError, match="no texts"), cached_file("a.index", fail):
        pass
    assert list(cache.iterdir()) == []


@pytest.mark.guarantee("kept-things-checked")
def test_a_cache_is_made_where_there_is_none_and_swept_of_what_killed_runs_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "of/owls/cache"
    monkeypatch.setenv("CLEARSPAN_CACHE", str(cache))
    make = Maker()
    assert read(make) == CONTENT and make.times == 1
    old, young = (cache / temporary_name("b.index") for _ in range(2))
    for path, age_s in ((old, module.STALE_S + 60), (young, module.STALE_S - 600)):
        path.write_bytes(b"half")
        os.utime(path, (time.time() - age_s,) * 2)
    (cache / "a.index").write_bytes(b"damaged")
    assert read(make) == CONTENT and make.times == 2
    assert sorted(path.name for path in cache.iterdir()) == sorted(["a.index", f"a.index{RECORD}", young.name])


@pytest.mark.guarantee("kept-things-checked")
@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied", "cache"), OSError("no space")])
def test_a_folder_that_takes_no_file_is_noticed_before_a_file_is_made(
    error: OSError, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    places: list[Path] = []

    def refuse(path: Path) -> None:
        raise error

    monkeypatch.setattr(Path, "touch", refuse)
    with cached_file(
        "a.index", lambda path: places.append(path.parent) or (path.write_bytes(CONTENT) and None)
    ) as path:
        assert path.read_bytes() == CONTENT and path.name == "a.index"
    assert places == [path.parent] and cache not in places and not path.parent.exists()
    reason = "cache: Permission denied" if error.filename else "no space"
    told = f"the cache cannot be used ({reason}): the content is made again, and not cached\n"
    assert capsys.readouterr().err == told


@pytest.mark.guarantee("kept-things-checked")
@pytest.mark.parametrize(
    ("record", "told"),
    [
        ({"file": module.sha256, "name": "a.index"}, ""),
        ({"file": module.sha256}, "('name'): the file is made again"),
        ({"name": "a.index"}, "('file'): the file is made again"),
        ({"file": module.sha256, "name": "b.index"}, "(it belongs to b.index): the file is made again"),
        ({"file": "0" * 64, "name": "a.index"}, "a.index: damaged in the cache: made again"),
    ],
)
def test_a_file_is_used_only_with_its_own_record(
    record: dict[str, Any], told: str, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make = Maker()
    read(make)
    content = {key: value(cache / "a.index") if callable(value) else value for key, value in record.items()}
    (cache / f"a.index{RECORD}").write_bytes(dump_checksummed(content))
    is_own = set(record) == {"file", "name"} and not told
    assert read(make) == CONTENT and make.times == (1 if is_own else 2)
    said = capsys.readouterr().err
    assert told in said and said.count("\n") == bool(told)
    assert read(make) == CONTENT and make.times == (1 if is_own else 2) and capsys.readouterr().err == ""


@pytest.mark.guarantee("kept-things-checked")
def test_a_record_without_its_file_is_no_damage(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make = Maker()
    read(make)
    (cache / "a.index").unlink()
    assert read(make) == CONTENT and make.times == 2 and capsys.readouterr().err == ""
    path = cache / "owls"
    assert not module.has_sha256(path, "") and capsys.readouterr().err == ""
    path.write_bytes(CONTENT)
    assert module.has_sha256(path, module.sha256(path)) and capsys.readouterr().err == ""
    assert not module.has_sha256(path, "0" * 64)
    assert capsys.readouterr().err == f"{path}: damaged in the cache: made again\n"


@pytest.mark.guarantee("kept-things-checked")
def test_the_checksum_of_a_row_holds_its_key() -> None:
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    keys = np.array([7, 8, 7], np.uint32)
    found = checksums(rows, keys)
    assert len(set(found.tolist())) == 3
    assert checksums(rows[::-1].copy(), keys).tolist() != found.tolist()
    assert checksums(rows, keys[[1, 0, 2]])[:2].tolist() != found[:2].tolist()


def test_other_words_are_another_version() -> None:
    """Whoever changes what a word is increases `words.VERSION`, which kept indexes are named by, and these words."""
    text = "Straße: 2 naïve co-authors’ e-mails, 東京タワー — don't; หมา, क्षेत्र 3.5 x_y ﬁn İ"
    found = "strasse 2 naïve co authors e mails 東 京 タ ワ don ห ม า क्षेत्र 3 5 x y fin i"
    assert (VERSION, " ".join(PLAIN(text))) == (3, found)
