"""Stages of the whole way as commands, and small evaluation data, for the tests of all of it."""

import itertools
import json
from pathlib import Path
from typing import Any

from tests.processes import run_module


def command(*words: str | Path) -> str:
    """Runs `python -m ...`; returns what it printed."""
    done = run_module(*map(str, words))
    assert done.returncode == 0, done.stderr
    return done.stdout


def scored(model: Path, data: Path, output: Path) -> dict[str, Any]:
    """Return what the evaluator finds by STS of `some_sts`."""
    cut = ("--quiet", "--allow-missing")
    command("eval", "--model", model, "--tasks", "sts", "--data", data, "--output", output, *cut)
    found: dict[str, Any] = json.loads((output / "results.json").read_text())
    return found


def some_sts(shared_data: Path, folder: Path, *tasks: str) -> Path:
    """Return a SentEval folder of these tasks, of each file the first 300 lines."""
    for task in tasks:
        (target := folder / "downstream" / task).mkdir(parents=True)
        for file in (shared_data / "senteval" / "downstream" / task).iterdir():
            with file.open("rb") as lines:
                (target / file.name).write_bytes(b"".join(itertools.islice(lines, 300)))
    return folder
