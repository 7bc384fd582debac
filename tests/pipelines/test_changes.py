"""Inputs that are edited: between a kill and the next run, after the end, and while the run goes on."""

import dataclasses
import hashlib
import io
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clearspan.common.checksummed import dump_checksummed, load_checksummed
from clearspan.common.errors import PipelineError
from clearspan.pipelines import readers, run
from clearspan.pipelines.readers import content_hash, read_splits, sniff
from clearspan.pipelines.readers.lines import TextLines
from clearspan.pipelines.records import Input, ReadOptions, Split
from clearspan.pipelines.units import changes, plan
from clearspan.pipelines.units.plan import cut, find_inputs
from clearspan.pipelines.units.unit import process_unit
from clearspan.shards import storage, verify
from clearspan.shards.finding import Status
from tests.pipelines.conftest import without_beam
from tests.pipelines.packings import COMPRESS, arrow, parquet, tar

UNIT_BYTES = 40_000
WORDS = ("--unit-bytes", str(UNIT_BYTES), "--min-tokens", "300")
CHANGED = "has changed since the run was planned: restore the earlier file, or begin again with another --output"
MODIFIED = "was modified during the run: run again"


@pytest.fixture
def old_head(head: Path) -> Path:
    """The first forty documents, in a file that was written long ago."""
    os.utime(head, ns=(10**18, 10**18))
    return head


def unsampled(data: bytes | bytearray, at: int) -> int:
    """Return the place of the first letter from a byte on that planning does not sample."""
    starts = [number * (len(data) - 8192) // 8 for number in range(9)]
    places = (i for i in range(at, len(data)) if not any(start <= i < start + 8192 for start in starts))
    return next(i for i in places if chr(data[i]).isalpha())


def units_before_an_unsampled_line(path: Path) -> int:
    """Return after how many units the line that ends the last one has a letter in the next that is not sampled."""
    data = path.read_bytes()
    ends = {number: number * UNIT_BYTES for number in range(2, 5)}
    return next(number for number, end in ends.items() if unsampled(data, end + 1) < data.index(b"\n", end))


def edit(path: Path, at: int) -> None:
    """Change one letter in place, near a byte: the same size and inode, and none of the bytes that planning samples."""
    data = bytearray(path.read_bytes())
    at = unsampled(data, at)
    data[at] = ord("x") if data[at] != ord("x") else ord("y")
    with path.open("r+b") as file:
        file.write(data)


def stopped_after(units: int, then: Callable[[], object]) -> Callable[..., bool]:
    """Return what takes Beam's place: it processes some units, does something else, and then fails or goes on."""

    def run_units(job, remaining, options) -> bool:
        first, rest = remaining[:units], remaining[units:]
        worker = job.worker()
        for unit in first:
            process_unit(unit, job, worker)
        then()
        return without_beam(job, rest, options)

    return run_units


def kill() -> None:
    raise PipelineError("killed")


@pytest.mark.slow
@pytest.mark.guarantee("changed-input")
@pytest.mark.parametrize("where", ["done", "last line of what is done", "to do"])
def test_an_edit_between_a_kill_and_the_next_run_never_gives_a_dataset_of_neither_file(
    direct, old_head: Path, tmp_path: Path, tree, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    done = units_before_an_unsampled_line(old_head)
    with monkeypatch.context() as patch:
        patch.setattr(run, "_run_beam", stopped_after(done, kill))
        assert direct("--input", old_head, *WORDS).err == "pipelines: killed\n"
    edit(old_head, {"done": 50_000, "last line of what is done": done * UNIT_BYTES + 1, "to do": 5 * UNIT_BYTES}[where])
    again = direct("--input", old_head, *WORDS)
    if where == "to do":
        fresh = direct("--input", old_head, *WORDS, "--output", tmp_path / "fresh")
        assert (again.code, fresh.code) == (0, 0)
        assert tree(tmp_path / "out") == tree(tmp_path / "fresh")
    else:
        assert (again.code, again.err) == (1, f"pipelines: {old_head}: {CHANGED}\n")


@pytest.mark.guarantee("changed-input")
@pytest.mark.parametrize("options", [(), ("--dedup", "--limit", "9")])
def test_an_edit_after_the_end_is_an_error_and_the_dataset_stays(
    direct, old_head: Path, tmp_path: Path, tree, options: tuple[str, ...]
) -> None:
    assert direct("--input", old_head, *WORDS, *options).code == 0
    finished = tree(tmp_path / "out")
    edit(old_head, 100_000)
    for _ in range(2):
        again = direct("--input", old_head, *WORDS, *options)
        assert (again.code, again.err) == (1, f"pipelines: {old_head}: {CHANGED}\n")
    assert tree(tmp_path / "out") == finished and verify(tmp_path / "out") == []


@pytest.mark.guarantee("changed-input")
def test_an_edit_while_the_run_goes_on_ends_it(direct, old_head: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(run, "_run_beam", stopped_after(3, lambda: edit(old_head, 60_000)))
        outcome = direct("--input", old_head, *WORDS)
    assert outcome.code == 1 and outcome.err.startswith(f"pipelines: {old_head}: {MODIFIED}")
    assert CHANGED in direct("--input", old_head, *WORDS).err


@pytest.mark.guarantee("changed-input")
@pytest.mark.parametrize("how", ["touched", "copied again"])
def test_the_same_content_with_another_time_or_inode_is_compared_once_and_accepted(
    direct, old_head: Path, tmp_path: Path, tree, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    assert direct("--input", old_head, *WORDS).code == 0
    finished = tree(tmp_path / "out")
    if how == "copied again":
        shutil.copy(old_head, tmp_path / "copy")
        (tmp_path / "copy").replace(old_head)
    os.utime(old_head, ns=(10**18, 10**18 + (how == "touched")))
    compared = direct("--input", old_head, *WORDS)
    assert compared.code == 0 and "was already finished: nothing to do" in compared.out
    monkeypatch.setattr(changes, "content_hash", lambda *_: pytest.fail("read again"))
    assert direct("--input", old_head, *WORDS).code == 0
    assert tree(tmp_path / "out") == finished


@pytest.mark.guarantee("changed-input")
def test_an_edit_in_place_that_restores_the_time_of_modification_is_noticed(direct, old_head: Path) -> None:
    assert direct("--input", old_head, *WORDS).code == 0
    edit(old_head, 100_000)
    os.utime(old_head, ns=(10**18, 10**18))
    assert direct("--input", old_head, *WORDS).err == f"pipelines: {old_head}: {CHANGED}\n"


@pytest.mark.guarantee("changed-input")
def test_a_backup_that_links_a_file_while_it_is_read_is_no_edit(
    direct, old_head: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_run_beam", stopped_after(3, lambda: os.link(old_head, tmp_path / "backup")))
    assert direct("--input", old_head, *WORDS).code == 0
    assert "already finished" in direct("--input", old_head, *WORDS).out


@pytest.mark.guarantee("killed-run")
@pytest.mark.guarantee("changed-input")
@pytest.mark.parametrize("how", ["in the middle of the run", "before the next one"])
def test_a_run_goes_on_with_a_file_that_was_only_touched(
    direct, old_head: Path, tmp_path: Path, tree, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    then = kill if how == "before the next one" else lambda: os.utime(old_head, ns=(1, 1))
    with monkeypatch.context() as patch:
        patch.setattr(run, "_run_beam", stopped_after(3, then))
        assert direct("--input", old_head, *WORDS).code == 1
    os.utime(old_head, ns=(1, 1))
    left = json.loads(direct("--input", old_head, *WORDS, "--json").out)["run"]["units"]
    assert left == -(-old_head.stat().st_size // UNIT_BYTES) - 3
    assert direct("--input", old_head, *WORDS, "--output", tmp_path / "fresh").code == 0
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


@pytest.mark.guarantee("killed-run")
@pytest.mark.guarantee("changed-input")
@pytest.mark.parametrize("damage", [None, b"", b"{}"])
def test_a_unit_without_a_record_of_what_it_read_is_done_again(
    direct, old_head: Path, tmp_path: Path, tree, damage: bytes | None
) -> None:
    assert direct("--input", old_head, *WORDS).code == 0
    finished, record = tree(tmp_path / "out"), tmp_path / "out" / ".clearspan" / "00001.json"
    record.unlink() if damage is None else record.write_bytes(damage)
    os.utime(old_head, ns=(1, 1))
    assert json.loads(direct("--input", old_head, *WORDS, "--json").out)["run"]["units"] == 1
    assert tree(tmp_path / "out") == finished


@pytest.mark.guarantee("changed-input")
def test_a_file_that_was_written_a_moment_before_is_compared_whatever_its_time(
    direct, head: Path, tmp_path: Path
) -> None:
    assert direct("--input", head, *WORDS).code == 0
    status = head.stat()
    edit(head, 100_000)
    os.utime(head, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert CHANGED in direct("--input", head, *WORDS).err


def test_a_picture_that_is_edited_after_the_end_is_an_error(direct, shared_data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    for number, archive in enumerate(sorted((shared_data / "images" / "tinyimagenet60").glob("*.tar"))[:2]):
        (folder / f"class{number}").mkdir(parents=True)
        shutil.unpack_archive(archive, folder / f"class{number}")
    words = ("images", "--input", folder, "--output", tmp_path / "out")
    first = direct(*words)
    assert first.code == 0, first.err
    picture = next(path for path in sorted(folder.rglob("*")) if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    data = picture.read_bytes()
    picture.write_bytes(data[:-20] + bytes(byte ^ 1 for byte in data[-20:]))
    assert direct(*words).err == f"pipelines: {picture}: {CHANGED}\n"


def table(path: Path, texts: list[str]) -> None:
    pq.write_table(pa.table({"text": texts, "n": range(len(texts))}), path, row_group_size=7, compression="none")


def rows(path: Path, texts: list[str]) -> None:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def text_lines(path: Path, texts: list[str]) -> None:
    path.write_text("".join(" ".join(text.split()) + "\n" for text in texts))


@pytest.mark.exhaustive
@pytest.mark.guarantee("changed-input")
@pytest.mark.parametrize(
    ("name", "write"), [("a.parquet", table), ("a.jsonl", rows), ("a.txt", text_lines)], ids=["parquet", "jsonl", "txt"]
)
@pytest.mark.parametrize("unit_bytes", [900, 7000])
def test_what_a_piece_is_compared_by_covers_all_that_is_read_for_it(
    texts: list[str], tmp_path: Path, name: str, write: Callable[[Path, list[str]], None], unit_bytes: int
) -> None:
    path, draws = tmp_path / name, random.Random(name)
    write(path, [text[:300] for text in texts[:60]])
    reading = ReadOptions(text_per="line")
    (entry,) = find_inputs([str(path)], reading).files
    entry = dataclasses.replace(entry, sample="", status=None)  # by which readers would refuse an edited file
    pieces = [piece for unit in cut(str(tmp_path), [entry], unit_bytes) for piece in unit.splits]
    assert len(pieces) > 2

    def read(piece: Split) -> tuple[list, str]:
        try:
            records = [(one.offset, one.value, one.problem) for one in read_splits(str(tmp_path), [piece], reading)]
        except (PipelineError, pa.ArrowException, OSError) as error:
            records = [type(error)]
        try:
            return records, content_hash(str(tmp_path), piece)
        except PipelineError:
            return records, "unreadable"

    whole, data = [*map(read, pieces)], path.read_bytes()
    edges = [piece.start + step for piece in pieces[1:] for step in (-1, 0, 1)]
    num_changed = 0
    for at in [*edges[:60], *draws.sample(range(len(data)), 60)]:
        for byte in (ord("\n"), data[at] ^ 1):
            path.write_bytes(data[:at] + bytes([byte]) + data[at + 1 :])
            for (before, known), (after, now) in zip(whole, map(read, pieces), strict=True):
                num_changed += before != after
                assert before == after or known != now, (at, byte)
    assert num_changed > 50


@pytest.mark.slow
@pytest.mark.guarantee("changed-input", "learned-as-written")
def test_a_tokenizer_is_not_kept_when_a_text_that_it_was_learned_from_was_edited(
    direct, old_head: Path, tmp_path: Path, tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("vocabulary", "--input", old_head, "--size", "600", "--output", tmp_path / "learned")
    assert direct(*words).code == 0
    made = tree(tmp_path / "learned")
    edit(old_head, 100_000)
    again = direct(*words)
    assert (again.code, again.err) == (1, f"pipelines: {old_head}: {CHANGED}\n")
    assert tree(tmp_path / "learned") == made


@pytest.mark.slow
@pytest.mark.guarantee("learned-as-written")
def test_a_flipped_bit_in_a_learned_tokenizer_is_mended(direct, old_head: Path, tmp_path: Path, tree) -> None:
    words = ("vocabulary", "--input", old_head, "--size", "600", "--output", tmp_path / "learned")
    assert direct(*words).code == 0
    made, path = tree(tmp_path / "learned"), tmp_path / "learned" / "tokenizer.json"
    data = path.read_bytes()
    for at in np.linspace(100, len(data) - 100, 5, dtype=int).tolist():
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        again = direct(*words)
        assert again.code == 0 and "was already learned" not in again.out
        assert tree(tmp_path / "learned") == made


@pytest.mark.guarantee("changed-input")
@pytest.mark.parametrize("size", [sniff.WHOLE_BYTES, sniff.WHOLE_BYTES + 1])
def test_what_a_unit_records_of_a_file_is_what_a_later_run_computes(tmp_path: Path, size: int) -> None:
    path, reading = tmp_path / "a.txt", ReadOptions()
    path.write_bytes(b"owl\n" * (size // 4) + b"x" * (size % 4))
    found = find_inputs([str(path)], reading)
    piece, contents = Split(plan.make_plan(found, {"options": {}}, 10**9).inputs[0], 0, None), list[str]()
    list(read_splits(str(tmp_path), [piece], reading, contents))
    assert contents == [content_hash(str(tmp_path), piece)]
    path.write_bytes(path.read_bytes().replace(b"owl", b"awl", 1))
    assert contents != [content_hash(str(tmp_path), piece)]


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """Three files that were written long ago: the units of `planned` are half of a, half of a, and b with c."""
    folder = tmp_path / "in"
    folder.mkdir()
    for name, lines in (("a.txt", 8), ("b.txt", 2), ("c.txt", 2)):
        (folder / name).write_text("".join(f"{name} line {line}\n" for line in range(lines)))
        os.utime(folder / name, ns=(10**18, 10**18))
    return folder


def planned(folder: Path) -> plan.Plan:
    found = find_inputs([str(folder)], ReadOptions(text_per="line"))
    files = tuple(dataclasses.replace(entry, format="lines") for entry in found.files)
    made = plan.make_plan(dataclasses.replace(found, files=files), {"options": {}}, 56)
    shapes = [[(piece.input.name, piece.start) for piece in unit.splits] for unit in made.units]
    assert shapes == [[("a.txt", 0)], [("a.txt", 56)], [("b.txt", 0), ("c.txt", 0)]]
    return made


def recorded(folder: Path, made: plan.Plan, units: tuple[int, ...] = (0, 1, 2)) -> None:
    """Write what units that have read their inputs record, and what the inputs were then."""
    for unit in units:
        hashes = [content_hash(made.root, piece) for piece in made.units[unit].splits]
        changes.save_read(str(folder), made.sha256, unit, hashes)
    changes.check_inputs(str(folder), made, set())


def compared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Return the list of pieces that are compared from now on."""
    found: list[tuple[str, int]] = []

    def hashed(root: str, piece: Split) -> str:
        found.append((piece.input.name, piece.start))
        return content_hash(root, piece)

    monkeypatch.setattr(changes, "content_hash", hashed)
    return found


@pytest.mark.guarantee("changed-input")
def test_units_whose_inputs_were_not_touched_are_the_same_without_reading(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, out = planned(inputs), str(tmp_path)
    assert changes.check_inputs(out, made, {0, 1, 2}) == set()  # no unit has recorded what it read
    recorded(tmp_path, made, (0, 2))
    found = compared(monkeypatch)
    assert changes.check_inputs(out, made, {0, 1, 2}) == {0, 2}
    assert changes.check_inputs(out, made, {1, 2}) == {2}
    assert changes.check_inputs(out, made, set()) == set()
    assert found == []


@pytest.mark.guarantee("changed-input")
@pytest.mark.parametrize(
    ("name", "pieces"), [("a.txt", [("a.txt", 0), ("a.txt", 56)]), ("b.txt", [("b.txt", 0)]), ("c.txt", [("c.txt", 0)])]
)
def test_each_piece_of_a_touched_file_is_compared_once(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, pieces: list[tuple[str, int]]
) -> None:
    recorded(tmp_path, planned(inputs))
    os.utime(inputs / name, ns=(10**18, 10**18 + 1))
    found, made = compared(monkeypatch), planned(inputs)
    assert changes.check_inputs(str(tmp_path), made, {0, 1, 2}) == {0, 1, 2}
    assert found == pieces
    assert changes.check_inputs(str(tmp_path), made, {0, 1, 2}) == {0, 1, 2} and found == pieces
    (tmp_path / ".clearspan" / "status.json").unlink()
    changes.check_inputs(str(tmp_path), made, {0, 1, 2})
    assert sorted(found[len(pieces) :]) == [("a.txt", 0), ("a.txt", 56), ("b.txt", 0), ("c.txt", 0)]


@pytest.mark.guarantee("changed-input")
@pytest.mark.parametrize(("name", "at"), [("a.txt", 0), ("a.txt", -2), ("b.txt", 3), ("c.txt", 3)])
def test_an_edit_of_any_piece_is_an_error_each_time_that_names_the_file(
    inputs: Path, tmp_path: Path, name: str, at: int
) -> None:
    made, path = planned(inputs), inputs / name
    recorded(tmp_path, made)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(10**18, 10**18))
    files = tuple(dataclasses.replace(entry, status=storage.status(str(inputs / entry.name))) for entry in made.inputs)
    now = dataclasses.replace(made, inputs=files)
    for _ in range(2):
        with pytest.raises(PipelineError) as caught:
            changes.check_inputs(str(tmp_path), now, {0, 1, 2})
        assert str(caught.value).startswith(f"{path}: has changed since the run was planned")
    data[at] ^= 1
    path.write_bytes(data)  # the earlier file is back
    assert changes.check_inputs(str(tmp_path), now, {0, 1, 2}) == {0, 1, 2}


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "a.txt": bytes,
    "a.jsonl": bytes,
    "a.csv": bytes,
    **{f"a.jsonl.{end}": pack for end, pack in COMPRESS.items()},
    "a.tar": lambda data: tar({"b.jsonl": data}),
    "a.parquet": lambda data: parquet({"text": [data.decode()]}),
    "a.arrow": lambda data: arrow(pa.table({"text": [data.decode()]})),
}


@pytest.mark.guarantee("changed-input")
@pytest.mark.parametrize("name", PACKED)
def test_an_edit_of_a_file_in_any_format_and_packing_is_noticed(tmp_path: Path, name: str) -> None:
    noise = random.Random(7).randbytes(100_000).hex()  # remains larger than what planning reads as a whole
    path = tmp_path / f"In {name.upper()}"
    path.write_bytes(PACKED[name](b"text\n" if name.endswith("csv") else f'{{"text": "{noise}"}}\n'.encode()))
    found = find_inputs([str(path)], ReadOptions())
    made = plan.make_plan(found, {"options": {}}, 10**9)
    recorded(tmp_path / "out", made, (0,))
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)
    entries = [dataclasses.replace(entry, status=storage.status(str(path))) for entry in made.inputs]
    now = dataclasses.replace(made, inputs=tuple(entries))
    for _ in range(2):
        with pytest.raises(PipelineError, match=f"^{path}: has changed"):
            changes.check_inputs(str(tmp_path / "out"), now, {0})


@pytest.mark.slow
@pytest.mark.guarantee("changed-input")
def test_an_edit_of_the_last_of_thousands_of_files_is_noticed(tmp_path: Path) -> None:
    names = [f"{number:04}.txt" for number in range(2400)]
    sizes = {name: (tmp_path / name).write_bytes(b"An owl.\n") for name in names}
    (tmp_path / names[-1]).write_bytes(b"No owl.\n")
    pieces = [Split(Input(name, size, "text", None, ""), 0, None) for name, size in sizes.items()]
    units = [plan.Unit(number, tuple(pieces[number * 1200 : number * 1200 + 1200])) for number in range(2)]
    made: Any = SimpleNamespace(
        root=str(tmp_path), sha256="0" * 64, inputs=[piece.input for piece in pieces], units=units
    )
    for unit in units:
        hashes = [content_hash(made.root, piece) for piece in unit.splits]
        changes.save_read(str(tmp_path / "out"), made.sha256, unit.number, hashes)
    assert changes.check_inputs(str(tmp_path / "out"), made, {0, 1}) == {0, 1}
    (tmp_path / names[-1]).write_bytes(b"No owls\n")
    with pytest.raises(PipelineError, match=f"^{tmp_path / names[-1]}: has changed since"):
        changes.check_inputs(str(tmp_path / "out"), made, {0, 1})


@pytest.mark.guarantee("changed-input")
def test_a_piece_of_parquet_is_compared_with_its_row_groups_to_their_ends_and_the_metadata(tmp_path: Path) -> None:
    path, texts = tmp_path / "a.parquet", [f"Owl {number} hunts at night over the fields." for number in range(100)]
    table(path, texts)
    (entry,) = find_inputs([str(path)], ReadOptions()).files
    whole, size = path.read_bytes(), path.stat().st_size
    groups = pq.read_metadata(path)
    for start, end in ((0, 300), (300, 1000), (1000, 1001), (1001, size)):
        piece = Split(dataclasses.replace(entry, status=None, sample=""), start, end)
        path.write_bytes(whole)
        before = content_hash(str(tmp_path), piece)
        for number in range(groups.num_row_groups):
            columns = [groups.row_group(number).column(column) for column in range(2)]
            first = min(column.dictionary_page_offset or column.data_page_offset for column in columns)
            last = max(column.data_page_offset + column.total_compressed_size for column in columns)
            for at in (first, (first + last) // 2, size - 20):
                path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
                if start <= first < end and at < size - 20:
                    assert content_hash(str(tmp_path), piece) != before, (start, number, at)


@pytest.mark.guarantee("changed-input")
@pytest.mark.parametrize("hashes", [[], ["x"], ["x", "y", "z"]])
def test_a_record_of_other_pieces_or_of_another_plan_is_none(inputs: Path, tmp_path: Path, hashes: list[str]) -> None:
    made = planned(inputs)
    recorded(tmp_path, made)
    changes.save_read(str(tmp_path), made.sha256, 2, hashes)
    changes.save_read(str(tmp_path), "0" * 64, 0, ["x"])
    assert changes.check_inputs(str(tmp_path), made, {0, 1, 2}) == {0, 1, 2}  # no file was touched
    for name in ("a.txt", "c.txt"):
        os.utime(inputs / name, ns=(1, 1))
    assert changes.check_inputs(str(tmp_path), planned(inputs), {0, 1, 2}) == {1}


@pytest.mark.guarantee("changed-input")
def test_times_of_another_plan_are_not_those_of_this_one(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = planned(inputs)
    recorded(tmp_path, made)
    found = compared(monkeypatch)
    path = tmp_path / ".clearspan" / "status.json"
    path.write_bytes(dump_checksummed({**load_checksummed(path.read_bytes()), "plan": "0" * 64}))
    assert changes.check_inputs(str(tmp_path), made, {1}) == {1} and found == [("a.txt", 56)]
    assert load_checksummed(path.read_bytes()) == {
        "plan": made.sha256,
        "status": [[*entry.status] for entry in made.inputs],
    }


@pytest.mark.guarantee("changed-input")
def test_an_input_that_was_modified_a_moment_ago_is_compared_each_time(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.utime(inputs / "b.txt")
    made = planned(inputs)
    recorded(tmp_path, made)
    found = compared(monkeypatch)
    for _ in range(2):
        assert changes.check_inputs(str(tmp_path), made, {0, 1, 2}) == {0, 1, 2}
    assert set(found) == {("b.txt", 0)} and len(found) == 2
    (inputs / "b.txt").write_bytes((inputs / "b.txt").read_bytes()[:-2] + b"x\n")
    with pytest.raises(PipelineError, match=r"b\.txt: has changed since the run was planned"):
        changes.check_inputs(str(tmp_path), made, {0, 1, 2})


@pytest.mark.guarantee("changed-input")
@pytest.mark.parametrize(
    ("age_s", "is_trusted"), [(0, False), (1.9, False), (2.0, False), (2.000000001, True), (60, True)]
)
def test_a_status_is_trusted_two_seconds_after_the_last_change(
    inputs: Path, monkeypatch: pytest.MonkeyPatch, age_s: float, is_trusted: bool
) -> None:
    made = planned(inputs)
    monkeypatch.setattr(changes.time, "time_ns", lambda: 10**18 + int(age_s * 1e9))
    statuses = [[*entry.status] for entry in made.inputs]
    assert changes._statuses(made) == (statuses if is_trusted else [None] * 3)
    first = dataclasses.replace(made.inputs[0], status=None)
    some = dataclasses.replace(made, inputs=(first, *made.inputs[1:]))
    assert changes._statuses(some)[0] is None


def described(path: Path, **changed: object) -> Input:
    """Return an input of lines, as planning describes it, with some attributes changed."""
    (entry,) = find_inputs([str(path)], ReadOptions()).files
    return dataclasses.replace(entry, **{"format": "lines", **changed})


@pytest.mark.guarantee("changed-input")
@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({}, ""),
        ({"status": None}, ""),
        ({"sample": ""}, ""),
        ({"sample": "0" * 32}, "has changed since the run was planned"),
        ({"sample": "", "bytes": 7}, "has changed since the run was planned"),
        ({"sample": "", "bytes": 10**6, "status": None}, "has changed since the run was planned"),
        ({"status": Status(112, 7, 7, 7)}, MODIFIED),
        ({"status": Status(112, 7, 7, 7), "sample": ""}, MODIFIED),
    ],
)
def test_a_file_that_is_not_as_planned_is_refused_before_it_is_read(
    inputs: Path, changed: dict[str, object], complaint: str
) -> None:
    entry = described(inputs / "a.txt", **changed)
    for start, num_lines in ((0, 8), (60, 3)):
        records = read_splits(str(inputs), [Split(entry, start, None)], ReadOptions(10**6))
        if not complaint:
            assert len(list(records)) == num_lines
            continue
        with pytest.raises(PipelineError) as caught:
            next(records)
        assert str(caught.value).startswith(f"{inputs / 'a.txt'}: {complaint}")


@pytest.mark.guarantee("changed-input")
@pytest.mark.parametrize("how", ["edited", "edited in the same second", "appended to", "replaced", "shortened"])
def test_a_file_that_is_edited_while_it_is_read_is_an_error_at_its_end(inputs: Path, how: str) -> None:
    path = inputs / "a.txt"
    contents: list[str] = []
    records = read_splits(str(inputs), [Split(described(path), 0, None)], ReadOptions(10**6), contents)
    next(records)
    data = path.read_bytes()
    if how == "replaced":
        (inputs / "new").write_bytes(data)
        (inputs / "new").replace(path)
    edited = data[:-2] + b"x\n" if how.startswith("edited") else data
    path.write_bytes({"appended to": data + b"x\n", "shortened": data[:60]}.get(how, edited))
    if how == "edited in the same second":
        os.utime(path, ns=(10**18, 10**18 + 1))
    with pytest.raises(PipelineError) as caught:
        list(records)
    complaint = "has changed since the run was planned" if how == "appended to" else MODIFIED
    assert str(caught.value).startswith(f"{path}: {complaint}") and len(contents) == (how != "appended to")


@pytest.mark.guarantee("changed-input")
@pytest.mark.parametrize("change", [b"river", b"rivers\n", b""])
def test_an_edit_behind_the_piece_that_is_read_is_an_error_too(inputs: Path, change: bytes) -> None:
    path = inputs / "a.txt"
    records = read_splits(str(inputs), [Split(described(path), 0, 30)], ReadOptions(10**6))
    next(records)
    path.write_bytes(path.read_bytes()[:100] + change)
    with pytest.raises(PipelineError, match=f"^{path}: {MODIFIED}"):
        list(records)


HASTY = """
from clearspan.pipelines.readers.formats import Format
from clearspan.pipelines.records import Record

class Hasty(Format):
    def recognizes(self, head, path):
        return True

    def read(self, stream, piece, reading):
        yield Record(piece.input.name, 0, stream.readline().decode(), b"")

class Sought(Hasty):
    seeks = True

class Framed(Hasty):
    def ranges_outside(self, stream, piece):
        return [(0, 4), (90, 95)]

class Broken(Hasty):
    def ranges_outside(self, stream, piece):
        raise KeyError("no frame")
"""


@pytest.mark.guarantee("changed-input")
@pytest.mark.guarantee("own-format")
def test_what_a_format_reads_beside_a_piece_is_hashed_with_each_part_of_a_file(
    inputs: Path, own_module: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, path = own_module(HASTY), inputs / "a.txt"
    data = path.read_bytes()
    entries = {name: described(path, format=f"{module}:{name}") for name in ("Framed", "Broken")}

    def hashed(name: str, start: int, end: int | None) -> str:
        return content_hash(str(inputs), Split(entries[name], start, end))

    monkeypatch.setattr(sniff, "WHOLE_BYTES", 50)
    for start, end in ((0, 30), (0, 103), (20, 30), (1, None), (20, 104)):
        read = data[start:end] + data[:4] + data[90:95]
        assert hashed("Framed", start, end) == hashlib.sha256(read).hexdigest()
    for end in (None, 104):
        assert hashed("Framed", 0, end) == hashed("Broken", 0, end) == hashlib.sha256(data).hexdigest()
    with pytest.raises(PipelineError, match=f"^{path}: the format {module}:Broken raised KeyError: 'no frame'"):
        hashed("Broken", 20, None)


@pytest.mark.guarantee("changed-input")
@pytest.mark.guarantee("own-format")
@pytest.mark.parametrize(
    ("name", "end", "size", "complaint"),
    [
        ("Hasty", None, 104, "{spec} read 13 of 104 bytes, not all"),
        ("Hasty", None, 60, "has changed since the run was planned"),
        ("Hasty", None, 0, "has changed since the run was planned"),
        ("Hasty", 104, 104, ""),
        ("Hasty", 104, 60, MODIFIED),
        ("Sought", None, 104, ""),
        ("Sought", None, 60, MODIFIED),
    ],
)
def test_a_format_that_does_not_read_to_the_end_is_blamed_unless_the_file_was_shortened(
    name: str,
    end: int | None,
    size: int,
    complaint: str,
    inputs: Path,
    own_module: Callable[[str], str],
) -> None:
    spec, path = f"{own_module(HASTY)}:{name}", inputs / "a.txt"
    records = read_splits(str(inputs), [Split(described(path, format=spec), 0, end)], ReadOptions(10**6))
    next(records)
    if size < 104:
        os.truncate(path, size)
    if not complaint:
        assert list(records) == []
        return
    with pytest.raises(PipelineError) as caught:
        list(records)
    assert str(caught.value).startswith(f"{path}: {complaint.format(spec=spec)}")


@pytest.mark.guarantee("changed-input")
@pytest.mark.parametrize(
    ("data", "complaint"), [(None, "damaged or cut short"), (b"x" * 600, MODIFIED), (b"x", "has changed since")]
)
def test_damage_that_an_edit_explains_is_told_as_an_edit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes | None, complaint: str
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"owls\n" + bytes(595))
    os.utime(path, ns=(10**18, 10**18))
    records = read_splits(str(tmp_path), [Split(described(path), 0, None)], ReadOptions(10**6))
    next(records)
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(PipelineError) as caught:
        list(records)
    assert str(caught.value).startswith(f"{path}: {complaint}")


@pytest.mark.guarantee("changed-input")
def test_the_hash_of_each_piece_is_recorded_in_order_and_only_if_asked_for(inputs: Path) -> None:
    made, contents = planned(inputs), list[str]()
    pieces = [piece for unit in made.units for piece in unit.splits]
    reading = ReadOptions(10**6)
    assert len(list(read_splits(str(inputs), pieces, reading, contents))) == 12
    assert contents == [content_hash(str(inputs), piece) for piece in pieces] and len(set(contents)) == 4
    assert len(list(read_splits(str(inputs), pieces, reading))) == 12


@pytest.mark.guarantee("changed-input")
def test_the_hash_of_a_piece_is_of_all_bytes_that_are_read_for_it(
    inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = inputs / "a.txt"
    entry, data = described(path), path.read_bytes()

    def hashed(start: int, end: int | None) -> str:
        return content_hash(str(inputs), Split(entry, start, end))

    def sha(*parts: bytes) -> str:
        return hashlib.sha256(b"".join(parts)).hexdigest()

    for buffer_bytes in (1 << 18, 5):
        monkeypatch.setattr(readers, "HASHED_BYTES", buffer_bytes)
        assert hashed(0, 50) == sha(data[:50], data[50:52])
        assert hashed(20, 50) == sha(data[20:50], data[19:20], data[50:52])
        assert hashed(20, 52) == sha(data[20:52], data[19:20])
        assert hashed(20, None) == sha(data[20:], data[19:20])
    assert hashed(0, None) == hashed(0, len(data)) == entry.sample
    monkeypatch.setattr(sniff, "WHOLE_BYTES", len(data) - 1)
    assert hashed(0, None) == hashed(0, len(data)) == sha(data)
    monkeypatch.setattr(storage, "is_remote", lambda path: True)
    for number in range(2):  # an object is written again, and the same process asks again
        monkeypatch.setattr(storage, "checksum", lambda path: f"checksum {number} of {path}")  # noqa: B023
        assert hashed(20, 50) == f"checksum {number} of {path}"


@pytest.mark.guarantee("changed-input")
@pytest.mark.parametrize("rest", [b"", b"\n", b"owls\n", b"o" * 9, b"o" * (3 << 20) + b"\nrivers\n"])
def test_a_piece_of_lines_reads_on_to_the_end_of_its_last_line(rest: bytes) -> None:
    data = b"one\ntwo\n" + rest
    entry = Input("a.txt", len(data), "lines", None, "")
    line_end = 8 + (rest.find(b"\n") + 1 or len(rest))
    for start, end, expected in (
        (0, 4, [(0, 0), (4, 4)]),
        (0, 2, [(0, 0), (2, 4)]),
        (4, 8, [(3, 4), (8, 8)]),
        (5, None, [(4, 5), (len(data), len(data))] if rest.endswith(b"\n") or not rest else None),
        (3, 9 if rest else 8, [(2, 3), (9, max(9, line_end))] if rest else [(2, 3), (8, 8)]),
    ):
        if expected is not None:
            assert TextLines().ranges_outside(io.BytesIO(data), Split(entry, start, end)) == expected, (start, end)


@pytest.mark.guarantee("changed-input")
@pytest.mark.parametrize("size", [0, 1, sniff.WHOLE_BYTES, sniff.WHOLE_BYTES + 1, 1_000_003])
def test_the_sample_of_a_file_is_its_size_and_nine_parts_from_its_start_to_its_end(tmp_path: Path, size: int) -> None:
    data = random.Random(size).randbytes(size)
    (tmp_path / "a").write_bytes(data)
    starts = [0] if size <= 9 * 8192 else [number * (size - 8192) // 8 for number in range(9)]
    parts = [data[start : start + (size if len(starts) == 1 else 8192)] for start in starts]
    assert sum(map(len, parts)) == min(size, 9 * 8192)
    with (tmp_path / "a").open("rb") as stream:
        found = sniff.sample(stream, size)
        assert stream.tell() == 0
    assert found == hashlib.blake2b(size.to_bytes(8, "little") + b"".join(parts), digest_size=16).hexdigest()
