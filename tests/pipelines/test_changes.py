"""Inputs that are edited: between a kill and the next run, after the end, and while the run goes on."""

import dataclasses
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clearspan.pipelines import run
from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.readers import content_hash, read_pieces, sniff
from clearspan.pipelines.records import Piece, Reading
from clearspan.pipelines.units import changes, plan
from clearspan.pipelines.units.plan import cut, find_inputs
from clearspan.pipelines.units.unit import process_unit
from clearspan.shards import verify
from tests.pipelines.conftest import without_beam

UNIT_BYTES = 40_000
WORDS = ("--unit-bytes", str(UNIT_BYTES), "--min-tokens", "300")
CHANGED = "has changed since the run was planned: restore the earlier file, or begin again with another --output"
MODIFIED = "was modified during the run: run again"


@pytest.fixture
def old_head(head: Path) -> Path:
    """The first forty documents, in a file that was written long ago."""
    os.utime(head, ns=(10**18, 10**18))
    return head


def edit(path: Path, at: int) -> None:
    """Change one letter in place, near a byte: the same size and inode, and none of the bytes that planning samples."""
    data = bytearray(path.read_bytes())
    starts = [number * (len(data) - 8192) // 8 for number in range(9)]
    at = next(i for i in range(at, len(data)) if chr(data[i]).isalpha() and not any(s <= i < s + 8192 for s in starts))
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
    with monkeypatch.context() as patch:
        patch.setattr(run, "_run_beam", stopped_after(2, kill))
        assert direct("--input", old_head, *WORDS).err == "pipelines: killed\n"
    edit(old_head, {"done": 50_000, "last line of what is done": 2 * UNIT_BYTES + 1, "to do": 5 * UNIT_BYTES}[where])
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
    for number, tar in enumerate(sorted((shared_data / "images" / "tinyimagenet60").glob("*.tar"))[:2]):
        (folder / f"class{number}").mkdir(parents=True)
        shutil.unpack_archive(tar, folder / f"class{number}")
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
    reading = Reading(text_per="line")
    (entry,) = find_inputs([str(path)], reading).files
    entry = dataclasses.replace(entry, sample="", status=None)  # by which readers would refuse an edited file
    pieces = [piece for unit in cut(str(tmp_path), [entry], unit_bytes) for piece in unit.pieces]
    assert len(pieces) > 2

    def read(piece: Piece) -> tuple[list, str]:
        try:
            records = [(one.offset, one.value, one.problem) for one in read_pieces(str(tmp_path), [piece], reading)]
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
@pytest.mark.guarantee("changed-input")
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
    path, reading = tmp_path / "a.txt", Reading()
    path.write_bytes(b"owl\n" * (size // 4) + b"x" * (size % 4))
    found = find_inputs([str(path)], reading)
    piece, contents = Piece(plan.make_plan(found, {"options": {}}, 10**9).inputs[0], 0, None), list[str]()
    list(read_pieces(str(tmp_path), [piece], reading, contents))
    assert contents == [content_hash(str(tmp_path), piece)]
    path.write_bytes(path.read_bytes().replace(b"owl", b"awl", 1))
    assert contents != [content_hash(str(tmp_path), piece)]
