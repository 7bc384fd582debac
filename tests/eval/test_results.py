"""results.json: strict JSON, and a check that recognizes it."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearspan.common.checksummed import dump_checksummed
from clearspan.common.records import DataError
from clearspan.eval import results as module
from clearspan.eval.results import EXAMPLES, RESULTS, Results, examples_bytes
from clearspan.eval.scores import Examples, TaskScores


def strict(text: str) -> Any:
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_an_undefined_score_is_null() -> None:
    results = Results("m", scores={"A": {"spearman": float("nan")}}, intervals={"A": {"spearman": (float("nan"), 2.0)}})
    results.averages["mean"] = {"value": float("nan"), "tasks": ["A"], "missing": []}
    read = strict(results.to_json())
    assert read["scores"] == {"A": {"spearman": None}}
    assert read["intervals"] == {"A": {"spearman": [None, 2.0]}}
    assert read["averages"]["mean"]["value"] is None


def test_what_numpy_and_pathlib_have_for_numbers_and_names_is_written_as_those() -> None:
    settings = {"l2": np.float32(0.5), "folds": np.arange(2), "nan": np.float32("nan"), "file": Path("a/b"), 1: (True,)}
    read = strict(Results("m", settings={"MR": settings}).to_json())
    assert read["settings"]["MR"] == {"l2": 0.5, "folds": [0, 1], "nan": None, "file": "a/b", "1": [True]}


@pytest.fixture
def evaluation(tmp_path: Path) -> Path:
    """The files of an evaluation of 200 labels."""
    right = np.arange(200) % 3
    scores = {
        "MR": TaskScores({"acc": 98.0}, "acc", (), {}, {"acc": Examples.of("accuracy", right * (right < 2), right)})
    }
    content = examples_bytes(scores)
    (tmp_path / EXAMPLES).write_bytes(content)
    known = Results("m", scores={"MR": {"acc": 98.25}}, examples=hashlib.sha256(content).hexdigest())
    (tmp_path / RESULTS).write_text(known.to_json())
    return tmp_path


@pytest.mark.guarantee("finished-work-checked")
@pytest.mark.parametrize("name", [RESULTS, EXAMPLES])
def test_damage_to_the_files_of_an_evaluation_is_noticed_or_changes_nothing(evaluation: Path, name: str) -> None:
    module.check(evaluation)
    whole, path = module.read(evaluation), evaluation / name
    content = path.read_bytes()
    flips = [content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :] for at in range(0, len(content), 7)]
    for damaged in [*flips, content[: len(content) // 2], b"", content.replace(b"98.25", b"99.25")[:-1]]:
        path.write_bytes(damaged)
        try:
            module.check(evaluation)
        except DataError as error:
            assert str(path) in str(error)
        else:  # the name of the hash, or white space
            assert name == RESULTS and module.read(evaluation) == whole
    path.unlink()
    with pytest.raises(DataError, match=name):
        module.check(evaluation)


@pytest.mark.guarantee("finished-work-checked")
@pytest.mark.parametrize("name", [RESULTS, EXAMPLES])
def test_what_a_bad_block_damages_of_an_evaluation_is_noticed_whenever_it_is_asked(evaluation: Path, name: str) -> None:
    """A bad block changes neither the size nor the times of a file, and the examples are written before the results."""
    path = evaluation / name
    whole, times = path.read_bytes(), path.stat()
    place = whole.index(b"98.25") if name == RESULTS else len(whole) - 5
    for _ in range(2):
        path.write_bytes(whole)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        module.check(evaluation)
        module.check(evaluation / RESULTS)
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        for asked in (evaluation, evaluation / RESULTS, evaluation):
            with pytest.raises(DataError, match=name):
                module.check(asked)


@pytest.mark.guarantee("finished-work-checked")
def test_an_edited_score_and_a_file_without_its_hashes_are_refused(evaluation: Path) -> None:
    path = evaluation / RESULTS
    text = path.read_text()
    path.write_text(text.replace("98.25", "99.25"))
    with pytest.raises(DataError, match="its content does not match its sha256: damaged or edited"):
        module.read(evaluation)
    record = {name: value for name, value in json.loads(text).items() if name not in ("sha256", "examples")}
    path.write_text(json.dumps(record))
    with pytest.raises(DataError, match="its content does not match its sha256: damaged or edited"):
        module.read(evaluation)
    path.write_bytes(dump_checksummed(record))
    with pytest.raises(
        DataError, match=r"examples\.npz: missing, damaged, or not of the same run as its results\.json"
    ):
        module.check(evaluation)
