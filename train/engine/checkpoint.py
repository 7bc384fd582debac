"""Checkpoints of a run, and where everything lies in its folder.

    recipe.yaml  encoder/ (configuration, tokenizer)  metrics.jsonl  tensorboard/
    checkpoints/step-N/ (states, manifest.json)       model/ (the export)

DeepSpeed makes the states, all ranks together. A checkpoint gets its name when it is whole and on the disk, with a
manifest (`train.engine.integrity`) that also says which step is the best so far. Before one is used its files are
checked; in place of a damaged one the one before is taken. Any number of ranks loads what any number saved, whatever
the ZeRO stage of either. Loading goes through torch's `weights_only` unpickler: a checkpoint cannot run code.
"""

import contextlib
import hashlib
import os
import pickle
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import torch
from deepspeed.checkpoint.constants import OPTIMIZER_STATE_DICT
from deepspeed.runtime.checkpoint_engine.torch_checkpoint_engine import TorchCheckpointEngine

from clearspan.common.files import COPY_BYTES, TEMPORARY, path_in_errors, sync
from clearspan.common.terminal import MOST_SAID, one_line, visible
from clearspan.shards.sealed import FileInfo
from clearspan.train.distributed import world
from clearspan.train.engine.integrity import NAME as MANIFEST
from clearspan.train.engine.integrity import DamageError, check_folder, read_manifest, seal_folder
from clearspan.train.engine.partitions import put_together, recut, taken_apart
from clearspan.train.engine.ranks import agreed, gathered

CHECKPOINTS = "checkpoints"
MODEL_STATES = "mp_rank_00_model_states.pt"
PART = "zero_pp_rank_{}_mp_rank_00_optim_states.pt"
"""The part of the optimizer's state that a rank saves, with ZeRO."""
KIND = "checkpoint"
TAG = re.compile(r"step-(\d{8,})")
OURS = re.compile(
    rf"({re.escape(TEMPORARY)}\w+-)?{re.escape(MANIFEST)}|(zero_pp_rank_\d+_)?mp_rank_\d+_(model|optim)_states\.pt"
)
"""The files that a checkpoint is made of: what is loaded of it, and may be removed with it."""


class CheckpointError(ValueError):
    """There is no such checkpoint, or it cannot be read or written. The message says what to do."""


class _Hashed:
    """A stream that hashes what it writes: large blocks in a thread, while they are being written."""

    def __init__(self, stream: BinaryIO, pool: ThreadPoolExecutor) -> None:
        self.stream, self.pool, self.hash, self.bytes = stream, pool, hashlib.sha256(), 0
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        block = memoryview(data).cast("B")
        hashing = self.pool.submit(self.hash.update, block) if len(block) >= COPY_BYTES else None
        if hashing is None:
            self.hash.update(block)
        try:
            self.stream.write(block)
        except OSError as error:
            self.error = error
            raise
        finally:
            if hashing:
                hashing.result()
        self.bytes += len(block)
        return len(block)

    def flush(self) -> None:
        self.stream.flush()


def write_states(states: Any, path: Path) -> FileInfo:
    """Saves states with torch; they are on the disk when it returns.

    Raises:
        OSError: the disk is full or broken; it names the file.
    """
    with path_in_errors(path), ThreadPoolExecutor(1) as pool, path.open("wb", buffering=COPY_BYTES) as stream:
        hashed = _Hashed(stream, pool)
        try:
            torch.save(states, hashed)  # type: ignore[arg-type]
        except RuntimeError:
            if hashed.error:  # which torch's writer of zip files replaces by what it finds when it closes the file
                raise hashed.error from None
            raise
        stream.flush()
        os.fsync(stream.fileno())
        return FileInfo(hashed.bytes, hashed.hash.hexdigest())


def safe_load(path: Path, map_location: Any = "cpu", mmap: bool = False) -> Any:
    """Tensors and plain values of a file; nothing that could run code. With `mmap`, tensors are read as they are used.

    Raises:
        CheckpointError: it holds something else, or cannot be read.
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


class CheckpointEngine(TorchCheckpointEngine):
    """DeepSpeed's own engine, but it loads tensors and plain values only, and hashes what it saves.

    An error of the disk is kept in `error`: DeepSpeed's barriers follow, where other ranks wait for this one.
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


class RecuttingEngine(CheckpointEngine):
    """Loads what other ranks saved, or what was saved with another ZeRO stage, as if these had saved it with theirs.

    Args:
        engine: DeepSpeed's, over an optimizer whose turn is one.
        parts: of how many ranks there is a part; 0: it was saved with stage 0.
    """

    def __init__(self, engine: Any, parts: int) -> None:
        super().__init__()
        self.optimizer, self.parts, self.shares = engine.optimizer, parts, engine.zero_optimization()
        self._unshared: dict[str, Any] = {}

    def load(self, path: str, map_location: Any = None) -> Any:
        file, (rank, ranks) = Path(path), world()
        if file.name == MODEL_STATES:
            saved = super().load(path, map_location)
            self._unshared = saved["optimizer"] or {}
            if self.parts and not self.shares:
                groups = [group["params"] for group in self.optimizer.param_groups]
                saved["optimizer"] = taken_apart(self._parts(file)[1], groups)
            return {**saved, "dp_world_size": ranks}
        if self.parts:
            first, parts = self._parts(file)
        else:  # the weights are loaded by now
            groups = self.optimizer.round_robin_bit16_groups
            first, parts = {}, [put_together(self._unshared, groups, self.optimizer.state_dict())]
        lengths = [group.numel() for group in self.optimizer.single_partition_of_fp32_groups]
        return {**first, OPTIMIZER_STATE_DICT: recut(parts, rank, ranks, lengths)}

    def _parts(self, beside: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """(what the first rank saved, every rank's optimizer state)."""
        saved = [safe_load(beside.with_name(PART.format(one)), mmap=True) for one in range(self.parts)]
        return saved[0], [one[OPTIMIZER_STATE_DICT] for one in saved]


class Checkpoints:
    """The checkpoints of one run: the two last, and the best where a score picks one; others are deleted."""

    def __init__(self, run: Path) -> None:
        self.folder = run / CHECKPOINTS
        self.kept: list[tuple[str, str | None]] = []
        """What this process saved or resumed from, and the best of then: the two last."""
        self._said: set[str] = set()

    def tags(self) -> list[str]:
        """The step folders, newest first."""
        found = (TAG.fullmatch(path.name) for path in self.folder.glob("step-*"))
        return [match[0] for match in sorted(filter(None, found), key=lambda match: -int(match[1]))]

    def save(self, engine: Any, step: int, state: dict[str, Any], best: bool) -> None:
        """Writes a step's checkpoint; every rank calls it.

        Raises:
            CheckpointError: the disk is full or broken. The checkpoints before are as they were.
        """
        tag = _tag(step)
        part = self.folder / f"{TEMPORARY}{tag}"
        agreed(lambda: self._make_room(part))
        engine.checkpoint_engine = files = CheckpointEngine()
        engine._copy_recovery_script = lambda folder: None  # a script that unpickles whatever it is given
        engine.save_checkpoint(str(self.folder), tag=part.name, client_state={"clearspan": state}, save_latest=False)
        written = gathered((files.files, str(files.error or "")))
        agreed(lambda: self._commit(part, tag, written, best))

    def _make_room(self, part: Path) -> None:
        self.folder.mkdir(exist_ok=True)
        for left in self.folder.glob(f"{TEMPORARY}step-*"):  # by a run that was killed in a save
            _remove(left)
        part.mkdir(exist_ok=True)

    def _commit(self, part: Path, tag: str, written: list[tuple[dict[str, FileInfo], str]], best: bool) -> None:
        """Gives a checkpoint its name, once it is whole; deletes those that it replaces."""
        chosen = tag if best else self.kept[-1][1] if self.kept else None
        try:
            if problem := next((problem for _, problem in written if problem), ""):
                raise OSError(problem)
            files = {name: info for described, _ in written for name, info in described.items()}
            seal_folder(part, KIND, files, {"best": chosen})
            _remove(self.folder / tag)  # one that was damaged: it was not resumed from
            part.rename(self.folder / tag)
        except OSError as error:
            _remove(part)
            mend = "go on with --resume from the step before it" if self.tags() else "run it again"
            raise CheckpointError(f"{self.folder / tag}: could not be saved ({error}): make room and {mend}") from None
        sync(self.folder)
        self.kept = [*self.kept, (tag, chosen)][-2:]
        wanted = {name for pair in self.kept for name in pair}
        for old in self.tags():
            if old not in wanted:
                _remove(self.folder / old)

    def load(self, engine: Any) -> dict[str, Any]:
        """Restores the last whole checkpoint into the engine, on every rank; returns the state saved with it.

        Raises:
            CheckpointError: there is none, or it is of another model than the engine's.
        """
        tag, best, files = agreed(self.last)
        self.kept = [(tag, best)]
        parts = sum(name.startswith("zero_pp_rank_") for name in files)
        as_saved = parts == (world()[1] if engine.zero_optimization() else 0)
        engine.checkpoint_engine = CheckpointEngine() if as_saved else RecuttingEngine(engine, parts)
        try:
            path, state = engine.load_checkpoint(str(self.folder), tag=tag)
        except RuntimeError as error:
            if "loading state_dict" not in str(error):
                raise
            raise CheckpointError(
                f"{self.folder / tag}: holds weights of another model than the recipe's folders do now "
                f"({one_line(error, MOST_SAID)}): put back the model that the run began with"
            ) from None
        if path is None:
            raise CheckpointError(f"{self.folder / tag}: holds no states")
        return dict(state["clearspan"])

    def judge_anew(self, best: bool) -> None:
        """Forgets which step was the best so far, by scores that no longer count; with `best` the last one is it."""
        tag, _ = self.kept[-1]
        self.kept[-1] = (tag, tag if best else None)

    def last(self) -> tuple[str, str | None, dict[str, FileInfo]]:
        """(tag, tag of the best by then, files) of the newest whole checkpoint; says which newer ones are damaged.

        Raises:
            CheckpointError: there is none.
        """
        problems: list[str] = []
        for tag in self.tags():
            try:
                content, files = check_folder(self.folder / tag, KIND, OURS)
            except DamageError as error:
                problems.append(str(error))
                continue
            self._say(problems, f"taking {tag}, which is whole")
            return tag, content.get("best"), files
        if problems:
            raise CheckpointError(
                f"{'; '.join(problems)}: no checkpoint is whole: put a copy of one back, or begin in another folder"
            )
        raise CheckpointError(f"{self.folder}: no checkpoint here; is it the folder of a run?")

    def best(self) -> str | None:
        """The tag of the best checkpoint, by the newest manifest that can be read; says which newer ones cannot."""
        problems: list[str] = []
        for tag in self.tags():
            try:
                content, _ = read_manifest(self.folder / tag, KIND)
            except DamageError as error:
                problems.append(str(error))
                continue
            self._say(problems, f"taking the best by {tag}")
            return content.get("best")
        return None

    def began_best(self) -> bool:
        """Return whether the best checkpoint is the one before the first step."""
        return self.best() == _tag(0)

    def tag(self, which: str) -> str:
        """The `last` whole checkpoint, or the `best`, which is looked at.

        Raises:
            CheckpointError: there is no such checkpoint.
        """
        if which == "last" or not self.tags():
            tag = self.last()[0]
        elif (best := self.best()) is None:
            raise CheckpointError(f"{self.folder}: no score picked a best checkpoint; --checkpoint last takes the last")
        else:
            tag = best
            try:
                check_folder(self.folder / tag, KIND, OURS)
            except DamageError as error:
                raise CheckpointError(f"{error}: it is the best checkpoint; --checkpoint last takes the last") from None
        return tag

    def model_states(self, which: str) -> dict[str, torch.Tensor]:
        """The learner's weights, by parameter name, of a tag, or of what `tag` finds.

        Raises:
            CheckpointError: there is no such checkpoint.
        """
        tag = which if TAG.fullmatch(which) else self.tag(which)
        states = safe_load(self.folder / tag / MODEL_STATES)
        if not isinstance(states, dict) or not isinstance(states.get("module"), dict):
            raise CheckpointError(f"{self.folder / tag / MODEL_STATES}: holds no weights")
        return dict(states["module"])

    def _say(self, problems: list[str], taken: str) -> None:
        if new := [problem for problem in problems if problem not in self._said]:
            print(f"train: {visible('; '.join(new))}: {taken}", file=sys.stderr)
            self._said.update(new)


def _tag(step: int) -> str:
    return f"step-{step:08d}"


def _remove(checkpoint: Path) -> None:
    """Delete a checkpoint's files, its manifest first. A folder that holds anything else stays, and so does a link."""
    if checkpoint.is_symlink() or not checkpoint.is_dir():
        return
    for path in sorted(checkpoint.iterdir()):
        if OURS.fullmatch(path.name):
            path.unlink()
    with contextlib.suppress(OSError):
        checkpoint.rmdir()
