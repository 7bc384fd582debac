"""Warnings about a loss at chance level."""

import json
import math
from pathlib import Path

import pytest
import torch

from clearspan.train.engine.watching import Watch, watched
from tests.train.ranks import train_alone
from tests.train.test_learner import learner_and_batch

CHANCE = math.log(31)
FIGURES = {"spans/loss": CHANCE, "learning_rate": 1e-3}


def watch() -> Watch:
    return Watch("spans", CHANCE, "learning_rate", 1e-3, "try a lower rate")


def said(steps: range, figures: dict[str, float]) -> list[tuple[int, str]]:
    """Return (step, warning) of steps that all have these figures."""
    each = watch()
    return [(step, line) for step in steps for line in each.warnings(step, {**FIGURES, **figures})]


def test_a_loss_that_stays_at_chance_is_said_once_with_what_to_do() -> None:
    for near in (1.0, 1.015, 0.985):
        ((step, line),) = said(range(10, 500, 10), {"spans/loss": near * CHANCE})
        assert step == 50 and "objectives.spans: its loss is " in line
        assert "has been at chance level, 3.434, since step 10: nothing is learned; try a lower rate" in line


@pytest.mark.parametrize(
    "figures",
    [
        {"spans/loss": 0.95 * CHANCE},
        {"spans/loss": 1.05 * CHANCE},
        {"learning_rate": 4e-4},
    ],
)
def test_what_is_not_chance_or_not_tried_yet_is_not_said(figures: dict[str, float]) -> None:
    """A loss that is not quite at chance level, and steps whose learning rate still rises."""
    assert said(range(10, 500, 10), figures) == []


def test_a_few_steps_and_a_loss_that_comes_and_goes_are_not_said() -> None:
    assert said(range(1, 20), {}) == [] and said(range(100, 500, 100), {}) == []
    each = watch()
    losses = [CHANCE, CHANCE, CHANCE, CHANCE, 0.9 * CHANCE] * 10
    assert not any(each.warnings(10 * step, {**FIGURES, "spans/loss": loss}) for step, loss in enumerate(losses, 1))


def test_chance_is_what_equal_vectors_give(tiny: list[str]) -> None:
    """The chance level of each objective is its loss when all vectors are equal and all tokens equally probable."""
    for words in ([], ["objectives.spans.memory=4"], ["data.text.batch_size=6"]):
        learner, batches, recipe = learner_and_batch([*tiny, *words])
        for name, parameter in learner.encoder.named_parameters():
            parameter.data.fill_(float(name.endswith("LayerNorm.bias")))
        known = {watch.name: watch for watch in watched(recipe, learner)}
        _, metrics = learner.train()(batches)
        if words == ["objectives.spans.memory=4"]:  # which the first step filled
            _, metrics = learner.train()(batches)
        for name in ("spans", "mlm"):
            torch.testing.assert_close(metrics[f"{name}/loss"], torch.tensor(known[name].chance), rtol=1e-3, atol=0)


@pytest.mark.slow
def test_a_run_says_it_on_the_terminal_and_in_its_metrics(tiny: list[str], tmp_path: Path) -> None:
    """With a learning rate that changes nothing, the masked-LM loss of random weights stays at chance level."""
    words = ["optimizer.learning_rate=1e-12", "training.max_steps=21", "training.save_steps=100"]
    done = train_alone(*tiny, *words, "optimizer.cut_fraction=0.01", "optimizer.ratio=1", f"output={tmp_path / 'run'}")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    warnings = [line["warning"] for line in lines if "warning" in line]
    assert len(warnings) == 1 and warnings[0] in done.stdout
    assert warnings[0].startswith("objectives.mlm: its loss is 7.")
    assert "nothing is learned; try another optimizer.learning_rate" in warnings[0]
