"""Packing against laying sequences out by hand."""

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode

from clearspan.train.model.packing import (
    Budget,
    PackedBlocks,
    Patches,
    Sequences,
    SpecialTokens,
    TokenSlices,
    pack,
    plan_budget,
)

SPECIAL = SpecialTokens(prefix=[0], suffix=[2, 3], pad=1, mask=4)


@st.composite
def requests(draw: st.DrawFn) -> list[Sequences]:
    """One to three objectives' sequences over documents of distinct tokens."""
    made = []
    for first in range(draw(st.integers(1, 3))):
        tokens = torch.arange(100, 160) + 1000 * first
        spans = draw(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 10)), min_size=1, max_size=6))
        starts, lengths = torch.tensor(spans).unbind(1)
        made.append(Sequences(TokenSlices(tokens, starts, lengths), starts * 7))
    return made


def by_hand(asked: list[Sequences]) -> list[list[int]]:
    return [
        [0, *request.content.tokens[start : start + length].tolist(), 2, 3]
        for request in asked
        for start, length in zip(request.content.starts.tolist(), request.content.lengths.tolist(), strict=True)
    ]


def sequences_of(packed: PackedBlocks) -> list[list[int]]:
    bounds = packed.cu_seqlens.tolist()
    return [packed.ids[a:b].tolist() for a, b in itertools.pairwise(bounds)][: packed.num_sequences]


@given(requests())
def test_packed_sequences_are_the_spans_between_special_tokens(asked: list[Sequences]) -> None:
    packed, expected = pack(asked, SPECIAL), by_hand(asked)
    assert sequences_of(packed) == expected
    assert packed.lengths == [len(ids) for ids in expected]
    assert packed.positions.tolist() == [i for ids in expected for i in range(len(ids))]
    assert packed.sequence.tolist() == [n for n, ids in enumerate(expected) for _ in ids]
    assert packed.ids[packed.content].tolist() == [i for ids in expected for i in ids[1:-2]]


@pytest.mark.slow
@settings(max_examples=200)
@given(requests(), st.integers(0, 70))
def test_a_budget_changes_the_shape_only(asked: list[Sequences], spare: int) -> None:
    free = pack(asked, SPECIAL)
    total, shortest, longest = len(free.ids), 4, 13
    fillers = max(1, -(-(total + spare - free.num_sequences * shortest) // longest))
    packed = pack(asked, SPECIAL, Budget(total + spare, fillers, longest))
    assert sequences_of(packed) == sequences_of(free)
    assert torch.equal(packed.ids[packed.content], free.ids[free.content])
    assert len(packed.ids) == total + spare and (packed.ids[total:] == SPECIAL.pad).all()
    assert packed.cu_seqlens[-1] == total + spare and packed.cu_seqlens.diff().max() <= longest
    assert len(packed.cu_seqlens) == free.num_sequences + fillers + 1


def test_an_overflowing_step_cuts_its_last_sequences() -> None:
    slices = TokenSlices(torch.arange(100, 160), torch.tensor([0, 10, 20]), torch.tensor([5, 5, 5]))
    asked = [Sequences(slices, torch.zeros(3).long())]
    packed = pack(asked, SPECIAL, Budget(20, 1, 8))
    assert sequences_of(packed) == [*by_hand(asked)[:2], by_hand(asked)[2][:4]]
    assert packed.num_cut == 4 and pack(asked, SPECIAL, Budget(24, 1, 8)).num_cut == 0


@pytest.mark.slow
@given(requests(), st.lists(st.tuples(st.integers(1, 3), st.integers(1, 5)), min_size=1, max_size=2), st.booleans())
def test_patches_come_first_and_are_never_cut(asked: list[Sequences], given: list, overflows: bool) -> None:
    """Behind them the tokens lie as they would alone; each block's sequences are where it says."""
    patches = [Sequences(Patches("images", torch.zeros(n, 2), rows), torch.full((n,), -1)) for n, rows in given]
    alone = pack(asked, SPECIAL, Budget(8, 1, 8) if overflows else None)
    packed = pack([*asked, *patches], SPECIAL, Budget(8, 1, 8) if overflows else None)
    rows, count = sum(n * rows for n, rows in given), sum(n for n, _ in given)
    assert packed.patch_rows == rows and not packed.content[:rows].any() and (packed.ids[:rows] == SPECIAL.pad).all()
    assert packed.cu_seqlens[: count + 1].diff().tolist() == [r for n, r in given for _ in range(n)]
    assert packed.positions[:rows].tolist() == [i for n, r in given for _ in range(n) for i in range(r)]
    for name in ("ids", "positions", "content"):
        assert torch.equal(getattr(packed, name)[rows:], getattr(alone, name)), name
    assert torch.equal(packed.sequence[rows:], alone.sequence + count) and packed.num_cut == alone.num_cut
    for request, block in zip([*asked, *patches], packed.blocks, strict=True):
        assert torch.equal(packed.keys[block], request.keys)


def test_patches_alone_are_a_batch() -> None:
    packed = pack([Sequences(Patches("images", torch.zeros(2, 3), 4), torch.arange(2))], SPECIAL)
    assert (len(packed.ids), packed.num_sequences, packed.lengths) == (8, 2, [4, 4]) and packed.num_tokens == 8


class NothingFromTheHost(TorchFunctionMode):
    """Refuses tensors made of the host's numbers: copied to a device, they wait for it."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert function not in (torch.tensor, torch.as_tensor, torch.from_numpy) or isinstance(args[0], torch.Tensor)
        return function(*args, **(kwargs or {}))


def test_a_budget_neither_waits_for_the_device_nor_copies_to_it() -> None:
    """On the meta device, where no value can be looked at."""
    zeros = torch.zeros(3, dtype=torch.int64, device="meta")
    texts = Sequences(TokenSlices(torch.zeros(50, device="meta"), zeros, zeros), zeros)
    pictures = Sequences(Patches("images", torch.zeros(3, 2, device="meta"), 4), zeros)
    with NothingFromTheHost():
        packed = pack([texts, pictures], SPECIAL, Budget(64, 1, 30))
    assert packed.ids.shape == (76,) and packed.ids.device.type == "meta"


def test_texts_that_are_all_empty_are_their_special_tokens() -> None:
    nothing = TokenSlices(torch.zeros(0, dtype=torch.int32), torch.zeros(2).long(), torch.zeros(2).long())
    assert sequences_of(pack([Sequences(nothing, torch.zeros(2).long())], SPECIAL)) == [[0, 2, 3]] * 2


def test_the_planned_budget_holds_the_papers_step() -> None:
    """DeCLUTR at 256 documents: 1,473 tokens a document; four standard deviations are 3.6 %."""
    from clearspan.train.data.span_sampler import SpanConfig

    mean, variance = SpanConfig().length_moments()
    assert mean == 1472
    budget = plan_budget(256 * mean, 256 * variance, 256 * 6, 32, 512)
    assert 1.03 < budget.tokens / (256 * mean) < 1.04
    assert budget.tokens % 64 == 0 and budget.fillers * budget.longest >= budget.tokens - 256 * 6 * 32
