"""Checkpoints of a run, in the run's folder:

    recipe.yaml  inputs.json  encoder/ (configuration, tokenizer)  metrics.jsonl  tensorboard/
    checkpoints/step-N/ (states.pt, manifest.json)       model/ (the export)

Rank 0 writes states.pt, with the weights and the whole state of the optimizer (`train.engine.optimizer_state`), so that
a run can resume on another number of ranks or at another ZeRO stage. If an adapter is trained (`train.model.lora`), the
frozen weights are left out. A checkpoint is written under a temporary name, and renamed when it is complete and on the
disk. Its manifest holds the hashes of its files, and the name of the best checkpoint so far
(`common.checksummed_folder`). Files are verified before they are loaded. If a checkpoint is damaged, the run resumes
from an earlier one. torch's `weights_only` unpickler loads states.pt, so that a checkpoint cannot run code.
"""

import contextlib
import pickle
import sys
from pathlib import Path
from typing import Any

import torch

from clearspan.common.answers import continue_with
from clearspan.common.checksummed_folder import NAME as MANIFEST
from clearspan.common.checksummed_folder import FolderChangedError, check_folder, write_manifest
from clearspan.common.files import TEMPORARY, atomic_write, sync
from clearspan.common.terminal import MAX_SAID, one_line, visible
from clearspan.train.engine.optimizer_state import load_state, whole_state
from clearspan.train.engine.ranks import agreed
from clearspan.train.model.lora import load_without_frozen, without_frozen
from clearspan.train.run_folder import CHECKPOINTS, tags

STATES = "states.pt"
KIND = "checkpoint"


class CheckpointError(ValueError):
    """A checkpoint does not exist, or cannot be read or written. The message says what to do."""


def write_states(states: Any, path: Path) -> None:
    """Save weights and other states to a file with `torch.save`, and wait until the file is on the disk.

    Args:
        states: the object to save.
        path: the file; it is replaced only when the new one is complete.

    Raises:
        OSError: the disk is full or broken; the error names the file.
    """
    with atomic_write(path) as stream:
        try:
            torch.save(states, stream)
        except RuntimeError as error:  # torch's zip writer raises it while it closes the file, in place of the OSError
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise


def safe_load(path: Path) -> dict[str, Any]:
    """Load the file states.pt of a checkpoint, without running any code that it may contain.

    Returns:
        A dict with the keys `module` (name of a parameter or buffer -> tensor), `optimizer` (the optimizer's state) and
        `clearspan` (the state of training). The tensors are on the CPU.

    Raises:
        CheckpointError: the file cannot be read, holds no weights, or holds anything but tensors and plain values.
    """
    try:
        states = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, IndexError, KeyError, pickle.UnpicklingError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(f"{path}: cannot be read as a checkpoint ({reason})") from None
    if not isinstance(states, dict) or not isinstance(states.get("module"), dict):
        raise CheckpointError(f"{path}: holds no weights")
    return states


class Checkpoints:
    """The checkpoints of one run: the last two, and the best one if a score or a loss picks it; others are deleted.

    A checkpoint is identified by its tag: the name of its folder, such as step-00000500.

    Args:
        run: the run's folder.
    """

    def __init__(self, run: Path) -> None:
        self.folder = run / CHECKPOINTS
        self.latest: list[tuple[str, str | None]] = []
        """(tag, tag of the best so far) for the last two checkpoints that this process saved or resumed from."""

    def tags(self) -> list[str]:
        """Return the tags of all checkpoints, newest first."""
        return tags(self.folder.parent)

    def save(self, engine: Any, step: int, state: dict[str, Any], best: bool) -> None:
        """Write the checkpoint of a step; every rank must call this method.

        Args:
            engine: DeepSpeed's engine, whose weights and optimizer's state are saved.
            step: the number of steps that the run has made.
            state: the state of training, such as the positions in the datasets, as plain values; `load` returns it.
            best: whether the weights are the best so far.

        Raises:
            CheckpointError: the disk is full or broken. Earlier checkpoints stay as they were.
        """
        optimizer = whole_state(engine)
        weights = without_frozen(engine.module, engine.module.frozen_by_adapter())
        states = {"module": weights, "optimizer": optimizer, "clearspan": state}
        agreed(lambda: self.write(step, states, best))

    def write(self, step: int, states: dict[str, Any], best: bool) -> None:
        """Write a checkpoint, and delete the checkpoints that are neither among the last two nor the best one.

        Only rank 0 calls this method.

        Args:
            step: the number of steps that the run has made.
            states: the weights (`module`), the optimizer's state (`optimizer`) and the state of training (`clearspan`).
            best: whether the weights are the best so far.

        Raises:
            CheckpointError: the disk is full or broken.
        """
        tag = f"step-{step:08d}"
        part, best_tag = self.folder / f"{TEMPORARY}{tag}", tag if best else self.latest[-1][1] if self.latest else None
        try:
            self.folder.mkdir(exist_ok=True)
            for unfinished in self.folder.glob(f"{TEMPORARY}step-*"):  # by a run that was killed during a save
                _remove(unfinished)
            part.mkdir(exist_ok=True)
            write_states(states, part / STATES)
            write_manifest(part, KIND, {"best": best_tag})
            _remove(self.folder / tag)  # a damaged one, which the run did not resume from
            part.rename(self.folder / tag)
        except OSError as error:
            _remove(part)
            remedy = continue_with("resume", "continue with `resume` from the step before it")
            remedy = remedy if self.tags() else "run it again"
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
        """Load the last undamaged checkpoint into the engine; return the state of training that `save` was called with.

        Every rank must call this method.

        Raises:
            CheckpointError: there is no undamaged checkpoint, or it holds the weights of a different model.
        """
        tag, best = agreed(self.last)
        self.latest = [(tag, best)]
        states = safe_load(self.folder / tag / STATES)
        try:
            load_without_frozen(engine.module, states["module"], engine.module.frozen_by_adapter())
        except RuntimeError as error:
            raise CheckpointError(
                f"{self.folder / tag}: holds weights of another model than the recipe names now "
                f"({one_line(error, MAX_SAID)}): restore the model with which the run began"
            ) from None
        load_state(engine, states["optimizer"])
        return dict(states["clearspan"])

    def last(self) -> tuple[str, str | None]:
        """Return the tags of the newest undamaged checkpoint, and of the best checkpoint that is not newer than it.

        The second tag is None if no score or loss picked a best checkpoint. If newer checkpoints are damaged, a warning
        about them is printed.

        Raises:
            CheckpointError: there is no undamaged checkpoint.
        """
        problems: list[str] = []
        for tag in self.tags():
            try:
                content = _verified(self.folder / tag)
            except FolderChangedError as error:
                problems.append(str(error))
                continue
            if problems:
                print(f"train: {visible('; '.join(problems))}: using {tag}, which is complete", file=sys.stderr)
            return tag, content.get("best")
        if problems:
            raise CheckpointError(
                f"{'; '.join(problems)}: no checkpoint is complete: restore one from a copy, or start in another folder"
            )
        raise CheckpointError(f"{self.folder}: no checkpoint here; is it the folder of a run?")

    def choose(self, name: str | None) -> tuple[str, str]:
        """Choose a checkpoint and verify it; return (`last` or `best`, its tag).

        Args:
            name: `last` or `best`; None for the best checkpoint, or the last one if there is no best one.

        Raises:
            CheckpointError: there is no such checkpoint, or the best one is damaged.
        """
        last, best = self.last()
        if name == "last" or (name is None and best is None):
            return "last", last
        if best is None:
            raise CheckpointError(
                f"{self.folder}: there is no best checkpoint, because no score picked one: use `checkpoint` last"
            )
        try:
            if best != last:  # `last` has verified it already
                _verified(self.folder / best)
        except FolderChangedError as error:
            raise CheckpointError(
                f"{error}: this is the best checkpoint; use `checkpoint` last for the last one"
            ) from None
        return "best", best

    def states(self, tag: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return the weights and the state of training that the checkpoint `tag` holds.

        Returns:
            (name of a parameter or buffer of the `Learner` -> tensor on the CPU, the state that `save` was called
            with).

        Raises:
            CheckpointError: the checkpoint cannot be read.
        """
        states = safe_load(self.folder / tag / STATES)
        return dict(states["module"]), dict(states["clearspan"])


def _verified(folder: Path) -> dict[str, Any]:
    """Verify the files of a checkpoint by the hashes in its manifest. Files that it does not list are ignored.

    Returns:
        A dict from the manifest with the key `best`: the tag of the checkpoint that was the best when this one was
        written; None if there was none.

    Raises:
        FolderChangedError: the manifest or a file that it lists is missing or damaged.
    """
    return check_folder(folder, KIND, refuse_unlisted=False)


def _remove(checkpoint: Path) -> None:
    """Delete the files of a checkpoint, the manifest first, and then its folder if no other files are in it.

    If the path is a symbolic link or not a folder, nothing is deleted.

    Args:
        checkpoint: the folder of the checkpoint.
    """
    if checkpoint.is_symlink() or not checkpoint.is_dir():
        return
    for path in sorted(checkpoint.iterdir()):
        is_ours = path.name in (MANIFEST, STATES) or path.name.startswith(TEMPORARY)
        if is_ours and path.name.endswith((MANIFEST, STATES)):
            path.unlink()
    with contextlib.suppress(OSError):
        checkpoint.rmdir()
