"""The recipe `crops`: each short text gives two crops that do not overlap, and a run learns from them."""

import pytest
import torch

from clearspan.train import draws
from clearspan.train.data.span_sampler import sample
from clearspan.train.recipe import load_recipe

GIVEN = ["data.text.path=unused", "model.path=unused", "output=unused"]


@pytest.mark.parametrize("length", [16, 20, 40, 80, 160, 300])
def test_the_two_crops_of_a_text_touch_and_hold_a_good_part_of_it(length: int) -> None:
    """Of 2,000 texts of each length: the mean crop has a third or more of a short text, and 32 tokens of a long one."""
    sampler = load_recipe("crops", GIVEN).objectives["spans"].sampler
    spans = sample(torch.full((2000,), length), draws.mix(torch.arange(2000), 7), sampler)
    starts = torch.stack([spans.anchor_start.flatten(), spans.positive_start.flatten()])
    ends = starts + torch.stack([spans.anchor_length.flatten(), spans.positive_length.flatten()])
    assert starts.min() >= 0 and ends.max() <= length
    assert torch.equal(starts.max(0).values, ends.min(0).values), "one begins where the other one ends"
    assert (ends - starts).min() >= length // 8 if length < 128 else 16
    assert (ends - starts).double().mean() >= min(length / 3, 32)
