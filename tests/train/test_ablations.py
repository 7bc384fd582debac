"""The papers' ablations as keys of a recipe: each changes what it names."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from clearspan.shards import Dataset
from clearspan.train.build import build_feed
from clearspan.train.engine.optimization import adamw
from clearspan.train.model.packing import TokenSlices
from clearspan.train.run import main
from tests.train.test_learner import first_batches, learner_and_batch


def view_lengths(words: list[str], *options: str) -> np.ndarray:
    """Tokens of the first views of a micro-batch, made on the fly."""
    _, batches, _ = learner_and_batch([*words, *options], recipe="clear-subs+del-span")
    return batches["text"].of("clear").lists("view_0").lengths.numpy()


@pytest.mark.exhaustive
def test_clear_deletes_30_to_90_percent(tiny_clear: list[str]) -> None:
    """Section 4.1's seven ratios: the more is deleted, the shorter the views; synonyms are for subs alone."""
    words = [word for word in tiny_clear if "synonyms" not in word]
    _, batches, _ = learner_and_batch(tiny_clear, recipe="clear-subs+del-span")
    whole = batches["text"].of("mlm").lists("tokens").lengths.sum()
    options = ["objectives.clear.augment=del-word", "objectives.clear.synonyms=''"]
    sums = [view_lengths(words, *options, f"objectives.clear.del_word=0.{ratio}").sum() for ratio in range(3, 10)]
    assert sums == sorted(sums, reverse=True) and len(set(sums)) == 7 and sums[0] < whole


@pytest.mark.parametrize("augment", ["del-word", "del-span", "reorder", "subs"])
def test_clears_augmentations_each_alone_give_views_of_their_own(tiny_clear: list[str], augment: str) -> None:
    words = [word for word in tiny_clear if "synonyms" not in word or augment == "subs"]
    learner, batches, _ = learner_and_batch(
        [*words, f"objectives.clear.augment={augment}"], recipe="clear-subs+del-span"
    )
    tokens, view = (batches["text"].of(name).lists(column) for name, column in (("mlm", "tokens"), ("clear", "view_0")))
    deletes = augment.startswith("del")
    assert (view.lengths.sum() < tokens.lengths.sum()) == deletes
    if augment == "reorder":
        both = [part.values.split(part.lengths.tolist()) for part in (tokens, view)]
        assert all(torch.equal(one.sort().values, other.sort().values) for one, other in zip(*both, strict=True))
    assert not torch.equal(tokens.values, view.values) and learner(batches)[0].isfinite()


def test_pooling_decides_which_states_are_contrasted(tiny: list[str]) -> None:
    losses = []
    for pooling in ("mean", "cls"):
        learner, batches, _ = learner_and_batch([*tiny, f"model.pooling={pooling}"])
        assert learner.encoder.pooling == pooling
        losses.append(learner(batches)[1])
    assert losses[0]["mlm/loss"] == losses[1]["mlm/loss"] and losses[0]["spans/loss"] != losses[1]["spans/loss"]


@pytest.mark.parametrize(
    ("anchors", "positives", "sequences"), [(1, 1, 16), (2, 1, 32), (2, 2, 48), (2, 4, 80), (3, 1, 48)]
)
def test_anchors_and_positives_are_so_many_sequences(
    tiny: list[str], anchors: int, positives: int, sequences: int
) -> None:
    sampler = "objectives.spans.sampler"
    learner, batches, _ = learner_and_batch(
        [*tiny, f"{sampler}.num_anchors={anchors}", f"{sampler}.num_positives={positives}"]
    )
    (spans,) = (one for one in learner.of_turn("all") if one.name == "spans")
    asked = spans.request(batches["text"].of("spans")).sequences
    assert sum(len(block.content.lengths) for block in asked.values()) == sequences


def spans_of(words: list[str]) -> tuple[TokenSlices, TokenSlices]:
    """The anchors and positives of a micro-batch, an anchor a positive."""
    learner, batches, _ = learner_and_batch([*words, "objectives.spans.sampler.num_positives=1"])
    (spans,) = (one for one in learner.of_turn("all") if one.name == "spans")
    sequences = spans.request(batches["text"].of("spans")).sequences
    anchors, positives = (sequences[block].content for block in ("anchors", "positives"))
    assert isinstance(anchors, TokenSlices) and isinstance(positives, TokenSlices)
    return anchors, positives


def test_positives_lie_where_the_strategy_says(tiny: list[str]) -> None:
    within, beside = {}, {}
    for strategy in ("any", "adjacent", "subsuming"):
        anchor, positive = spans_of([*tiny, f"objectives.spans.sampler.positives={strategy}"])
        end, last = anchor.starts + anchor.lengths, positive.starts + positive.lengths
        within[strategy] = ((positive.starts >= anchor.starts) & (last <= end)).float().mean().item()
        beside[strategy] = ((last <= anchor.starts) | (positive.starts >= end)).float().mean().item()
    assert (within["subsuming"], beside["adjacent"]) == (1, 1)
    assert beside["subsuming"] == within["adjacent"] == 0 and within["any"] < 1 and beside["any"] < 1


def test_placement_moves_the_anchors_and_nothing_else_of_them(tiny: list[str]) -> None:
    sampler = "objectives.spans.sampler"
    grid, _ = spans_of([*tiny, f"{sampler}.placement=grid", f"{sampler}.min_distance=null"])
    uniform, _ = spans_of(tiny)
    assert torch.equal(grid.lengths, uniform.lengths) and not torch.equal(grid.starts, uniform.starts)


def test_temperature_divides_the_similarities(tiny: list[str]) -> None:
    """So high that all are alike, the loss is that of guessing among the 31 others of 16 pairs; MLM has none."""
    found = []
    for temperature in (0.005, 0.05, 1e4):
        learner, batches, _ = learner_and_batch([*tiny, f"objectives.spans.temperature={temperature}"])
        found.append(learner(batches)[1])
    assert found[2]["spans/loss"].item() == pytest.approx(math.log(31), abs=1e-3)
    assert len({one["spans/loss"].item() for one in found}) == 3 and len({one["mlm/loss"].item() for one in found}) == 1


def test_twice_the_learning_rate_is_a_step_twice_as_long(tiny: list[str]) -> None:
    moved = []
    for rate in ("1e-4", "2e-4"):
        learner, batches, recipe = learner_and_batch([*tiny, f"optimizer.learning_rate={rate}"])
        weights = learner.parameters_of("all")
        before = [weight.detach().clone() for weight in weights]
        learner(batches)[0].backward()
        adamw(weights, recipe.optimizers()["all"]).step()
        moved.append(torch.cat([(now - then).detach().flatten() for now, then in zip(weights, before, strict=True)]))
    torch.testing.assert_close(moved[1], 2 * moved[0], rtol=1e-2, atol=1e-6)


@pytest.mark.slow
def test_a_share_says_how_much_it_reads_before_anything_is_trained(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--recipe", "demo", *tiny, "data.text.share=0.5", "training.max_steps=0", f"output={tmp_path / 'run'}"]
    assert main([*words, "--dry-run"]) == 0
    printed = capsys.readouterr().out
    _, _, recipe = learner_and_batch([*tiny, "data.text.share=0.5"])
    datasets = {"text": Dataset(recipe.data["text"].path)}
    learner, _, _ = learner_and_batch([*tiny, "data.text.share=0.5"])
    (stream,) = build_feed(recipe, datasets, learner, 0, 1).streams.values()
    assert 0 < stream.num_examples < stream.dataset.num_examples
    assert f"{stream.num_examples} of {stream.dataset.num_examples} documents are read" in printed
    assert f"steps           {stream.num_examples // 8}\n" in printed
    assert first_batches(learner, {"text": stream})


@pytest.mark.parametrize(
    ("share", "limit"), [(0, "greater than 0"), (-0.5, "greater than 0"), (1.5, "less than or equal to 1")]
)
def test_a_share_is_above_0_and_at_most_1(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], share: float, limit: str
) -> None:
    assert main(["--recipe", "demo", *tiny, f"data.text.share={share}", f"output={tmp_path}", "--dry-run"]) == 2
    assert f"data.text.share: {share} should be {limit}" in capsys.readouterr().err
