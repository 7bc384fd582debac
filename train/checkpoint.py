"""Checkpoints of a run, and where everything lies in its folder.

    recipe.yaml  encoder/ (configuration, tokenizer)  metrics.jsonl  tensorboard/
    checkpoints/{step-N, last, best}                  model/ (the export)

DeepSpeed writes the states, all ranks together; `last` and `best` are text files that name a step, replaced only when
that step is whole. Loading goes through torch's `weights_only` unpickler: a checkpoint cannot run code.
"""

import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import torch
from deepspeed.runtime.checkpoint_engine.torch_checkpoint_engine import TorchCheckpointEngine

from train.losses import world

CHECKPOINTS = "checkpoints"
MODEL_STATES = "mp_rank_00_model_states.pt"


class CheckpointError(ValueError):
    """There is no such checkpoint, or it cannot be read. The message says what to do."""


class SafeCheckpointEngine(TorchCheckpointEngine):
    """DeepSpeed's own engine, but loading tensors and plain values only."""

    def load(self, path: str, map_location: Any = None) -> Any:
        return safe_load(Path(path), map_location)


def safe_load(path: Path, map_location: Any = "cpu") -> Any:
    from deepspeed.runtime.fp16.loss_scaler import LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    with torch.serialization.safe_globals([LossScaler, ZeroStageEnum, fragment_address]):
        try:
            return torch.load(path, map_location=map_location, weights_only=True)
        except (OSError, RuntimeError, EOFError, ValueError, IndexError, KeyError, pickle.UnpicklingError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise CheckpointError(f"{path}: cannot be read as a checkpoint ({reason})") from None


class Checkpoints:
    """The checkpoints of one run: the last, and the best where a score picks one; others are deleted."""

    def __init__(self, run: Path) -> None:
        self.folder = run / CHECKPOINTS

    def save(self, engine: Any, step: int, state: dict[str, Any], best: bool) -> None:
        """Writes a step's checkpoint; every rank calls it."""
        tag = f"step-{step:08d}"
        engine.save_checkpoint(str(self.folder), tag=tag, client_state={"clearspan": state}, save_latest=False)
        if world()[0] == 0:
            for path in (self.folder / tag).iterdir():
                with path.open("rb") as stream:
                    os.fsync(stream.fileno())
            if best:  # before `last`: killed in between, the run comes by the same best step again
                self._point("best", tag)
            self._point("last", tag)
            keep = {self.tag("last"), self.tag("best")}
            for old in self.folder.glob("step-*"):
                if old.name not in keep:
                    shutil.rmtree(old)

    def load(self, engine: Any) -> dict[str, Any]:
        """Restores the last checkpoint into the engine, on every rank; returns the state saved with it.

        Raises:
            CheckpointError: there is none.
        """
        tag = self.tag("last")
        if tag is None:
            raise CheckpointError(f"{self.folder}: no checkpoint to resume from; start without --resume")
        if not (self.folder / tag / MODEL_STATES).is_file():
            raise CheckpointError(f"{self.folder / 'last'}: names {tag!r}, which is not there; start a new run")
        parts, ranks = len(list((self.folder / tag).glob("zero_pp_rank_*"))), world()[1]
        if parts not in (0, ranks):
            raise CheckpointError(
                f"{self.folder / tag}: saved with training.zero_stage=1 on {parts} ranks, so it resumes on {parts}, "
                f"not on {ranks}; stage 0 resumes on any number"
            )
        engine.checkpoint_engine = SafeCheckpointEngine()
        path, state = engine.load_checkpoint(str(self.folder), tag=tag)
        if path is None:
            raise CheckpointError(f"{self.folder / tag}: incomplete checkpoint")
        return dict(state["clearspan"])

    def tag(self, which: str) -> str | None:
        """The step folder that `last` or `best` names."""
        pointer = self.folder / which
        return pointer.read_text().strip() if pointer.is_file() else None

    def model_states(self, which: str) -> dict[str, torch.Tensor]:
        """The learner's weights, by parameter name.

        Raises:
            CheckpointError: there is no such checkpoint.
        """
        tag = self.tag(which)
        if tag is None:
            raise CheckpointError(f"{self.folder}: no {which!r} checkpoint here; is it the folder of a run?")
        states = safe_load(self.folder / tag / MODEL_STATES)
        if not isinstance(states, dict) or not isinstance(states.get("module"), dict):
            raise CheckpointError(f"{self.folder / tag / MODEL_STATES}: holds no weights")
        return dict(states["module"])

    def _point(self, which: str, tag: str) -> None:
        temporary = self.folder / f".{which}"
        temporary.write_text(tag + "\n")
        temporary.replace(self.folder / which)
