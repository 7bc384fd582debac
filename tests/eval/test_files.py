"""Files are written whole or not at all, and no other file is touched for it."""

from pathlib import Path

import pytest

from clearspan.eval.files import write_bytes


def test_a_users_file_of_a_similar_name_stays(tmp_path: Path) -> None:
    (tmp_path / ".results.json.part").write_text("mine")
    write_bytes(tmp_path / "results.json", b"{}")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        ".results.json.part": "mine",
        "results.json": "{}",
    }


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "results.json").mkdir()
    with pytest.raises(OSError, match=r"results\.json"):
        write_bytes(tmp_path / "results.json", b"{}")
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]
