"""Masks of a packed block: the same tokens whatever the shape, and only those whose loss is taken."""

import pytest
import torch

from clearspan.train.model.masking import Masked, Masking, mask
from clearspan.train.model.packing import Budget, PackedBlocks, Sequences, SpecialTokens, TokenSlices, pack

SPECIAL = SpecialTokens(prefix=[0], suffix=[2], pad=1, mask=4)
BUDGET = Budget(tokens=2048, fillers=20, longest=128)


def masked(block: int, budget: Budget | None, slots: int = 200) -> tuple[PackedBlocks, PackedBlocks, Masked]:
    """(two blocks of sequences, the same with one of them masked, where it was)."""
    tokens, lengths = torch.arange(10, 500), torch.tensor([97, 3, 64, 120, 1, 32, 110])
    asked = [
        Sequences(TokenSlices(tokens, lengths + first, lengths), torch.arange(7) * 31 + first) for first in (5, 250)
    ]
    packed = pack(asked, SPECIAL, budget)
    return packed, *mask(packed, packed.blocks[block], Masking(0.15, 4, 500, slots))


@pytest.mark.parametrize("block", [0, 1])
def test_a_static_shape_masks_the_same_tokens(block: int) -> None:
    _, ragged, where = masked(block, None)
    _, static, slots = masked(block, BUDGET)
    used = slots.labels >= 0
    assert torch.equal(ragged.ids, static.ids[: len(ragged.ids)]) and int(slots.num_cut) == 0
    assert torch.equal(where.index, slots.index[used]) and torch.equal(where.labels, slots.labels[used])
    assert len(where.index) > 40


@pytest.mark.parametrize("budget", [None, BUDGET])
def test_a_block_alone_is_masked_and_the_labels_are_what_stood_there(budget: Budget | None) -> None:
    before, after, where = masked(1, budget)
    used = where.labels >= 0
    index = where.index[used]
    assert before.sequence[index].min() >= 7 and before.sequence[index].max() < 14 and before.content[index].all()
    assert torch.equal(before.ids[index], where.labels[used])
    changed = (before.ids != after.ids).nonzero()[:, 0]
    assert len(changed) > 30 and set(changed.tolist()) <= set(index.tolist())


def test_a_token_that_has_no_slot_stays_as_it_is() -> None:
    before, after, where = masked(0, BUDGET, slots=5)
    assert int(where.num_cut) > 40 and (where.labels >= 0).all()
    assert set((before.ids != after.ids).nonzero()[:, 0].tolist()) <= set(where.index.tolist())
