"""A step of CLEAR and masked LM: one forward or several, one rank or two, a free shape or a fixed one."""

import dataclasses
import itertools
import os
from pathlib import Path

import pytest
import torch

from shards import Dataset
from tests.train.ranks import run_on_ranks
from tests.train.test_learner import step
from train.build import Learner, build_learner
from train.data.stream import ExampleStream, StreamState
from train.engine.loop import Trainer, _Clock
from train.engine.optimization import build_optimizer
from train.recipe import Recipe, kind, load

RECIPE = "clear-subs+del-span"
RECIPES = (RECIPE, "clear-double-mlm")
ONE_FORWARD = "training.gradient_accumulation_steps=1"
CLIPPED = 0.2
THREE_FORWARDS = (
    "training.batch_size=24",
    "training.gradient_accumulation_steps=3",
    "optimizer.warmup_steps=0",
    "optimizer.learning_rate=0.1",
    "optimizer.eps=0.01",  # AdamW's first step is then smooth in the gradient
    f"optimizer.max_grad_norm={CLIPPED}",
)
MEANS = ("loss", "clear/loss", "mlm/loss", "clear/alignment")
FIGURES = (*MEANS, "tokens", "grad_norm")


def suited(overrides: list[str], recipe: str) -> list[str]:
    """The overrides that a recipe has the keys for."""
    return [o for o in overrides if recipe == RECIPE or "objectives.clear" not in o]


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_static_budget_changes_nothing_but_the_shape(tiny_clear: list[str], recipe: str) -> None:
    overrides = suited(tiny_clear, recipe)
    for expected, found in zip(
        step(overrides, recipe=recipe), step(overrides, recipe=recipe, static=True), strict=True
    ):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_the_budget_holds_every_forward_and_not_much_more(
    tiny_clear: list[str], sentences_folder: Path, sentences: list[list[int]]
) -> None:
    """What the manifest and a sample say of lengths, against 30 forwards of 64 sentences and their views."""
    recipe = load(RECIPE, [*tiny_clear, "output=o", "training.batch_size=64", ONE_FORWARD])
    learner, _, size = build_learner(recipe, Dataset(sentences_folder), 1, False)
    stream = ExampleStream(Dataset(sentences_folder), "sentences", 64, 0, 100)
    batches = stream.batches(StreamState(), learner)
    assert max(map(len, sentences)) > learner.encoder.max_tokens, "the test wants sentences that are cut"
    slots = learner.objectives[1].num_slots(64)
    for _ in range(30):
        with torch.no_grad():
            _, figures = learner(next(batches)[0])
        assert figures["tokens"] <= size.budget.tokens and len(learner.objectives[1].index) <= slots
    assert size.sequences == 192 and size.budget.tokens < 1.6 * figures["tokens"]


@pytest.fixture(scope="module")
def two_ranks(tiny_clear: list[str]) -> list[dict[str, list[torch.Tensor]]]:
    """What each of two ranks computes: a forward of each recipe, and what a step of three forwards leaves."""
    return run_on_ranks(OnARank(tiny_clear), 2)


@dataclasses.dataclass
class OnARank:
    overrides: list[str]

    def __call__(self, rank: int, ranks: int) -> dict[str, list[torch.Tensor]]:
        found = {name: step(suited(self.overrides, name), rank, ranks, recipe=name) for name in RECIPES}
        for stage in range(2):
            overrides = [*self.overrides, *THREE_FORWARDS, f"training.zero_stage={stage}"]
            found[f"stage {stage}"] = trained(overrides, rank, ranks)
        return found


def trained(overrides: list[str], rank: int, ranks: int) -> list[torch.Tensor]:
    """A rank's figures and the weights after the trainer's first step."""
    os.environ["LOCAL_RANK"] = str(rank)
    recipe = load(RECIPE, [*overrides, "output=o"])
    learner, stream = learner_and_stream(recipe, rank, ranks)
    trainer = Trainer(recipe, learner, stream, None, quiet=True)
    batches = stream.batches(StreamState(), learner)
    figures, after = trainer._train_step(batches, _Clock())
    assert after == StreamState(0, 24)
    return [*(figures[name].double() for name in FIGURES), *(p.detach() for p in learner.parameters())]


def learner_and_stream(recipe: Recipe, rank: int = 0, ranks: int = 1) -> tuple[Learner, ExampleStream]:
    dataset = Dataset(recipe.data.path)
    learner, _, _ = build_learner(recipe, dataset, ranks, False)
    forwards = recipe.training.gradient_accumulation_steps
    stream = ExampleStream(
        dataset, kind(recipe), recipe.training.batch_size, 0, 1, forwards=forwards, rank=rank, ranks=ranks
    )
    return learner, stream


def test_two_ranks_give_the_loss_and_gradients_of_one(
    two_ranks: list[dict[str, list[torch.Tensor]]], tiny_clear: list[str]
) -> None:
    for recipe in RECIPES:
        one = step(suited(tiny_clear, recipe), recipe=recipe)
        first, second = (found[recipe] for found in two_ranks)
        assert len(one) == len(first) > 30
        for expected, a, b in zip(one, first, second, strict=True):
            torch.testing.assert_close((a + b) / 2, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("stage", [0, 1])
def test_a_step_of_three_forwards_is_their_mean_clipped_once(
    two_ranks: list[dict[str, list[torch.Tensor]]], tiny_clear: list[str], stage: int
) -> None:
    """The trainer on two ranks against plain torch on one: the forwards one by one, their figures and gradients."""
    recipe = load(RECIPE, [*tiny_clear, *THREE_FORWARDS, "output=o"])
    learner, stream = learner_and_stream(recipe)
    batches = stream.batches(StreamState(), learner)
    logged: list[dict[str, torch.Tensor]] = []
    for batch, _ in itertools.islice(batches, 3):
        assert len(batch.ids) == 8
        loss, figures = learner(batch)
        (loss / 3).backward()
        logged.append(figures)
    norm = torch.nn.utils.clip_grad_norm_(learner.parameters(), CLIPPED)
    assert norm > 5 * CLIPPED, "the test wants gradients that are clipped"
    build_optimizer(learner, recipe.optimizer).step()
    expected = {name: torch.stack([one[name] for one in logged]).mean(0) for name in MEANS}
    expected |= {"tokens": sum(one["tokens"] for one in logged) / 2, "grad_norm": norm}

    first, second = (found[f"stage {stage}"] for found in two_ranks)
    for number, name in enumerate(FIGURES):
        found = (first[number] + second[number]) / 2
        torch.testing.assert_close(found, expected[name].double(), atol=1e-5, rtol=1e-4, msg=name)
    for weights in (first[len(FIGURES) :], second[len(FIGURES) :]):
        for ours, theirs in zip(weights, learner.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs.detach(), atol=1e-5, rtol=1e-4)
