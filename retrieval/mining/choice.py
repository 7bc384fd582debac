"""Choice of negatives among the texts nearest to a query, by their rank and by their score.

The options have the same names as in sentence-transformers' `mine_hard_negatives`. They avoid false negatives: a text
that is nearly as similar to the query as the positive may be relevant, too. With a `relative_margin` of 0.05,
texts that score above 95 % of the positive's score are left out (TopK-PercPos of NV-Retriever, Moreira et al. 2024,
arXiv 2407.15831). Negatives are chosen among the `range_max` nearest texts; if some of these are left out, texts that
are further away do not replace them.
"""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from clearspan.common.options import Flag, Options
from clearspan.retrieval.mining.nearest import BestTexts, Floats
from clearspan.retrieval.topk import NONE, Indices
from clearspan.shards import keyed


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceOptions(Options):
    """Options for the choice of negatives, with the same names as in sentence-transformers' `mine_hard_negatives`."""

    negatives: Annotated[int, Flag("N"), Ge(1)] = 4
    """Number of hard negatives to add to each row."""
    bm25: Annotated[int, Flag("N"), Ge(0)] = 0
    """Number of these negatives that BM25 finds, instead of the model."""
    range_min: Annotated[int, Flag("N"), Ge(0)] = 0
    """Skip the N texts nearest to the query."""
    range_max: Annotated[int, Flag("N"), Ge(1)] = 40
    """Take negatives from the N texts nearest to the query."""
    relative_margin: Annotated[float | None, Flag("X"), Ge(0)] = 0.05
    """Leave out texts that score above (1 - X) times the positive's score; they may be relevant."""
    absolute_margin: Annotated[float | None, Flag("X")] = None
    """Leave out texts that score above the positive's score minus X."""
    max_score: Annotated[float | None, Flag("X")] = None
    """Leave out texts that score above X."""
    min_score: Annotated[float | None, Flag("X")] = None
    """Leave out texts that score below X."""
    sampling_strategy: Annotated[Literal["top", "random"], Flag()] = "top"
    """Take the nearest of the texts that are left (top), or random ones (random)."""
    seed: Annotated[int, Flag("N"), Ge(0)] = 0
    """Seed of the random choice of --sampling-strategy random."""

    def validate(self) -> None:
        super().validate()
        if self.bm25 > self.negatives:
            raise ValueError(
                f"`bm25` {self.bm25} is more than `negatives` {self.negatives}: lower the first, or raise the second"
            )
        if self.range_max - self.range_min < self.negatives:
            raise ValueError(
                f"`range_max` {self.range_max} and `range_min` {self.range_min} leave fewer texts "
                f"than `negatives` {self.negatives}: raise `range_max`"
            )


@dataclasses.dataclass(frozen=True)
class Allowed:
    """For each of m rows, up to r texts that may be used as its negatives, in the order in which they are preferred.

    Attributes:
        indices: the indices of the texts, (m, r) int64; -1 (NONE) after a row's last text.
        scores: the scores of the texts, (m, r) float64; -inf after a row's last text.
        left_out: name of an option -> number of texts, over all rows, that this option left out.
    """

    indices: Indices
    scores: Floats
    left_out: Counter[str]


def allowed_texts(
    ranked: BestTexts, scores: Floats, positives: Floats, ids: NDArray[np.int64], options: ChoiceOptions
) -> Allowed:
    """Return the texts that may be used as negatives: those that no option leaves out for their rank or their score.

    Args:
        ranked: the r texts nearest to the query of each of m rows, with the nearest first.
        scores: the scores of these texts, (m, r): the model's cosine similarities, even if BM25 found the texts; BM25
            scores if there is no model.
        positives: the score of each row's positive, (m,), with which the scores of the texts are compared; the lowest
            score if a row has several positives.
        ids: the ids of the rows, (m,), on which the random choice of a row's negatives depends.
        options: the range of ranks, the limits of the scores, and whether to prefer the nearest or random texts.
    """
    indices, bound = ranked.indices, positives[:, None]
    is_left = indices != NONE
    is_left[:, : options.range_min] = False
    is_left[:, options.range_max :] = False
    checks: dict[str, Callable[[float], NDArray[np.bool_]]] = {
        "relative_margin": lambda margin: scores > bound - np.abs(bound) * margin,
        "absolute_margin": lambda margin: scores > bound - margin,
        "max_score": lambda score: scores > score,
        "min_score": lambda score: scores < score,
    }
    left_out: Counter[str] = Counter()
    for name, is_beyond in checks.items():
        if (limit := getattr(options, name)) is not None:
            beyond = is_left & is_beyond(limit)
            left_out[name] += int(beyond.sum())
            is_left &= ~beyond
    preference = np.broadcast_to(np.arange(indices.shape[1]), indices.shape)
    if options.sampling_strategy == "random":
        preference = keyed.draw(keyed.mix(options.seed, ids)[:, None], preference + 1)
    order = np.lexsort((preference, ~is_left), axis=1)
    is_left = np.take_along_axis(is_left, order, 1)
    indices, scores = np.take_along_axis(indices, order, 1), np.take_along_axis(scores, order, 1)
    return Allowed(np.where(is_left, indices, NONE), np.where(is_left, scores, -np.inf), left_out)


def negatives_of_rows(
    by_model: Allowed | None, by_bm25: Allowed | None, options: ChoiceOptions
) -> Iterator[dict[int, float]]:
    """Yield the negatives of each row, as a mapping text index -> score.

    First come the texts found by the model, then the `options.bm25` texts found by BM25. If one of the two finds too
    few texts for a row, more texts found by the other are used.

    Args:
        by_model: the texts found by the model; None if there is no model.
        by_bm25: the texts found by BM25; None if BM25 is not used.
        options: the numbers of negatives that a row should get.
    """
    of_model, of_words = (_lists(each) for each in (by_model, by_bm25))
    for first, second in zip(of_model, of_words, strict=by_model is not None and by_bm25 is not None):
        taken = dict(itertools.islice(first.items(), options.negatives - options.bm25))
        fresh = {number: score for number, score in second.items() if number not in taken}
        taken |= dict(itertools.islice(fresh.items(), options.bm25))
        rest = {number: score for number, score in {**first, **second}.items() if number not in taken}
        yield taken | dict(itertools.islice(rest.items(), options.negatives - len(taken)))


def _lists(each: Allowed | None) -> Iterator[dict[int, float]]:
    if each is None:
        yield from itertools.repeat({})
        return
    for indices, scores in zip(each.indices.tolist(), each.scores.tolist(), strict=True):
        yield {number: score for number, score in zip(indices, scores, strict=True) if number != NONE}
