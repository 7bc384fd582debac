"""Losses that end a run, and keys that shape one."""

import pytest

from clearspan.train.config.resume_policy import blocking_keys
from clearspan.train.engine.nan_guard import check_limit
from clearspan.train.recipe import load_recipe


@pytest.mark.guarantee("diverged-run")
def test_a_loss_far_above_chance_ends_a_run() -> None:
    check_limit(99.0, 100.0, 7)
    with pytest.raises(FloatingPointError, match=r"loss is 101 at step 7, above 100: .*raise training\.loss_limit"):
        check_limit(101.0, 100.0, 7)


GIVEN = ["data.text.path=d", "output=o"]


def test_what_shapes_a_run_is_told_from_what_does_not() -> None:
    began = load_recipe("demo", GIVEN)
    free = ["output=elsewhere", "data.text.path=moved", "training.max_steps=500", "training.save_steps=7"]
    free += ["training.logging_steps=3", "training.eval_steps=9", "training.eval_data=pairs.csv"]
    free += ["training.max_hours=2", "training.gradient_norms=true", "training.loss_limit=0"]
    free += ["training.zero_stage=2"]
    assert blocking_keys(began, load_recipe("demo", [*GIVEN, *free])) == []
    shaped = [
        "optimizer.learning_rate=1",
        "training.seed=1",
        "data.text.batch_size=2",
        "objectives.mlm.probability=0.2",
    ]
    assert blocking_keys(began, load_recipe("demo", [*GIVEN, *free, *shaped])) == [
        "data.text.batch_size",
        "objectives.mlm.probability",
        "optimizer.learning_rate",
        "training.seed",
    ]
