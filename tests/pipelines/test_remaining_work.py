"""What a run that was killed has left to do: the functions that decide, on small folders that are made here."""

import dataclasses
import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clearspan.common.checksummed import append_checksum, dump_checksummed, load_checksummed
from clearspan.common.errors import PipelineError
from clearspan.common.files import TEMPORARY, InUseError, locked, sha256, temporary_name
from clearspan.pipelines import run
from clearspan.pipelines.builders.documents import Documents
from clearspan.pipelines.counter import Counts
from clearspan.pipelines.execution import graph
from clearspan.pipelines.units import decisions, update
from clearspan.pipelines.units.commit import load_results
from clearspan.pipelines.units.job import DONE, STAGED, Curation, Job, UnitResult
from clearspan.pipelines.units.ownership import fruitless
from clearspan.pipelines.units.rounds import Round
from clearspan.retrieval.mining.miner import Figures, MinedUnit
from clearspan.shards import ShardInfo, storage
from tests.pipelines.conftest import Command

PLAN = "the plan"


def shard(path: Path, unit: int, content: bytes = b"shard") -> ShardInfo:
    """Write a shard; return its entry."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return ShardInfo(path.name, len(content), sha256(path), 1, 1, unit, 1, {}, {}, {}, {})


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(str(tmp_path), PLAN, str(tmp_path), Documents, {}, 3, None, 0)  # type: ignore[arg-type]


def write_result(job: Job, unit: int, stage: str = DONE, of: dict[str, Any] | None = None) -> None:
    """Write two shards of a unit, one that is held out, and two lists; and the result that names them."""
    folder = Path(job.folder)
    inside = folder / STAGED if stage == STAGED else folder
    shards = [shard(inside / f"documents-{unit:05d}-{number:03d}.tar", unit) for number in range(2)]
    held = [shard(folder / "validation" / f"documents-{unit:05d}-{number:03d}.tar", unit) for number in range(2)]
    lists = {}
    for name in ("_rejected", "_excluded"):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / f"{unit:05d}.jsonl.zst").write_bytes(b"list")
        lists[f"{name}/{unit:05d}.jsonl.zst"] = sha256(folder / name / f"{unit:05d}.jsonl.zst")
    path = Path(job.result_path(unit, stage))
    path.parent.mkdir(exist_ok=True)
    written = {"plan": PLAN, "unit": unit} | (of or {})
    path.write_bytes(UnitResult(shards, Counts(kept=unit), held, lists).to_json(**written))


@pytest.mark.guarantee("killed-run")
@pytest.mark.parametrize("stage", [DONE, STAGED])
def test_a_unit_is_done_if_all_that_its_result_names_is_there(job: Job, tmp_path: Path, stage: str) -> None:
    assert load_results(job, stage) == {}
    for unit in (2, 0, 3):
        write_result(job, unit, stage)
    found = load_results(job, stage)
    assert list(found) == [0, 2] and [result.counts.kept for result in found.values()] == [0, 2]
    assert load_results(job, STAGED if stage == DONE else DONE) == {}
    inside = STAGED if stage == STAGED else "."
    for name in (
        f"{inside}/documents-00002-000.tar",
        f"{inside}/documents-00002-001.tar",
        "validation/documents-00002-000.tar",
        "validation/documents-00002-001.tar",
        "_rejected/00002.jsonl.zst",
        "_excluded/00002.jsonl.zst",
        f"{stage}/00002.json",
    ):
        path = tmp_path / name
        whole = path.read_bytes()
        for damaged in (None, whole[:-3], whole + b"more"):
            path.unlink(missing_ok=True)
            if damaged is not None:
                path.write_bytes(damaged)
            assert list(load_results(job, stage)) == [0], name
        path.write_bytes(whole)
        assert list(load_results(job, stage)) == [0, 2]


@pytest.mark.guarantee("killed-run")
@pytest.mark.parametrize("of", [{"plan": "another"}, {"unit": 0}])
def test_a_result_of_another_plan_or_unit_is_not_done(job: Job, of: dict[str, Any]) -> None:
    write_result(job, 0)
    write_result(job, 1, of=of)
    write_result(job, 2)
    assert list(load_results(job)) == [0, 2]


@pytest.mark.guarantee("killed-run")
def test_results_are_in_the_order_of_the_units(job: Job) -> None:
    of_more = dataclasses.replace(job, num_units=20)
    for unit in (8, 1, 16):
        write_result(of_more, unit)
    assert list(load_results(of_more)) == [1, 8, 16]


@pytest.fixture
def prepared(job: Job, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[list[int], dict[str, Any]]]:
    """Prepare a run of a plan of three units; return those that remain, and what two of its steps were given."""
    given: dict[str, Any] = {}

    def check_ownership(*arguments: Any) -> None:
        given["owner"], given["before"] = arguments, storage.tree(job.folder)

    def check_inputs(folder: str, plan: Any, units: set[int], quiet: bool) -> set[int]:
        given.update(folder=folder, units=units, quiet=quiet)
        return units - given.get("changed", set())

    def prepare(of: Job = job, changed: tuple[int, ...] = (), **options: Any) -> tuple[list[int], dict[str, Any]]:
        given["changed"] = {*changed}
        plan: Any = SimpleNamespace(
            to_json=lambda: b"{}", units=[SimpleNamespace(number=number) for number in range(3)]
        )
        return [unit.number for unit in run.prepare(of, plan, {"tokenizer/a.json": b"[]"}, **options)], given

    monkeypatch.setattr(run, "check_ownership", check_ownership)
    monkeypatch.setattr(run, "check_inputs", check_inputs)
    return prepare


@pytest.mark.guarantee("killed-run")
def test_a_run_begins_with_its_plan_and_without_what_a_killed_one_was_writing(
    prepared: Callable[..., tuple[list[int], dict[str, Any]]], job: Job, tmp_path: Path
) -> None:
    for name in ("", "_done", "validation"):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / temporary_name("a.tar")).write_text("half a shard")
    before = storage.tree(job.folder)
    left, given = prepared(dataclasses.replace(job, curation=Curation(holdout_fraction=0.5)), quiet=True)
    assert (left, given["quiet"], given["folder"]) == ([0, 1, 2], True, job.folder)
    assert given["owner"] == (job.folder, "plan.json", b"{}", fruitless) and given["before"] == before
    assert storage.tree(job.folder) == ["plan.json", "tokenizer/a.json", "validation/tokenizer/a.json"]
    assert prepared()[1]["quiet"] is False


@pytest.mark.guarantee("killed-run")
def test_every_unit_that_is_damaged_or_has_other_inputs_remains_and_its_result_goes(
    prepared: Callable[..., tuple[list[int], dict[str, Any]]], job: Job, tmp_path: Path
) -> None:
    staged = dataclasses.replace(job, curation=Curation(dedup=True))
    for unit in range(3):
        write_result(job, unit)
    (tmp_path / "manifest.json").write_text("{}")
    assert prepared()[0] == prepared(staged)[0] == [] and (tmp_path / "manifest.json").exists()
    (tmp_path / "documents-00001-001.tar").unlink()
    assert prepared(changed=(2,))[0] == [1, 2]
    assert [*load_results(job)] == [0] and not (tmp_path / DONE / "00001.json").exists()
    assert not (tmp_path / DONE / "00002.json").exists() and not (tmp_path / "manifest.json").exists()
    write_result(job, 2, STAGED)
    left, given = prepared(staged)
    assert left == [0, 1] and given["units"] == {0, 2}, "without marks, all that has not the first stage"


@pytest.mark.guarantee("killed-run")
def test_of_a_round_what_is_missing_or_damaged_remains(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(decisions, "num_slices", lambda job: 5)
    names = ["duplicates-{:05d}.rows", "{:05d}.zst"]
    (tmp_path / "_curated").mkdir()
    for name in names:
        each = Round(
            "Find", lambda *_: None, lambda job, number, name=name: f"{tmp_path}/_curated/{name.format(number)}"
        )
        by_slice = dataclasses.replace(each, elements_of=lambda _, slices: slices)
        assert each.elements(job) == [(0, 5), (1, 5), (2, 5)]
        assert by_slice.elements(job) == [(number, 5) for number in range(5)]
        (tmp_path / "_curated" / name.format(1)).write_bytes(append_checksum(b"decided"))
        (tmp_path / "_curated" / name.format(4)).write_bytes(append_checksum(b"decided"))
        assert each.elements(job) == [(0, 5), (2, 5)] and by_slice.elements(job) == [(0, 5), (2, 5), (3, 5)]
        for number in (1, 4):
            (tmp_path / "_curated" / name.format(number)).write_bytes(b"decided")
        is_checked = name.endswith(".rows")
        left = range(5) if is_checked else (0, 2, 3)
        assert by_slice.elements(job) == [(number, 5) for number in left]
        told = capsys.readouterr().err
        for number in (1, 4):
            assert (f"{number:05d}.rows: damaged since it was written: made again" in told) is is_checked
        (tmp_path / "_curated" / name.format(1)).write_bytes(append_checksum(b"decided"))
        assert dataclasses.replace(each, is_over=lambda job: True).elements(job) == []
    monkeypatch.setattr(decisions, "have_marks", lambda job: True)
    assert each.elements(job) == [] and len(dataclasses.replace(each, decides=False).elements(job)) == 2


@pytest.mark.guarantee("killed-run")
def test_a_run_that_goes_on_elsewhere_has_as_many_slices(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the sizes of the files, whatever machine it is."""
    monkeypatch.setattr(decisions, "SLICE_BYTES", 100)
    folder = Path(job.staged_folder)
    folder.mkdir()
    for name, size in {
        "keys-00000.rows": 250,
        "keys-00001.rows": 160,
        "texts-00000.rows": 130,
        "sides-0.rows": 999,
    }.items():
        (folder / name).write_bytes(bytes(size))
    for cores in (1, 2, 64):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        assert decisions.num_slices(job) == 5


@pytest.mark.guarantee("killed-run")
@pytest.mark.slow
def test_killed_after_any_of_its_files_it_ends_with_the_same_bytes(
    direct: Command,
    texts: list[str],
    tmp_path: Path,
    tree: Callable[[Path], dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In this process: a run, and one that makes a lost shard again although a worker had stopped the run before."""
    some = [" ".join(text.split()[:30]) for text in texts[:18]]
    lines = [*some, f"{some[0]} again", some[1].upper(), f"{some[7]} again"]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in lines))
    (tmp_path / "test.txt").write_text(f"{some[3]}\n")
    words = ("--input", tmp_path / "a.jsonl", "--unit-bytes", "1500", "--min-tokens", "1", "--dedup", "--limit", "16")
    words += ("--near-dedup", "0.7", "--holdout-fraction", "0.3", "--exclude", tmp_path / "test.txt")
    left = [0]

    def dying(publish: Callable[..., None]) -> Callable[..., None]:
        def publish_or_die(data: object, path: str) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            publish(data, path)

        return publish_or_die

    for name in ("publish_bytes", "publish_file"):
        monkeypatch.setattr(storage, name, dying(getattr(storage, name)))
    left[0] = 1000
    assert direct(*words, "--output", tmp_path / "whole").code == 0
    expected, number = tree(tmp_path / "whole"), 1000 - left[0]
    assert number > 40 and len([name for name in expected if name.endswith(".tar")]) > 4
    folder = tmp_path / "out"
    for most in (3, number // 3, number // 2, number - 1):
        left[0] = most
        assert direct(*words).code == 1
        assert not (folder / "manifest.json").exists()
        left[0] = 1000
        assert direct(*words).code == 0 and tree(folder) == expected
        if most == 3:
            for lost in (["documents-*.tar"], ["_near_duplicates/*"], ["_curated/*.zst", "documents-*.tar"]):
                for name in lost:
                    next(folder.glob(name)).unlink()
                (folder / "_stopped.json").write_text(json.dumps("the disk is gone"))
                left[0] = 0
                assert direct(*words).code == 1
                assert not list(folder.rglob("manifest.json")), "neither part is finished"
                left[0] = 1000
                assert direct(*words).code == 0 and tree(folder) == expected
        shutil.rmtree(folder)


@pytest.mark.guarantee("killed-run")
def test_a_unit_is_mined_again_unless_its_result_and_shards_are_whole(tmp_path: Path) -> None:
    shards = [shard(tmp_path / f"triplets-00001-00{number}.tar", 1) for number in range(2)]
    made = MinedUnit(shards, Figures(rows=3, by_number={"2": 3}))
    (tmp_path / DONE).mkdir()
    assert MinedUnit.load(str(tmp_path), 1, PLAN) is None
    made.save(str(tmp_path), 1, PLAN)
    assert MinedUnit.load(str(tmp_path), 1, PLAN) == made
    assert MinedUnit.load(str(tmp_path), 1, "another") is None is MinedUnit.load(str(tmp_path), 0, PLAN)
    result = tmp_path / DONE / "00001.json"
    whole = result.read_bytes()
    shutil.copy(result, tmp_path / DONE / "00002.json")
    assert MinedUnit.load(str(tmp_path), 2, PLAN) is None
    record = load_checksummed(whole)
    damages: list[dict[str, Any]] = [
        *({name: value for name, value in record.items() if name != lacking} for lacking in record),
        {**record, "shards": 5},
        {**record, "shards": [{"name": "a.tar"}]},
        {**record, "figures": []},
    ]
    for content in (whole[:-9], whole.replace(b"00001-000", b"00001-001"), b"[]", *map(dump_checksummed, damages)):
        result.write_bytes(content)
        assert MinedUnit.load(str(tmp_path), 1, PLAN) is None, content
    result.write_bytes(whole)
    for each in shards:
        for damaged in (None, b"shar", b"SHARD"):
            (tmp_path / each.name).unlink(missing_ok=True)
            if damaged is not None:
                (tmp_path / each.name).write_bytes(damaged)
            assert MinedUnit.load(str(tmp_path), 1, PLAN) is None
        (tmp_path / each.name).write_bytes(b"shard")
        assert MinedUnit.load(str(tmp_path), 1, PLAN) == made


OLD = [
    "manifest.json",
    "documents-00000-000.tar",
    "documents-00001-000.tar",
    "tokenizer/tokenizer.json",
    "_done/00000.json",
]
NEW = [
    "documents-00001-000.tar",
    "documents-00007-000.tar",
    "tokenizer/tokenizer.json",
    "_done/00000.json",
    "plan.json",
]


@pytest.fixture
def updated(tmp_path: Path) -> Path:
    """A dataset with a user's file, and a finished one in its subfolder `.update`."""
    target = tmp_path / "set"
    for folder, names in (
        (target, [*OLD, "notes.txt", "_done/notes.txt"]),
        (target / ".update", ["manifest.json", *NEW]),
    ):
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(f"{name} of {folder.name}")
    owned = update.OwnedFiles(sha256(target / "manifest.json"), "documents", 7, 1, OLD, ["manifest.json", *NEW])
    owned.save(target / ".update")
    return target


def contents(folder: Path) -> dict[str, str]:
    """Return the files in a folder, except those that a killed process was writing."""
    paths = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(TEMPORARY)]
    return {path.relative_to(folder).as_posix(): path.read_text() for path in paths}


@pytest.mark.guarantee("killed-run")
def test_an_update_that_is_killed_at_any_step_is_the_old_or_the_new_dataset_and_goes_on(
    updated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = {name: f"{name} of .update" for name in ["manifest.json", *NEW]}
    expected |= {name: f"{name} of set" for name in ("notes.txt", "_done/notes.txt")}
    steps = [0]

    def counted(call: Callable[..., Any], most: int) -> Callable[..., Any]:
        def step(*arguments: Any, **options: Any) -> Any:
            steps[0] += 1
            if steps[0] > most:
                raise KeyboardInterrupt
            return call(*arguments, **options)

        return step

    for most in range(100):
        folder = tmp_path / f"killed-{most}"
        shutil.copytree(updated, folder)
        steps[0] = 0
        with monkeypatch.context() as patch:
            for name in ("replace", "unlink"):
                patch.setattr(Path, name, counted(getattr(Path, name), most))
            try:
                update.replace(str(folder))
                break
            except KeyboardInterrupt:
                found = contents(folder)
        is_new = found["manifest.json"].endswith(".update")
        needed = [name for name in (NEW if is_new else OLD) if name.endswith(".tar")]
        assert set(needed) <= found.keys(), "each dataset that has a manifest has its shards"
        assert found["notes.txt"] == "notes.txt of set"
        if (folder / ".update" / "manifest.json").exists():
            update.replace(str(folder))
        else:  # as the next update does
            update.discard(str(folder))
        assert contents(folder) == expected
    assert most >= 10
    assert contents(folder) == expected and not (folder / ".update").exists()


@pytest.mark.guarantee("killed-run")
def test_a_finished_update_without_a_list_of_its_files_notes_it_before_it_moves_any(
    updated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a killed process has moved is else no more known to be of the new dataset."""
    beside = updated / ".update"
    owned = update.OwnedFiles.read(beside)
    assert owned is not None
    dataclasses.replace(owned, new=[]).save(beside)
    monkeypatch.setattr(
        update, "own_files", lambda folder: [name for name in ["manifest.json", *NEW] if Path(folder, name).exists()]
    )
    foreign = updated / "documents-00007-000.tar"
    foreign.write_text("a user's")
    before = contents(updated)
    with pytest.raises(PipelineError, match=rf"^{foreign}: not of this dataset, and `update` needs the name"):
        update.replace(str(updated))
    assert contents(updated) == before
    foreign.unlink()
    replace, moved = Path.replace, []

    def move(path: Path, target: Path) -> Path:
        if len(moved) == 2 and TEMPORARY not in path.name:
            raise KeyboardInterrupt
        moved.extend([path.name] if TEMPORARY not in path.name else [])
        return replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", move)
        with pytest.raises(KeyboardInterrupt):
            update.replace(str(updated))
    assert moved == ["documents-00001-000.tar", "documents-00007-000.tar"]
    update.replace(str(updated))
    expected = {name: f"{name} of .update" for name in ["manifest.json", *NEW]}
    assert contents(updated) == expected | {name: f"{name} of set" for name in ("notes.txt", "_done/notes.txt")}


@pytest.mark.guarantee("killed-run")
def test_only_a_finished_update_with_its_record_is_completed_and_by_one_process(
    updated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, beside = contents(updated), updated / ".update"
    is_complete = [False]
    monkeypatch.setattr(update, "_is_complete", lambda folder: is_complete[0])
    update.complete_killed_update(str(updated))
    assert contents(updated) == before
    is_complete[0] = True
    with locked(updated):
        with pytest.raises(InUseError):
            update.complete_killed_update(str(updated))
        for name in (".claim.json", "manifest.json"):
            content = (beside / name).read_bytes()
            (beside / name).unlink()
            update.complete_killed_update(str(updated))
            (beside / name).write_bytes(content)
    assert contents(updated) == before
    update.complete_killed_update(str(updated))
    assert not beside.exists() and contents(updated)["manifest.json"] == "manifest.json of .update"


@pytest.mark.guarantee("output-kept")
@pytest.mark.parametrize("name", ["../victim.txt", "_done/../../victim.txt", "/victim.txt", "out/victim.txt", ".."])
@pytest.mark.parametrize(("part", "linked"), [("old", "."), ("new", "."), ("new", ".update")])
def test_a_record_that_names_a_file_elsewhere_is_none(
    updated: Path, tmp_path: Path, part: str, linked: str, name: str
) -> None:
    """Anyone can write one into a dataset that others use."""
    beside, victim = updated / ".update", tmp_path / "victim.txt"
    victim.write_text("mine")
    (updated / linked / "out").symlink_to(tmp_path)
    owned = update.OwnedFiles.read(beside)
    assert owned is not None
    named = str(victim) if name.startswith("/") else name
    dataclasses.replace(owned, **{part: [*getattr(owned, part), named]}).save(beside)
    before = contents(updated)
    assert update.OwnedFiles.read(beside) is None
    update.complete_killed_update(str(updated))
    update.discard(str(updated))
    assert victim.read_text() == "mine" and contents(updated) == before


@pytest.mark.guarantee("output-kept")
@pytest.mark.parametrize("content", [b"", b"mine", b'{"manifest": "0"}', dump_checksummed({"manifest": "0", "old": 3})])
def test_a_record_that_no_run_wrote_is_none(updated: Path, content: bytes) -> None:
    (updated / ".update" / ".claim.json").write_bytes(content)
    before = sorted(path for path in updated.rglob("*") if path.is_file())
    assert update.OwnedFiles.read(updated / ".update") is None
    update.complete_killed_update(str(updated))
    update.discard(str(updated))
    assert sorted(path for path in updated.rglob("*") if path.is_file()) == before


@pytest.mark.guarantee("killed-run")
@pytest.mark.slow
def test_what_a_worker_leaves_behind_that_ends_after_the_run_is_removed(
    pipeline: Command,
    texts: list[str],
    tmp_path: Path,
    tree: Callable[[Path], dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker that was cut off; a unit that is made again beside the manifest needs the files of its first stage."""
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts[:12]))
    words = ("--input", tmp_path / "a.jsonl", "--unit-bytes", "20000", "--min-tokens", "1", "--dedup")
    build, made = graph.build, []
    monkeypatch.setattr(graph, "build", lambda *arguments: (made.append(arguments[1:]), build(*arguments)))
    assert pipeline(*words).code == 0
    expected = tree(tmp_path / "out")
    job, units = made[0]
    assert len(units) > 1 and not Path(job.staged_folder).exists()
    late = graph.ProcessUnit(job)
    late.setup()
    assert list(late.process(units[1])) == [graph.DONE]
    assert tree(tmp_path / "out") == expected and not Path(job.staged_folder).exists()
    Path(job.result_path(0)).unlink()
    assert pipeline(*words).code == 0 and len(made) == 2
    assert tree(tmp_path / "out") == expected
