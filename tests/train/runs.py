"""What finished runs left behind, to compare."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file

from clearspan.train.engine.checkpoint import Checkpoints


def metrics(run: Path, names: Sequence[str]) -> list[dict[str, float]]:
    """These metrics of each logged step."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: line[name] for name in ("step", *names)} for line in lines]


def last_weights(run: Path) -> dict[str, torch.Tensor]:
    """The weights in the run's last checkpoint, by parameter name."""
    checkpoints = Checkpoints(run)
    return checkpoints.states(checkpoints.choose("last")[1])[0]


def same_weights(run: Path, other: Path) -> bool:
    """Whether two runs exported the same model, bit for bit."""
    ours, theirs = (load_file(folder / "model" / "model.safetensors") for folder in (run, other))
    return ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in ours)


def without_its_last_checkpoint(run: Path, copy: Path) -> Path:
    """A copy of a run that ended, as if it had been killed before its last save."""
    shutil.copytree(run, copy)
    shutil.rmtree(copy / "model")
    shutil.rmtree(max((copy / "checkpoints").iterdir()))
    return copy


def copied(run: Path, copy: Path) -> Path:
    """A copy of a run, to work on."""
    return Path(shutil.copytree(run, copy))
