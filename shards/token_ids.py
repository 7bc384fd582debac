"""How many ids a tokenizer has: what the type of the token columns and the rows of the embeddings go by."""

from collections.abc import Mapping

MOST_BYTES = 1 << 27
"""A file of a tokenizer has at most so many. The largest vocabularies in use, of a million tokens, take half."""
USUAL_IDS = 1 << 20
SPARSEST = 4
"""Ids may go up to `USUAL_IDS`, more than any vocabulary in use has, or to so many times the number of tokens. Memory
is taken for every id up to the largest, so one of 4,000,000,000 in a small file would take all there is."""


def vocab_size(vocabulary: Mapping[str, int]) -> int:
    """Every id of the vocabulary is below it, also where the ids have gaps.

    Raises:
        ValueError: the ids are far more than the tokens.
    """
    largest = max(vocabulary.values(), default=0)
    if largest >= max(USUAL_IDS, SPARSEST * len(vocabulary)):
        token = next(token for token, number in vocabulary.items() if number == largest)
        raise ValueError(f"{token[:40]!r} has id {largest:,} in a vocabulary of {len(vocabulary):,}: mend the id")
    return max(len(vocabulary), 1 + largest)
