"""Poolings, masks and batches of packed texts, each compared with a loop over the texts."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor, nn

from clearspan.common.encoder import packed_batches
from clearspan.common.encoder.attention import ScoreOptions
from clearspan.common.encoder.library_pooling import FirstLast
from clearspan.common.encoder.packed import PackedModel
from clearspan.common.encoder.packed_batches import embed_ids
from clearspan.common.encoder.packed_pooling import FUNCTIONS, first, maximum, pooled
from clearspan.common.encoder.packing import Packed, pack_ids

LENGTHS = ([3, 1, 0, 4, 2, 1], [2, 5, 1, 2], [1], [4, 3, 0])
"""Numbers of tokens of texts; the last text of each batch but the third is a filler."""


def by_loop(states: np.ndarray, mode: str, num_skipped: int, weights: np.ndarray | None) -> np.ndarray:
    """The pooling of one text as sentence-transformers defines it: states (t, h), weights (t,)."""
    length = len(states)
    used = states if weights is None else states * weights[:, None]
    kept = np.arange(length) >= num_skipped
    if mode == "cls":
        row = num_skipped if length > num_skipped else 0
        return used[row] if length else np.zeros(states.shape[1])
    if mode == "lasttoken":
        return used[-1] if length > num_skipped else np.zeros(states.shape[1])
    if mode == "max":
        return np.where(kept[:, None], used, -np.inf).max(0, initial=-np.inf)
    factors = kept * (np.arange(length) + 1.0 if mode == "weightedmean" else 1.0)
    total = max((factors if weights is None else weights).sum(), 1e-9)
    return (used * factors[:, None]).sum(0) / (np.sqrt(total) if mode == "mean_sqrt_len_tokens" else total)


@pytest.mark.guarantee("embeds-as-the-library")
@pytest.mark.parametrize("mode", FUNCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
def test_each_text_of_a_batch_is_pooled_as_it_is_alone(mode: str, weighted: bool) -> None:
    generator = np.random.default_rng(3)
    for lengths in LENGTHS:
        states = generator.standard_normal((sum(lengths), 5), np.float32)
        weights = generator.uniform(0.001, 0.3, sum(lengths)).astype(np.float32) if weighted else None
        batch = pack_ids([[7] * length for length in lengths])
        real = len(lengths) - (len(lengths) > 1)
        ends = np.cumsum([0, *lengths])
        for num_skipped in range(4):
            found = pooled(
                torch.from_numpy(states),
                dataclasses.replace(batch, num_sequences=real),
                mode,
                num_skipped,
                None if weights is None else torch.from_numpy(weights),
            )
            rows = [slice(ends[text], ends[text + 1]) for text in range(real)]
            expected = [
                by_loop(states[row], mode, num_skipped, None if weights is None else weights[row]) for row in rows
            ]
            assert found.dtype == torch.float32
            np.testing.assert_allclose(found, np.stack(expected), rtol=1e-5, atol=1e-6)


@pytest.mark.guarantee("embeds-as-the-library")
def test_no_token_is_skipped_unless_it_is_asked_for() -> None:
    states, batch = torch.tensor([[9.0], [2.0], [5.0], [4.0]]), pack_ids([[7, 7], [7, 7]])
    assert first(states, batch).tolist() == [[9.0], [5.0]] and maximum(states, batch).tolist() == [[9.0], [5.0]]


@pytest.mark.guarantee("embeds-as-the-library")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 1, 3, 5, 6])
@pytest.mark.parametrize("with_bias", [False, True])
def test_a_token_attends_within_its_window_and_to_none_after_it_where_attention_is_causal(
    causal: bool, window: int | None, with_bias: bool
) -> None:
    bias = torch.randn(1, 2, 7, 7, generator=torch.Generator().manual_seed(1)) if with_bias else None
    found = ScoreOptions(sliding_window=window, causal=causal, bias=bias).mask(5, torch.zeros(1, dtype=torch.float64))
    attends = torch.tensor(
        [[(window is None or abs(i - j) < window) and (j <= i or not causal) for j in range(5)] for i in range(5)]
    )
    if not causal and (window is None or window >= 5):
        assert found is None if bias is None else torch.equal(found, bias[:, :, :5, :5].double())
    elif bias is None:
        assert torch.equal(found, attends)
    else:
        expected = torch.where(attends, bias[:, :, :5, :5].double(), -torch.inf)
        assert found.dtype == torch.float64 and torch.equal(found, expected)


@pytest.mark.guarantee("embeds-as-the-library")
def test_the_mask_is_on_the_device_of_the_query() -> None:
    found = ScoreOptions(causal=True).mask(3, torch.zeros(1, device="meta"))
    assert found is not None and found.device.type == "meta"


@pytest.mark.guarantee("embeds-as-the-library")
@pytest.mark.parametrize("most", [1, 40, 600, 2048])
@pytest.mark.parametrize("dtype", [np.int64, np.int16, np.uint8])
def test_texts_of_all_lengths_are_embedded_in_the_order_given(
    most: int, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The embedding of a text is its number of ids, its first id and the sum of its ids times their positions."""
    generator = np.random.default_rng(4)
    lengths = generator.permutation([0, *generator.integers(0, 12, 150), 200, 45, 0, 1]).astype(dtype)
    ids = torch.from_numpy(generator.integers(1, 9000, int(lengths.sum())))
    monkeypatch.setattr(packed_batches, "CPU_TOKENS", most)
    sizes: list[int] = []

    def embed(batch: Packed) -> Tensor:
        assert batch.ids.dtype == torch.int64 and batch.lengths is not None and batch.longest <= 200
        sizes.append(len(batch.ids))
        parts = torch.split(batch.ids, batch.lengths)
        return torch.stack([_summary(part) for part in parts])

    found = embed_ids(ids, lengths, 3, embed, 200)
    assert torch.equal(found, torch.stack([_summary(part) for part in torch.split(ids, lengths.tolist())]))
    assert all(size % (64 if size > 512 else 16) == 0 and size for size in sizes)
    assert max(sizes) <= max(most + 63, 208) and (most == 2048 or len(sizes) > 1)
    assert embed_ids(ids[:0], lengths[:0], 3, embed).shape == (0, 3)
    few = lengths <= 6
    short = torch.cat(
        [part for part, is_short in zip(torch.split(ids, lengths.tolist()), few, strict=True) if is_short]
    )
    seen: list[int] = []
    embed_ids(short, lengths[few], 3, lambda batch: seen.append(batch.longest) or embed(batch), 6)  # type: ignore[func-returns-value]
    assert max(seen) <= 6, "no sequence, not even a filler, is longer than the model reads"


def _summary(ids: Tensor) -> Tensor:
    return torch.tensor([len(ids), int(ids[0]) if len(ids) else -1, int((ids * torch.arange(len(ids))).sum())]).float()


@pytest.mark.guarantee("embeds-as-the-library")
def test_a_gpu_gets_all_texts_as_one_batch() -> None:
    """Torch's device `meta` stands for it."""
    batches: list[Packed] = []

    def embed(batch: Packed) -> Tensor:
        batches.append(batch)
        return torch.zeros(len(batch.lengths or []), 4)

    for lengths in ([3, 0, 2], [0, 0], [5]):
        ids = torch.zeros(sum(lengths), dtype=torch.int32, device="meta")
        assert embed_ids(ids, np.array(lengths), 4, embed, 8).shape == (len(lengths), 4)
    assert [batch.lengths for batch in batches] == [[3, 0, 2], [0, 0, 1], [5]]
    assert all(batch.ids.dtype == torch.int64 and batch.ids.device.type == "meta" for batch in batches)


def model_of(pooling: Any, weights: Any = None) -> PackedModel:
    """A model without a transformer: its head gives twice the state of the first token."""
    model = object.__new__(PackedModel)
    model._pooling, model._weights = pooling, weights
    model._forward = SimpleNamespace(through_head=lambda hidden, batch: 2 * first(hidden, batch))  # type: ignore[assignment]
    return model


@pytest.mark.guarantee("embeds-as-the-library")
@pytest.mark.parametrize("modes", ["mean", "cls", ("cls", "max", "mean"), ("weightedmean", "lasttoken")])
@pytest.mark.parametrize("include_prompt", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_all_poolings_of_a_model_stand_side_by_side_with_and_without_its_prompt(
    modes: Any, include_prompt: bool, weighted: bool
) -> None:
    states = torch.randn(6, 5, generator=torch.Generator().manual_seed(2))
    batch = pack_ids([[7, 3, 2], [7], [2, 2]])
    table = torch.tensor([[0.0, -1.0], [0.1, -1.0], [0.2, -1.0], [0.3, -1.0], [0, 0], [0, 0], [0, 0], [0.7, -1.0]])
    model = model_of(Pooling(5, modes, include_prompt), nn.Embedding.from_pretrained(table) if weighted else None)
    weights = torch.tensor([0.7, 0.3, 0.2, 0.7, 0.2, 0.2]) if weighted else None
    for prompt_tokens in (0, 2):
        skipped = 0 if include_prompt else prompt_tokens
        each = [modes] if isinstance(modes, str) else modes
        expected = [pooled(states, batch, mode, skipped, weights) for mode in each]
        torch.testing.assert_close(model._pooled(states, batch, prompt_tokens), torch.cat(expected, dim=1))


@pytest.mark.guarantee("embeds-as-the-library")
def test_a_head_or_the_mean_of_two_layers_pools_where_the_model_says_so() -> None:
    states, batch = torch.arange(12.0).reshape(4, 3), pack_ids([[7, 3], [7, 2]])
    assert model_of(None)._pooled(states, batch, 1).tolist() == [[0, 2, 4], [12, 14, 16]]
    assert model_of(FirstLast(3))._pooled(states, batch, 1).tolist() == [[1.5, 2.5, 3.5], [7.5, 8.5, 9.5]]
