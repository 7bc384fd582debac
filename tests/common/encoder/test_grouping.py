"""Sequences of one length side by side: the same states and gradients as in the examples' order."""

import pytest
import torch
from torch import nn

from clearspan.common.encoder.attention import packed_attention
from clearspan.common.encoder.grouping import by_length
from clearspan.common.encoder.packing import Packed, pack_ids
from clearspan.train.model import encoder as encoders
from clearspan.train.model.packing import Patches, Sequences, SpecialTokens, TokenSlices, pack
from tests.train.test_encoder import CONFIGS, models

LENGTHS = [9, 31, 9, 5, 31, 9, 31, 40]


def sequences(lengths: list[int] = LENGTHS) -> list[list[int]]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(5, 500, (length,), generator=generator).tolist() for length in lengths]


def in_the_examples_order(packed: Packed) -> tuple[Packed, None]:
    return packed, None


def test_equal_lengths_lie_together_and_the_rows_go_back() -> None:
    packed = pack_ids(sequences())
    grouped, back = by_length(packed)
    assert back is not None and grouped.lengths == sorted(LENGTHS)
    for name in ("ids", "positions"):
        assert torch.equal(getattr(grouped, name)[back], getattr(packed, name))
    expected = [row for length in sorted(set(LENGTHS)) for row in sequences() if len(row) == length]
    assert [part.tolist() for part in grouped.ids.split(grouped.lengths)] == expected
    assert grouped.cu_seqlens.diff().tolist() == grouped.lengths
    assert torch.equal(grouped.sequence, pack_ids(expected).sequence)


def test_patches_stay_first() -> None:
    lengths = torch.tensor(LENGTHS)
    tokens = torch.cat([torch.tensor(row) for row in sequences()])
    texts = Sequences(TokenSlices(tokens, lengths.cumsum(0) - lengths, lengths), torch.arange(8))
    pictures = [Sequences(Patches("pictures", torch.zeros(2, rows, 4), rows), torch.tensor([8, 9])) for rows in (60, 7)]
    packed = pack([texts, *pictures], SpecialTokens([], [], 1, None))
    grouped, back = by_length(packed)
    assert back is not None and grouped.lengths == [60, 60, 7, 7, *sorted(LENGTHS)]
    assert torch.equal(back[: packed.patch_rows], torch.arange(134))
    assert torch.equal(grouped.content[back], packed.content)
    assert grouped.keys.tolist() == [8, 9, 8, 9, 3, 0, 2, 5, 1, 4, 6, 7]


@pytest.mark.guarantee("packed-equals-padded")
@pytest.mark.parametrize("name", ["roberta", "modernbert"])
def test_states_and_gradients_are_those_in_the_examples_order(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """ModernBERT's with its sliding window."""
    encoder, _ = models(CONFIGS[name])
    packed, found = pack_ids(sequences()), []
    for grouping in (by_length, in_the_examples_order):
        monkeypatch.setattr(encoders, "by_length", grouping)
        encoder.zero_grad()
        hidden = encoder(packed)
        (hidden * torch.linspace(-1, 1, 64)).sum().backward()
        found.append([hidden, *(p.grad for p in encoder.base.parameters() if p.grad is not None)])
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.guarantee("packed-equals-padded")
def test_one_call_of_attention_a_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """However the examples come: what makes many short sequences cheap."""
    encoder, _ = models(CONFIGS["roberta"])
    calls: list[int] = []
    plain = nn.functional.scaled_dot_product_attention

    def counted(*inputs: torch.Tensor, **options: object) -> torch.Tensor:
        calls.append(len(inputs[0]))
        return plain(*inputs, **options)

    monkeypatch.setattr("clearspan.common.encoder.attention.F.scaled_dot_product_attention", counted)
    encoder(pack_ids(sequences()))
    assert calls == [1, 3, 3, 1] * encoder.config.num_hidden_layers


@pytest.mark.parametrize("training", [True, False])
def test_attention_under_autocast_is_in_bf16_only_where_nothing_is_learned(training: bool) -> None:
    """The backward of a CPU's bf16 kernel is slower than that of fp32."""
    packed = pack_ids(sequences([40, 40]))
    states = torch.randn(3, 1, 2, 80, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    module = nn.Identity().train(training)
    with torch.autocast("cpu", torch.bfloat16):
        found, _ = packed_attention(module, *states, None, packed=packed)
    exact, _ = packed_attention(module, *states.float(), None, packed=packed)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, exact.bfloat16()) == training
    torch.testing.assert_close(found.float(), exact, atol=2e-2, rtol=2e-2)
