"""Every command with an output: a file in the place of the folder, or above it, is one line."""

from pathlib import Path

import pytest

from clearspan.adapt.options import Adapt
from clearspan.common.files import file_in_way
from clearspan.eval.request import EvalOptions
from clearspan.pipelines.run import RunOptions
from clearspan.pipelines.vocabulary_command import Vocabulary
from clearspan.shards.__main__ import ParquetExport as ShardsExport
from clearspan.train.config.options import RecipeError
from clearspan.train.distill import Distill
from clearspan.train.export import Export
from clearspan.train.run_folder import check_writable
from clearspan.train.sweeps.grid import Sweep

COMMANDS = {
    "documents, embed and the like": lambda path: RunOptions(inputs=("a.txt",), output=str(path)),
    "vocabulary": lambda path: Vocabulary(inputs=("a.txt",), output=str(path)),
    "shards export": lambda path: ShardsExport(folder="data", output=path),
    "export": lambda path: Export(of_run=Path("run"), out=path),
    "distill": lambda path: Distill(model=path.parent, output=path),
    "adapt": lambda path: Adapt(inputs=("a.txt",), output=path),
    "sweep": lambda path: Sweep(output=path),
    "eval": lambda path: EvalOptions(model=("bow",), output=path, tasks=("sts",), data=path.parent),
    "train": lambda path: check_writable(path),
}


@pytest.mark.guarantee("output-kept")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("below", ["", "new", "new/one"])
def test_an_output_that_is_a_file_or_below_one_is_refused_by_its_name(tmp_path: Path, command: str, below: str) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises((ValueError, RecipeError), match=r"notes\.txt is a file, not a folder: name a new or an empty"):
        COMMANDS[command](tmp_path / "notes.txt" / below)
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.guarantee("output-kept")
def test_a_folder_that_is_not_there_yet_has_no_file_in_its_way(tmp_path: Path) -> None:
    assert file_in_way(tmp_path / "a" / "b") is None and file_in_way(tmp_path) is None and file_in_way("a") is None
