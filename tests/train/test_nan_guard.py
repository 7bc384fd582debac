"""Losses that end a run, and keys that shape one."""

import functools
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from clearspan.train.config.resume_policy import blocking_keys
from clearspan.train.engine import loop
from clearspan.train.engine.loop import Trainer
from clearspan.train.engine.nan_guard import check_finite, check_limit
from clearspan.train.recipe import load_recipe


@pytest.mark.guarantee("diverged-run")
def test_a_loss_far_above_chance_ends_a_run() -> None:
    check_limit(99.0, 100.0, 7)
    with pytest.raises(FloatingPointError, match=r"101 at step 7, above 100: .*training\.loss_limit"):
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


@pytest.mark.guarantee("diverged-run")
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["loss", "declutr/loss", "grad_norm", "grad_norm/declutr", "weights_norm"])
def test_a_loss_or_a_norm_that_is_not_finite_ends_a_run_wherever_it_stands(name: str, value: float) -> None:
    others = {f"of-{number}/{metric}": 0.5 for number in range(20) for metric in ("accuracy", "loss")}
    metrics = {"learning_rate": 5e-5, "loss": 2.5, **others, "tokens": 4096.0, name: value, "temperature": 0.05}
    remedy = "lower optimizer.learning_rate, or set training.bf16=false"
    with pytest.raises(FloatingPointError, match=f"^{name} is {value} at step 7: {remedy}$"):
        check_finite(metrics, 7)


@pytest.mark.guarantee("diverged-run")
def test_what_is_neither_a_loss_nor_a_norm_may_be_infinite_and_finite_losses_end_nothing() -> None:
    check_finite(
        {"loss": 1e30, "grad_norm": 0.0, "weights_norm": 3.5, "mfu": math.inf, "validation/accuracy": math.nan}, 7
    )
    check_limit(100.0, 100.0, 7)


def trainer(**changed: Any) -> Any:
    """Return what the checks use of a trainer: two objectives, a vocabulary of 1,000 ids, and a limit of ten times."""
    config = SimpleNamespace(vocab_size=1000)
    objectives = {"declutr": SimpleNamespace(weight=1.0), "mlm": SimpleNamespace(weight=0.5)}
    checked = SimpleNamespace(
        first_loss=None,
        step=7,
        ranks=1,
        _logged=False,
        engine=SimpleNamespace(device="cpu"),
        learner=SimpleNamespace(encoder=SimpleNamespace(config=config)),
        recipe=SimpleNamespace(objectives=objectives, training=SimpleNamespace(loss_limit=10.0)),
    )
    vars(checked).update(changed)
    checked._reduced = functools.partial(Trainer._reduced, checked)
    return checked


CHANCE = 1.5 * math.log(1000)


@pytest.mark.guarantee("diverged-run")
@pytest.mark.parametrize(
    ("losses", "limit"),
    [
        ([2.0, 10 * CHANCE - 0.1, 10 * CHANCE + 0.1], 10 * CHANCE),
        ([CHANCE + 1, 10 * CHANCE + 1, 10 * CHANCE + 10.1], 10 * CHANCE + 10),
        ([CHANCE + 1, 2.0, 10 * CHANCE + 9.9, 10 * CHANCE + 10.1], 10 * CHANCE + 10),
    ],
)
def test_the_limit_is_a_multiple_of_chance_or_of_the_first_loss_if_that_is_higher(
    losses: list[float], limit: float
) -> None:
    run = trainer()
    for loss in losses[:-1]:
        Trainer._check_loss(run, loss)
    assert run.first_loss == losses[0]
    with pytest.raises(FloatingPointError, match=rf"^loss is .* at step 7, above {limit:.4g}: .*training\.loss_limit$"):
        Trainer._check_loss(run, losses[-1])


@pytest.mark.guarantee("diverged-run")
def test_the_first_loss_of_a_resumed_run_stays_and_a_limit_of_0_checks_nothing() -> None:
    resumed = trainer(first_loss=CHANCE + 1)
    Trainer._check_loss(resumed, 10 * CHANCE + 9)
    assert resumed.first_loss == CHANCE + 1
    unlimited = trainer()
    unlimited.recipe.training.loss_limit = 0
    Trainer._check_loss(unlimited, 1e30)


@pytest.mark.guarantee("diverged-run")
def test_a_loss_of_any_rank_that_is_not_finite_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics are summed over ranks by their names in order, whatever order a rank has them in."""
    metrics = {"tokens": torch.tensor(128), "grad_norm": torch.tensor(0.5), "loss": torch.tensor(2.5)}
    other = torch.tensor([1.5, 3.5, 256.0], dtype=torch.float64)
    monkeypatch.setattr(loop, "sum_over_ranks", lambda values: values + other)
    assert Trainer._reduced(trainer(ranks=2), metrics) == {"grad_norm": 1.0, "loss": 3.0, "tokens": 192.0}
    other[1] = math.nan
    with pytest.raises(FloatingPointError, match=r"^loss is nan at step 7: "):
        Trainer._reduced(trainer(ranks=2), metrics)


@pytest.mark.guarantee("diverged-run")
@pytest.mark.parametrize("broken", ["loss", "weights_norm"])
def test_no_checkpoint_is_saved_of_weights_or_a_loss_that_are_not_finite(broken: str) -> None:
    learner = torch.nn.Linear(3, 2)
    metrics = {"loss": torch.tensor(2.5)}
    if broken == "loss":
        metrics["loss"] += math.inf
    else:
        learner.bias.data[1] = math.nan
    with pytest.raises(FloatingPointError, match=f"^{broken} is (nan|inf) at step 7"):
        Trainer._save(trainer(learner=learner), metrics, best=True)
