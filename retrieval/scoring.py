"""Settings of BM25: the words that it compares, and its parameters k1 and b.

    weight of a word in a text = idf x count / (count + k1 x (1 - b + b x length of the text / mean length))

Search, mining and evaluation have the same defaults. `clearspan adapt` chooses k1 and b on queries that it does not
score (`best_scoring`), and records them in search.json.
"""

import dataclasses
from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt, Le
from numpy.typing import NDArray

from clearspan.common.options import Flag, Options
from clearspan.retrieval.stemming import CHOICES, PLAIN, WordFunction

K1, B = 1.2, 0.75
"""Defaults of k1 and b."""
EARLIER_K1, EARLIER_B = 1.5, 0.75
"""The k1 and b of folders that record none: their version had no others."""
MAX_K1 = 1000.0
"""Largest k1. Above it, further occurrences add as much as the first, as they do with it, and weights lose digits."""
GRID = tuple((k1, b) for k1 in (0.6, 0.9, K1, 1.5) for b in (0.4, 0.6, B, 0.9))
"""The pairs of k1 and b to choose from."""
MIN_Z = 1.64
"""A pair replaces the default if its gain on the dev queries exceeds this many standard errors (95 %, one-sided). The
pair with the highest MRR on 20 package titles or docstrings often has an MRR 2 to 4 points below the default on others.
"""


@dataclasses.dataclass(frozen=True)
class Scoring:
    """Settings of BM25, which determine the scores of texts.

    Attributes:
        words: function that splits a text into the words that are compared.
        k1: how much further occurrences of a word add, above 0, at most 1,000: with a small k1, hardly anything.
        b: how much the length of a text counts, from 0 (not at all) to 1.

    Raises:
        ValueError: k1 or b is out of range.
    """

    words: WordFunction = PLAIN
    k1: float = K1
    b: float = B

    def __post_init__(self) -> None:
        if not 0 < self.k1 <= MAX_K1:
            raise ValueError(f"`k1` {self.k1}: must be above 0 and at most {MAX_K1:g}")
        if not 0 <= self.b <= 1:
            raise ValueError(f"`b` {self.b}: must be from 0 to 1")

    def __str__(self) -> str:
        stemmer = getattr(self.words, "stemmer", None)
        return f"k1 {self.k1:g}, b {self.b:g}, {f'{stemmer.title()} stems' if stemmer else 'whole words'}"

    @property
    def key(self) -> dict[str, str | int | float]:
        """The versions and settings that determine the scores, by name. A stored BM25 index's name depends on them."""
        return {**self.words.key, "k1": float(self.k1), "b": float(self.b)}


DEFAULT = Scoring()
"""Whole words, and the defaults of k1 and b."""


def best_scoring(reciprocal_ranks: NDArray[np.float64]) -> int:
    """Return the index in `GRID` of the k1 and b with the highest MRR; of the default, unless the gain exceeds noise.

    Args:
        reciprocal_ranks: the reciprocal rank of each of m queries with each pair of `GRID`, (16, m).
    """
    default = GRID.index((K1, B))
    if reciprocal_ranks.shape[1] < 2:
        return default
    best = int(reciprocal_ranks.mean(axis=1).round(12).argmax())
    gains = reciprocal_ranks[best] - reciprocal_ranks[default]
    noise = MIN_Z * gains.std(ddof=1) / np.sqrt(len(gains))
    return best if gains.mean() > noise else default


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParameterOptions(Options):
    """The options k1 and b of a command whose BM25 scores texts."""

    k1: Annotated[float | None, Flag("K1"), Gt(0), Le(MAX_K1)] = None
    """BM25's k1: how much further occurrences of a word add (default: as the folder of `adapt` says, else 1.2)."""
    b: Annotated[float | None, Flag("B"), Ge(0), Le(1)] = None
    """BM25's b: how much the length of a text counts, 0 to 1 (default: as the folder of `adapt` says, else 0.75)."""

    def validate(self) -> None:
        super().validate()
        self.scoring()

    def scoring(self, words: WordFunction = PLAIN) -> Scoring:
        """Return how BM25 scores with these options, where no folder of `adapt` says it."""
        return Scoring(words, K1 if self.k1 is None else self.k1, B if self.b is None else self.b)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoringOptions(ParameterOptions):
    """The options of a command that scores texts by BM25."""

    stemmer: Annotated[str | None, Flag("LANGUAGE", choices=CHOICES)] = None
    """Language whose word endings BM25 ignores, or none to compare whole words (default: as the folder of `adapt` says,
    else the language of the texts).
    """
