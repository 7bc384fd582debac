"""Near-duplicates by MinHash: find the documents to compare, and decide which of them to drop.

    sketch of a document (NUM_HASHES numbers) -> bands of r numbers -> candidates: documents with an equal band
        -> estimated similarity of two candidates, from their whole sketches -> drop the later document

Two documents with Jaccard similarity s have an equal band with probability s^r, and at least one equal band among b
bands with probability 1 - (1 - s^r)^b (Leskovec, Rajaraman and Ullman, "Mining of Massive Datasets", section 3.4). The
threshold is the similarity from which documents are near-duplicates. r is the largest number for which two documents
whose similarity is the threshold have an equal band with a probability of at least 0.99.

Candidates with an equal band are compared in the order of the plan. A candidate is dropped if its estimated similarity
(`text.minhash`) to an earlier candidate that stays is at least the threshold minus two standard deviations of the
estimate. Because of this margin, pairs whose true similarity is just the threshold are found too.

A document is dropped only if it resembles an earlier document directly. Among documents with an equal band, similarity
is not treated as transitive: chains of small changes would join texts that have little in common. Each band is decided
independently, so the earlier document, which stays in this band, may be dropped because of another band.
"""

import dataclasses
import math

import numpy as np

from clearspan.common.ragged import is_run_start
from clearspan.pipelines.text.minhash import NUM_HASHES
from clearspan.shards import keyed

RECALL = 0.99
CODE = np.dtype((np.uint8, NUM_HASHES))
"""A code: the lowest 8 bits of each number of a sketch. They are equal for 1 in 256 pairs of different numbers."""
BAND = np.dtype([("band", "<u8"), ("row", "<u4")])
CANDIDATE = np.dtype([("band", "<u8"), ("row", "<u4"), ("id", "<i8"), ("code", CODE)])
DESCRIBED = np.dtype([("id", "<i8"), ("code", CODE)])
"""The id and the code of an example; a unit writes one entry for each row."""
DROPPED = np.dtype([("row", "<u4"), ("kept", "<i8"), ("similarity", "<f4")])
"""A dropped row, the id of the document that it resembles, and their estimated similarity."""
MAX_KEPT = 64
"""Maximum number of kept documents of a band with which later documents are compared. A common phrase can put very many
documents into one band."""
_CHUNK = 1 << 16


@dataclasses.dataclass(frozen=True)
class Banding:
    """Division of MinHash sketches into bands, which are runs of consecutive numbers of a sketch.

    Documents are compared only if their sketches have an equal band.

    Attributes:
        threshold: the Jaccard similarity from which two documents are near-duplicates.
    """

    threshold: float

    @property
    def width(self) -> int:
        """The number of consecutive elements of a sketch that form one band.

        It is the largest width with which two documents whose similarity is the threshold have at least one equal band
        with a probability of at least 0.99 (RECALL).
        """
        widths = range(1, NUM_HASHES)
        return max(r for r in widths if 1 - (1 - self.threshold**r) ** (NUM_HASHES // r) >= RECALL)

    @property
    def num_bands(self) -> int:
        return NUM_HASHES // self.width

    @property
    def accepted(self) -> float:
        """The estimated Jaccard similarity from which two documents are treated as near-duplicates.

        It is the threshold minus two standard deviations of the estimate, so that few near-duplicates are missed.
        """
        s = self.threshold
        return s - 2 * math.sqrt(s * (1 - s) / NUM_HASHES)

    def bands(self, sketches: np.ndarray, first: int) -> np.ndarray:
        """Return an entry for each band of each of n consecutive rows: a hash of the band, and the row number.

        The hash depends on the band's numbers and on the position of the band in the sketch.

        Args:
            sketches: the sketches of the rows, (n, NUM_HASHES) int64. A row of zeros belongs to a text without words,
                which has no bands.
            first: the row number, in the work unit, of the first row.

        Returns:
            The entries, (m * num_bands,) BAND, where m is the number of rows that have words, and `num_bands` is the
            number of bands of a sketch.
        """
        (rows,) = np.nonzero(sketches.any(axis=1))
        used = sketches[rows, : self.width * self.num_bands].reshape(len(rows), self.num_bands, self.width)
        entries = np.empty((len(rows), self.num_bands), BAND)
        entries["band"] = keyed.mix(np.arange(self.num_bands), *np.moveaxis(used, 2, 0)).view(np.uint64)
        entries["row"] = first + rows[:, None]
        return entries.ravel()


def describe(ids: np.ndarray, sketches: np.ndarray) -> np.ndarray:
    """Return the id and the code of each example, (n,) DESCRIBED.

    A code is a short form of a MinHash sketch: the lowest 8 bits of each number of the sketch.

    Args:
        ids: the ids of the examples, (n,) int64.
        sketches: the sketches of the examples, (n, NUM_HASHES) int64.
    """
    entries = np.empty(len(ids), DESCRIBED)
    entries["id"] = ids
    entries["code"] = (sketches & 0xFF).astype(np.uint8)
    return entries


def similarity(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the estimated Jaccard similarity of each of n pairs of documents, (n,) float64.

    It is the fraction of equal numbers in two codes, corrected for numbers that are equal by chance.

    Args:
        first, second: the codes of the two documents of each pair, (n, NUM_HASHES) uint8 each. A code is the lowest 8
            bits of each number of a MinHash sketch.
    """
    equal = (first == second).mean(axis=1) if len(first) else np.empty(0)
    estimate: np.ndarray = (equal - 1 / 256) / (1 - 1 / 256)
    return estimate


def shared(bands: np.ndarray) -> np.ndarray:
    """Return the indices of the elements that occur more than once in an array, (m,) int64, in ascending order.

    Args:
        bands: the array, whose elements are hashes of bands, (n,) uint64.
    """
    order = np.argsort(bands, kind="stable")
    same = bands[order[1:]] == bands[order[:-1]]
    return np.sort(order[np.append(False, same) | np.append(same, False)[: len(order)]])


def compare(entries: np.ndarray, min_similarity: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compare each candidate with earlier candidates that have an equal band; drop it if it is similar to one of them.

    A candidate is compared only with the first MAX_KEPT (64) candidates with its band that were not dropped themselves.

    Args:
        entries: the candidates, (n,) CANDIDATE, in the order of the plan: each has a band, a row, an id and a code. A
            row with several bands is several candidates.
        min_similarity: the estimated Jaccard similarity from which a candidate is dropped.

    Returns:
        dropped: the indices in `entries` of the m dropped candidates, (m,) int64.
        kept: for each dropped candidate, the index of the earlier candidate that it resembles, (m,) int64.
        similarity: the estimated similarity of these two, (m,) float64.
    """
    left = np.argsort(entries["band"], kind="stable")
    drops: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for _ in range(MAX_KEPT):
        band = entries["band"][left]
        is_first = is_run_start(band)
        leaders = left[np.flatnonzero(is_first)[np.cumsum(is_first) - 1]] if len(left) else left
        others = np.flatnonzero(~is_first)
        if not len(others):
            break
        similar = _similarities(entries, left[others], leaders[others])
        is_near = similar >= min_similarity
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
    """Return one entry for each dropped row, in ascending order of rows.

    A row may have been dropped several times, because it resembles one document in one band and another document in
    another band. The entry with the highest similarity is returned; among equal similarities, the entry whose document
    has the lowest id.

    Args:
        dropped: an entry for each time that a row was dropped, in any order, (n,) DROPPED: the row, the id of the
            document that it resembles, and their similarity.
    """
    order = np.lexsort((dropped["kept"], -dropped["similarity"], dropped["row"]))
    ordered = dropped[order]
    merged: np.ndarray = ordered[is_run_start(ordered["row"])]
    return merged
