"""Near-duplicates: which documents to compare, and which of them to drop.

    sketch -> bands of r numbers -> equal bands: candidates -> similarity by all numbers -> drop the later document

Two documents of Jaccard similarity s share a band of r numbers with probability s^r, and at least one of b bands with
1 - (1 - s^r)^b (Leskovec, Rajaraman and Ullman, "Mining of Massive Datasets", section 3.4). r is the largest for which
documents at the threshold share one with a probability of 0.99 or more. A candidate is dropped if the band keeps an
earlier document whose estimated similarity (`text.minhash`) is at least the threshold less two standard deviations of
the estimate, so that pairs at the threshold itself are found too.

A document is dropped only if it resembles a kept document directly. Similarity is not transitive here: chains of small
changes would join texts that have little in common.
"""

import dataclasses
import math

import numpy as np

from clearspan.common.ragged import starts_run
from clearspan.pipelines.text.minhash import NUM_HASHES
from clearspan.shards import keyed

RECALL = 0.99
CODE = np.dtype((np.uint8, NUM_HASHES))
"""A sketch to compare: the lowest 8 bits of each number. Unequal numbers agree in them once in 256."""
BAND = np.dtype([("band", "<u8"), ("row", "<u4")])
CANDIDATE = np.dtype([("band", "<u8"), ("row", "<u4"), ("id", "<i8"), ("code", CODE)])
DESCRIBED = np.dtype([("id", "<i8"), ("code", CODE)])
"""The data that a unit keeps of each example, by row."""
DROPPED = np.dtype([("row", "<u4"), ("kept", "<i8"), ("similarity", "<f4")])
"""A dropped row, the id of the document that it resembles, and their estimated similarity."""
MAX_KEPT = 64
"""The most documents of a band that later ones are compared with: a common phrase puts many into one band."""
_CHUNK = 1 << 16


@dataclasses.dataclass(frozen=True)
class Banding:
    """The bands of a threshold: `num_bands` of `width` numbers; `accepted` is the lowest estimate that counts."""

    threshold: float

    @property
    def width(self) -> int:
        """The widest band at which documents at the threshold share one with the probability RECALL."""
        widths = range(1, NUM_HASHES)
        return max(r for r in widths if 1 - (1 - self.threshold**r) ** (NUM_HASHES // r) >= RECALL)

    @property
    def num_bands(self) -> int:
        return NUM_HASHES // self.width

    @property
    def accepted(self) -> float:
        s = self.threshold
        return s - 2 * math.sqrt(s * (1 - s) / NUM_HASHES)

    def bands(self, sketches: np.ndarray, first: int) -> np.ndarray:
        """Return the bands of sketches, (n * num_bands,) BAND; the sketch of a text without words, all zeros, has none.

        Args:
            sketches: (n, NUM_HASHES) int64.
            first: the row, within the unit, of the first sketch.
        """
        (rows,) = np.nonzero(sketches.any(axis=1))
        used = sketches[rows, : self.width * self.num_bands].reshape(len(rows), self.num_bands, self.width)
        entries = np.empty((len(rows), self.num_bands), BAND)
        entries["band"] = keyed.mix(np.arange(self.num_bands), *np.moveaxis(used, 2, 0)).view(np.uint64)
        entries["row"] = first + rows[:, None]
        return entries.reshape(-1)


def describe(ids: np.ndarray, sketches: np.ndarray) -> np.ndarray:
    """Return what a unit keeps of examples, (n,) DESCRIBED, by ids (n,) int64 and sketches (n, NUM_HASHES) int64."""
    entries = np.empty(len(ids), DESCRIBED)
    entries["id"] = ids
    entries["code"] = (sketches & 0xFF).astype(np.uint8)
    return entries


def similarity(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the estimated similarity of pairs of codes (n, NUM_HASHES) uint8, (n,) float64; chance agreement is
    deducted.
    """
    equal = (first == second).mean(axis=1) if len(first) else np.empty(0)
    estimate: np.ndarray = (equal - 1 / 256) / (1 - 1 / 256)
    return estimate


def shared(bands: np.ndarray) -> np.ndarray:
    """Return the positions of the entries whose band occurs more than once, ascending."""
    order = np.argsort(bands, kind="stable")
    same = bands[order[1:]] == bands[order[:-1]]
    return np.sort(order[np.append(False, same) | np.append(same, False)[: len(order)]])


def compare(entries: np.ndarray, accepted: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compare the documents of each band, in plan order, with the documents that the band has kept so far.

    Args:
        entries: (n,) CANDIDATE, in plan order.

    Returns:
        The positions of the entries to drop, (m,) int64; the position of the entry that each resembles, (m,) int64;
        their similarity, (m,) float64.
    """
    left = np.argsort(entries["band"], kind="stable")
    drops: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for _ in range(MAX_KEPT):
        band = entries["band"][left]
        is_first = starts_run(band)
        leaders = left[np.flatnonzero(is_first)[np.cumsum(is_first) - 1]] if len(left) else left
        others = np.flatnonzero(~is_first)
        if not len(others):
            break
        similar = _similarities(entries, left[others], leaders[others])
        is_near = similar >= accepted
        near = others[is_near]
        drops.append((left[near], leaders[near], similar[is_near]))
        left = left[others[~is_near]]
    columns = zip(*drops, strict=True) if drops else ([], [], [])
    dropped, kept, values = (np.concatenate([np.empty(0, dtype), *c]) for dtype, c in zip("iif", columns, strict=True))
    return dropped.astype(np.int64), kept.astype(np.int64), values


def _similarities(entries: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    chunks = [slice(start, start + _CHUNK) for start in range(0, len(first), _CHUNK)]
    parts = [similarity(entries["code"][first[c]], entries["code"][second[c]]) for c in chunks]
    return np.concatenate([np.empty(0), *parts])


def merge(dropped: np.ndarray) -> np.ndarray:
    """Return one entry (DROPPED) per row, ascending: the most similar document; among equals, the lowest id."""
    order = np.lexsort((dropped["kept"], -dropped["similarity"], dropped["row"]))
    ordered = dropped[order]
    merged: np.ndarray = ordered[starts_run(ordered["row"])]
    return merged
