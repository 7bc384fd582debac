"""DeCLUTR's span sampler (section 3.2), vectorized on any device without a host sync.

    lengths ~ Beta -> anchors, placed by `placement` -> positives of each anchor

A document has A anchors; each has P positives that touch, overlap or lie inside it. Placements of anchors:

    grid     as in the published code: the document is divided into cells of `max_span` tokens, and each anchor lies
             anywhere within a cell of its own. The cells of two anchors are never neighbors, so gaps are at least
             `max_span`.
    uniform  every placement with gaps of at least `min_distance` is equally likely. In a document that is barely long
             enough, the anchors therefore lie at the ends of the document.

The uniform placement needs no rejection sampling. It leaves the anchors and the minimum gaps out of the document, draws
A sorted points among the tokens that remain (Floyd's subset algorithm), and inserts the anchors and gaps there.
`train.model.packing` cuts the tokens of the spans out.
"""

import dataclasses
import functools
import math
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Len
from torch import Tensor

from clearspan.train import draws
from clearspan.train.config.optimizer import Positive
from clearspan.train.config.options import Count
from clearspan.train.draws import Purpose

Beta = Annotated[list[Positive], Len(2, 2)]


@dataclasses.dataclass
class SpanConfig:
    """The options of the span sampler, with DeCLUTR's defaults (section 3.2 and the published code).

    Lengths and distances are in tokens, without special tokens.

    Args:
        num_anchors: the number of anchors of each document.
        num_positives: the number of positives of each anchor, whose embeddings are averaged.
        min_span: the length of the shortest span.
        max_span: the exclusive upper bound of a span's length.
        anchor_beta: a and b of the Beta distribution of anchors' lengths, between min_span and max_span.
        positive_beta: a and b of the Beta distribution of positives' lengths.
        placement: the placement of anchors. grid: each in a cell of max_span tokens, as in the published code; uniform:
            all placements that keep `min_distance` are equally likely.
        min_distance: with placement uniform, the minimum distance from an anchor's end to the next anchor's start; null
            means 512. With grid, the minimum distance is max_span.
        positives: the position of positives. adjacent: next to their anchor; subsuming: inside it; any: touching,
            overlapping or inside it.
    """

    num_anchors: Annotated[int, Ge(1)] = 2
    num_positives: Annotated[int, Ge(1)] = 2
    min_span: Annotated[int, Ge(1)] = 32
    max_span: int = 512
    anchor_beta: Beta = dataclasses.field(default_factory=lambda: [4.0, 2.0])
    positive_beta: Beta = dataclasses.field(default_factory=lambda: [2.0, 4.0])
    placement: Literal["grid", "uniform"] = "grid"
    min_distance: Count | None = None
    positives: Literal["any", "adjacent", "subsuming"] = "any"

    def check(self) -> None:
        """Raise ValueError for an option that cannot work; the message begins with the option's name."""
        if self.min_span > self.max_span:
            raise ValueError(f"min_span {self.min_span} is more than max_span {self.max_span}")
        if self.min_distance is not None and self.placement == "grid":
            raise ValueError("min_distance has no effect with placement grid: leave it out, or set placement=uniform")

    @property
    def distance(self) -> int:
        """The minimum distance from the end of an anchor to the start of the next anchor, in tokens."""
        if self.placement == "grid":
            return self.max_span
        return 512 if self.min_distance is None else self.min_distance

    @property
    def required_tokens(self) -> int:
        """The length of the shortest document in which the spans always fit, whatever their lengths, in tokens."""
        if self.placement == "grid":
            return 2 * self.num_anchors * self.max_span
        adjacent = 2 * self.min_span if self.positives == "adjacent" else 0
        return self.num_anchors * self.max_span + (self.num_anchors - 1) * self.distance + adjacent

    @property
    def smallest_shrunk(self) -> int:
        """The length of the shortest document in which each span still has a token after it is shortened, in tokens.

        With a dataset's option `short_documents: shrink`, the spans of a document of fewer than `required_tokens`
        tokens are shortened in proportion.
        """
        return math.ceil(self.required_tokens / self.min_span)

    def min_tokens(self, shrinks: bool) -> int:
        """Return the minimum length of a document, in tokens.

        Args:
            shrinks: whether spans are shortened in documents that are too short for them (`short_documents: shrink`).
                If so, the minimum is `smallest_shrunk`; if not, `required_tokens`.
        """
        return self.smallest_shrunk if shrinks else self.required_tokens

    def anchor_moments(self) -> tuple[float, float]:
        """Return (mean, variance) of the number of tokens in all anchors of one document."""
        mean, variance = _beta_moments(self.anchor_beta)
        width = self.max_span - self.min_span
        return self.num_anchors * (self.min_span + width * mean), self.num_anchors * width**2 * variance

    def positive_moments(self) -> tuple[float, float]:
        """Return (mean, variance) of the number of tokens in all positives of one document."""
        anchor, anchor_variance = _beta_moments(self.anchor_beta)
        mean, variance = _beta_moments(self.positive_beta)
        width = self.max_span - self.min_span
        count = self.num_positives
        spread = count * variance
        if self.positives == "subsuming":  # length min + width x y in an anchor of min + width x
            spread = (count * mean) ** 2 * anchor_variance + (anchor_variance + anchor**2) * spread
            mean *= anchor
        return self.num_anchors * count * (self.min_span + width * mean), self.num_anchors * width**2 * spread

    def length_moments(self) -> tuple[float, float]:
        """Return (mean, variance) of the number of tokens in all anchors and positives of one document together."""
        (mean, variance), (more, spread) = self.anchor_moments(), self.positive_moments()
        if self.positives == "subsuming":  # positives grow with their anchor: add twice the covariance
            covariance = self.num_positives * _beta_moments(self.positive_beta)[0] * _beta_moments(self.anchor_beta)[1]
            spread += 2 * self.num_anchors * (self.max_span - self.min_span) ** 2 * covariance
        return mean + more, variance + spread


def _beta_moments(beta: list[float]) -> tuple[float, float]:
    a, b = beta
    return a / (a + b), a * b / ((a + b) ** 2 * (a + b + 1))


@dataclasses.dataclass
class Spans:
    """The spans of B documents: A anchors of each document, and P positives of each anchor.

    A start is the offset of a span's first token from the beginning of the document; a length is a number of tokens.

    Attributes:
        anchor_start, anchor_length: the starts and lengths of the anchors, (B, A) int64 each.
        positive_start, positive_length: the starts and lengths of the positives, (B, A, P) int64 each.
    """

    anchor_start: Tensor
    anchor_length: Tensor
    positive_start: Tensor
    positive_length: Tensor


@functools.lru_cache(maxsize=16)
def _inverse_beta_table(a: float, b: float, device: torch.device) -> Tensor:
    from scipy.stats import beta

    return torch.from_numpy(beta.ppf(torch.linspace(0, 1, 4097, dtype=torch.float64).numpy(), a, b)).to(device)


def beta_from_uniforms(keys: Tensor, a: float, b: float) -> Tensor:
    """Return a random number from Beta(a, b) for each key: keys (...) int64 -> (...) float64.

    For integer a and b the distribution is exact: the number is the a-th smallest of a + b - 1 uniform numbers.
    Otherwise it is the inverse of the cumulative distribution function at a uniform number. This inverse is
    approximated on 4,096 intervals of equal length: by a power function on the first and on the last interval, and by
    linear interpolation on the others.
    """
    if float(a).is_integer() and float(b).is_integer():
        uniforms = draws.uniform(keys, int(a + b) - 1)
        return uniforms.sort(dim=-1).values[..., int(a) - 1]
    table = _inverse_beta_table(a, b, keys.device)
    position = draws.uniform(keys, 1)[..., 0] * (len(table) - 1)
    index = position.long().clamp(max=len(table) - 2)
    within = position - index
    drawn = torch.lerp(table[index], table[index + 1], within)
    drawn = torch.where(index == 0, table[1] * within ** (1 / a), drawn)
    return torch.where(index == len(table) - 2, 1 - (1 - table[-2]) * (1 - within) ** (1 / b), drawn)


def _lengths(keys: Tensor, beta: list[float], low: Tensor, high: Tensor, capacity: int) -> Tensor:
    """Draw a length for each span, in tokens: floor(p (high - low) + low) with p ~ Beta(a, b).

    This is the distribution in section 3.2 of DeCLUTR's paper.

    Args:
        keys: the random key of each span, int64 of any shape. The result has the same dtype and shape.
        beta: a and b.
        low, high: the minimum and the exclusive maximum of the lengths, int64 of a shape that broadcasts to the shape
            of `keys`. If they are equal, this is the length.
        capacity: the maximum length that the encoder takes; a longer span gets this length.
    """
    fraction = beta_from_uniforms(keys, beta[0], beta[1])
    return (fraction * (high - low) + low).long().clamp(max=capacity)


def _sorted_offsets(keys: Tensor, highest: Tensor, count: int) -> Tensor:
    """Draw `count` integers from 0 to `highest` for each of B documents, in ascending order, (B, count) int64.

    An integer may be drawn several times. All sorted lists are equally likely.

    Args:
        keys: the random key of each document, (B,) int64.
        highest: the maximum of each document's integers, (B,) int64.
        count: the number of integers of each document.
    """
    uniforms = draws.uniform(keys, count)
    chosen: list[Tensor] = []
    for i in range(count):
        last = highest + i
        candidate = draws.below(uniforms[:, i], last + 1)
        taken = torch.zeros_like(candidate, dtype=torch.bool)
        for other in chosen:
            taken |= candidate == other
        chosen.append(torch.where(taken, last, candidate))
    ordered = torch.stack(chosen, dim=1).sort(dim=1).values
    return ordered - torch.arange(count, device=ordered.device)


def _anchor_cells(keys: Tensor, num_cells: Tensor, num_anchors: int) -> Tensor:
    """Draw the cells of the anchors of B documents, as DeCLUTR's code does (placement `grid`).

    Each document is divided into cells. Each anchor takes a random one of the remaining cells; this cell, the remaining
    cell before it and the remaining cell after it are then removed. If k anchors have no cell yet and fewer than k^2
    cells remain, the next anchor takes the first or the last remaining cell.

    Args:
        keys: the random key of each document, (B,) int64.
        num_cells: the number of cells of each document, (B,) int64.
        num_anchors: the number of anchors of each document.

    Returns:
        The index of each anchor's cell, (B, num_anchors) int64.
    """
    uniforms = draws.uniform(keys, 2 * num_anchors).view(len(keys), num_anchors, 2)
    removed: list[Tensor] = []
    chosen = []

    def cell(rank: Tensor) -> Tensor:
        """Return, for each document, the index of the remaining cell with the rank `rank`, (B,) int64.

        Args:
            rank: the number of remaining cells before this one, (B,) int64.
        """
        for index in torch.stack(removed, 1).sort(dim=1).values.unbind(1) if removed else ():
            rank = rank + (rank >= index)
        return rank

    remaining = num_cells
    for anchor in range(num_anchors):
        to_place = num_anchors - anchor
        rank = draws.below(uniforms[:, anchor, 0], remaining.clamp(min=1))
        at_an_end = torch.where(uniforms[:, anchor, 1] < 0.5, torch.zeros_like(remaining), remaining - 1)
        rank = torch.where(remaining // to_place < to_place, at_an_end, rank).clamp(min=0)
        chosen.append(cell(rank))
        beyond = torch.iinfo(torch.int64).max
        before = torch.where(rank > 0, cell((rank - 1).clamp(min=0)), beyond)
        after = torch.where(rank + 1 < remaining, cell(rank + 1), beyond)
        removed += [before, chosen[-1], after]
        remaining = remaining - 1 - (rank > 0).long() - (rank + 1 < remaining).long()
    return torch.stack(chosen, dim=1)


def sample(lengths: Tensor, keys: Tensor, config: SpanConfig, capacity: int = 1 << 30) -> Spans:
    """Draw the spans of B documents.

    Args:
        lengths: the lengths of the documents in tokens, (B,) int64. In documents shorter than `config.required_tokens`,
            spans and distances shrink in proportion. Training reads such documents only with `short_documents: shrink`.
        keys: the random key of each document, (B,) int64.
        config: the options of the span sampler.
        capacity: the maximum length of a span that the encoder takes, in tokens without special tokens; a longer span
            is cut to it.
    """
    shape = (len(lengths), config.num_anchors)
    scale = (lengths.double() / config.required_tokens).clamp(max=1.0)[:, None]
    high = (config.max_span * scale).long().clamp(min=1)
    low = (config.min_span * scale).long().clamp(min=1)

    # Compute the key of each document and of each anchor once, and extend it for every purpose.
    documents = draws.mix(keys)
    anchors = draws.mix(draws.extend(documents[:, None], torch.arange(shape[1], device=keys.device)))
    anchor_length = _lengths(draws.extend(anchors, Purpose.ANCHOR_LENGTH), config.anchor_beta, low, high, capacity)
    if config.placement == "grid":
        cell = _anchor_cells(
            draws.extend(documents, Purpose.ANCHOR_CELL),
            torch.div(lengths, high[:, 0], rounding_mode="floor"),
            shape[1],
        )
        within = draws.uniform(draws.extend(anchors, Purpose.ANCHOR_START), 1)[..., 0]
        anchor_start = cell * high + draws.below(within, high - anchor_length + 1)
    else:
        distance = (config.distance * scale).long()
        gaps = (shape[1] - 1) * distance[:, 0]
        offsets = _sorted_offsets(
            draws.extend(documents, Purpose.ANCHOR_CELL),
            (lengths - anchor_length.sum(1) - gaps).clamp(min=0),
            shape[1],
        )
        anchor_start = offsets + (anchor_length + distance).cumsum(1) - (anchor_length + distance)

    positive = torch.arange(config.num_positives, device=keys.device)
    positives = draws.mix(draws.extend(anchors[..., None], positive))
    start, end = anchor_start[..., None], (anchor_start + anchor_length)[..., None]
    total = lengths[:, None, None]
    longest = anchor_length[..., None] if config.positives == "subsuming" else high[..., None]
    floor = torch.minimum(low[..., None], longest)
    positive_length = _lengths(
        draws.extend(positives, Purpose.POSITIVE_LENGTH), config.positive_beta, floor, longest, capacity
    )
    choice = draws.uniform(draws.extend(positives, Purpose.POSITIVE_START), 1)[..., 0]
    if config.positives == "adjacent":
        positive_length = torch.minimum(positive_length, torch.maximum(start, total - end))
        fits_before, fits_after = start >= positive_length, end + positive_length <= total
        use_after = torch.where(fits_before & fits_after, choice < 0.5, fits_after)
        positive_start = torch.where(use_after, end.expand_as(use_after), start - positive_length)
    elif config.positives == "subsuming":
        positive_start = start + draws.below(choice, end - start - positive_length + 1)
    else:
        first = (start - positive_length).clamp(min=0)
        last = torch.minimum(end, total - positive_length)
        positive_start = first + draws.below(choice, last - first + 1)
    return Spans(anchor_start, anchor_length, positive_start, positive_length)
