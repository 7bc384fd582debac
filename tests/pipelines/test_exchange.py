"""What units exchange and count, so that a dataset does not depend on who did which of them: files made here."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from clearspan.common.errors import PipelineError
from clearspan.pipelines.builders.documents import Documents
from clearspan.pipelines.errors import carried_error
from clearspan.pipelines.execution.graph import DONE, NO_WORK, deal, work
from clearspan.pipelines.records import Input, Split
from clearspan.pipelines.units import exchange, numbering
from clearspan.pipelines.units.job import Job
from clearspan.pipelines.units.numbering import numbered
from clearspan.pipelines.units.plan import Unit
from clearspan.pipelines.units.rounds import Element, Round
from tests.pipelines.conftest import Command

ENTRY = np.dtype([("hash", "<u8"), ("row", "<u4")])


def entries(rows: Sequence[int]) -> np.ndarray:
    made = np.zeros(len(rows), ENTRY)
    made["row"], made["hash"] = rows, np.array(rows, np.uint64) << np.uint64(40)
    return made


def pack(folder: Path, name: str, rows: Sequence[int], destinations: Sequence[int]) -> str:
    """Write a file of entries for five destinations; return its path."""
    (folder / name).write_bytes(exchange.pack(entries(rows), np.array(destinations, np.int64), 5))
    return str(folder / name)


@pytest.mark.guarantee("any-workers")
@pytest.mark.parametrize(
    ("first", "end", "rows", "offsets"),
    [
        (0, 5, [12, 11, 14, 10, 13, 30, 40, 41, 42], [0, 5, 6, 6, 9]),
        (0, 1, [12], [0, 1, 1, 1, 1]),
        (1, 2, [], [0, 0, 0, 0, 0]),
        (1, 4, [11, 14, 10, 30, 40, 41, 42], [0, 3, 4, 4, 7]),
        (2, 3, [11, 14], [0, 2, 2, 2, 2]),
        (3, 5, [10, 13, 30, 40, 41, 42], [0, 2, 3, 3, 6]),
        (4, 5, [13], [0, 1, 1, 1, 1]),
    ],
)
def test_a_slice_gets_the_entries_for_its_destinations_from_each_file(
    first: int, end: int, rows: list[int], offsets: list[int], tmp_path: Path
) -> None:
    paths = [
        pack(tmp_path, "a", [10, 11, 12, 13, 14], [3, 2, 0, 4, 2]),
        pack(tmp_path, "b", [30], [3]),
        pack(tmp_path, "c", [], []),
        pack(tmp_path, "d", [40, 41, 42], [3, 3, 3]),
    ]
    found, ends = exchange.gather(paths, 5, first, end, ENTRY)
    assert found.tolist() == entries(rows).tolist() and found.dtype == ENTRY
    assert ends.tolist() == offsets and ends.dtype == np.int64


@pytest.mark.guarantee("any-workers")
def test_entries_of_one_destination_keep_their_order(tmp_path: Path) -> None:
    rows = list(range(3000))
    path = pack(tmp_path, "a", rows, [row * 7 % 3 for row in rows])
    found, _ = exchange.gather([path], 5, 0, 5, ENTRY)
    assert found["row"].tolist() == sorted(rows, key=lambda row: row * 7 % 3)


@pytest.mark.guarantee("any-workers")
def test_no_file_has_no_entries() -> None:
    found, offsets = exchange.gather([], 5, 0, 5, ENTRY)
    assert (found.tolist(), found.dtype, offsets.tolist()) == ([], ENTRY, [0])


@pytest.mark.guarantee("any-workers")
def test_a_bucket_is_the_upper_twelve_bits_of_a_hash() -> None:
    hashes = np.array([0, 1 << 52, (1 << 52) - 1, (1 << 64) - 1], np.uint64)
    assert exchange.bucket(hashes, 64).tolist() == [0, 1, 0, exchange.BUCKETS - 1]
    assert exchange.bucket(np.array([1 << 51, (1 << 63) - 1], np.uint64), 63).tolist() == [1, exchange.BUCKETS - 1]


def piece(name: str, start: int, end: int | None, format_: str = "jsonl") -> Split:
    return Split(Input(name, 1000, format_, None, ""), start, end)


@pytest.mark.guarantee("any-workers")
def test_lines_are_counted_before_each_piece_in_whatever_order_and_unit_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbering, "BUFFER_BYTES", 4)
    (tmp_path / "a.jsonl").write_bytes(b"one\ntwo\n\nfour\r\nfive\n")
    (tmp_path / "b.jsonl").write_bytes(b"\n\n\neins zwei drei\nvier")
    (tmp_path / "c.parquet").write_bytes(b"\n\n\n\n\n\n\n\n")
    units = [
        Unit(0, (piece("a.jsonl", 15, None), piece("b.jsonl", 0, 2), piece("b.jsonl", 2, 18))),
        Unit(1, (piece("c.parquet", 4, 8, "parquet"), piece("a.jsonl", 0, 4))),
        Unit(2, (piece("b.jsonl", 18, None), piece("a.jsonl", 4, 9), piece("a.jsonl", 9, 15))),
    ]
    found = numbered(str(tmp_path), iter(units), quiet=True)
    assert [[each.lines for each in unit.splits] for unit in found] == [[4, 0, 2], [0, 0], [4, 1, 3]]
    assert [unit.number for unit in found] == [0, 1, 2]
    without = [
        dataclasses.replace(unit, splits=tuple(dataclasses.replace(each, lines=0) for each in unit.splits))
        for unit in found
    ]
    assert without == units


@pytest.mark.guarantee("any-workers")
def test_lines_are_counted_at_line_feeds_in_the_file_of_that_folder_as_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbering, "BUFFER_BYTES", 4)
    files = {
        "en/a.jsonl": b"one\rtwo\x0b\x1c\nthree\r\nfour",
        "de/a.jsonl": b"\n\neins zwei\ndrei\n\n",
        "a.jsonl": b"un",
    }
    for _ in range(2):
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(content)
        ends = {name: len(content) for name, content in files.items()}
        units = [Unit(number, (piece(name, end, None),)) for number, (name, end) in enumerate(ends.items())]
        counts = [content.count(b"\n") for content in files.values()]
        assert [unit.splits[0].lines for unit in numbered(str(tmp_path), units, quiet=True)] == counts
        files = {name: content.replace(b"e", b"\n").replace(b"u", b"\n") for name, content in files.items()}


@pytest.mark.guarantee("any-workers")
def test_a_line_end_that_a_file_lost_since_is_no_endless_count(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"one\ntwo\n")
    ((found,),) = [unit.splits for unit in numbered(str(tmp_path), [Unit(0, (piece("a.jsonl", 900, None),))], True)]
    assert found.lines == 2


@pytest.mark.guarantee("any-workers")
def test_the_number_of_workers_is_no_part_of_a_dataset(
    direct: Command, head: Path, tmp_path: Path, tree: Callable[[Path], dict[str, str]]
) -> None:
    head.write_bytes(b"".join(head.read_bytes().splitlines(keepends=True)[:5]))
    words = ("--input", head, "--min-tokens", "1", "--workers")
    for workers in ("1", "2", "7"):
        assert direct(*words, workers, "--output", tmp_path / workers).code == 0
    assert tree(tmp_path / "1") == tree(tmp_path / "2") == tree(tmp_path / "7")


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(str(tmp_path), "", str(tmp_path), Documents, {}, 3, None, 0)  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class Deciding(Round):
    """A round of which these elements remain."""

    left: tuple[Element, ...] = ()
    error: OSError | None = None

    def elements(self, job: Job) -> list[Element]:
        if self.error:
            raise self.error
        return list(self.left)


@pytest.mark.guarantee("any-workers")
def test_each_element_that_remains_is_dealt_out_and_worked_on_once(job: Job) -> None:
    done: list[tuple[str, int, int]] = []
    round_ = Deciding("Find", lambda job, *element: done.append((job.folder, *element)), lambda job, number: "")
    for left in ((), ((2, 3),), ((0, 3), (1, 3), (2, 3))):
        done.clear()
        dealt = list(deal(None, job, dataclasses.replace(round_, left=left)))
        assert dealt == [(NO_WORK, None), *((element, None) for element in left)]
        assert [work(keyed, job, round_) for keyed in dealt] == [DONE] * (1 + len(left))
        assert done == [(job.folder, *element) for element in left]


@pytest.mark.guarantee("any-workers")
def test_an_error_while_dealing_reaches_the_driver(job: Job) -> None:
    round_ = Deciding("Find", lambda job, *element: None, lambda job, number: "", error=OSError("the disk is gone"))
    with pytest.raises(RuntimeError, match="the disk is gone") as caught:
        list(deal(None, job, round_))
    assert isinstance(carried_error(caught.value), (OSError, PipelineError))
