"""The recipe `crops`: each short text gives two crops that do not overlap, and a run learns from them."""

from pathlib import Path

import pytest
import torch

from clearspan.train import draws
from clearspan.train.config.recipe import load
from clearspan.train.span_sampler import sample
from tests.train.conftest import TINY_MODEL, write_dataset
from tests.train.test_learner import learner_and_batch

GIVEN = ["data.text.path=unused", "model.path=unused", "output=unused"]


@pytest.mark.parametrize("recipe", ["crops", "crops-mlm"])
def test_texts_of_16_tokens_and_more_are_used(recipe: str) -> None:
    loaded = load(recipe, GIVEN)
    assert loaded.data["text"].short_documents == "shrink"
    assert loaded.objectives["spans"].sampler.min_tokens(shrinks=True) == 8
    assert set(loaded.objectives) == {"spans", "mlm"} if recipe == "crops-mlm" else {"spans"}


@pytest.mark.parametrize("length", [16, 20, 40, 80, 160, 300])
def test_the_two_crops_of_a_text_touch_and_hold_a_good_part_of_it(length: int) -> None:
    """Of 2,000 texts of each length: the mean crop has a third or more of a short text, and 32 tokens of a long one."""
    sampler = load("crops", GIVEN).objectives["spans"].sampler
    spans = sample(torch.full((2000,), length), draws.mix(torch.arange(2000), 7), sampler)
    starts = torch.stack([spans.anchor_start.flatten(), spans.positive_start.flatten()])
    ends = starts + torch.stack([spans.anchor_length.flatten(), spans.positive_length.flatten()])
    assert starts.min() >= 0 and ends.max() <= length
    assert torch.equal(starts.max(0).values, ends.min(0).values), "one begins where the other one ends"
    assert (ends - starts).min() >= length // 8 if length < 128 else 16
    assert (ends - starts).double().mean() >= min(length / 3, 32)


def test_the_forwards_size_is_that_of_short_texts(
    sentences: list[list[int]], tokenizer_folder: Path, tmp_path: Path
) -> None:
    """Not of texts that need not shrink, which would fill most of a forward with padding; the masks' size likewise."""
    used = [row for row in sentences if 16 <= len(row) <= 60]
    folder = write_dataset(tmp_path / "data", used, tokenizer_folder, 1_000_000)
    options = [*TINY_MODEL, "model.config.max_position_embeddings=130", f"data.text.path={folder}"]
    learner, batches, _ = learner_and_batch([*options, "data.text.batch_size=128"], static=True, recipe="crops-mlm")
    (budget,), special = learner.budgets.values(), 2 * 2 * 128
    metrics = learner(batches)[1]
    tokens = metrics["tokens"].item() - special
    spans, mlm = learner.objectives
    assert 0.9 * tokens < 128 * spans.workload().mean_tokens < 1.5 * tokens
    assert metrics["tokens_cut"] == metrics["masks_cut"] == 0 and budget.tokens < 1.8 * (tokens + special)
    assert mlm.moments == spans.block_moments("anchors") < spans.config.sampler.anchor_moments()
