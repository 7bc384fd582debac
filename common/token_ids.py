"""Vocabulary size of a tokenizer, which decides the type of the token columns and the number of embedding rows."""

from collections.abc import Mapping

USUAL_IDS = 1 << 20
SPARSEST = 4
"""Every id must be below `USUAL_IDS`, more than any vocabulary in use has, or below `SPARSEST` times the number of
tokens. Memory is allocated for every id up to the largest, so an id of 4,000,000,000 in a small file would exhaust
it."""


def vocab_size(vocabulary: Mapping[str, int]) -> int:
    """Return the vocabulary size: every id is below it, even if the ids have gaps.

    Raises:
        ValueError: the largest id is far above the number of tokens.
    """
    largest = max(vocabulary.values(), default=0)
    if largest >= max(USUAL_IDS, SPARSEST * len(vocabulary)):
        token = next(token for token, number in vocabulary.items() if number == largest)
        raise ValueError(
            f"{token[:40]!r} has id {largest:,} in a vocabulary of {len(vocabulary):,} tokens: correct the id"
        )
    return max(len(vocabulary), 1 + largest)
