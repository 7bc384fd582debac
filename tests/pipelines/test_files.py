"""Whole files: files and tar members as bytes, whatever they hold."""

import dataclasses
from pathlib import Path

import pytest

from clearspan.pipelines.readers import read_splits
from clearspan.pipelines.records import ReadOptions, Record
from clearspan.pipelines.units.plan import find_inputs, make_plan

AS_BYTES = ReadOptions(max_bytes=100_000, as_bytes=True)


def read(folder: Path, unit_bytes: int = 10**6) -> list[Record]:
    inputs = find_inputs([str(folder)], AS_BYTES)
    reading = dataclasses.replace(AS_BYTES, classes=inputs.classes)
    units = make_plan(inputs, {"options": {}}, unit_bytes).units
    return [record for unit in units for record in read_splits(inputs.root, unit.splits, reading)]


@pytest.mark.guarantee("hostile-archives")
def test_one_that_is_too_long_is_a_problem_and_the_rest_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(100_001))
    (tmp_path / "b.bin").write_bytes(bytes(100_000))
    long, other = sorted(read(tmp_path), key=lambda record: record.name)
    assert (long.value, long.problem, len(long.raw)) == (None, "longer than 100,000 bytes", 1000)
    assert len(other.value) == 100_000 and not other.problem
