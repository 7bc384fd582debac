"""Ids of tokens: the vocabulary size of a tokenizer, which decides the type of the token columns and the number of
embedding rows, and the ids of a prompt at the start of a text.
"""

from collections.abc import Mapping, Sequence
from typing import Any

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


def leading_ids(tokenizer: Any, prompt: str) -> list[int]:
    """Return the ids with which every text after a prompt begins: a space at the prompt's end belongs to the text.

    Args:
        tokenizer: as `common.fast_tokenizer.load` returns it, without padding.
    """
    ids: list[int] = tokenizer.encode(prompt.rstrip(), add_special_tokens=False).ids if prompt.strip() else []
    return ids


def without_prompt(tokenizer: Any, texts: Sequence[list[int]], prompt: str) -> list[str]:
    """Return the texts of lists of ids, without the prompt that each of them begins with.

    Where the tokenizer joins the end of the prompt and the start of the text in one token, the prompt is cut off the
    text instead of its ids.
    """
    leading = leading_ids(tokenizer, prompt)
    whole = [ids[: len(leading)] == leading for ids in texts]
    decoded = tokenizer.decode_batch(
        [ids[len(leading) :] if is_whole else ids for ids, is_whole in zip(texts, whole, strict=True)]
    )
    start = prompt.strip()
    return [
        (text if is_whole or text[: len(start)].lower() != start.lower() else text[len(start) :]).strip()
        for text, is_whole in zip(decoded, whole, strict=True)
    ]
