"""MinHash sketches of texts, from which the Jaccard similarity of their word n-grams is estimated.

    text -> normalized (`word_hashes.comparable`) -> hashes of all runs of 5 words -> sketch of 256 numbers

A sketch is a row of NUM_HASHES (256) numbers. The expected fraction of equal numbers in two sketches is the Jaccard
similarity of the two sets of n-grams. The sketches are computed as in Dahlgaard, Knudsen and Thorup, "Fast Similarity
Sketching" (FOCS 2017). In each round, every n-gram draws a random number and a place for it in the sketch. An empty
place takes the smallest number that is drawn for it; a filled place does not change in later rounds. The cost grows
with the number of n-grams, and not with the number of n-grams times the number of places. The variance is as small as
with one hash function per place.
"""

from collections.abc import Sequence

import numpy as np

from clearspan.common.ragged import is_run_start
from clearspan.pipelines.text.word_hashes import NORMALIZATION, WordHashes
from clearspan.shards import keyed

NUM_HASHES = 256
NGRAM, NGRAM_LETTERS = 5, 8
"""Number of words of an n-gram (NGRAM). An n-gram with letters of a script without spaces has more (NGRAM_LETTERS),
because each letter counts as a word.
"""
COLUMN = "sketch"
"""Name of the column of sketches, (n, NUM_HASHES) int64, which is attached to a batch (`pipelines.attached`)."""
LOWEST = 0.5
"""Lowest similarity that can be searched for. Below it, most candidates would not be similar."""
VERSION = f"1.{NORMALIZATION}"
"""Version of the sketches and of the words that they compare. It is a part of a dataset's fingerprint."""
DISTINCT_FROM = 16
"""Number of the round that drops repeated n-grams. Large sets are finished by then, and small sets take many rounds."""
_EMPTY = np.iinfo(np.int64).max
_FACTORS, _TERMS = (keyed.draw(np.array([seed]), np.arange(1, 2 * NUM_HASHES + 1)) for seed in (1, 2))
_FACTORS |= 1
_PLACE_SHIFT = 63 - (NUM_HASHES - 1).bit_length()


def ngrams(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the m hashes of all texts' n-grams (5 words), and for each hash the index of its text; (m,) int64 each.

    The hashes are in the order of the texts. A text with fewer words than an n-gram has one hash, of all its words. A
    text without words has none.
    """
    hashes, texts_of = WordHashes.ngrams_of(texts, NGRAM, NGRAM_LETTERS)
    order = np.argsort(texts_of, kind="stable")
    return hashes[order].view(np.int64), texts_of[order]


def sketches(texts: Sequence[str]) -> np.ndarray:
    """Return the MinHash sketches of n texts, (n, 256) int64; zeros for a text without words."""
    grams, rows = ngrams(texts)
    return sketch(grams, rows, len(texts))


def sketch(grams: np.ndarray, rows: np.ndarray, num_rows: int) -> np.ndarray:
    """Return the MinHash sketches of `num_rows` sets of hashes, (num_rows, 256) int64; zeros for an empty set.

    Args:
        grams: the m hashes of all sets, (m,) int64; a set may hold a hash more than once.
        rows: for each hash, the index of its set, (m,) int64.
    """
    grams = keyed.finalize(grams)
    numbers = np.full((num_rows, NUM_HASHES), _EMPTY, np.int64)
    numbers[np.bincount(rows, minlength=num_rows) == 0] = 0
    flat, num_open = numbers.reshape(-1), np.full(num_rows, NUM_HASHES)
    for number in range(2 * NUM_HASHES):
        if not len(rows):
            break
        if number == DISTINCT_FROM:
            order = np.lexsort((grams, rows))
            grams, rows = grams[order], rows[order]
            is_new = is_run_start(grams) | is_run_start(rows)
            grams, rows = grams[is_new], rows[is_new]
        drawn = (grams * _FACTORS[number] + _TERMS[number]) & _EMPTY
        # In the first rounds a hash draws its place; later rounds fill one place each, so that none stays empty.
        place = drawn >> _PLACE_SHIFT if number < NUM_HASHES else number - NUM_HASHES
        places = rows * NUM_HASHES + place
        is_open = flat[places] == _EMPTY
        filled = places[is_open]
        np.minimum.at(flat, filled, drawn[is_open])
        num_open -= np.bincount(np.unique(filled) // NUM_HASHES, minlength=num_rows)
        is_left = num_open[rows] > 0
        if not is_left.all():
            grams, rows = grams[is_left], rows[is_left]
    return numbers
