"""A round does again what is missing or damaged of its files, and nothing else."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clearspan.common.checksummed import append_checksum
from clearspan.pipelines.units import decisions
from clearspan.pipelines.units.rounds import Round

UNITS = 4


@pytest.fixture
def job(tmp_path: Path) -> Any:
    """A job of four units, of whose round the files of all but the third are written."""
    (tmp_path / "_staged").mkdir()
    for number in (0, 1, 3):
        (tmp_path / "_staged" / f"codes-{number}.rows").write_bytes(append_checksum(b"owls"))
    return SimpleNamespace(
        num_units=UNITS,
        staged_folder=str(tmp_path / "_staged"),
        path=lambda name: str(tmp_path / name),
        marks_path=lambda unit: str(tmp_path / "_curated" / f"{unit}.zst"),
    )


def output(suffix: str) -> Any:
    return lambda job, number: f"{job.staged_folder}/codes-{number}{suffix}"


def decided(tmp_path: Path, units: int = UNITS) -> None:
    (tmp_path / "_curated").mkdir()
    for unit in range(units):
        (tmp_path / "_curated" / f"{unit}.zst").touch()


@pytest.mark.guarantee("finished-work-checked")
@pytest.mark.parametrize(
    ("damage", "remaining"),
    [
        ({}, [2]),
        ({0: b"", 3: b"owls"}, [0, 2, 3]),
        ({1: append_checksum(b"owls")[:-1]}, [1, 2]),
        ({2: b"x"}, [2]),
        (dict.fromkeys(range(UNITS), b"owls"), [0, 1, 2, 3]),
    ],
)
def test_what_is_missing_or_damaged_is_done_again(
    damage: dict[int, bytes], remaining: list[int], job: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, content in damage.items():
        (tmp_path / "_staged" / f"codes-{number}.rows").write_bytes(content)
    elements = Round("Look up codes", lambda *_: None, output(".rows")).elements(job)
    assert elements == [(number, 1) for number in remaining]
    said = capsys.readouterr().err
    assert all(f"codes-{number}.rows: damaged since it was written: made again" in said for number in damage)
    assert said.count("made again") == len(damage)


@pytest.mark.guarantee("finished-work-checked")
def test_a_damaged_file_among_files_that_are_all_there_is_done_again_whichever_it_is(job: Any, tmp_path: Path) -> None:
    """Also in a second call of the same process, and where neither its size nor its times changed."""
    paths = [tmp_path / "_staged" / f"codes-{number}.rows" for number in range(UNITS)]
    whole = append_checksum(b"owls")
    paths[2].write_bytes(whole)
    codes = Round("Look up codes", lambda *_: None, output(".rows"))
    for number, path in enumerate(paths):
        assert codes.elements(job) == []
        times = path.stat()
        for place in range(0, len(whole), 5):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            assert codes.elements(job) == codes.elements(job) == [(number, 1)]
        path.write_bytes(whole)


@pytest.mark.guarantee("finished-work-checked")
def test_files_that_are_checked_where_they_are_read_only_need_to_be_there(job: Any, tmp_path: Path) -> None:
    for number in (0, 2):
        (tmp_path / "_staged" / f"codes-{number}.json").write_bytes(b"checked where it is read")
    assert Round("Finish", lambda *_: None, output(".json")).elements(job) == [(1, 1), (3, 1)]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "codes-1.json").touch()
    assert Round("Finish", lambda *_: None, output(".json")).elements(job) == [(1, 1), (3, 1)], "of another folder"


@pytest.mark.guarantee("finished-work-checked")
@pytest.mark.parametrize("decides", [True, False])
@pytest.mark.parametrize("units", [None, UNITS - 1, UNITS])
def test_marks_of_all_units_and_only_these_end_what_decides(
    units: int | None, decides: bool, job: Any, tmp_path: Path
) -> None:
    if units is not None:
        decided(tmp_path, units)
    elements = Round("Codes", lambda *_: None, output(".rows"), decides=decides).elements(job)
    assert elements == ([] if decides and units == UNITS else [(2, 1)])


@pytest.mark.guarantee("finished-work-checked")
@pytest.mark.parametrize("decides", [True, False])
def test_a_round_that_earlier_ones_made_unnecessary_has_nothing_to_do(decides: bool, job: Any) -> None:
    for is_over in (True, False):
        made = Round("Codes", lambda *_: None, output(".rows"), decides=decides, is_over=lambda _, end=is_over: end)
        assert made.elements(job) == ([] if is_over else [(2, 1)])


@pytest.mark.guarantee("finished-work-checked")
def test_elements_are_as_many_as_the_slices_of_the_round(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "num_slices", lambda _: 6)
    made = Round("Codes", lambda *_: None, output(".rows"), lambda job, slices: slices + job.num_units - 4)
    assert made.elements(job) == [(2, 6), (4, 6), (5, 6)]
