"""Losses that end a run, and the saved examples of the first step that went wrong."""

import json
from pathlib import Path

import pytest
import torch

from clearspan.train.config.recipe import load
from clearspan.train.config.resume_policy import shaping
from clearspan.train.engine.nan_guard import Recent, check_limit

NAN, FINE = torch.tensor(float("nan")), torch.tensor(1.5)


def test_the_examples_of_the_first_step_that_went_wrong_are_saved(tmp_path: Path) -> None:
    recent = Recent()
    for step, loss, norm in ((4, FINE, FINE), (5, FINE, NAN), (6, NAN, NAN)):
        recent.add(step, {"text": [torch.tensor([10 * step]), torch.tensor([10 * step + 1])]}, [loss, norm])
    said = recent.save(tmp_path, 6, "loss is nan")
    file = tmp_path / "failed-step-00000005.json"
    assert said == f"; step 5 was the first to go wrong; that step's examples are listed in {file}"
    assert json.loads(file.read_text()) == {
        "step": 5,
        "problem": "loss is nan",
        "examples": {"text": [50, 51]},
    }


def test_what_was_found_right_is_forgotten_but_for_the_last_step(tmp_path: Path) -> None:
    """Its gradient may have damaged the weights, which are checked when they are saved."""
    recent = Recent()
    for step in (1, 2, 3):
        recent.add(step, {"text": [torch.tensor([step])]}, [FINE])
    recent.checked()
    assert list(recent.ids) == [3] and "step 3" not in recent.save(tmp_path, 3, "weights_norm is inf")
    assert json.loads((tmp_path / "failed-step-00000003.json").read_text())["examples"] == {"text": [3]}


def test_a_loss_far_above_chance_ends_a_run() -> None:
    check_limit(99.0, 100.0, 7)
    with pytest.raises(FloatingPointError, match=r"loss is 101 at step 7, above 100: .*raise training\.loss_limit"):
        check_limit(101.0, 100.0, 7)


GIVEN = ["data.text.path=d", "output=o"]


def test_what_shapes_a_run_is_told_from_what_does_not() -> None:
    began = load("demo", GIVEN)
    free = ["output=elsewhere", "data.text.path=moved", "training.max_steps=500", "training.save_steps=7"]
    free += ["training.logging_steps=3", "training.eval_steps=9", "training.eval_data=pairs.csv"]
    free += ["training.max_hours=2", "training.gradient_norms=true", "training.loss_limit=0"]
    free += ["training.zero_stage=2"]
    assert shaping(began, load("demo", [*GIVEN, *free])) == []
    shaped = [
        "optimizer.learning_rate=1",
        "training.seed=1",
        "data.text.batch_size=2",
        "objectives.mlm.probability=0.2",
    ]
    assert shaping(began, load("demo", [*GIVEN, *free, *shaped])) == [
        "data.text.batch_size",
        "objectives.mlm.probability",
        "optimizer.learning_rate",
        "training.seed",
    ]
