"""`optimization: alternate`: each turn its own update over the shared weights."""

import dataclasses
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from shards import Dataset
from tests.train.ranks import run_on_ranks, train_alone
from tests.train.runs import metrics, same_weights, without_its_last_checkpoint
from train.build import build_feed, build_learner
from train.data.feed import Feed, FeedState, MicroBatch
from train.engine.loop import Trainer
from train.engine.optimization import adamw
from train.engine.tracking import Clock
from train.learner import Learner
from train.options import Recipe, RecipeError
from train.recipe import load
from train.schedules import learning_rate

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


@pytest.fixture(scope="module")
def alternate(tiny: list[str]) -> list[str]:
    return [*tiny, *ALTERNATE]


def test_a_step_is_an_update_of_each_turn_with_an_optimizer_of_its_own(alternate: list[str], tmp_path: Path) -> None:
    """Two steps of the trainer against plain torch: two AdamWs over the weights that each one's loss reaches."""
    learner, recipe, feed, sizes = built(alternate, tmp_path)
    assert list(sizes) == ["spans", "mlm"] and sizes["spans"].sequences == 32 and sizes["mlm"].sequences == 16
    plain_steps(learner, recipe, list(itertools.islice(batches_of(learner, feed), 2)))
    (found,) = run_on_ranks(TwoSteps(alternate, tmp_path), 1)
    assert {"spans/loss", "mlm/loss", "grad_norm/spans", "grad_norm/mlm", "learning_rate/mlm"} <= found[
        "metrics"
    ].keys()
    torch.testing.assert_close(
        found["metrics"]["loss"], found["metrics"]["spans/loss"] + found["metrics"]["mlm/loss"], atol=1e-6, rtol=1e-6
    )
    for name, expected in learner.named_parameters():
        torch.testing.assert_close(found["weights"][name], expected.detach(), atol=1e-6, rtol=1e-5, msg=name)


def built(overrides: list[str], output: Path) -> tuple[Learner, Recipe, Feed, dict]:
    recipe = load("demo", [*overrides, f"output={output}"])
    datasets = {"text": Dataset(recipe.data["text"].path)}
    learner, _, sizes = build_learner(recipe, datasets, 1, False)
    return learner, recipe, build_feed(recipe, datasets, learner, 0, 1), sizes


def batches_of(learner: Learner, feed: Feed) -> Iterator[tuple[MicroBatch, FeedState]]:
    return feed.prefetched(feed.start(), {"text": learner.columns("text")}, learner.collate)


@dataclasses.dataclass
class TwoSteps:
    """The metrics of the trainer's second step, and the weights after it."""

    overrides: list[str]
    output: Path

    def __call__(self, rank: int, ranks: int) -> dict:
        os.environ["LOCAL_RANK"] = str(rank)
        learner, recipe, feed, _ = built(self.overrides, self.output)
        trainer = Trainer(recipe, learner, feed, None, quiet=True)
        ahead = batches_of(learner, feed)
        for number in range(2):
            trainer.step = number
            found, _ = trainer._train_step(ahead, Clock())
        return {"metrics": found, "weights": {name: p.detach() for name, p in learner.named_parameters()}}


def plain_steps(learner: Learner, recipe: Recipe, batches: list[tuple[MicroBatch, FeedState]]) -> None:
    parameters = {turn: learner.parameters_of(turn) for turn in ("spans", "mlm")}
    heads = {id(p) for name, p in learner.encoder.model.lm_head.named_parameters()}
    heads.discard(id(learner.encoder.model.get_input_embeddings().weight))
    assert len(heads) >= 4 and not heads & set(map(id, parameters["spans"])) and heads < set(map(id, parameters["mlm"]))
    optimizers = {turn: adamw(own, recipe.optimizers()[turn]) for turn, own in parameters.items()}
    for number, (batch, _) in enumerate(batches):
        for turn, optimizer in optimizers.items():
            learner.zero_grad()
            learner(batch, turn)[0].backward()
            options = recipe.optimizers()[turn]
            torch.nn.utils.clip_grad_norm_(parameters[turn], options.max_grad_norm)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(number, 8, options)
            optimizer.step()


def test_a_run_of_turns_resumes_bit_for_bit(alternate: list[str], tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    options = [*alternate, "training.save_steps=4", "model.config.hidden_dropout_prob=0.1"]
    done = train_alone(*options, f"output={whole}")
    assert done.returncode == 0, done.stderr
    half = without_its_last_checkpoint(whole, tmp_path / "half")
    resumed = train_alone(*options, f"output={half}", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    names = ("loss", "grad_norm/spans", "grad_norm/mlm", "tokens")
    assert metrics(half, names) == metrics(whole, names) and same_weights(half, whole)


def test_an_objective_that_masks_anothers_anchors_takes_its_turn(tiny: list[str]) -> None:
    given = [*tiny, "optimization=alternate", "output=o"]
    recipe = load("demo", given)
    datasets = {"text": Dataset(recipe.data["text"].path)}
    with pytest.raises(RecipeError, match=r"objectives\.mlm works on what objectives\.spans encodes"):
        build_learner(recipe, datasets, 1, False)


def test_layers_after_the_pooling_are_of_the_turns_that_pool(alternate: list[str], tmp_path: Path) -> None:
    """Without a gradient a step would still let them decay."""
    learner, *_ = built([*alternate, "model.head=tanh"], tmp_path)
    head = set(learner.encoder.head.parameters())
    assert len(head) == 2 and head < set(learner.parameters_of("spans"))
    assert not head & set(learner.parameters_of("mlm"))


def test_layers_that_no_objective_uses_are_not_made(alternate: list[str], tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"model\.head: no objective uses"):
        built([*alternate, "model.head=tanh", "objectives.spans=null", "turns=null", "optimization=sum"], tmp_path)
