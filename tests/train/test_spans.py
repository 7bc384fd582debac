"""The span sampler against what DeCLUTR's section 3.2 says of it."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from clearspan.train import draws
from clearspan.train.data.span_sampler import SpanConfig, Spans, beta_from_uniforms, sample

STRATEGIES = ("any", "adjacent", "subsuming")
PAPER = SpanConfig()


def keys(count: int, seed: int = 0) -> torch.Tensor:
    return draws.mix(seed, torch.arange(count))


@st.composite
def settings_and_lengths(draw: st.DrawFn) -> tuple[SpanConfig, torch.Tensor]:
    """A configuration, and documents from just long enough to roomy."""
    low = draw(st.integers(1, 40))
    placement = draw(st.sampled_from(["grid", "uniform"]))
    config = SpanConfig(
        num_anchors=draw(st.integers(1, 5)),
        num_positives=draw(st.integers(1, 4)),
        min_span=low,
        max_span=low + draw(st.integers(0, 80)),
        anchor_beta=draw(st.sampled_from([[4.0, 2.0], [1.0, 1.0], [0.5, 0.5], [2.5, 1.5]])),
        placement=placement,
        min_distance=draw(st.integers(0, 100)) if placement == "uniform" else None,
        positives=draw(st.sampled_from(STRATEGIES)),
    )
    extra = draw(st.lists(st.integers(0, 300), min_size=1, max_size=8))
    return config, torch.tensor([config.required_tokens + more for more in extra])


def check_geometry(spans: Spans, lengths: torch.Tensor, distance: int, positives: str) -> None:
    start, end = spans.anchor_start, spans.anchor_start + spans.anchor_length
    assert (start >= 0).all() and (end <= lengths[:, None]).all() and (spans.anchor_length >= 1).all()
    order = start.argsort(1)
    between = start.gather(1, order)[:, 1:] - end.gather(1, order)[:, :-1]
    assert (between >= distance).all(), "anchors closer than the minimum distance"
    first, last = spans.positive_start, spans.positive_start + spans.positive_length
    assert (first >= 0).all() and (last <= lengths[:, None, None]).all() and (spans.positive_length >= 1).all()
    start, end = start[..., None], end[..., None]
    assert ((first <= end) & (last >= start)).all(), "a positive neither touches nor overlaps its anchor"
    if positives == "adjacent":
        assert ((last == start) | (first == end)).all()
    if positives == "subsuming":
        assert ((first >= start) & (last <= end)).all()


@pytest.mark.slow
@settings(max_examples=200)
@given(settings_and_lengths(), st.integers(0, 1 << 40))
def test_spans_keep_their_bounds_distances_and_neighbourhoods(
    drawn: tuple[SpanConfig, torch.Tensor], seed: int
) -> None:
    config, lengths = drawn
    spans = sample(lengths, keys(len(lengths), seed), config)
    check_geometry(spans, lengths, config.distance, config.positives)
    assert spans.anchor_length.min() >= config.min_span and spans.anchor_length.max() <= config.max_span
    assert spans.positive_length.max() <= config.max_span
    if config.positives != "adjacent":
        assert spans.positive_length.min() >= config.min_span


@pytest.mark.slow
@settings(max_examples=100)
@given(settings_and_lengths(), st.floats(0, 1))
def test_shrinking_fits_any_document_down_to_the_stated_smallest(
    drawn: tuple[SpanConfig, torch.Tensor], fraction: float
) -> None:
    config, _ = drawn
    low, high = config.smallest_shrunk, config.required_tokens
    lengths = torch.tensor([low, low + int((high - low) * fraction)])
    spans = sample(lengths, keys(2), config)
    check_geometry(spans, lengths, 0, config.positives)


@pytest.mark.parametrize(("a", "b"), [(4, 2), (2, 4), (1, 1), (2.5, 0.7)])
def test_lengths_follow_the_beta_distribution(a: float, b: float) -> None:
    drawn = beta_from_uniforms(keys(20_000), a, b)
    assert stats.kstest(drawn.numpy(), stats.beta(a, b).cdf).pvalue > 1e-3


def test_anchor_placement_is_uniform_over_all_that_keep_the_distance() -> None:
    """Two anchors of 2 tokens, 3 apart, in 12 tokens: 5 free tokens, so C(7, 2) = 21 placements, each as likely."""
    config = SpanConfig(num_anchors=2, num_positives=1, min_span=2, max_span=2, placement="uniform", min_distance=3)
    spans = sample(torch.full((42_000,), 12), keys(42_000), config)
    placements, counts = torch.unique(spans.anchor_start, dim=0, return_counts=True)
    assert len(placements) == 21
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3


def published(num_tokens: int, config: SpanConfig, draw: np.random.Generator) -> list[tuple[int, int]]:
    """(start, end) of each anchor, slowly, by the rules of the published sampler."""
    blocks = list(range(0, num_tokens - config.max_span + 1, config.max_span))
    anchors = []
    for wanted in range(config.num_anchors, 0, -1):
        length = int(draw.beta(*config.anchor_beta) * (config.max_span - config.min_span) + config.min_span)
        place = draw.choice([0, len(blocks) - 1] if len(blocks) // wanted < wanted else len(blocks))
        start = blocks[place] + draw.integers(config.max_span - length + 1)
        del blocks[max(0, place - 1) : place + 2]
        anchors.append((start, start + length))
    return anchors


def coverage(starts: np.ndarray, ends: np.ndarray, num_tokens: int) -> np.ndarray:
    """The share of documents of which an anchor holds a token, over each eighth: (documents, anchors) -> (8,)."""
    edges = np.zeros(num_tokens + 1)
    np.add.at(edges, starts.ravel(), 1)
    np.add.at(edges, ends.ravel(), -1)
    return np.array([part.mean() for part in np.array_split(edges.cumsum()[:-1] / len(starts), 8)])


@pytest.mark.slow
@pytest.mark.parametrize(("num_anchors", "num_tokens"), [(2, 2048), (2, 2700), (3, 3072), (4, 4100)])
def test_the_grid_covers_documents_as_the_published_sampler_does(num_anchors: int, num_tokens: int) -> None:
    config = dataclasses.replace(PAPER, num_anchors=num_anchors)
    draw = np.random.default_rng(num_tokens)
    slow = np.array([published(num_tokens, config, draw) for _ in range(20_000)])
    spans = sample(torch.full((20_000,), num_tokens), keys(20_000), config)
    start, end = spans.anchor_start.numpy(), (spans.anchor_start + spans.anchor_length).numpy()
    expected = coverage(slow[..., 0], slow[..., 1], num_tokens)
    assert np.abs(coverage(start, end, num_tokens) - expected).max() < 0.01
    gaps = np.sort(start, axis=1)[:, 1:] - np.sort(end, axis=1)[:, :-1]
    assert gaps.min() >= 512
    last = (slow[:, -1:, 0], slow[:, -1:, 1]), (start[:, -1:], end[:, -1:])
    of_last = [coverage(first, end, num_tokens) for first, end in last]
    assert np.abs(of_last[0] - of_last[1]).max() < 0.02


def test_positive_starts_are_uniform_from_just_before_to_just_after_the_anchor() -> None:
    config = SpanConfig(num_anchors=1, num_positives=1, min_span=3, max_span=3, placement="uniform", min_distance=0)
    spans = sample(torch.full((60_000,), 9), keys(60_000), config)
    middle = spans.anchor_start[:, 0] == 3
    counts = torch.bincount(spans.positive_start[middle, 0, 0], minlength=7)
    assert len(counts) == 7 and stats.chisquare(counts.numpy()).pvalue > 1e-3


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_documents_spans_do_not_depend_on_batch_or_order(strategy: str) -> None:
    config = dataclasses.replace(PAPER, positives=strategy)
    lengths = torch.randint(config.required_tokens, 9000, (32,), generator=torch.Generator().manual_seed(1))
    document_keys = keys(32)
    together = sample(lengths, document_keys, config)
    order = torch.randperm(32, generator=torch.Generator().manual_seed(2))
    shuffled = sample(lengths[order], document_keys[order], config)
    alone = sample(lengths[5:6], document_keys[5:6], config)
    for field in dataclasses.fields(Spans):
        whole = getattr(together, field.name)
        assert torch.equal(whole[order], getattr(shuffled, field.name))
        assert torch.equal(whole[5:6], getattr(alone, field.name))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_moments_are_those_of_what_is_drawn(strategy: str) -> None:
    config = dataclasses.replace(PAPER, positives=strategy, num_positives=3, min_span=8, max_span=256)
    spans = sample(torch.full((40_000,), 8192), keys(40_000), config)
    anchors, positives = spans.anchor_length.sum(1), spans.positive_length.flatten(1).sum(1)
    moments = (config.anchor_moments(), config.positive_moments(), config.length_moments())
    for drawn, (mean, variance) in zip((anchors, positives, anchors + positives), moments, strict=True):
        assert drawn.double().mean().item() == pytest.approx(mean, rel=0.02)
        assert drawn.double().var().item() == pytest.approx(variance, rel=0.05)


def test_capacity_cuts_spans_before_they_are_placed() -> None:
    lengths = torch.full((2000,), 4096)
    spans = sample(lengths, keys(2000), PAPER, capacity=400)
    assert spans.anchor_length.max() == 400
    check_geometry(spans, lengths, PAPER.distance, "any")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"min_span": 600}, "min_span"),
        ({"min_distance": 1024}, "min_distance has no effect with placement grid"),
    ],
)
def test_a_setting_that_cannot_work_is_named(change: dict, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        dataclasses.replace(PAPER, **change).check()
