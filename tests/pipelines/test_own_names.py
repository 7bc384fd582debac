"""Which files of an output folder a command may replace or remove: the functions that decide, on small folders."""

import dataclasses
import io
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from clearspan.common import files
from clearspan.common.checksummed import append_checksum
from clearspan.common.errors import PipelineError
from clearspan.eval import run as evaluation
from clearspan.eval.report.html import write_report
from clearspan.eval.results import Results, examples_bytes
from clearspan.pipelines.builders.documents import Documents
from clearspan.pipelines.units import ownership, update
from clearspan.pipelines.units.curation import VERDICTS
from clearspan.pipelines.units.job import Job
from clearspan.pipelines.units.ownership import fruitless, may_write
from clearspan.pipelines.units.plan import Plan, _listing_sha256, is_plan
from clearspan.shards import storage
from clearspan.shards.ownership import OwnershipError, check_ownership
from clearspan.train import run_folder
from clearspan.train.config.options import RecipeError


@pytest.mark.guarantee("output-kept")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("documents-00003-000.tar", True),
        ("documents-00006-012.tar", True),
        ("_staged/documents-00004-000.tar", True),
        ("validation/documents-00005-000.tar", True),
        ("documents-00002-000.tar", False),
        ("documents-00007-000.tar", False),
        ("pairs-00003-000.tar", False),
        ("mine/documents-00003-000.tar", False),
        ("documents-00003-000.tar.bak", False),
        ("_done/00003.json", True),
        ("_staged/00000.json", True),
        (".clearspan/00003.json", True),
        ("_rejected/00003.jsonl.zst", True),
        ("_excluded/00002.jsonl.zst", True),
        ("_curated/00001.zst", True),
        ("_done/00004.json", False),
        ("_rejected/00004.jsonl.zst", False),
        ("_done/00003.txt", False),
        ("_rejected/00003.json", False),
        ("notes/00003.json", False),
        ("_curated/duplicates-00017.rows", True),
        ("_staged/keys-00003.rows", True),
        ("_curated/duplicates-04095.rows", True),
        ("_curated/duplicates-04096.rows", False),
        ("_curated/owls-00001.rows", False),
        ("_done/keys-00003.rows", False),
        ("plan.json", True),
        ("manifest.json", True),
        ("_stopped.json", True),
        ("summary.json", False),
        ("_done/plan.json", False),
        ("notes.txt", False),
    ],
)
def test_a_run_of_four_units_may_write_its_own_names_alone(name: str, expected: bool) -> None:
    assert may_write(name, "documents", 3, 4) is expected


@pytest.mark.guarantee("output-kept")
def test_a_file_is_a_runs_own_by_its_hash_its_checksum_or_its_marks(tmp_path: Path) -> None:
    contents = {
        "known.json": b"{}",
        "hashed.json": b"owl",
        "edited.json": b"awl",
        "_curated/duplicates-00001.rows": append_checksum(b"rows"),
        "_curated/duplicates-00002.rows": b"rows",
        "_curated/00001.zst": zstandard.compress(bytes([0, 1, 2, 0])),
        "_curated/00002.zst": zstandard.compress(b"mine"),
        "_curated/00003.zst": b"mine",
        "_curated/00004.zst": zstandard.compress(bytes([0])),
        "_curated/00005.zst": zstandard.compress(bytes([*VERDICTS])),
        "_curated/00006.zst": zstandard.compress(bytes([*VERDICTS, max(VERDICTS) + 1])),
        "notes.txt": b"mine",
    }
    for name, content in contents.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "lost.json").symlink_to("gone.json")
    owl = storage.sha256(str(tmp_path / "hashed.json"))
    known = {"known.json": None, "hashed.json": owl, "edited.json": owl, "lost.json": owl}
    records = ownership._Records(known, units={1, 2, 3, 5, 6})
    own = [name for name in [*contents, "lost.json"] if ownership._is_own(str(tmp_path), name, records)]
    made = ["_curated/duplicates-00001.rows", "_curated/00001.zst", "_curated/00005.zst"]
    assert own == ["known.json", "hashed.json", *made]


@pytest.mark.guarantee("output-kept")
def test_what_a_run_without_shards_left_is_its_own_unless_one_file_is_not(tmp_path: Path) -> None:
    plan = Plan("", (), (), {"inputs": {"sha256": _listing_sha256([])}, "code": {"format": 1}, "options": {}}).to_json()
    assert is_plan(plan) and fruitless(str(tmp_path), plan) == []
    (tmp_path / "plan.json").write_bytes(plan)
    for number in range(40):
        (tmp_path / f".hidden-{number}").write_text("mine")
    assert fruitless(str(tmp_path), plan) == ["plan.json"] and fruitless(str(tmp_path), b"mine") == []
    for name in ("notes.txt", "a.md", "owls.csv"):
        (tmp_path / name).write_text("mine")
        assert fruitless(str(tmp_path), plan) == []
        (tmp_path / name).unlink()


@pytest.mark.guarantee("output-kept")
def test_only_the_named_files_go_and_folders_that_they_leave_empty(tmp_path: Path) -> None:
    for name in ("a/b/c/own.txt", "a/own.txt", "d/own.txt", "d/mine.txt", "e/f/own.txt", "mine.txt"):
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).write_text(name)
    (tmp_path / "out" / "link.txt").symlink_to(tmp_path / "out" / "mine.txt")
    names = ["a/own.txt", "a/b/c/own.txt", "d/own.txt", "link.txt", "e/f/own.txt", "absent/x.txt", "mine.txt/x.txt"]
    files.remove_files(tmp_path / "out", names)
    left = sorted(path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*"))
    assert left == ["d", "d/mine.txt", "mine.txt"]
    (tmp_path / "elsewhere").mkdir()
    mine = ["_done/.DS_Store", "_done/.git/config", "_staged/empty/.keep", "_rejected/Own.txt", "_files/own.txt "]
    for name in (*mine, *(f"{folder}/own.txt" for folder in ("_done", "_staged", "_rejected", "_files", "_curated"))):
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).write_text(name)
    for name, target in (("link.txt", tmp_path / "elsewhere/mine.txt"), ("_done/link.txt", "../d/mine.txt")):
        (tmp_path / "elsewhere/mine.txt").write_text("mine")
        (tmp_path / "out" / name).symlink_to(target)
    names = [f"{folder}/own.txt" for folder in ("_done", "_staged", "_rejected", "_files", "_curated")]
    files.remove_files(tmp_path / "out", [*names, "link.txt", "_done/link.txt"])
    left = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if not path.is_dir())
    assert left == sorted([*(f"out/{name}" for name in (*mine, "d/mine.txt", "mine.txt")), "elsewhere/mine.txt"])
    assert not (tmp_path / "out/_curated").exists()
    files.remove_files(tmp_path / "out", mine)
    files.remove_files(tmp_path / "out", ["d/mine.txt", "mine.txt"])
    assert (tmp_path / "out").is_dir() and not any((tmp_path / "out").iterdir()), "the folder itself stays"


@pytest.mark.guarantee("output-kept")
def test_files_go_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[str] = []
    monkeypatch.setattr(Path, "unlink", lambda path: removed.append(path.name))
    files.remove_files(tmp_path, ["manifest.json", "b.tar", "a.tar"])
    assert removed == ["manifest.json", "b.tar", "a.tar"]


@pytest.mark.guarantee("output-kept")
def test_the_file_in_the_way_of_a_folder_is_found_at_any_depth(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    (tmp_path / "folder").mkdir()
    for below in ("notes", "notes/out", "notes/a/b/c"):
        assert files.file_in_way(str(tmp_path / below)) == tmp_path / "notes"
    assert files.file_in_way(tmp_path / "folder" / "new") is None is files.file_in_way(tmp_path / "folder")
    (tmp_path / "link").symlink_to(tmp_path / "notes")
    assert files.file_in_way(tmp_path / "link" / "out") == tmp_path / "link"
    (tmp_path / "lost").symlink_to(tmp_path / "drive")
    for below in ("lost", "lost/out", "lost/a/b"):
        assert files.file_in_way(tmp_path / below) == tmp_path / "lost"
    (tmp_path / "drive").mkdir()
    assert files.file_in_way(tmp_path / "lost" / "out") is None


@pytest.mark.guarantee("output-kept")
def test_files_of_an_earlier_run_go_only_if_it_is_said_which(tmp_path: Path) -> None:
    for name in ("plan.json", "_done/1.json", "mine.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"seed": 1}')
    asked: list[tuple[str, bytes]] = []

    def own(folder: str, old: bytes) -> list[str]:
        asked.append((folder, old))
        return ["_done/1.json", "plan.json"]

    check_ownership(str(tmp_path), "plan.json", b'{"seed": 1}', own)
    assert not asked, "it is the same run"
    check_ownership(str(tmp_path), "plan.json", b'{"seed": 2}', own)
    assert asked == [(str(tmp_path), b'{"seed": 1}')]
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    for name in ("plan.json", "_done/1.json", "_done/notes.txt", "_done/.DS_Store", ".git/config"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"seed": 1}')
    check_ownership(str(tmp_path), "plan.json", b'{"seed": 2}', own)
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"mine.txt", "_done/notes.txt", "_done/.DS_Store", ".git/config"}
    with pytest.raises(OwnershipError, match=r"holds other files \(_done/notes\.txt\)"):
        check_ownership(str(tmp_path), "plan.json", b'{"seed": 2}', own)
    (tmp_path / "_done/notes.txt").unlink()
    with pytest.raises(OwnershipError, match=r"holds other files \(mine\.txt\)"):
        check_ownership(str(tmp_path), "plan.json", b'{"seed": 2}', own)


@pytest.mark.guarantee("output-kept")
@pytest.mark.parametrize(
    ("there", "message"),
    [
        (b'{"owls": 1}', r"holds other files \(plan\.json\): choose a new or empty"),
        (b"[" * 100_000, r"its plan\.json is not readable"),
        (b"\xff", r"its plan\.json is not readable"),
        (b'{"seed": 1, "a": 1, "b": 1}', r"begun with other inputs or options \(seed: 1 there, 2 now; "),
    ],
)
def test_a_description_of_another_run_is_refused_and_stays(tmp_path: Path, there: bytes, message: str) -> None:
    (tmp_path / "plan.json").write_bytes(there)
    with pytest.raises(OwnershipError, match=f"^{re.escape(str(tmp_path))}.*{message}"):
        check_ownership(str(tmp_path), "plan.json", b'{"seed": 2}')
    assert (tmp_path / "plan.json").read_bytes() == there


@pytest.mark.guarantee("output-kept")
@pytest.mark.parametrize("name", ["mine.txt", "deep/mine.txt", "_done", "a.hidden"])
def test_hidden_files_alone_leave_a_folder_free(tmp_path: Path, name: str) -> None:
    for hidden in (".git/config", "deep/.DS_Store", ".notes"):
        (tmp_path / hidden).parent.mkdir(exist_ok=True)
        (tmp_path / hidden).write_text("mine")
    check_ownership(str(tmp_path), "plan.json", b"{}")
    (tmp_path / name).write_text("mine")
    with pytest.raises(OwnershipError, match=rf"holds other files \({re.escape(name)}\)"):
        check_ownership(str(tmp_path), "plan.json", b"{}")


@pytest.fixture
def job(tmp_path: Path) -> Job:
    (tmp_path / "manifest.json").write_text("{}")
    return Job(str(tmp_path), "", str(tmp_path), Documents, {}, 2, None, 0)  # type: ignore[arg-type]


@pytest.mark.guarantee("output-kept")
def test_an_update_owns_its_subfolder_and_goes_on_only_with_its_own_plan(job: Job, tmp_path: Path) -> None:
    beside = update.begin(job, 7, b'{"plan": 1}')
    assert beside == tmp_path / ".update" and (beside / "plan.json").read_bytes() == b'{"plan": 1}'
    owned = update.OwnedFiles.read(beside)
    assert owned and (owned.kind, owned.first_shard, owned.num_units) == ("documents", 7, 2)
    assert owned.manifest == files.sha256(tmp_path / "manifest.json")
    for name in ("_done/00001.json", "documents-00008-000.tar", "notes.txt", "_done/notes.txt"):
        (beside / name).parent.mkdir(exist_ok=True)
        (beside / name).write_text(name)
    assert update.begin(job, 7, b'{"plan": 1}') == beside
    assert (beside / "documents-00008-000.tar").exists() and (beside / "_done" / "00001.json").exists()
    update.begin(job, 7, b'{"plan": 2}')
    left = {path.relative_to(beside).as_posix() for path in beside.rglob("*") if path.is_file()}
    assert left == {".claim.json", "plan.json", "notes.txt", "_done/notes.txt"}
    assert (beside / "plan.json").read_bytes() == b'{"plan": 2}'
    (beside / "_done" / "00000.json").write_text("of the second plan")
    (tmp_path / "manifest.json").write_text('{"another": 1}')
    update.begin(job, 7, b'{"plan": 2}')
    assert not (beside / "_done" / "00000.json").exists()
    (beside / "_done" / "00000.json").write_text("of a plan that is lost")
    (beside / "plan.json").unlink()
    update.begin(job, 7, b'{"plan": 2}')
    assert not (beside / "_done" / "00000.json").exists() and (beside / "plan.json").exists()


@pytest.mark.guarantee("output-kept")
@pytest.mark.parametrize("name", ["plan.json", "manifest.json", "_done/00001.json", "documents-00007-000.tar"])
def test_an_update_that_needs_the_name_of_a_file_of_a_user_is_refused(job: Job, tmp_path: Path, name: str) -> None:
    for other in ("notes.txt", name):
        (tmp_path / ".update" / other).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / ".update" / other).write_text("mine")
    with pytest.raises(PipelineError, match=rf"{re.escape(name)}: `update` needs this name: move .*\.update away"):
        update.begin(job, 7, b"{}")
    assert (tmp_path / ".update" / name).read_text() == "mine"
    assert not (tmp_path / ".update" / ".claim.json").exists()


@pytest.mark.guarantee("output-kept")
def test_a_file_in_the_place_of_the_subfolder_is_refused(job: Job, tmp_path: Path) -> None:
    (tmp_path / ".update").write_text("mine")
    with pytest.raises(PipelineError, match=r"\.update: `update` needs this name"):
        update.begin(job, 7, b"{}")
    assert (tmp_path / ".update").read_text() == "mine"


@pytest.mark.guarantee("output-kept")
def test_new_files_of_an_update_replace_old_ones_alone(tmp_path: Path) -> None:
    for name in ("manifest.json", "mine.tar", "_rejected", "other.tar"):
        (tmp_path / name).write_text("there")
    (tmp_path / "_done").mkdir()
    (tmp_path / "_done/00000.json").write_text("there")
    for name in ("lost.tar", "_staged"):  # on a drive that is not there now
        (tmp_path / name).symlink_to(tmp_path / "drive" / name)
    owned = update.OwnedFiles("", "documents", 0, 1, ["manifest.json"], ["manifest.json", "new.tar"])
    update._check_free(tmp_path, owned)
    for new, said in (
        (["new.tar", "mine.tar"], f"{tmp_path / 'mine.tar'}: not of this dataset"),
        (["_rejected/00000.jsonl.zst", "_rejected/00001.jsonl.zst"], f"{tmp_path / '_rejected'}: not of this dataset"),
        (["mine.tar", "other.tar", "manifest.json"], f"{tmp_path / 'mine.tar'} and 1 other: not of this dataset"),
        (["_done/00000.json"], f"{tmp_path / '_done/00000.json'}: not of this dataset"),
        (["lost.tar"], f"{tmp_path / 'lost.tar'}: not of this dataset"),
        (["_staged/00000.json"], f"{tmp_path / '_staged'}: not of this dataset"),
    ):
        with pytest.raises(PipelineError, match=f"^{re.escape(said)}, and `update` needs the name"):
            update._check_free(tmp_path, dataclasses.replace(owned, new=new))


@pytest.mark.guarantee("output-kept")
@pytest.mark.parametrize("name", ["results.json", "examples.npz", "report.html"])
def test_an_evaluation_replaces_no_file_that_none_wrote(tmp_path: Path, name: str) -> None:
    evaluation._check_output(tmp_path / "new")
    (tmp_path / "notes.txt").write_text("mine")
    evaluation._check_output(tmp_path)
    with pytest.raises(OSError, match=re.escape(str(tmp_path / "notes.txt"))):
        evaluation._check_output(tmp_path / "notes.txt")
    (tmp_path / name).write_text(json.dumps({"mine": 1}))
    with pytest.raises(
        evaluation.EvaluationError, match=rf"`output` {re.escape(str(tmp_path))}: its {name} is not a file of this"
    ):
        evaluation._check_output(tmp_path)
    assert json.loads((tmp_path / name).read_text()) == {"mine": 1}


def write_evaluation(folder: Path) -> dict[str, bytes]:
    """Write the three files of an evaluation, and return their contents."""
    (folder / "examples.npz").write_bytes(examples_bytes({}))
    (folder / "results.json").write_text(Results("owl").to_json())
    write_report(folder / "report.html", "Scores of owl", [])
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.guarantee("output-kept")
@pytest.mark.parametrize("name", ["results.json", "examples.npz", "report.html"])
@pytest.mark.parametrize("mine", ["empty", "text", "arrays", "page", "link", "folder"])
def test_an_evaluation_beside_its_own_files_replaces_none_of_a_user(tmp_path: Path, name: str, mine: str) -> None:
    """Whichever of the three names it has, whatever it is, and though the other two are an evaluation's."""
    whole = write_evaluation(tmp_path)
    evaluation._check_output(tmp_path)
    path = tmp_path / name
    path.unlink()
    arrays = io.BytesIO()
    np.savez(arrays, weights=np.ones(3))
    contents = {"empty": b"", "text": b"mine", "arrays": arrays.getvalue(), "page": b"<html><title>Mine</title></html>"}
    if mine == "link":
        path.symlink_to(tmp_path / "drive" / name)
    elif mine == "folder":
        path.mkdir()
    else:
        path.write_bytes(contents[mine])
    with pytest.raises(evaluation.EvaluationError, match=rf": its {re.escape(name)} is not a file of this command"):
        evaluation._check_output(tmp_path)
    assert path.is_symlink() or path.is_dir() or path.read_bytes() == contents[mine]
    assert all((tmp_path / other).read_bytes() == whole[other] for other in whole if other != name)


@pytest.mark.guarantee("output-kept")
@pytest.mark.parametrize(
    ("names", "is_written", "refused"),
    [
        ([], True, None),
        ([".git", ".notes"], False, None),
        (["recipe.yaml", "metrics.jsonl"], True, None),
        (["recipe.yaml"], False, "recipe.yaml"),
        (["metrics.jsonl", "notes.txt"], True, "metrics.jsonl"),
        ([f"{number}.txt" for number in (31, 4, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26)], True, "15.txt"),
        (["recipe.yaml", "model"], True, "model"),
        (["a.txt", "model"], True, "model"),
        (["recipe.yaml", "model/"], True, "model"),
        (["model/"], True, "model"),
        (["model/", "checkpoints/"], False, "model"),
        (["corpus/"], False, "corpus"),
        (["corpus/", ".git/"], True, "corpus"),
        ([".git/"], False, None),
        (["recipe.yaml/"], True, "recipe.yaml"),
    ],
)
def test_a_run_begins_in_a_folder_of_an_earlier_start_alone(
    tmp_path: Path, names: list[str], is_written: bool, refused: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def known(path: Path) -> Any:
        return is_written and path.name == "recipe.yaml" and os.fspath(path.parent) == str(tmp_path)

    monkeypatch.setattr(run_folder, "is_written", known)
    for name in names:
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).write_text("")
    if refused is None:
        run_folder._check_written(tmp_path)
    else:
        with pytest.raises(RecipeError, match=rf"holds other files \({re.escape(refused)}\)"):
            run_folder._check_written(tmp_path)
