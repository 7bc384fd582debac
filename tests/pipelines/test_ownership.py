"""Output folders: a file that no run wrote is never removed or overwritten, whatever its name."""

import shutil
from pathlib import Path

import pytest

from clearspan.common import files
from clearspan.shards import verify

NAMES = (
    "plan.json",
    "tokenizer/tokenizer.json",
    "validation/notes.txt",
    "validation/manifest.json",
    "_files/synonyms.json",
    "_done/00000.json",
    "_rejected/00000.jsonl.zst",
    "_excluded/00000.jsonl.zst",
    "_staged/00000.keys",
    "_files/excluded.u64",
    "deep/er/mine.txt",
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("content", [b"mine", b'{"fingerprint": {"code": {}}, "units": [1], "inputs": []}'])
def test_a_folder_with_somebodys_files_is_refused_and_left_as_it_is(
    direct, head: Path, tmp_path: Path, tree, name: str, content: bytes
) -> None:
    path = tmp_path / "out" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    before = tree(tmp_path / "out")
    outcome = direct("--input", head, "--holdout-fraction", "0.5", "--dedup")
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
    assert "choose a" in outcome.err
    assert tree(tmp_path / "out") == before


@pytest.mark.parametrize("name", NAMES[1:])
def test_beside_a_plan_that_came_to_nothing_they_stay_too(direct, head: Path, tmp_path: Path, tree, name: str) -> None:
    curated = ("--input", head, "--holdout-fraction", "0.5", "--dedup", "--exclude", head)
    assert "hold a text of --exclude" in direct(*curated, "--min-tokens", "100").err
    path = tmp_path / "out" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"mine")
    before = tree(tmp_path / "out")
    outcome = direct("--input", head)
    assert outcome.code == 1 and "was begun with other inputs or options" in outcome.err
    assert tree(tmp_path / "out") == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *("_staged/my notes.txt", "_staged/99999.json", "_staged/99999.keys", "_staged/photos-00000-000.tar"),
        *(f"{files.TEMPORARY}mine", f"_staged/{files.TEMPORARY}mine", f"_done/{files.TEMPORARY}1-00000.json"),
    ],
)
def test_what_only_resembles_the_files_of_a_run_stays(direct, head: Path, tmp_path: Path, name: str) -> None:
    assert direct("--input", head, "--dedup").code == 0
    mine = tmp_path / "out" / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    assert direct("--input", head, "--dedup").code == 0
    assert mine.read_text() == "mine"


def test_a_link_in_the_folder_is_somebodys(direct, head: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "00000.json").write_text("mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "_done").symlink_to(tmp_path / "theirs")
    assert "holds other files (_done)" in direct("--input", head).err
    assert (tmp_path / "theirs" / "00000.json").read_text() == "mine"


@pytest.mark.parametrize("switches", [(), ("--dedup", "--limit", "3", "--holdout-fraction", "0.5")])
def test_what_a_plan_that_came_to_nothing_left_makes_way(direct, head: Path, tmp_path: Path, switches: tuple) -> None:
    excluded = shutil.copy(head, tmp_path / "excluded.jsonl")
    with head.open("ab") as lines:
        lines.write(b"broken\n")
    often = ("--input", head, "--max-bad-fraction", "0.5")
    assert direct(*often, *switches, "--min-tokens", "1000000", "--exclude", excluded).code == 1
    assert direct(*often, *switches, "--min-tokens", "1", "--exclude", excluded).code == 1
    assert list((tmp_path / "out" / "_excluded").iterdir())
    assert direct(*often, *switches, "--min-tokens", "900000").code == 1
    assert direct(*often).code == 0
    assert verify(tmp_path / "out") == []
    assert not list((tmp_path / "out").rglob("_curated/*")) and not list((tmp_path / "out").rglob("_staged/*"))
