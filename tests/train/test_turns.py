"""`optimization: alternate`: each turn its own update over the shared weights."""

import dataclasses
import itertools
import math
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from clearspan.shards import Dataset
from clearspan.train.config.options import Recipe, RecipeError
from clearspan.train.data.feed import Feed, FeedState, MicroBatch
from clearspan.train.engine.loop import Trainer
from clearspan.train.engine.tracking import Clock
from clearspan.train.recipe import load_recipe
from clearspan.train.start.build_learner import build_learner
from clearspan.train.start.build_streams import build_feed
from clearspan.train.step.learner import Learner
from tests.train.ranks import run_on_ranks

SPANS = ("max_span=24", "min_span=4", "placement=uniform", "min_distance=16")
ALTERNATE = [
    "optimization=alternate",
    "objectives.mlm.input=separate",
    *(f"objectives.mlm.sampler.{key}" for key in SPANS),
    "turns.mlm.learning_rate=0.002",
    "turns.mlm.max_grad_norm=0.1",
    "turns.mlm.schedule=constant",
    "optimizer.eps=0.01",  # AdamW's first steps are then smooth in the gradient
    "training.max_steps=8",
]
PICTURES = [
    "objectives.spans.data=text",
    "objectives.mlm.data=text",
    "objectives.pictures.type=patches",
    "objectives.pictures.data=images",
    "data.images.batch_size=8",
    "data.images.modality.image_size=32",
    "turns.pictures.learning_rate=0.003",
    "turns.pictures.schedule=linear",
    "turns.pictures.warmup_steps=4",
    "turns.pictures.weight_decay=0.3",
    "turns.pictures.betas=[0.8, 0.99]",
    "turns.pictures.max_grad_norm=1.0",
    "turns.mlm.max_grad_norm=0",
    "optimizer.schedule=linear",
    "optimizer.max_grad_norm=0.5",
    "training.max_steps=10",
]
RATES = {
    "spans": [0.001 * (10 - step) / 10 for step in range(10)],
    "mlm": [0.002] * 10,
    "pictures": [0.003 * part for part in (1 / 4, 1 / 4, 2 / 4, 3 / 4, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6)],
}
"""Each turn's learning rate in ten steps: straight down; constant; up in four steps, and down."""
CLIPPED = {"spans": 0.5, "mlm": math.inf, "pictures": 1.0}
DECAY = {"spans": 0.01, "mlm": 0.01, "pictures": 0.3}
BETAS = {"spans": (0.9, 0.999), "mlm": (0.9, 0.999), "pictures": (0.8, 0.99)}
OUTSIDE = {
    "spans": ("lm_head", "patches-images", "objectives"),
    "mlm": ("patches-images", "objectives"),
    "pictures": ("lm_head", "roberta.embeddings"),
}
"""Parts of the names of the parameters that a turn does not reach: text's shares all but the patches and their head."""


@pytest.fixture(scope="module")
def alternate(tiny: list[str]) -> list[str]:
    return [*tiny, *ALTERNATE]


@pytest.mark.exhaustive
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_ten_steps_are_those_of_a_plain_optimizer_for_each_turn(
    alternate: list[str], images_folder: Path, tmp_path: Path, micro_batches: int
) -> None:
    """Two turns over text and one over pictures: three AdamWs, each over the weights that its loss reaches."""
    data = [f"data.images.path={images_folder}", f"training.gradient_accumulation_steps={micro_batches}"]
    overrides = [*alternate, *PICTURES, *data]
    learner, _, feed, sizes = built(overrides, tmp_path)
    found_sequences = {turn: size.sequences * micro_batches for turn, size in sizes.items()}
    assert found_sequences == {"spans": 32, "mlm": 16, "pictures": 16}
    norms = plain_steps(learner, list(itertools.islice(batches_of(learner, feed), 10 * micro_batches)), micro_batches)
    (found,) = run_on_ranks(TenSteps(overrides, tmp_path), 1)
    for turn, expected in norms.items():
        assert [one[f"learning_rate/{turn}"].item() for one in found["metrics"]] == pytest.approx(RATES[turn])
        torch.testing.assert_close(torch.stack([one[f"grad_norm/{turn}"] for one in found["metrics"]]), expected)
    assert (norms["spans"] > CLIPPED["spans"]).any() and (norms["pictures"] > CLIPPED["pictures"]).any()
    for one in found["metrics"]:
        losses = one["spans/loss"] + one["mlm/loss"] + one["pictures/loss"]
        torch.testing.assert_close(one["loss"], losses, atol=1e-6, rtol=1e-6)
    for name, parameter in learner.named_parameters():
        torch.testing.assert_close(found["weights"][name], parameter.detach(), atol=1e-6, rtol=1e-6, msg=name)


def built(overrides: list[str], output: Path) -> tuple[Learner, Recipe, Feed, dict]:
    recipe = load_recipe("demo", [*overrides, f"output={output}"])
    datasets = {name: Dataset(data.path) for name, data in recipe.data.items()}
    learner, _, sizes = build_learner(recipe, datasets, 1, False)
    return learner, recipe, build_feed(recipe, datasets, learner, 0, 1), sizes


def batches_of(learner: Learner, feed: Feed) -> Iterator[tuple[MicroBatch, FeedState]]:
    return feed.prefetched(feed.start(), {name: learner.columns(name) for name in feed.streams}, learner.collate)


@dataclasses.dataclass
class TenSteps:
    """The metrics of the trainer's first ten steps, and the weights after them."""

    overrides: list[str]
    output: Path

    def __call__(self, rank: int, ranks: int) -> dict:
        os.environ["LOCAL_RANK"] = str(rank)
        learner, recipe, feed, _ = built(self.overrides, self.output)
        trainer = Trainer(recipe, learner, feed, None, quiet=True)
        ahead = batches_of(learner, feed)
        found = []
        for number in range(10):
            trainer.step = number
            found.append(trainer._train_step(ahead, Clock())[0])
        return {"metrics": found, "weights": {name: p.detach() for name, p in learner.named_parameters()}}


def plain_steps(
    learner: Learner, batches: list[tuple[MicroBatch, FeedState]], micro_batches: int
) -> dict[str, torch.Tensor]:
    """Ten steps by torch's own AdamW; the norms of each turn's gradients before they are clipped."""
    reached = {
        turn: [p for name, p in learner.named_parameters() if not any(part in name for part in outside)]
        for turn, outside in OUTSIDE.items()
    }
    optimizers = {}
    for turn, own in reached.items():
        decay = {"params": [p for p in own if p.ndim > 1], "weight_decay": DECAY[turn]}
        rest = {"params": [p for p in own if p.ndim <= 1], "weight_decay": 0.0}
        optimizers[turn] = torch.optim.AdamW([decay, rest], betas=BETAS[turn], eps=0.01)
    norms: dict[str, list[torch.Tensor]] = {turn: [] for turn in RATES}
    for number in range(10):
        for turn, optimizer in optimizers.items():
            learner.zero_grad()
            for batch, _ in batches[number * micro_batches : (number + 1) * micro_batches]:
                (learner(batch, turn)[0] / micro_batches).backward()
            with_gradient = {id(p) for p in learner.parameters() if p.grad is not None and p.grad.any()}
            assert with_gradient == set(map(id, reached[turn])), turn
            norms[turn].append(torch.nn.utils.clip_grad_norm_(reached[turn], CLIPPED[turn]))
            for group in optimizer.param_groups:
                group["lr"] = RATES[turn][number]
            optimizer.step()
    return {turn: torch.stack(found) for turn, found in norms.items()}


def test_an_objective_that_masks_anothers_anchors_takes_its_turn(tiny: list[str]) -> None:
    given = [*tiny, "optimization=alternate", "output=o"]
    recipe = load_recipe("demo", given)
    datasets = {"text": Dataset(recipe.data["text"].path)}
    with pytest.raises(RecipeError, match=r"objectives\.mlm masks a block of objectives\.spans"):
        build_learner(recipe, datasets, 1, False)


def test_layers_after_the_pooling_are_of_the_turns_that_pool(alternate: list[str], tmp_path: Path) -> None:
    """Without a gradient a step would still let them decay."""
    learner, *_ = built([*alternate, "model.head=tanh"], tmp_path)
    head = set(learner.encoder.head.parameters())
    assert len(head) == 2 and head < set(learner.parameters_of("spans"))
    assert not head & set(learner.parameters_of("mlm"))
