"""Token ids: the vocabulary size of a tokenizer, and the ids of a prompt at the start of a text.

The vocabulary size decides the dtype of token columns and the number of embedding rows.
"""

from collections.abc import Mapping, Sequence
from typing import Any

USUAL_IDS = 1 << 20
SPARSEST = 4
"""Every id must be below `USUAL_IDS`, more than any vocabulary in use has, or below `SPARSEST` times the number of
tokens. Memory is allocated for every id up to the largest, so an id of 4,000,000,000 in a small file would exhaust
it."""


def vocab_size(vocabulary: Mapping[str, int]) -> int:
    """Return the size of a vocabulary: the number of tokens, or the largest id + 1 if the ids have gaps.

    Args:
        vocabulary: token -> id.

    Raises:
        ValueError: the largest id is at least 2**20 and at least four times the number of tokens.
    """
    largest = max(vocabulary.values(), default=0)
    if largest >= max(USUAL_IDS, SPARSEST * len(vocabulary)):
        token = next(token for token, number in vocabulary.items() if number == largest)
        raise ValueError(
            f"{token[:40]!r} has id {largest:,} in a vocabulary of {len(vocabulary):,} tokens: correct the id"
        )
    return max(len(vocabulary), 1 + largest)


def leading_ids(tokenizer: Any, prompt: str) -> list[int]:
    """Return the token ids of a prompt, without special tokens.

    If the prompt and a text are tokenized as one string, the ids of this string begin with the ids of the prompt. The
    prompt's final spaces are left out, since the tokenizer joins them with the text.

    Args:
        tokenizer: a tokenizer from `common.fast_tokenizer.load_tokenizer`, which adds no padding.
    """
    ids: list[int] = tokenizer.encode(prompt.rstrip(), add_special_tokens=False).ids if prompt.strip() else []
    return ids


def without_prompt(tokenizer: Any, texts: Sequence[list[int]], prompt: str) -> list[str]:
    """Decode lists of token ids into texts; return them without the prompt at their start, stripped of white space.

    The prompt is removed from the decoded text rather than from the ids, since one token may hold the end of the prompt
    and the start of the text. If decoding has changed the prompt, e.g. its spaces, the prompt's ids are removed before
    decoding instead.

    Args:
        texts: for each text, the ids of its tokens, with those of the prompt at the start.
        prompt: the prompt; "" if the texts have none.
    """
    start, number = prompt.strip(), len(leading_ids(tokenizer, prompt))
    whole: list[str] = tokenizer.decode_batch(texts)
    if not start:
        return [text.strip() for text in whole]
    behind = tokenizer.decode_batch([ids[number:] for ids in texts])
    return [
        (text[len(start) :] if text[: len(start)].lower() == start.lower() else rest).strip()
        for text, rest in zip((text.lstrip() for text in whole), behind, strict=True)
    ]
