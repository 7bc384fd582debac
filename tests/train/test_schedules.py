"""Learning rates by step: the papers' formulas, and transformers' own schedules."""

from collections.abc import Callable

import pytest
import torch
import transformers

from clearspan.train.config.optimizer import OptimizerConfig
from clearspan.train.config.schedules import constant, cosine, learning_rate, linear, round_down, slanted_triangular
from clearspan.train.recipe import load_recipe
from tests.train.test_recipe import GIVEN


def test_slanted_triangular_is_the_formula_of_howard_and_ruder() -> None:
    """Eq. 3 with T = 1000, cut_frac = 0.1, ratio = 32."""
    cut = 100
    options = OptimizerConfig(cut_fraction=0.1, ratio=32)
    for t in (0, 1, 50, 99, 100, 101, 550, 999):
        p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / 0.1 - 1))
        assert slanted_triangular(t, 1000, options) == pytest.approx((1 + p * 31) / 32)


def test_whole_steps_of_a_share_are_not_one_too_few() -> None:
    assert 0.57 * 100 < 57 and round_down(0.57 * 100) == 57 and round_down(56.9) == 56
    options = OptimizerConfig(cut_fraction=0.57, ratio=32)
    assert slanted_triangular(57, 100, options) == 1.0


@pytest.mark.parametrize("warmup", [0, 30])
@pytest.mark.parametrize("ours", [linear, cosine])
def test_schedules_are_transformers_own_but_for_their_first_step(
    ours: Callable[[int, int, OptimizerConfig], float], warmup: int
) -> None:
    """Up to the peak, then straight or as half a cosine to 0 after the last step; without warm-up from the peak."""
    theirs = getattr(transformers, f"get_{ours.__name__}_schedule_with_warmup")
    options, optimizer = OptimizerConfig(warmup_steps=warmup), torch.optim.SGD([torch.zeros(1)], lr=1.0)
    scheduler = theirs(optimizer, warmup, 100)
    for step in range(100):
        if step or not warmup:
            assert ours(step, 100, options) == pytest.approx(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    assert ours(0, 100, options) == (1 / 30 if warmup else 1)


@pytest.mark.parametrize("schedule", ["linear", "cosine", "slanted_triangular", "constant"])
def test_every_schedule_takes_warm_up_steps(schedule: str) -> None:
    given = [*GIVEN, f"optimizer.schedule={schedule}", "optimizer.warmup_steps=5"]
    optimizer = load_recipe("declutr-small", given).optimizer
    rates = [learning_rate(step, 100, optimizer) / optimizer.learning_rate for step in range(100)]
    assert rates[0] > 0 and sorted(rates[:6]) == rates[:6] and rates[5] == 1 > rates[4]


def test_constant_rises_as_linear_does_and_stays() -> None:
    options = OptimizerConfig(schedule="constant", warmup_steps=30)
    for step in range(30):
        assert constant(step, 100, options) == linear(step, 100, options)
    assert {constant(step, 100, options) for step in range(30, 100)} == {1.0}
    assert {constant(step, 100, OptimizerConfig()) for step in range(100)} == {1.0}
