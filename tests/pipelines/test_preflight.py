"""The look at the first records before a long run: what ends it, and what does not."""

import gzip
import json
from pathlib import Path

import pytest

from clearspan.common.errors import PipelineError
from clearspan.pipelines.counter import MissingFieldError, RecordError
from clearspan.pipelines.readers import FIRST_FILES, first_records
from clearspan.pipelines.readers.sniff import FIRST_BYTES
from clearspan.pipelines.records import Input, ReadOptions, Record
from clearspan.pipelines.units.plan import describe
from clearspan.pipelines.units.preflight import check_first
from tests.pipelines.packings import tar

OWLS = "Größe lässt sich streiten: der Uhu jagt bei Nacht.\n"
LATIN = OWLS.encode("cp1252")
GOOD, BAD, LACKING = "good", "not a JSON object but null", "no field"


def made(folder: Path, files: dict[str, bytes], reading: ReadOptions | None = None) -> list[Input]:
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return list(describe(str(folder), {name: len(data) for name, data in files.items()}, reading or ReadOptions()))


def of_texts(record: Record) -> None:
    """Check a record whose text says what is wrong with it."""
    if record.value["text"].startswith(BAD):
        raise RecordError(record.value["text"])
    if record.value["text"] == LACKING:
        raise MissingFieldError(LACKING)


def lines(*texts: str) -> bytes:
    return b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)


def look(folder: Path, data: bytes, most_bad: float = 0.001) -> str:
    """Return why the first records of a file of JSON lines end a run; "" if they do not."""
    entries = made(folder, {"a.jsonl": data})

    def check(record: Record) -> None:
        if record.problem:
            raise RecordError(record.problem)
        of_texts(record)

    try:
        check_first(str(folder), entries, ReadOptions(), check, most_bad)
    except PipelineError as error:
        return str(error)
    return ""


@pytest.mark.guarantee("wrong-input-fails-first")
@pytest.mark.parametrize(
    ("texts", "ends"),
    [
        ([GOOD] * 5 + [BAD] * 6, True),
        ([BAD] * 6 + [GOOD] * 5, True),
        ([GOOD] * 5 + [BAD] * 5, False),
        ([LACKING] * 4, True),
        ([LACKING] * 40 + [GOOD], False),
        ([GOOD] + [LACKING] * 40, False),
        ([LACKING] * 3 + [BAD], False),
        ([LACKING] + [BAD] * 3, True),
        ([BAD], True),
        ([GOOD], False),
        ([GOOD] * 300 + [BAD] * 301, True),
        ([LACKING] * 600, True),
        ([], False),
    ],
)
def test_a_run_ends_if_more_than_half_are_bad_or_all_lack_the_field(
    tmp_path: Path, texts: list[str], ends: bool
) -> None:
    found = look(tmp_path, lines(*texts))
    assert bool(found) == ends
    if ends:
        num_bad = len(texts) - texts.count(GOOD)
        named = [f"a.jsonl:{offset}: {text}" for text, offset in ((BAD, "0"), (LACKING, "0")) if texts[0] == text]
        assert found.startswith(f"of the first records of the inputs, {num_bad} of {len(texts)} records are bad, e.g. ")
        assert all(name in found for name in named) and "encoding" not in found


@pytest.mark.guarantee("wrong-input-fails-first")
@pytest.mark.parametrize(
    ("wrong", "total", "most_bad", "ends"),
    [(5, 100, 0.001, False), (6, 100, 0.001, True), (10, 100, 0.1, False), (11, 100, 0.1, True), (2, 2, 0.499, True)],
)
def test_a_wrong_encoding_ends_a_run_above_five_percent_or_what_the_user_allows(
    tmp_path: Path, wrong: int, total: int, most_bad: float, ends: bool
) -> None:
    data = lines(*[GOOD] * (total - wrong)) + b'{"text": "Gr\xfc\xdfe"}\n' * wrong
    found = look(tmp_path, data, most_bad)
    assert bool(found) == ends
    if ends:
        assert f"{wrong} of {total} records are bad" in found
        assert "name the encoding of text that is not UTF-8" in found
    assert not look(tmp_path, lines(*[GOOD] * 94, *[BAD] * 6))  # an odd record is no wrong encoding


@pytest.mark.guarantee("wrong-input-fails-first")
def test_three_bad_records_are_named(tmp_path: Path) -> None:
    assert not look(tmp_path, lines(GOOD))  # of an earlier run on the same folder
    found = look(tmp_path, lines(*(f"{BAD} {number}" for number in range(5))))
    assert [f"a.jsonl:{number * 41}: {BAD} {number}" in found for number in range(5)] == [True] * 3 + [False] * 2


@pytest.mark.guarantee("wrong-input-fails-first")
def test_nothing_is_looked_at_where_half_of_the_records_may_be_bad(tmp_path: Path) -> None:
    assert look(tmp_path, lines(*[BAD] * 9), 0.499) and not look(tmp_path, lines(*[BAD] * 9), 0.5)


@pytest.mark.guarantee("wrong-input-fails-first")
def test_records_that_are_skipped_count_neither_way(tmp_path: Path) -> None:
    members = {"0.txt": b"Owls.", **{f"{number}.cls": b"7" for number in range(1, 9)}, "9.txt": b"Rivers."}
    entries = made(tmp_path, {"a.tar": tar(members)})

    def check(record: Record) -> None:
        assert not record.skipped
        raise MissingFieldError(LACKING)

    with pytest.raises(PipelineError, match="2 of 2 records are bad"):
        check_first(str(tmp_path), entries, ReadOptions(), check, 0.001)


def texts_ended(folder: Path, files: dict[str, bytes], most_bad: float = 0.001, **options: str) -> str:
    entries = made(folder, files)
    try:
        check_first(str(folder), entries, ReadOptions(**options), lambda record: None, most_bad)
    except PipelineError as error:
        return str(error)
    return ""


@pytest.mark.guarantee("wrong-input-fails-first")
@pytest.mark.parametrize(("wrong", "most_bad", "ends"), [(1, 0.05, True), (1, 0.1, False), (2, 0.1, True)])
def test_plain_texts_that_are_not_utf8_are_counted_by_file(
    tmp_path: Path, wrong: int, most_bad: float, ends: bool
) -> None:
    files = {f"{number}.txt": OWLS.encode() if number < 10 - wrong else LATIN for number in range(10)}
    found = texts_ended(tmp_path, files, most_bad)
    assert bool(found) == ends
    if ends:
        assert f"not UTF-8: {wrong} of 10 files, e.g. {'8.txt, 9.txt' if wrong == 2 else '9.txt'} (allowed: " in found
    behind = {name: b"Owls hunt at night.\n" * 3000 + data for name, data in files.items()}
    assert bool(texts_ended(tmp_path, behind, most_bad)) == ends
    packed = {f"{name}.gz": gzip.compress(data) for name, data in files.items()}
    assert bool(texts_ended(tmp_path, packed, most_bad)) == ends
    assert not texts_ended(tmp_path, files, most_bad, encoding="cp1252")
    assert not texts_ended(tmp_path, files, most_bad, separator="\n\n")


@pytest.mark.guarantee("wrong-input-fails-first")
def test_encodings_are_not_counted_by_file_where_some_files_hold_records(tmp_path: Path) -> None:
    texts = {f"{number}.txt": LATIN for number in range(3)}
    assert texts_ended(tmp_path, texts).startswith("not UTF-8: 3 of 3 files, e.g. 0.txt, 1.txt, 2.txt (allowed: ")
    assert not texts_ended(tmp_path, {**texts, "3.jsonl": lines(GOOD)})
    assert not texts_ended(tmp_path, {"3.jsonl": lines(GOOD), **texts})


@pytest.mark.guarantee("wrong-input-fails-first")
@pytest.mark.parametrize(("size", "ends"), [(100, True), (FIRST_BYTES - 1, False), (FIRST_BYTES, False)])
def test_only_at_the_end_of_the_look_may_a_character_be_cut(tmp_path: Path, size: int, ends: bool) -> None:
    cut = b"a" * (size - 1) + "ß".encode()[:1]
    whole = cut + ("ß".encode()[1:] if size >= FIRST_BYTES - 1 else b"")
    assert bool(texts_ended(tmp_path, {"a.txt": whole})) == ends


@pytest.mark.guarantee("wrong-input-fails-first")
def test_files_of_one_name_in_many_folders_are_all_counted(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"{number:03}").mkdir()
    files = {f"{number:03}/a.txt": OWLS.encode() if number < 270 else LATIN for number in range(300)}
    assert "not UTF-8: 30 of 300 files, e.g. 270/a.txt, 271/a.txt, " in texts_ended(tmp_path, files, 0.099)
    few = {**files, **{f"{number:03}/a.txt": OWLS.encode() for number in range(298)}}
    assert "not UTF-8: 2 of 300 files, e.g. 298/a.txt, 299/a.txt" in texts_ended(tmp_path, few, 0.001)
    assert not texts_ended(tmp_path, files, 0.1)


@pytest.mark.guarantee("wrong-input-fails-first")
def test_the_first_records_come_from_inputs_all_over(tmp_path: Path) -> None:
    files = {f"{number:03}.jsonl": lines(*(f"{number} {line}" for line in range(30))) for number in range(130)}
    entries = made(tmp_path, files)
    found = first_records(str(tmp_path), entries, ReadOptions(), 1000)
    names = sorted({record.name for record in found})
    assert len(found) == 1000 and names == [f"{at * 130 // FIRST_FILES:03}.jsonl" for at in range(len(names))]
    assert len(names) == 63  # 16 records of each of 64 files, and 1,000 in all
    assert [record.value["text"] for record in found[:17]] == [f"0 {line}" for line in range(16)] + ["2 0"]
    few = first_records(str(tmp_path), entries, ReadOptions(), 3)
    assert [record.value["text"] for record in few] == ["0 0", "43 0", "86 0"]
    assert len(first_records(str(tmp_path), entries[:2], ReadOptions(), 1000)) == 60
    assert first_records(str(tmp_path), [], ReadOptions(), 1000) == []


@pytest.mark.guarantee("wrong-input-fails-first")
def test_the_first_records_are_of_every_format_if_asked_for(tmp_path: Path) -> None:
    entries = made(tmp_path, {"a.txt": b"Owls hunt at night.", "b.jsonl": lines("Rivers run cold.")})
    assert [record.name for record in first_records(str(tmp_path), entries, ReadOptions(), 9)] == ["b.jsonl"]
    both = first_records(str(tmp_path), entries, ReadOptions(), 9, any_format=True)
    assert [record.name for record in both] == ["a.txt", "b.jsonl"]
