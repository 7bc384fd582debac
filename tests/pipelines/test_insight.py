"""Statistics of a run, and what its workers import."""

import subprocess
import sys
from pathlib import Path

import pytest

from clearspan.shards import Manifest


@pytest.mark.slow
def test_the_summary_shows_the_lengths_of_all_examples(pipeline, head: Path, tmp_path: Path) -> None:
    out = pipeline("--input", head).out
    bars = [line.split() for line in out.partition("tokens per example\n")[2].splitlines()[1:]]
    assert sum(int(bar[-1]) for bar in bars) == Manifest.load(str(tmp_path / "out")).counts["kept"] == 5


@pytest.mark.exhaustive
def test_a_worker_imports_no_training_library() -> None:
    heavy = ("torch", "webdataset", "deepspeed")
    code = f"import sys, pipelines.execution.graph; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
