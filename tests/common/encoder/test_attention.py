"""Attention of packed sequences against softmax written out, whatever computes it; and what a new model is tried on."""

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from clearspan.common.encoder import attention
from clearspan.common.encoder.attention import ScoreOptions, packed_attention
from clearspan.common.encoder.forward import check_packing
from clearspan.common.encoder.packed_pooling import last
from clearspan.common.encoder.packing import Packed, pack, pack_ids
from clearspan.common.model_folder import EncoderError

LENGTHS = [5, 1, 9, 9, 3, 12, 12, 0, 4]
HEADS = 4
BIAS = torch.randn(1, HEADS, 12, 12, generator=torch.Generator().manual_seed(7))


def batch(lengths: list[int] = LENGTHS) -> Packed:
    return pack_ids([list(range(3, 3 + length)) for length in lengths])


def drawn(key_heads: int = HEADS) -> tuple[Tensor, Tensor, Tensor]:
    """Return query, key and value of heads of size 8."""
    generator = torch.Generator().manual_seed(key_heads)
    tokens = sum(LENGTHS)
    sizes = (HEADS, key_heads, key_heads)
    query, key, value = (torch.randn(1, heads, tokens, 8, generator=generator) for heads in sizes)
    return query, key, value


def written_out(
    states: tuple[Tensor, Tensor, Tensor], scale: float, attends: Callable[[Tensor], Tensor], bias: Tensor | None = None
) -> Tensor:
    """Return the attention of each head in each sequence; `attends` says by how far a token looks back."""
    query, key, value = states
    group = HEADS // key.shape[1]
    out = torch.zeros(1, query.shape[2], HEADS, query.shape[3])
    start = 0
    for length in LENGTHS:
        rows = slice(start, start + length)
        at = torch.arange(length)
        for head in range(HEADS):
            scores = scale * query[0, head, rows] @ key[0, head // group, rows].T
            scores = scores if bias is None else scores + bias[0, head, :length, :length]
            scores = scores.masked_fill(~attends(at[:, None] - at), -torch.inf)
            out[0, rows, head] = scores.softmax(1) @ value[0, head // group, rows]
        start += length
    return out


REACHES: dict[str, tuple[dict[str, Any], bool, Callable[[Tensor], Tensor]]] = {
    "all": ({}, False, lambda back: back == back),
    "window": ({"sliding_window": 4}, False, lambda back: back.abs() < 4),
    "window as long as a sequence": ({"sliding_window": 9}, False, lambda back: back.abs() < 9),
    "window of one": ({"sliding_window": 1}, False, lambda back: back == 0),
    "earlier": ({}, True, lambda back: back >= 0),
    "earlier in a window": ({"sliding_window": 4}, True, lambda back: (back >= 0) & (back < 4)),
}


def layer(causal: bool) -> nn.Module:
    module = nn.Identity().eval()
    if causal:
        module.is_causal = True  # type: ignore[assignment]
    return module


@pytest.mark.guarantee("encoders-of-any-class")
@pytest.mark.guarantee("packed-equals-padded")
@pytest.mark.parametrize("reach", REACHES)
@pytest.mark.parametrize("key_heads", [4, 2, 1])
@pytest.mark.parametrize("scaling", [None, 0.7])
@pytest.mark.parametrize("is_known", [True, False], ids=["by length", "padded"])
def test_attention_is_that_of_each_sequence_written_out(
    reach: str, key_heads: int, scaling: float | None, is_known: bool
) -> None:
    """And its gradients; where the host knows the lengths, and where it does not."""
    options, causal, attends = REACHES[reach]
    packed, states = batch(), drawn(key_heads)
    packed = packed if is_known else dataclasses.replace(packed, lengths=None)
    for each in states:
        each.requires_grad_()
    found, weights = packed_attention(layer(causal), *states, None, scaling=scaling, packed=packed, **options)
    expected = written_out(states, scaling or 8**-0.5, attends)
    assert weights is None
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    loss = torch.linspace(-1, 1, found.numel()).view_as(found)
    ours, theirs = (torch.autograd.grad((out * loss).sum(), states) for out in (found, expected))
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.guarantee("encoders-of-any-class")
@pytest.mark.guarantee("packed-equals-padded")
@pytest.mark.parametrize("reach", ["all", "window", "earlier"])
@pytest.mark.parametrize("is_known", [True, False], ids=["by length", "padded"])
def test_a_bias_of_positions_is_added_to_the_scores_of_every_sequence(reach: str, is_known: bool) -> None:
    """And its gradient, by which T5 and MPNet learn it."""
    options, causal, attends = REACHES[reach]
    packed, bias = batch() if is_known else dataclasses.replace(batch(), lengths=None), BIAS.clone().requires_grad_()
    found, _ = packed_attention(layer(causal), *drawn(), None, position_bias=bias, packed=packed, **options)
    expected = written_out(drawn(), 8**-0.5, attends, bias)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    ours, theirs = (torch.autograd.grad(out.square().sum(), bias) for out in (found, expected))
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.guarantee("packed-equals-padded")
@pytest.mark.parametrize("reach", ["window", "earlier"])
@pytest.mark.parametrize("is_known", [True, False], ids=["by length", "padded"])
def test_long_sequences_attend_as_far_as_short_ones(reach: str, is_known: bool) -> None:
    """Longer ones than any limit up to which something may be computed in another way."""
    options, causal, attends = REACHES[reach]
    packed = batch([2, 1100, 700])
    packed = packed if is_known else dataclasses.replace(packed, lengths=None)
    generator = torch.Generator().manual_seed(1)
    query, key, value = (torch.randn(1, 1, 1802, 4, generator=generator) for _ in range(3))
    found, _ = packed_attention(layer(causal), query, key, value, None, packed=packed, **options)
    for first, length in ((2, 1100), (1102, 700)):
        q, k, v = (each[0, 0, first : first + length] for each in (query, key, value))
        at = torch.arange(length)
        scores = (q @ k.T / 2).masked_fill(~attends(at[:, None] - at), -torch.inf)
        torch.testing.assert_close(found[0, first : first + length, 0], scores.softmax(1) @ v, atol=1e-5, rtol=1e-4)


@pytest.mark.guarantee("encoders-of-any-class")
@pytest.mark.guarantee("packed-equals-padded")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"softcap": 30.0}, "a cap on"),
        ({"s_aux": torch.zeros(HEADS)}, "sinks in"),
        ({"position_bias": BIAS[..., :11, :11]}, "a bias of positions in"),
        ({"position_bias": BIAS[..., :11]}, "a bias of positions in"),
    ],
)
def test_scores_that_packed_attention_cannot_compute_are_refused(options: dict[str, Any], said: str) -> None:
    expected = f"^the model's attention has {said} the scores"
    with pytest.raises(NotImplementedError, match=expected):
        packed_attention(layer(False), *drawn(), None, packed=batch(), **options)


@pytest.mark.guarantee("packed-equals-padded")
def test_a_mask_says_which_tokens_attend_and_is_none_where_all_do() -> None:
    """In one process, for models of several windows."""
    at = torch.arange(9)
    for options, causal, attends in REACHES.values():
        scores = ScoreOptions(None, options.get("sliding_window"), causal)
        allowed = attends(at[:, None] - at)
        mask = scores.mask(9, torch.zeros(1))
        biased = scores._replace(bias=BIAS).mask(9, torch.zeros(1, dtype=torch.float16))
        assert (mask is None) == bool(allowed.all())
        assert mask is None or torch.equal(mask, allowed)
        assert biased is not None and biased.dtype == torch.float16 and biased.shape == (1, HEADS, 9, 9)
        assert torch.equal(biased, BIAS[..., :9, :9].half().masked_fill(~allowed, -torch.inf))


@pytest.mark.guarantee("encoders-of-any-class")
@pytest.mark.guarantee("packed-equals-padded")
@pytest.mark.parametrize(("training", "learned"), [(True, False), (False, True), (False, False)])
def test_bf16_is_computed_in_fp32_where_something_is_learned(training: bool, learned: bool) -> None:
    """And returned in bf16."""
    states = tuple(each.bfloat16() for each in drawn())
    states[0].requires_grad_(learned)
    module = layer(False).train(training)
    found, _ = packed_attention(module, *states, None, packed=batch())
    exact, _ = packed_attention(layer(False), *(each.detach().float() for each in states), None, packed=batch())
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, exact.bfloat16()) == (training or learned)
    torch.testing.assert_close(found.float(), exact, atol=2e-2, rtol=2e-2)


class OnGpu(torch.Tensor):
    """A tensor that says that it is on a GPU."""

    is_cuda = True  # type: ignore[assignment]


@pytest.mark.guarantee("encoders-of-any-class")
@pytest.mark.guarantee("packed-equals-padded")
@pytest.mark.parametrize("reach", REACHES)
def test_a_kernel_of_a_gpu_gets_tokens_lengths_and_how_far_they_attend(
    reach: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """(left, right): by how many tokens; -1 for all."""
    options, causal, _ = REACHES[reach]
    asked, called = [], []

    def supports(*arguments: Any) -> bool:
        asked.append(arguments)
        return True

    def kernel(*arguments: Any) -> Tensor:
        called.append(arguments)
        return arguments[0]

    monkeypatch.setattr(attention, "varlen_supports", supports)
    monkeypatch.setattr(attention, "_varlen", kernel)
    plain, packed = drawn(2), batch()
    states = [each.as_subclass(OnGpu) for each in plain]
    found, _ = packed_attention(layer(causal), *states, None, 0.1, 0.7, packed=packed, **options)
    ((q, k, v, cu, longest, dropout, scale, window),) = called
    assert asked == [(torch.float32, 8, 0.1)] and (longest, dropout, scale) == (12, 0.1, 0.7)
    left = options.get("sliding_window", 0) - 1
    assert window == (left, 0 if causal else left) and cu is packed.cu_seqlens
    assert torch.equal(q, plain[0][0].transpose(0, 1)) and torch.equal(found, q[None])
    for ours, theirs in ((k, plain[1]), (v, plain[2])):
        assert torch.equal(ours, theirs[0].transpose(0, 1).repeat_interleave(2, dim=1))


@pytest.mark.guarantee("encoders-of-any-class")
@pytest.mark.guarantee("packed-equals-padded")
@pytest.mark.parametrize("refused", ["kernel", "bias"])
def test_what_a_kernel_of_a_gpu_does_not_support_is_padded(refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    monkeypatch.setattr(attention, "varlen_supports", lambda *_: refused != "kernel")
    monkeypatch.setattr(attention, "_varlen", lambda *arguments: called.append(arguments))
    bias = BIAS if refused == "bias" else None
    states = [each.as_subclass(OnGpu) for each in drawn()]
    found, _ = packed_attention(layer(False), *states, None, position_bias=bias, packed=batch())
    assert not called
    expected = written_out(drawn(), 8**-0.5, lambda back: back == back, bias)
    torch.testing.assert_close(found.as_subclass(torch.Tensor), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.guarantee("packed-equals-padded")
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_a_packed_batch_has_places_and_ends_of_its_sequences(dtype: torch.dtype) -> None:
    lengths = np.array([3, 0, 1, 2], str(dtype).removeprefix("torch."))
    packed = pack(torch.tensor([7, 8, 9, 5, 4, 6]), lengths)
    assert packed.ids.tolist() == [7, 8, 9, 5, 4, 6]
    assert packed.positions.tolist() == [0, 1, 2, 0, 0, 1]
    assert packed.sequence.tolist() == [0, 0, 0, 2, 3, 3]
    assert packed.cu_seqlens.dtype == torch.int32 and packed.cu_seqlens.tolist() == [0, 3, 3, 4, 6]
    assert (packed.num_sequences, packed.longest, packed.lengths) == (4, 3, [3, 0, 1, 2])
    many = pack(torch.arange(2000), np.arange(1000, dtype=lengths.dtype) % 5)
    assert many.sequence.tolist() == [number for number in range(1000) for _ in range(number % 5)]
    assert many.positions.tolist() == [place for number in range(1000) for place in range(number % 5)]
    nothing = pack(torch.tensor([], dtype=torch.int64), lengths[:0])
    assert (nothing.num_sequences, nothing.longest, nothing.cu_seqlens.tolist()) == (0, 0, [0])


def base(**config: Any) -> Any:
    return SimpleNamespace(config=SimpleNamespace(model_type="owl", vocab_size=500, **config), device="cpu")


def states_of(ids: Tensor) -> Tensor:
    """Return states of two values for each token."""
    return torch.stack([ids.float(), -2 * ids.float()], dim=-1)


@pytest.mark.guarantee("encoders-of-any-class")
@pytest.mark.parametrize(
    ("config", "max_tokens", "lengths"),
    [
        ({}, 512, [24, 9]),
        ({"sliding_window": None}, 512, [24, 9]),
        ({"sliding_window": 64}, 512, [88, 9]),
        ({"sliding_window": 64}, 70, [70, 9]),
        ({"sliding_window": 1024, "vocab_size": 50_000}, 8192, [1048, 9]),
        ({}, 5, [5, 5]),
        ({"vocab_size": 10}, 512, [24, 9]),
    ],
)
def test_a_model_is_tried_on_two_sequences_of_usual_ids_one_longer_than_its_window(
    config: dict[str, Any], max_tokens: int, lengths: list[int]
) -> None:
    alone: list[list[int]] = []
    tried = base()
    vars(tried.config).update(config)

    def forward(packed: Packed) -> Tensor:
        assert packed.lengths == lengths
        ids = packed.ids.tolist()
        assert min(ids) >= min(8, tried.config.vocab_size // 2) and max(ids) < tried.config.vocab_size
        assert len(set(ids)) == min(len(ids), tried.config.vocab_size - min(8, tried.config.vocab_size // 2))
        alone.extend(part.tolist() for part in packed.ids.split(lengths))
        return states_of(packed.ids) * (1 + 1e-4)

    def encode_alone(ids: Tensor) -> Tensor:
        assert ids[0].tolist() == alone.pop(0)
        return states_of(ids)

    check_packing(tried, forward, encode_alone, max_tokens)
    assert not alone


@pytest.mark.guarantee("encoders-of-any-class")
@pytest.mark.parametrize("max_tokens", [512, 5])
@pytest.mark.parametrize("wrong", ["first", "second", "slightly", "one value"])
def test_states_that_differ_in_any_sequence_are_refused(wrong: str, max_tokens: int) -> None:
    """Each time: a model of the same type, which was tried before, may have had another attention."""
    check_packing(base(), lambda packed: states_of(packed.ids), states_of, max_tokens)

    def forward(packed: Packed) -> Tensor:
        states = states_of(packed.ids)
        if wrong == "one value":
            states[-2, 1] += 0.01 * states.abs().max()
            return states
        rows = {"first": slice(0, 1), "second": slice(-1, None), "slightly": slice(None)}[wrong]
        states[rows] *= 1.01 if wrong == "slightly" else 3
        return states

    said = "^model type 'owl' cannot run packed: the states .* differ"
    with pytest.raises(EncoderError, match=said):
        check_packing(base(), forward, states_of, max_tokens)


@pytest.mark.guarantee("encoders-of-any-class")
@pytest.mark.parametrize(
    "error",
    [AttributeError("n"), IndexError("i"), KeyError("k"), RuntimeError("r"), TypeError("t"), ValueError("v")],
    ids=lambda error: type(error).__name__,
)
def test_a_model_that_fails_on_a_packed_batch_is_refused_with_its_error(error: Exception) -> None:
    def forward(packed: Packed) -> Tensor:
        raise error

    with pytest.raises(EncoderError, match=rf"^model type 'owl' cannot run packed: {type(error).__name__}: '?\w'?$"):
        check_packing(base(), forward, states_of, 512)


@pytest.mark.guarantee("encoders-of-any-class")
def test_a_model_that_packed_attention_does_not_support_is_refused_with_the_reason_alone() -> None:
    reason = "the model's attention has " + "a sum of several biases and caps, of which " * 4 + "none is supported"

    def forward(packed: Packed) -> Tensor:
        raise NotImplementedError(reason)

    with pytest.raises(EncoderError, match=f"^model type 'owl' cannot run packed: {reason}$"):
        check_packing(base(), forward, states_of, 512)


@pytest.mark.guarantee("encoders-of-any-class")
def test_the_last_state_is_of_the_last_token_that_is_no_filler_nor_of_the_prompt() -> None:
    packed = dataclasses.replace(batch([3, 0, 1, 2, 4]), num_sequences=4)  # the last sequence is a filler
    hidden = torch.arange(1.0, 11.0)[:, None]
    assert last(hidden, packed)[:, 0].tolist() == [3, 0, 4, 6]
    assert last(hidden, packed, 1)[:, 0].tolist() == [3, 0, 0, 6]
    assert last(hidden, packed, 2)[:, 0].tolist() == [3, 0, 0, 0]
    first_is_empty = batch([0, 2])
    assert last(hidden[:2], first_is_empty)[:, 0].tolist() == [0, 2]
    assert last(hidden[:1].half(), batch([1])).dtype == torch.float32


@pytest.mark.guarantee("packed-equals-padded")
@pytest.mark.parametrize("is_known", [True, False], ids=["by length", "padded"])
def test_attention_drops_weights_at_the_rate_that_is_asked_for(is_known: bool) -> None:
    """Of values of 1 alone, an output is the sum of the weights that stay, scaled to the same mean."""
    packed = batch() if is_known else dataclasses.replace(batch(), lengths=None)
    query, key, value = drawn()
    ones = torch.ones_like(value)

    def found(dropout: float) -> Tensor:
        return packed_attention(layer(False), query, key, ones, None, dropout, packed=packed)[0]

    torch.testing.assert_close(found(0.0), torch.ones(1, sum(LENGTHS), HEADS, 8))
    torch.manual_seed(0)
    sums = torch.cat([found(0.5) for _ in range(40)])
    alone = sums[:, 5]  # of a sequence of one token: its only weight
    assert 0.9 < sums.mean() < 1.1 and {*alone.unique().tolist()} == {0.0, 2.0} and 0.3 < alone.mean() / 2 < 0.7
    assert not found(1.0).any()
    (first, second), _ = (found(0.5), found(0.5)), torch.manual_seed(0)
    assert not torch.equal(first, second), "other weights each time"
    assert torch.equal(found(0.5), sums[:1]) and torch.equal(found(0.5), sums[1:2]), "and the same of a seed"


@pytest.mark.guarantee("packed-equals-padded")
@pytest.mark.parametrize("lengths", [[7], [7, 7], [0, 7], [0, 0, 3, 3, 0]])
def test_sequences_of_one_length_and_empty_ones_are_a_batch_too(lengths: list[int]) -> None:
    packed, tokens = batch(lengths), sum(lengths)
    states = [each[:, :, :tokens] for each in drawn()]
    found, _ = packed_attention(layer(False), *states, None, packed=packed)
    rows = torch.split(torch.arange(tokens), lengths)
    alone = [
        packed_attention(layer(False), *(each[:, :, at] for each in states), None, packed=batch([len(at)]))[0]
        for at in rows
        if len(at)
    ]
    torch.testing.assert_close(found, torch.cat(alone, dim=1), atol=1e-6, rtol=1e-5)
