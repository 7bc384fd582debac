"""A step of CLEAR and masked LM: one forward or several, one rank or two, a free shape or a fixed one."""

import dataclasses
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from clearspan.shards import Dataset
from clearspan.train.build import build_feed, build_learner
from clearspan.train.config.recipe import load
from clearspan.train.data.feed import Feed, FeedState, MicroBatch
from clearspan.train.data.stream import ExampleStream, StreamState
from clearspan.train.engine.loop import Trainer
from clearspan.train.engine.optimization import adamw
from clearspan.train.engine.tracking import Clock
from clearspan.train.learner import Learner
from clearspan.train.model.masking import Masked, mask
from clearspan.train.options import ALL, Recipe
from tests.train.ranks import run_on_ranks
from tests.train.test_learner import step

RECIPE = "clear-subs+del-span"
RECIPES = (RECIPE, "clear-double-mlm")
ONE_MICRO_BATCH = "training.gradient_accumulation_steps=1"
CLIPPED = 0.2
THREE_MICRO_BATCHES = (
    "data.text.batch_size=24",
    "training.gradient_accumulation_steps=3",
    "optimizer.warmup_steps=0",
    "optimizer.learning_rate=0.1",
    "optimizer.eps=0.01",  # AdamW's first step is then smooth in the gradient
    f"optimizer.max_grad_norm={CLIPPED}",
)
MEANS = ("loss", "clear/loss", "mlm/loss", "clear/alignment")
METRICS = (*MEANS, "tokens", "grad_norm")


def suited(overrides: list[str], recipe: str) -> list[str]:
    """The overrides that a recipe has the keys for."""
    return [o for o in overrides if recipe == RECIPE or "objectives.clear" not in o]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_static_budget_changes_nothing_but_the_shape(tiny_clear: list[str], recipe: str) -> None:
    overrides = suited(tiny_clear, recipe)
    for expected, found in zip(
        step(overrides, recipe=recipe), step(overrides, recipe=recipe, static=True), strict=True
    ):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_the_budget_holds_every_forward_and_not_much_more(
    tiny_clear: list[str], sentences_folder: Path, sentences: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the manifest and a sample say of lengths, against 30 micro-batches of 64 sentences and their views."""
    recipe = load(RECIPE, [*tiny_clear, "output=o", "data.text.batch_size=64", ONE_MICRO_BATCH])
    learner, _, sizes = build_learner(recipe, {"text": Dataset(sentences_folder)}, 1, False)
    size = sizes[ALL]
    stream = ExampleStream("text", Dataset(sentences_folder), 64, 0, 100)
    batches = stream.batches(StreamState(), learner.columns("text"), learner.collate)
    assert max(map(len, sentences)) > learner.encoder.max_tokens, "the test wants sentences that are cut"
    slots = learner.objectives[1].num_slots(64)
    masked: list[Masked] = []
    monkeypatch.setattr(
        "clearspan.train.learner.mask", lambda *given: (found := mask(*given), masked.append(found[1]))[0]
    )
    for _ in range(30):
        with torch.no_grad():
            _, metrics = learner({"text": next(batches)[0]})
        assert metrics["tokens"] <= size.budget.tokens and len(masked.pop().index) <= slots
    assert size.sequences == 192 and size.budget.tokens < 1.6 * metrics["tokens"]


@pytest.fixture(scope="module")
def two_ranks(tiny_clear: list[str]) -> list[dict[str, list[torch.Tensor]]]:
    """What each of two ranks computes: a micro-batch of each recipe, and what a step of three micro-batches leaves."""
    return run_on_ranks(OnARank(tiny_clear), 2)


@dataclasses.dataclass
class OnARank:
    overrides: list[str]

    def __call__(self, rank: int, ranks: int) -> dict[str, list[torch.Tensor]]:
        found = {name: step(suited(self.overrides, name), rank, ranks, recipe=name) for name in RECIPES}
        for stage in range(3):
            overrides = [*self.overrides, *THREE_MICRO_BATCHES, f"training.zero_stage={stage}"]
            found[f"stage {stage}"] = trained(overrides, rank, ranks)
        return found


def trained(overrides: list[str], rank: int, ranks: int) -> list[torch.Tensor]:
    """A rank's metrics and the weights after the trainer's first step."""
    os.environ["LOCAL_RANK"] = str(rank)
    recipe = load(RECIPE, [*overrides, "output=o"])
    learner, feed = learner_and_feed(recipe, rank, ranks)
    trainer = Trainer(recipe, learner, feed, None, quiet=True)
    metrics, after = trainer._train_step(batches_of(learner, feed), Clock())
    assert after == {"text": StreamState(0, 24)}
    return [*(metrics[name].double() for name in METRICS), *(p.detach() for p in learner.parameters())]


def learner_and_feed(recipe: Recipe, rank: int = 0, ranks: int = 1) -> tuple[Learner, Feed]:
    datasets = {"text": Dataset(recipe.data["text"].path)}
    learner, _, _ = build_learner(recipe, datasets, ranks, False)
    return learner, build_feed(recipe, datasets, learner, rank, ranks)


def batches_of(learner: Learner, feed: Feed) -> Iterator[tuple[MicroBatch, FeedState]]:
    return feed.prefetched(feed.start(), {"text": learner.columns("text")}, learner.collate)


@pytest.mark.slow
def test_two_ranks_give_the_loss_and_gradients_of_one(
    two_ranks: list[dict[str, list[torch.Tensor]]], tiny_clear: list[str]
) -> None:
    for recipe in RECIPES:
        one = step(suited(tiny_clear, recipe), recipe=recipe)
        first, second = (found[recipe] for found in two_ranks)
        assert len(one) == len(first) > 30
        for expected, a, b in zip(one, first, second, strict=True):
            torch.testing.assert_close((a + b) / 2, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("stage", [0, 1, 2])
def test_a_step_of_three_micro_batches_is_their_mean_clipped_once(
    two_ranks: list[dict[str, list[torch.Tensor]]], tiny_clear: list[str], stage: int
) -> None:
    """The trainer on two ranks against plain torch on one: one micro-batch after another."""
    recipe = load(RECIPE, [*tiny_clear, *THREE_MICRO_BATCHES, "output=o"])
    learner, feed = learner_and_feed(recipe)
    logged: list[dict[str, torch.Tensor]] = []
    for batches, _ in itertools.islice(batches_of(learner, feed), 3):
        assert len(batches["text"].ids) == 8
        loss, metrics = learner(batches)
        (loss / 3).backward()
        logged.append(metrics)
    norm = torch.nn.utils.clip_grad_norm_(learner.parameters(), CLIPPED)
    assert norm > 5 * CLIPPED, "the test wants gradients that are clipped"
    adamw(list(learner.parameters()), recipe.optimizer).step()
    expected = {name: torch.stack([one[name] for one in logged]).mean(0) for name in MEANS}
    expected |= {"tokens": sum(one["tokens"] for one in logged) / 2, "grad_norm": norm}

    first, second = (found[f"stage {stage}"] for found in two_ranks)
    for number, name in enumerate(METRICS):
        found = (first[number] + second[number]) / 2
        torch.testing.assert_close(found, expected[name].double(), atol=1e-5, rtol=1e-4, msg=name)
    for weights in (first[len(METRICS) :], second[len(METRICS) :]):
        for ours, theirs in zip(weights, learner.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs.detach(), atol=1e-5, rtol=1e-4)
