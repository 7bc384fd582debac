"""Output folders: nothing is written to one, or removed from one, before a record says that it is the run's own."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from clearspan.common.files import temporary_name

CORRECTED = ("--min-tokens", "300")


def files_of(folder: Path) -> dict[str, str]:
    """The sha256 of every file under a folder, hidden ones too."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


@pytest.mark.guarantee("output-kept")
@pytest.mark.parametrize("command", ["documents", "vocabulary"])
@pytest.mark.parametrize("plan", ['{"weeks": 3}', "buy milk", '{"fingerprint": {"options": {}}, "inputs": []}'])
def test_a_users_own_plan_json_and_folders_of_names_like_ours_stay(
    direct, head: Path, tmp_path: Path, command: str, plan: str
) -> None:
    folder = tmp_path / "mine"
    for name in ("_notes/00001.json", "_done/00001.json", "_staged/00000.json", "validation/manifest.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    (folder / "plan.json").write_text(plan)
    before = files_of(folder)
    outcome = direct(command, "--input", head, "--output", folder)
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
    assert ("holds other files (plan.json): choose a new" if "weeks" in plan else "choose another --o") in outcome.err
    assert files_of(folder) == before


@pytest.mark.guarantee("output-kept")
def test_a_users_own_plan_json_stays_even_alone_or_beside_names_of_decisions(
    direct, head: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "mine"
    for name in ("plan.json", "_curated/00001.zst"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text('{"fingerprint": {"options": {"files": {}}}, "inputs": [{"name": "milk"}]}')
        before = files_of(folder)
        assert direct("--input", head, "--output", folder).code == 1
        assert files_of(folder) == before


@pytest.mark.guarantee("output-kept")
@pytest.mark.parametrize(
    "name", ["_notes/00001.json", "_done/00001.json", "_rejected/00000.jsonl.zst", "_done/notes.txt", "shard.tar"]
)
def test_beside_the_plan_of_a_run_that_came_to_nothing_a_users_file_stays(
    direct, head: Path, tmp_path: Path, name: str
) -> None:
    assert direct("--input", head, "--min-tokens", "100000").code == 1
    path = tmp_path / "out" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    before = files_of(tmp_path / "out")
    outcome = direct("--input", head, *CORRECTED)
    assert outcome.code == 1 and "options.min_tokens: 100000 there, 300 now" in outcome.err
    assert files_of(tmp_path / "out") == before


@pytest.mark.guarantee("output-kept")
@pytest.mark.parametrize("options", [(), ("--dedup", "--holdout-fraction", "0.2"), ("--exclude", "EXCLUDED")])
def test_the_corrected_command_takes_the_place_of_a_run_that_came_to_nothing(
    direct, head: Path, tmp_path: Path, tree, options: tuple[str, ...]
) -> None:
    (tmp_path / "excluded.txt").write_text("A sentence that no document holds, of a good many words.\n")
    words = ["--input", head, *(str(tmp_path / "excluded.txt") if word == "EXCLUDED" else word for word in options)]
    assert direct(*words, "--min-tokens", "100000").code == 1
    assert direct(*words, *CORRECTED).code == 0
    assert direct(*words, *CORRECTED, "--output", tmp_path / "fresh").code == 0
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


@pytest.mark.guarantee("output-kept")
def test_what_a_user_adds_to_a_dataset_stays_when_the_command_repairs_it(direct, head: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("--input", head, *CORRECTED, "--dedup")
    assert direct(*words).code == 0
    shutil.copytree(out, out / "validation", ignore=lambda *_: ["validation"])  # a dataset of its own
    other_run = out / "other" / temporary_name("spool")
    mine = [out / "_staged" / "notes.txt", out / "notes" / "manifest.json", other_run / "documents-00000-000.tar"]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    before = files_of(out)
    (out / "_done" / "00000.json").unlink()
    assert direct(*words).code == 0
    assert files_of(out) == before


@pytest.mark.guarantee("output-kept")
def test_a_folder_that_holds_a_users_hidden_files_is_free(direct, head: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / ".git").mkdir(parents=True)
    mine = [tmp_path / "out" / name for name in (".git/config", ".notes")]
    for path in mine:
        path.write_text("mine")
    assert direct("--input", head, "--min-tokens", "100000").code == 1
    assert [path.read_text() for path in mine] == ["mine"] * 2
    assert direct("--input", head, *CORRECTED).code == 0, "it takes the place of the run that came to nothing"
    assert [path.read_text() for path in mine] == ["mine"] * 2
    assert json.loads((tmp_path / "out" / "manifest.json").read_bytes())["counts"]["kept"]
