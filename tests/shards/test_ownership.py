"""Ownership of output folders: whose a folder is, and what differs."""

import json
from pathlib import Path

import pytest

from clearspan.shards.ownership import OwnershipError, check_ownership, differences

NAME = "plan.json"


def test_what_differs_is_named_field_by_field_and_of_lists_the_first() -> None:
    old = {"options": {"min_tokens": 2048, "text_field": "text"}, "inputs": [{"name": "a", "bytes": 1}], "units": [[0]]}
    new = {
        "options": {"min_tokens": 1024, "text_field": "text"},
        "inputs": [{"name": "a", "bytes": 2}],
        "units": [[0], [1]],
    }
    assert differences(old, {**new, "seed": 1}) == [
        "options.min_tokens: 2048 there, 1024 now",
        "inputs[a].bytes: 1 there, 2 now",
        "units: [[0]] there, [[0], [1]] now",
        "seed: null there, 1 now",
    ]
    assert differences(old, json.loads(json.dumps(old))) == []
    assert differences(old["inputs"], [{"name": "b", "bytes": 1}], "inputs") == ["inputs: a there, b now"]


@pytest.mark.guarantee("output-kept")
def test_a_folder_is_free_or_its_own(tmp_path: Path) -> None:
    check_ownership(str(tmp_path / "absent"), NAME, b"{}")
    (tmp_path / ".hidden").write_text("")
    check_ownership(str(tmp_path), NAME, b"{}")
    (tmp_path / NAME).write_text("{}")
    (tmp_path / "other").write_text("")
    check_ownership(str(tmp_path), NAME, b"{}")


@pytest.mark.guarantee("output-kept")
@pytest.mark.parametrize(
    ("there", "message"),
    [
        ('{"seed": 1}', r"seed: 1 there, 2 now.*`output`"),
        ("[1]", r"plan\.json .*`output`"),
        (None, r"deep/mine\.txt.*`output`"),
    ],
)
def test_anything_else_is_refused(tmp_path: Path, there: str | None, message: str) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "mine.txt").write_text("mine")
    if there is not None:
        (tmp_path / NAME).write_text(there)
    with pytest.raises(OwnershipError, match=message):
        check_ownership(str(tmp_path), NAME, b'{"seed": 2}')


@pytest.mark.guarantee("output-kept")
def test_a_link_in_the_folder_is_somebodys(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "_done").symlink_to(tmp_path / "theirs")
    with pytest.raises(OwnershipError, match=r"holds other files \(_done\)"):
        check_ownership(str(tmp_path / "out"), NAME, b"{}")
