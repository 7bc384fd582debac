"""Whole runs that are watched: held-out losses, each objective's gradient, the time that a run has, more steps."""

import json
import os
from pathlib import Path

import pytest
import yaml

from clearspan.train.engine.checkpoint import Checkpoints
from tests.train import runs
from tests.train.conftest import write_dataset
from tests.train.ranks import train_alone, train_on_ranks

OWN_NORMS = ("spans/grad_norm", "mlm/grad_norm")


@pytest.fixture(scope="module")
def watched(
    tiny: list[str], documents: list[list[int]], tokenizer_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[str]:
    """Four steps, with 20 documents held out."""
    folder = tmp_path_factory.mktemp("held")
    held = write_dataset(folder / "validation", documents[-20:], tokenizer_folder)
    kept = write_dataset(folder / "train", documents[:-20], tokenizer_folder)
    options = [f"data.text.path={kept}", f"data.text.validation={held}", "training.eval_steps=2"]
    return [*tiny, *options, "training.max_steps=4", "training.gradient_norms=true"]


@pytest.fixture(scope="module")
def late(watched: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run on one rank whose time was over after its first step, taken up again; what the first part said."""
    run = tmp_path_factory.mktemp("late") / "run"
    stopped = train_alone(*watched, f"output={run}", "training.max_hours=1e-9", code=130)
    train_alone(*watched, f"output={run}", "--resume")
    return run, stopped.stderr


def lines(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.guarantee("one-line-errors")
@pytest.mark.slow
def test_a_run_whose_time_is_over_stops_and_saves(late: tuple[Path, str]) -> None:
    assert "stopped and saved at step 1 of 4; continue with --resume" in late[1]


@pytest.mark.exhaustive
def test_held_out_losses_are_the_same_on_one_rank_and_on_two(
    late: tuple[Path, str], watched: list[str], tmp_path: Path
) -> None:
    """Before the first step too; and so are the gradients of each objective."""
    two = tmp_path / "two"
    train_on_ranks(2, *watched, f"output={two}", port=27210 + os.getpid() % 300)
    one = late[0]
    for ours, theirs in zip(*([x for x in lines(run) if "validation/loss" in x] for run in (one, two)), strict=True):
        names = ours.keys() - {"validation/spans/uniformity"}  # which is of one rank's points
        assert {name: ours[name] for name in names} == pytest.approx({name: theirs[name] for name in names}, rel=1e-4)
    assert [line["step"] for line in lines(two) if "validation/loss" in line] == [0, 2, 4]
    for ours, theirs in zip(*([x for x in lines(run) if "loss" in x] for run in (one, two)), strict=True):
        assert {name: ours[name] for name in OWN_NORMS} == pytest.approx({n: theirs[n] for n in OWN_NORMS}, rel=1e-4)
        assert theirs["grad_norm"] <= sum(theirs[name] for name in OWN_NORMS) * 1.0001


@pytest.mark.slow
def test_the_lowest_held_out_loss_picks_the_best_checkpoint(late: tuple[Path, str]) -> None:
    losses = {line["step"]: line["validation/loss"] for line in lines(late[0]) if "validation/loss" in line}
    assert Checkpoints(late[0]).last()[1] == f"step-{min(losses, key=lambda step: losses[step]):08d}"


@pytest.mark.slow
def test_a_run_is_extended_and_not_shortened(late: tuple[Path, str], watched: list[str], tmp_path: Path) -> None:
    """By another number of steps, and with what does not shape it as the user likes it now."""
    run = runs.copied(late[0], tmp_path / "run")
    given = [*watched, f"output={run}", "--resume"]
    longer = train_alone(*given, "training.max_steps=6", "training.logging_steps=2")
    assert "6 steps in place of 4; the learning rate follows the schedule of the new length" in longer.stdout
    assert [line["step"] for line in lines(run) if "loss" in line] == [1, 2, 3, 4, 6]
    saved = (run / "recipe.yaml").read_text()
    assert yaml.safe_load(saved)["training"]["max_steps"] == 6
    assert "the run has made 6 steps already" in train_alone(*given, "training.max_steps=5", code=2).stderr
    assert (run / "recipe.yaml").read_text() == saved
