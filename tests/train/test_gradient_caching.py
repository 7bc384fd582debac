"""Gradient caching: a step's micro-batches are contrasted as one batch, to its loss, gradients, metrics and memory."""

import dataclasses
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from clearspan.shards import Dataset
from clearspan.train.config.options import ALL, Recipe, RecipeError
from clearspan.train.data.feed import Feed, MicroBatch
from clearspan.train.engine.loop import Trainer
from clearspan.train.engine.tracking import Clock
from clearspan.train.objectives import ContrastiveObjective, Encoded
from clearspan.train.recipe import load_recipe
from clearspan.train.start.build_learner import build_learner
from clearspan.train.start.build_streams import build_feed
from clearspan.train.step.caching import cache, joined
from clearspan.train.step.learner import Learner
from tests.train.ranks import run_on_ranks

EXAMPLES, MICRO_BATCHES = 64, 8
CACHING = [f"training.gradient_accumulation_steps={MICRO_BATCHES}", "training.gradient_caching=true"]
DROPOUT = ["model.config.hidden_dropout_prob=0.1", "model.config.attention_probs_dropout_prob=0.1"]
CONTRASTS = ("spans", "clear", "clear, mean", "simcse", "patches")
CLEAR = "clear-subs+del-span"


@pytest.fixture(scope="module")
def recipes(
    tiny: list[str], tiny_clear: list[str], tiny_patches: list[str], sentences_folder: Path, images_folder: Path
) -> dict[str, list[str]]:
    """Overrides of a run over 64 examples a step with each contrast, two of them beside a masked LM."""
    simcse = ["objectives.spans=null", "objectives.mlm=null", "objectives.simcse.data=text", "model.head=tanh"]
    simcse += ["objectives.simcse.head=relu", f"data.text.path={sentences_folder}"]
    pictures = [f"data.others.path={images_folder}", "data.others.modality.image_size=32"]
    found = {
        "spans": [*tiny, "objectives.spans.head=relu", "objectives.spans.sampler.num_positives=2"],
        "clear": [*tiny_clear, "training.gradient_accumulation_steps=1"],
        "simcse": [*(o for o in tiny if not o.startswith("objectives.")), *simcse],
        "patches": [*tiny_patches, *pictures, f"data.others.batch_size={EXAMPLES}", "model.pooling=mean"],
    }
    found["clear, mean"] = [*found["clear"], "objectives.clear.pool=mean", "model.pooling=mean"]
    return {name: [*given, f"data.text.batch_size={EXAMPLES}"] for name, given in found.items()}


def made(overrides: Sequence[str], rank: int = 0, ranks: int = 1) -> tuple[Learner, Feed, Recipe]:
    """Of CLEAR's recipe where its objective is asked for, else of `demo`."""
    name = CLEAR if any("objectives.clear." in one for one in overrides) else "demo"
    recipe = load_recipe(name, [*overrides, "output=o"])
    datasets = {name: Dataset(data.path) for name, data in recipe.data.items()}
    learner, _, _ = build_learner(recipe, datasets, ranks, False)
    return learner, build_feed(recipe, datasets, learner, rank, ranks), recipe


def micro_batches(learner: Learner, feed: Feed, count: int) -> list[MicroBatch]:
    """A rank's first ones."""
    columns = {name: learner.columns(name) for name in feed.streams}
    source = feed.prefetched(feed.start(), columns, learner.collate)
    found = [batch for batch, _ in itertools.islice(source, count)]
    source.close()
    return found


def seeded(batches: list[MicroBatch], rank: int) -> Iterator[MicroBatch]:
    """Each with dropout seeded for its forward."""
    for number, batch in enumerate(batches):
        torch.manual_seed(1000 * rank + number)
        yield batch


def gradients(learner: Learner) -> dict[str, Tensor]:
    found = {name: p.grad for name, p in learner.named_parameters() if p.grad is not None}
    learner.zero_grad()
    return found


Step = tuple[dict[str, Tensor], dict[str, Tensor]]
"""(metrics, gradients by parameter)."""


def whole_step(overrides: Sequence[str], rank: int = 0, ranks: int = 1) -> Step:
    """One forward of all examples and its backward."""
    learner, feed, _ = made(overrides, rank, ranks)
    loss, metrics = learner(micro_batches(learner, feed, 1)[0])
    loss.backward()
    return metrics, gradients(learner)


def cached_step(overrides: Sequence[str], rank: int = 0, ranks: int = 1) -> Step:
    """The same in eight micro-batches, each forgotten after its backward."""
    learner, feed, _ = made([*overrides, *CACHING], rank, ranks)
    batches = micro_batches(learner, feed, MICRO_BATCHES)
    cached = learner.cache(seeded(batches, rank))
    found = []
    for batch, own in zip(seeded(batches, rank), cached, strict=True):
        loss, metrics = learner(batch, cached=own)
        (loss / MICRO_BATCHES).backward()
        found.append(metrics)
    return {name: torch.stack([one[name] for one in found]).double().mean(0) for name in found[0]}, gradients(learner)


def kept_step(overrides: Sequence[str], rank: int = 0, ranks: int = 1) -> Step:
    """The plain gradient: the forwards of all eight micro-batches kept, and one backward through them."""
    learner, feed, _ = made([*overrides, *CACHING], rank, ranks)
    batches = micro_batches(learner, feed, MICRO_BATCHES)
    prepared, forwards = [], []
    for batch in seeded(batches, rank):
        prepared.append(learner.prepare(batch, ALL))
        forwards.append(learner._encode(prepared[-1]))
    total, together = torch.zeros(()), joined(forwards)
    for objective in learner.of_turn(ALL):
        if isinstance(objective, ContrastiveObjective):
            context = objective.joined([one.requests[objective.name].context for one in prepared])
            total = total + objective.weight * objective.loss(Encoded(together, objective.name), context)[0]
    total.backward()
    return {"loss": total.detach()}, gradients(learner)


@dataclasses.dataclass
class OnARank:
    """What each way of a step gives for each recipe."""

    recipes: dict[str, list[str]]

    def __call__(self, rank: int, ranks: int) -> dict[str, dict[str, Step]]:
        found = {}
        for name, overrides in self.recipes.items():
            alone = [*overrides, *DROPOUT, *(["objectives.mlm=null"] if name.startswith(("spans", "clear")) else [])]
            found[name] = {
                "cached": cached_step(overrides, rank, ranks),
                "cached, dropout": cached_step(alone, rank, ranks),
                "kept, dropout": kept_step(alone, rank, ranks),
            }
        return found


@pytest.fixture(scope="module")
def on_ranks(recipes: dict[str, list[str]]) -> dict[int, list[dict[str, dict[str, Step]]]]:
    return {ranks: run_on_ranks(OnARank(recipes), ranks) for ranks in (1, 2)}


def mean(steps: list[Step]) -> Step:
    """Over ranks."""
    return tuple(
        {name: torch.stack([one[part][name].double() for one in steps]).mean(0) for name in steps[0][part]}
        for part in range(2)
    )  # type: ignore[return-value]


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(found[name].double(), expected[name].double(), atol=1e-5, rtol=1e-5, msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", CONTRASTS)
def test_eight_micro_batches_have_the_gradient_of_one_batch(
    on_ranks: dict, recipes: dict[str, list[str]], name: str, ranks: int
) -> None:
    """With every metric of it: the masked LM's too, but for the share of a micro-batch's masks that it guesses."""
    metrics, expected = whole_step(recipes[name])
    found, own = mean([one[name]["cached"] for one in on_ranks[ranks]])
    assert len(expected) > 30
    assert_same(own, expected)
    found["tokens"] *= ranks * MICRO_BATCHES
    left_out = {"mlm/accuracy"} | ({key for key in metrics if key.endswith("uniformity")} if ranks > 1 else set())
    assert_same(*({key: value for key, value in one.items() if key not in left_out} for one in (found, metrics)))


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", CONTRASTS)
def test_dropout_is_replayed(on_ranks: dict, name: str, ranks: int) -> None:
    """So the gradient is that of the vectors that were contrasted, as if their forwards had been kept."""
    found, expected = (mean([one[name][f"{way}, dropout"] for one in on_ranks[ranks]]) for way in ("cached", "kept"))
    torch.testing.assert_close(found[0]["loss"], expected[0]["loss"], atol=1e-5, rtol=1e-5)
    assert_same(found[1], expected[1])
    without = mean([one[name]["cached"] for one in on_ranks[ranks]])
    loss = f"{name.partition(',')[0]}/loss"
    assert abs(found[0][loss] - without[0][loss]) > 1e-3, "dropout is on"


@pytest.mark.slow
def test_a_memory_is_filled_once_with_all_of_a_step(tiny: list[str]) -> None:
    """One that holds more than a step, and one that holds less."""
    for size in (24, 300):
        given = [*tiny, "data.text.batch_size=64", f"objectives.spans.memory={size}"]
        held = []
        for caching in (False, True):
            learner, feed, _ = made([*given, *(CACHING if caching else [])])
            count = MICRO_BATCHES if caching else 1
            batches = micro_batches(learner, feed, 2 * count)
            for step in (batches[:count], batches[count:]):
                cached = learner.cache(step) if caching else [None]
                for batch, own in zip(step, cached, strict=True):
                    _, metrics = learner(batch, cached=own)
            held.append((learner.objectives[0].memory.vectors, metrics["spans/loss"]))
        (vectors, loss), (expected, other) = held
        assert expected.any() and (size == 24 or not expected[256:].eq(0).all())
        torch.testing.assert_close(vectors, expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(loss, other, atol=1e-5, rtol=1e-5)


ALTERNATE = [
    "optimization=alternate",
    "objectives.mlm.input=separate",
    *(f"objectives.mlm.sampler.{key}" for key in ("max_span=24", "min_span=4", "placement=uniform", "min_distance=16")),
    "turns.mlm.learning_rate=0.002",
]
STEP = ["eps=0.01", "learning_rate=0.01", "schedule=constant", "max_grad_norm=0.1"]


@dataclasses.dataclass
class Trained:
    """The metrics and weights of two steps of the trainer, by what was asked for."""

    recipes: dict[str, list[str]]

    def __call__(self, rank: int, ranks: int) -> dict[str, list[dict[str, Tensor]]]:
        os.environ["LOCAL_RANK"] = str(rank)
        found = {}
        for name, overrides in self.recipes.items():
            learner, feed, recipe = made(overrides, rank, ranks)
            trainer = Trainer(recipe, learner, feed, None, quiet=True)
            columns = {data: learner.columns(data) for data in feed.streams}
            ahead = feed.prefetched(feed.start(), columns, learner.collate)
            steps = []
            for trainer.step in range(2):
                metrics, _ = trainer._train_step(ahead, Clock())
                steps.append({key: value.double() for key, value in metrics.items()})
            found[name] = [*steps, {key: p.detach() for key, p in learner.named_parameters()}]
        return found


@pytest.mark.exhaustive
def test_the_trainer_makes_the_same_steps_at_every_zero_stage_and_in_turns(tiny: list[str]) -> None:
    """Two ranks with four micro-batches each, against one rank that has a step's examples in one forward."""
    plain = [*tiny, *(f"optimizer.{option}" for option in STEP), "data.text.batch_size=64"]
    cached = ["training.gradient_accumulation_steps=4", "training.gradient_caching=true"]
    ways = {f"stage {stage}": [*plain, *cached, f"training.zero_stage={stage}"] for stage in range(3)}
    ways["alternate"] = [*plain, *ALTERNATE, *cached]
    found = run_on_ranks(Trained(ways), 2)
    (expected,) = run_on_ranks(Trained({"sum": plain, "alternate": [*plain, *ALTERNATE]}), 1)
    for way in ways:
        one = expected.get(way, expected["sum"])
        for step in range(2):
            mean = {key: (found[0][way][step][key] + found[1][way][step][key]) / 2 for key in one[step]}
            mean["tokens"] *= 2
            for key in one[step].keys() - {"mlm/accuracy", "spans/uniformity"}:
                torch.testing.assert_close(mean[key], one[step][key], atol=1e-5, rtol=1e-4, msg=f"{way}: {key}")
        for weights in (found[0][way][2], found[1][way][2]):
            for key in one[2]:
                torch.testing.assert_close(weights[key], one[2][key], atol=1e-5, rtol=1e-4, msg=f"{way}: {key}")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["training.gradient_caching=true"], "has no effect with training.gradient_accumulation_steps 1: all examples"),
        ([*CACHING, "training.gradient_norms=true"], "training.gradient_norms measures one micro-batch"),
        (
            [*CACHING, "objectives.spans=null", "objectives.mlm.input=sentence"],
            "training.gradient_caching: no objective contrasts examples with each other",
        ),
        (["training.zero_stage=3"], "training.zero_stage 3: choose 0, 1, 2"),
    ],
)
def test_what_makes_no_sense_is_refused(tiny: list[str], options: list[str], said: str) -> None:
    mlm = [o for o in tiny if "objectives.spans=null" not in options or not o.startswith("objectives.spans.")]
    with pytest.raises(RecipeError, match=said.replace(".", r"\.")):
        made([*mlm, *options])


def test_the_vectors_gradients_are_fp32_under_autocast(tiny: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    learner, feed, _ = made([*tiny, *CACHING, "data.text.batch_size=64", "objectives.spans.head=relu"])
    given: list[tuple] = []
    monkeypatch.setattr("clearspan.train.step.learner.cache", lambda *parts: given.append(parts))
    learner.cache(micro_batches(learner, feed, MICRO_BATCHES))
    expected = cache(*given[0])
    with torch.autocast("cpu", torch.bfloat16):
        found = cache(*given[0])
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.pooled, other.pooled) and len(one.parameters) == 2
        assert all(torch.equal(a, b) for (_, a), (_, b) in zip(one.parameters, other.parameters, strict=True))


def test_an_objective_that_draws_while_it_requests_changes_no_dropout(
    tiny: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, feed, _ = made([*tiny, *CACHING, "data.text.batch_size=64"])
    request, encode, states = learner.objectives[0].request, learner._encode, list[Tensor]()

    def drawing(columns: Any) -> Any:
        torch.rand(3)
        return request(columns)

    def noted(prepared: Any) -> Any:
        states.append(torch.get_rng_state())
        return encode(prepared)

    monkeypatch.setattr(learner.objectives[0], "request", drawing)
    monkeypatch.setattr(learner, "_encode", noted)
    batches = micro_batches(learner, feed, MICRO_BATCHES)
    cached = learner.cache(seeded(batches, 0))
    for batch, own in zip(seeded(batches, 0), cached, strict=True):
        learner(batch, cached=own)
    assert len(states) == 2 * MICRO_BATCHES
    assert all(torch.equal(*pair) for pair in zip(states, states[MICRO_BATCHES:], strict=False))


def test_a_contrast_that_asks_for_more_than_vectors_is_told(tiny: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    learner, feed, _ = made([*tiny, *CACHING, "data.text.batch_size=64"])
    monkeypatch.setattr(learner.objectives[0], "loss", lambda encoded, context: encoded.masked("anchors"))
    with pytest.raises(
        TypeError, match=r"objectives\.spans contrasts, so its loss may read pooled and first states only"
    ):
        learner.cache(micro_batches(learner, feed, MICRO_BATCHES))
