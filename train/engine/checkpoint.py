"""Checkpoints of a run, and the layout of its folder.

    recipe.yaml  inputs.json  encoder/ (configuration, tokenizer)  metrics.jsonl  tensorboard/
    checkpoints/step-N/ (states, manifest.json)       model/ (the export)

DeepSpeed writes the states, all ranks together. A checkpoint gets its name when it is complete and on the disk. Its
manifest (`train.engine.integrity`) also names the best step so far. The files of a checkpoint are verified before it is
loaded; when one is damaged, the checkpoint before it is used. Any number of ranks loads what any number saved, at any
ZeRO stage of either. Loading goes through torch's `weights_only` unpickler: a checkpoint cannot run code.
"""

import contextlib
import os
import pickle
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from deepspeed.checkpoint.constants import OPTIMIZER_STATE_DICT
from deepspeed.runtime.checkpoint_engine.torch_checkpoint_engine import TorchCheckpointEngine

from clearspan.common.files import COPY_BYTES, TEMPORARY, path_in_errors, sync
from clearspan.common.terminal import MOST_SAID, one_line, visible
from clearspan.shards.sealed import FileInfo, HashingFile
from clearspan.train.collectives import world
from clearspan.train.engine.integrity import NAME as MANIFEST
from clearspan.train.engine.integrity import DamageError, check_folder, read_manifest, seal_folder
from clearspan.train.engine.partitions import from_adamw, repartition, to_adamw
from clearspan.train.engine.ranks import agreed, gathered
from clearspan.train.run_folder import CHECKPOINTS, TAG, tags

MODEL_STATES = "mp_rank_00_model_states.pt"
PART = "zero_pp_rank_{}_mp_rank_00_optim_states.pt"
"""The part of the optimizer's state that a rank saves, with ZeRO."""
KIND = "checkpoint"
OURS = re.compile(
    rf"({re.escape(TEMPORARY)}\w+-)?{re.escape(MANIFEST)}|(zero_pp_rank_\d+_)?mp_rank_\d+_(model|optim)_states\.pt"
)
"""The names of a checkpoint's own files: only these are loaded from it, and deleted with it."""


class CheckpointError(ValueError):
    """A checkpoint does not exist, or cannot be read or written. The message says what to do."""


class _StatesFile(HashingFile):
    """The file that torch writes states to: hashes what passes."""

    def write(self, data: Any) -> int:
        return super().write(memoryview(data).cast("B"))  # type: ignore[arg-type]

    def flush(self) -> None:
        self.stream.flush()


def write_states(states: Any, path: Path) -> FileInfo:
    """Save states with torch; they are on the disk when the function returns.

    Raises:
        OSError: the disk is full or broken; the error names the file.
    """
    with path_in_errors(path), path.open("wb", buffering=COPY_BYTES) as stream:
        file = _StatesFile(stream)
        try:
            torch.save(states, file)  # type: ignore[arg-type]
        except RuntimeError as error:  # torch's zip writer raises it while it closes the file, in place of the OSError
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise
        stream.flush()
        os.fsync(stream.fileno())
        return file.info


def safe_load(path: Path, map_location: Any = "cpu", mmap: bool = False) -> Any:
    """Return the tensors and plain values of a file; load nothing that could run code.

    Args:
        mmap: read tensors from the disk only when they are used.

    Raises:
        CheckpointError: the file holds something else, or cannot be read.
    """
    from deepspeed.runtime.fp16.loss_scaler import LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    with torch.serialization.safe_globals([LossScaler, ZeroStageEnum, fragment_address]):
        try:
            return torch.load(path, map_location=map_location, weights_only=True, mmap=mmap)
        except (OSError, RuntimeError, EOFError, ValueError, IndexError, KeyError, pickle.UnpicklingError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise CheckpointError(f"{path}: cannot be read as a checkpoint ({reason})") from None


class CheckpointEngine(TorchCheckpointEngine):  # type: ignore[misc, unused-ignore]  # DeepSpeed has no types
    """DeepSpeed's own engine, restricted to tensors and plain values on loading; it hashes what it saves.

    An error of the disk is stored in `error`, not raised: DeepSpeed's barriers follow, where other ranks wait.
    """

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, FileInfo] = {}
        self.error: OSError | None = None

    def save(self, state_dict: Any, path: str) -> None:
        try:
            self.files[Path(path).name] = write_states(state_dict, Path(path))
        except OSError as error:
            self.error = error

    def load(self, path: str, map_location: Any = None) -> Any:
        return safe_load(Path(path), map_location)


class RepartitioningEngine(CheckpointEngine):
    """Loads states of other ranks or of another ZeRO stage, converted to the current ranks and stage.

    Args:
        engine: DeepSpeed's engine, over an `AlternatingAdamW`.
        num_parts: the number of ranks that saved a part; 0: the states were saved at stage 0.
    """

    def __init__(self, engine: Any, num_parts: int) -> None:
        super().__init__()
        self.optimizer, self.num_parts, self.partitioned = engine.optimizer, num_parts, engine.zero_optimization()
        self._adamw: dict[str, Any] = {}

    def load(self, path: str, map_location: Any = None) -> Any:
        file, (rank, ranks) = Path(path), world()
        if file.name == MODEL_STATES:
            states = super().load(path, map_location)
            self._adamw = states["optimizer"] or {}
            if self.num_parts and not self.partitioned:
                groups = [group["params"] for group in self.optimizer.param_groups]
                states["optimizer"] = to_adamw(self._parts(file)[1], groups)
            return {**states, "dp_world_size": ranks}
        if self.num_parts:
            first, parts = self._parts(file)
        else:  # DeepSpeed has loaded the weights by now
            groups = self.optimizer.round_robin_bit16_groups
            first, parts = {}, [from_adamw(self._adamw, groups, self.optimizer.state_dict())]
        lengths = [group.numel() for group in self.optimizer.single_partition_of_fp32_groups]
        return {**first, OPTIMIZER_STATE_DICT: repartition(parts, rank, ranks, lengths)}

    def _parts(self, beside: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Return (everything that the first rank saved, the optimizer state of every rank)."""
        states = [safe_load(beside.with_name(PART.format(rank)), mmap=True) for rank in range(self.num_parts)]
        return states[0], [state[OPTIMIZER_STATE_DICT] for state in states]


class Checkpoints:
    """The checkpoints of one run: the last two, and the best if a score picks one; older ones are deleted."""

    def __init__(self, run: Path) -> None:
        self.folder = run / CHECKPOINTS
        self.latest: list[tuple[str, str | None]] = []
        """(tag, tag of the best by then) of the last two checkpoints that this process saved or resumed from."""
        self._reported: set[str] = set()

    def tags(self) -> list[str]:
        """Return the names of the step folders, newest first."""
        return tags(self.folder.parent)

    def save(self, engine: Any, step: int, state: dict[str, Any], best: bool) -> None:
        """Write the checkpoint of a step; every rank calls it.

        Raises:
            CheckpointError: the disk is full or broken. Earlier checkpoints stay as they were.
        """
        tag = _tag(step)
        part = self.folder / f"{TEMPORARY}{tag}"
        agreed(lambda: self._make_room(part))
        engine.checkpoint_engine = files = CheckpointEngine()
        engine._copy_recovery_script = lambda folder: None  # a script that unpickles any file
        engine.save_checkpoint(str(self.folder), tag=part.name, client_state={"clearspan": state}, save_latest=False)
        written = gathered((files.files, str(files.error or "")))
        agreed(lambda: self._commit(part, tag, written, best))

    def _make_room(self, part: Path) -> None:
        self.folder.mkdir(exist_ok=True)
        for unfinished in self.folder.glob(f"{TEMPORARY}step-*"):  # by a run that was killed during a save
            _remove(unfinished)
        part.mkdir(exist_ok=True)

    def _commit(self, part: Path, tag: str, written: list[tuple[dict[str, FileInfo], str]], best: bool) -> None:
        """Give a complete checkpoint its name, and delete the checkpoints that it replaces."""
        best_tag = tag if best else self.latest[-1][1] if self.latest else None
        try:
            if problem := next((problem for _, problem in written if problem), ""):
                raise OSError(problem)
            files = {name: info for infos, _ in written for name, info in infos.items()}
            seal_folder(part, KIND, files, {"best": best_tag})
            _remove(self.folder / tag)  # a damaged one, which the run did not resume from
            part.rename(self.folder / tag)
        except OSError as error:
            _remove(part)
            remedy = "continue with --resume from the step before it" if self.tags() else "run it again"
            raise CheckpointError(
                f"{self.folder / tag}: could not be saved ({error}): make room and {remedy}"
            ) from None
        sync(self.folder)
        self.latest = [*self.latest, (tag, best_tag)][-2:]
        needed = {name for pair in self.latest for name in pair}
        for old in self.tags():
            if old not in needed:
                _remove(self.folder / old)

    def load(self, engine: Any) -> dict[str, Any]:
        """Restore the last undamaged checkpoint into the engine, on every rank; return the state saved with it.

        Raises:
            CheckpointError: there is none, or it belongs to another model than the engine's.
        """
        tag, best, files = agreed(self.last)
        self.latest = [(tag, best)]
        num_parts = sum(name.startswith("zero_pp_rank_") for name in files)
        unchanged = num_parts == (world()[1] if engine.zero_optimization() else 0)
        engine.checkpoint_engine = CheckpointEngine() if unchanged else RepartitioningEngine(engine, num_parts)
        try:
            path, state = engine.load_checkpoint(str(self.folder), tag=tag)
        except RuntimeError as error:
            if "loading state_dict" not in str(error):
                raise
            raise CheckpointError(
                f"{self.folder / tag}: holds weights of another model than the one that the recipe names now "
                f"({one_line(error, MOST_SAID)}): put back the model that the run began with"
            ) from None
        if path is None:
            raise CheckpointError(f"{self.folder / tag}: holds no states")
        return dict(state["clearspan"])

    def reset_best(self, best: bool) -> None:
        """Forget the best step so far, whose score no longer counts; with `best`, the last checkpoint becomes it."""
        tag, _ = self.latest[-1]
        self.latest[-1] = (tag, tag if best else None)

    def last(self) -> tuple[str, str | None, dict[str, FileInfo]]:
        """Return (tag, tag of the best by then, files) of the newest undamaged checkpoint; report newer damaged ones.

        Raises:
            CheckpointError: there is none.
        """
        newest, problems = self._newest(lambda folder: check_folder(folder, KIND, OURS), "taking {}, which is whole")
        if newest:
            tag, content, files = newest
            return tag, content.get("best"), files
        if problems:
            raise CheckpointError(
                f"{'; '.join(problems)}: no checkpoint is whole: put a copy of one back, or start in another folder"
            )
        raise CheckpointError(f"{self.folder}: no checkpoint here; is it the folder of a run?")

    def best(self) -> str | None:
        """Return the tag of the best checkpoint, by the newest readable manifest; report newer unreadable ones."""
        newest, _ = self._newest(lambda folder: read_manifest(folder, KIND), "taking the best that {} names")
        return newest[1].get("best") if newest else None

    def _newest(
        self, read: Callable[[Path], tuple[dict[str, Any], dict[str, FileInfo]]], choice: str
    ) -> tuple[tuple[str, dict[str, Any], dict[str, FileInfo]] | None, list[str]]:
        """Return ((tag, manifest content, files) of the newest checkpoint that `read` accepts, problems of newer ones).

        Args:
            choice: what to report with the problems; `{}` stands for the tag.
        """
        problems: list[str] = []
        for tag in self.tags():
            try:
                content, files = read(self.folder / tag)
            except DamageError as error:
                problems.append(str(error))
                continue
            if new := [problem for problem in problems if problem not in self._reported]:
                print(f"train: {visible('; '.join(new))}: {choice.format(tag)}", file=sys.stderr)
                self._reported.update(new)
            return (tag, content, files), problems
        return None, problems

    def best_is_initial(self) -> bool:
        """Return whether the best checkpoint is the one before the first step."""
        return self.best() == _tag(0)

    def tag(self, name: str) -> str:
        """Return the tag of the `last` undamaged checkpoint, or of the `best`, after verifying it.

        Raises:
            CheckpointError: there is no such checkpoint.
        """
        if name == "last" or not self.tags():
            return self.last()[0]
        tag = self.best()
        if tag is None:
            raise CheckpointError(f"{self.folder}: no score picked a best checkpoint; --checkpoint last takes the last")
        try:
            check_folder(self.folder / tag, KIND, OURS)
        except DamageError as error:
            raise CheckpointError(f"{error}: it is the best checkpoint; --checkpoint last takes the last") from None
        return tag

    def model_states(self, name: str) -> dict[str, torch.Tensor]:
        """Return the learner's weights by parameter name.

        Args:
            name: a tag, `last` or `best`.

        Raises:
            CheckpointError: there is no such checkpoint.
        """
        tag = name if TAG.fullmatch(name) else self.tag(name)
        states = safe_load(self.folder / tag / MODEL_STATES)
        if not isinstance(states, dict) or not isinstance(states.get("module"), dict):
            raise CheckpointError(f"{self.folder / tag / MODEL_STATES}: holds no weights")
        return dict(states["module"])


def _tag(step: int) -> str:
    return f"step-{step:08d}"


def _remove(checkpoint: Path) -> None:
    """Delete a checkpoint's files, its manifest first. Keep a folder that holds anything else, and a link."""
    if checkpoint.is_symlink() or not checkpoint.is_dir():
        return
    for path in sorted(checkpoint.iterdir()):
        if OURS.fullmatch(path.name):
            path.unlink()
    with contextlib.suppress(OSError):
        checkpoint.rmdir()
