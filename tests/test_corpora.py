"""Tests read the published data that a machine has, and a stand-in for the rest; where they are required, all parts."""

import ast
import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.conftest import ROOT
from tests.corpora import SOURCES, MissingPartsError, data_folder, stand_in, unpublished


def folder_of(path: Path, parts: set[str]) -> Path:
    """A data folder with these parts, each of which holds its place."""
    for part in parts:
        (path / part).mkdir(parents=True)
        (path / part / "from").write_text(path.name)
    return path


def test_a_part_that_is_published_goes_before_its_stand_in(tmp_path: Path) -> None:
    made = folder_of(tmp_path / "made", set(SOURCES))
    some = folder_of(tmp_path / "some", {"senteval"})
    (merged := tmp_path / "merged").mkdir()
    found = data_folder(some, False, lambda: made, lambda: merged)
    read = {part: (found / part / "from").read_text() for part in SOURCES}
    assert read == {part: "some" if part == "senteval" else "made" for part in SOURCES}
    whole = folder_of(tmp_path / "whole", set(SOURCES))
    for is_required in (False, True):
        assert data_folder(whole, is_required, lambda: made, lambda: merged) == whole
    assert data_folder(tmp_path / "none", False, lambda: made, lambda: merged) == made


def test_where_published_data_are_required_a_missing_part_is_an_error(tmp_path: Path) -> None:
    most = folder_of(tmp_path / "most", set(SOURCES) - {"glue", "audio"})
    with pytest.raises(MissingPartsError, match=r"most lacks audio, glue"):
        data_folder(most, True, lambda: most, lambda: most)


def test_a_test_that_needs_published_content_says_what_to_get_and_where(tmp_path: Path) -> None:
    some = folder_of(tmp_path, {"glue"})
    assert unpublished(some, "glue") == ""
    assert unpublished(some, "nli") == (
        "needs published data, SNLI, https://nlp.stanford.edu/projects/snli: save it as ../shared/data/nli"
    )


def test_each_mark_names_a_part_of_the_folder() -> None:
    marked = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.published":
                marked |= {each.value for each in node.args if isinstance(each, ast.Constant)}
    assert marked and marked <= set(SOURCES)


def test_contributing_describes_every_part() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert [part for part in SOURCES if f"`{part}/`" not in page] == []


@pytest.mark.exhaustive
def test_the_stand_in_has_all_parts_and_the_sizes_that_tests_count_on(request: pytest.FixtureRequest) -> None:
    made = stand_in(request.config.cache.mkdir("corpora"))
    assert sorted(path.name for path in made.iterdir()) == sorted(SOURCES)
    lines = (made / "text" / "openwebtext_sample.jsonl").read_text("utf-8").splitlines()
    is_long = [json.loads(line)["n_gpt2_tokens"] >= 2048 for line in lines]
    assert (len(is_long), sum(is_long), sum(is_long[:40])) == (1426, 163, 5)
    for name, num_ids in (("roberta-base", 50_265), ("gpt2", 50_257), ("bert-base-uncased", 30_522)):
        tokenizer = Tokenizer.from_file(str(made / "tokenizers" / name / "tokenizer.json"))
        assert tokenizer.get_vocab_size() == num_ids
