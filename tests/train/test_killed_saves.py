"""A kill at any point of a save: the run resumes from that checkpoint or from the one before."""

from collections.abc import Callable
from pathlib import Path

import pytest

from clearspan.common.checksummed_folder import NAME as MANIFEST
from clearspan.common.files import TEMPORARY
from clearspan.train.engine.checkpoint import STATES, CheckpointError, Checkpoints
from tests.train import runs
from tests.train.ranks import train_alone
from tests.train.runs import same_weights

FIGURES = ("loss", "spans/loss", "mlm/loss", "grad_norm", "tokens", "learning_rate")
SAVING = ["training.save_steps=2", "training.zero_stage=2"]


@pytest.fixture(scope="module")
def kills(tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """(run, the states that kills would leave): six steps, saved at every second one."""
    folder = tmp_path_factory.mktemp("kills")
    (folder / "snapshots").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SNAPSHOTS", str(folder / "snapshots"))
        train_alone(*tiny, *SAVING, f"output={folder / 'run'}", script="tests/train/snapshots.py")
    return folder / "run", sorted((folder / "snapshots").iterdir())


def saving(left: Path) -> int:
    """Return the step whose checkpoint was being written."""
    return int(left.name.split("-")[1])


def newest(left: Path) -> int:
    """Return the step to resume from; 0: none."""
    try:
        return int(Checkpoints(left).last()[0].removeprefix("step-"))
    except CheckpointError:
        return 0


def files(left: Path, folder: str) -> set[str]:
    """Return the names of the files in checkpoint folders of this name."""
    return {path.name for found in (left / "checkpoints").glob(folder) for path in found.iterdir()}


@pytest.mark.guarantee("bit-equal-resume")
@pytest.mark.slow
def test_whatever_is_done_to_files_a_whole_checkpoint_is_there(kills: tuple[Path, list[Path]]) -> None:
    """The previous checkpoint until the new one is complete, then the new one; old ones are deleted last."""
    for step in (2, 4, 6):
        found = [newest(left) for left in kills[1] if saving(left) == step]
        assert set(found) == {step - 2, step} and found == sorted(found)
        assert found.count(step - 2) >= 8, "the test wants kills amid the states, and around them"
    assert len([left for left in kills[1] if newest(left) == saving(left) == 6]) >= 4  # amid what is removed


@pytest.mark.guarantee("bit-equal-resume")
@pytest.mark.slow
def test_one_that_was_killed_at_its_first_save_begins_again(
    kills: tuple[Path, list[Path]], tiny: list[str], tmp_path: Path
) -> None:
    left = [left for left in kills[1] if saving(left) == 2 and newest(left) == 0][-1]
    assert files(left, f"{TEMPORARY}*") == {STATES, MANIFEST}, "the test wants a checkpoint that has but no name"
    again = runs.copied(left, tmp_path / "run")
    done = train_alone(*tiny, *SAVING, f"output={again}", "--resume")
    assert f"{again}: no checkpoint to resume from: starts from the beginning" in done.stdout
    assert runs.metrics(again, FIGURES) == runs.metrics(kills[0], FIGURES)


def half_written(left: Path) -> bool:
    return files(left, f"{TEMPORARY}*") == {STATES}


def whole_without_a_name(left: Path) -> bool:
    return MANIFEST in files(left, f"{TEMPORARY}*")


def half_removed(left: Path) -> bool:
    old = files(left, "step-00000002")
    return bool(old) and MANIFEST not in old


@pytest.mark.guarantee("bit-equal-resume")
@pytest.mark.slow
@pytest.mark.parametrize("kind, step", [(half_written, 2), (whole_without_a_name, 4), (half_removed, 6)])
def test_one_that_was_killed_amid_a_save_resumes_bit_for_bit(
    kills: tuple[Path, list[Path]], tiny: list[str], tmp_path: Path, kind: Callable[[Path], bool], step: int
) -> None:
    left = next(left for left in kills[1] if kind(left) and newest(left) == step)
    run = runs.copied(left, tmp_path / "run")
    train_alone(*tiny, *SAVING, f"output={run}", "--resume")
    assert runs.metrics(run, FIGURES) == runs.metrics(kills[0], FIGURES) and same_weights(run, kills[0])
    assert not list((run / "checkpoints").glob(f"{TEMPORARY}*"))
