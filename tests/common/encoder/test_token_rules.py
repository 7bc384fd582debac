"""Ids of texts by a description of a tokenizer alone: every limit, side, prompt and special token, written out."""

import itertools

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from clearspan.common.encoder.tokens import LONGEST, PostProcessing, TokenReader, _between
from clearspan.common.ragged import Ragged

FIRST = 250_000
"""The id of the first character: XLM-RoBERTa's ids are as large, and need more than 16 bits."""
TEXTS = [
    "An owl.",
    "",
    " an OWL hunts by night ",
    "owls",
    "naïve cafe\u0301 \uff4f\uff57\uff4c",
    "x" * 90,
    "An owl.",
    "a",
    "owl\tat\u00a0night",
]


def reader(rules: PostProcessing, offset: int = 0) -> TokenReader:
    """Return a reader of characters, each of which is a token, by the code of the character."""
    characters = {chr(code): FIRST + offset + code for code in (*range(0x250), 0x301, *range(0xFF00, 0xFF60))}
    tokenizer = Tokenizer(models.WordLevel({**characters, "[UNK]": 3}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    return TokenReader(tokenizer, rules, 400_000, "owls")


def codes(text: str, offset: int = 0) -> list[int]:
    return [FIRST + offset + ord(character) for character in text]


@pytest.mark.guarantee("same-vectors")
@pytest.mark.parametrize("number", [1, 40], ids=["few texts", "many"])
@pytest.mark.parametrize("keeps_end", [False, True])
@pytest.mark.parametrize("limit", [5, 24, LONGEST])
@pytest.mark.parametrize(("before", "after"), [([], []), ([1], []), ([], [300_002]), ([1, 2], [300_002])])
def test_a_text_is_its_tokens_after_the_prompt_cut_at_one_side_and_between_special_tokens(
    before: list[int], after: list[int], limit: int, keeps_end: bool, number: int
) -> None:
    rules = PostProcessing(before, after, limit, keeps_end, [1, 2, 300_002])
    texts = TEXTS * number
    for prompt, offset in itertools.product(("", "Find: ", "passage:"), (0, 7)):
        found = reader(rules, offset).read(texts, prompt)
        room = min(limit, 1000) - len(before) - len(after)
        whole = [codes(prompt + text, offset) for text in texts]
        kept = [ids[max(0, len(ids) - room) :] if keeps_end else ids[:room] for ids in whole]
        expected = [[*before, *ids, *after] for ids in kept]
        assert found.ids.tolist() == [token for ids in expected for token in ids]
        assert found.lengths.tolist() == [len(ids) for ids in expected]
        assert found.is_truncated.tolist() == [len(ids) > room for ids in whole]
        of_prompt = len(before) + min(room, len(prompt))
        assert found.prompt_tokens == (of_prompt if prompt else 0)
        assert (found.ids.dtype, found.lengths.dtype) == (np.int32, np.int32)


@pytest.mark.guarantee("same-vectors")
@pytest.mark.parametrize(("prefix", "suffix"), [([], []), ([9], []), ([], [9]), ([300_000, 2], [7, 300_001, 8])])
def test_every_list_gets_the_same_ids_around_it_whatever_it_holds(prefix: list[int], suffix: list[int]) -> None:
    for rows in ([[1, 300_002], [], [3]], [[]], []):
        content = Ragged.of([np.array(row, np.int32) for row in rows], np.int32)
        found = _between(content, prefix, suffix)
        assert [row.tolist() for row in found] == [[*prefix, *row, *suffix] for row in rows]
        assert [row.tolist() for row in content] == rows


@pytest.mark.guarantee("same-vectors")
@pytest.mark.parametrize("number", [1, 40], ids=["few texts", "many"])
def test_what_other_code_sets_on_the_tokenizer_changes_no_ids(number: int) -> None:
    """As transformers does, which may truncate and pad each time that it tokenizes."""
    read = reader(PostProcessing([1], [2], 24, False, [1, 2]))
    texts = TEXTS * number
    expected = read.read(texts).ids.tolist()
    for _ in range(2):
        read._tokenizer.enable_truncation(3)
        read._tokenizer.enable_padding(length=50)
        assert read.read(texts).ids.tolist() == expected
        assert read.count(texts).tolist() == [len(text) for text in texts]
