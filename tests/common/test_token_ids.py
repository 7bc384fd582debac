"""Ids of prompts at the start of texts."""

from pathlib import Path

import pytest

from clearspan.common.fast_tokenizer import load_tokenizer
from clearspan.common.token_ids import leading_ids, without_prompt

TEXTS = ["how owls hunt.", "12 owls", "ing of an owl"]


@pytest.mark.guarantee("prompts-held-out")
@pytest.mark.parametrize("name", ["roberta-base", "bert-base-uncased"])
@pytest.mark.parametrize("prompt", ["", " ", "query: ", "Represent this:\n", "Find", "Is it (a "])
def test_a_text_is_read_without_its_prompt_even_if_a_token_belongs_to_both(
    shared_data: Path, name: str, prompt: str
) -> None:
    tokenizer = load_tokenizer((shared_data / "tokenizers" / name / "tokenizer.json").read_bytes())
    rows = [tokenizer.encode(prompt + text, add_special_tokens=False).ids for text in TEXTS]
    assert without_prompt(tokenizer, rows, prompt) == TEXTS
    leading = leading_ids(tokenizer, prompt)
    assert bool(leading) == bool(prompt.strip())
    assert prompt == "Find" or all(row[: len(leading)] == leading for row in rows)


@pytest.mark.guarantee("prompts-held-out")
@pytest.mark.parametrize("name", ["roberta-base", "bert-base-uncased"])
@pytest.mark.parametrize(
    ("prompt", "text", "read"),
    [
        ("", " Query an owl ", "Query an owl"),
        ("Query ", "Query an owl", "Query an owl"),
        ("İİ: ", "an owl", "an owl"),
        ("  Find", "ing of an owl", "ing of an owl"),
        ("QUERY: ", "an owl", "an owl"),
        ("  query: ", "an owl  ", "an owl"),
        ("ask  the\n\towls : ", "an owl", "an owl"),
        ("[owl] ", "", ""),
    ],
)
def test_a_prompt_is_taken_off_once_and_nothing_else(
    shared_data: Path, name: str, prompt: str, text: str, read: str
) -> None:
    tokenizer = load_tokenizer((shared_data / "tokenizers" / name / "tokenizer.json").read_bytes())
    rows = [tokenizer.encode(prompt + each, add_special_tokens=False).ids for each in (text, "rain", text)]
    expected = [each.lower() if name.startswith("bert") else each for each in (read, "rain", read)]
    assert without_prompt(tokenizer, rows, prompt) == expected
    assert without_prompt(tokenizer, [], prompt) == []


@pytest.mark.guarantee("prompts-held-out")
@pytest.mark.parametrize("order", [1, -1])
def test_each_text_is_read_by_itself_whether_its_prompt_is_spelled_as_the_models_or_not(
    shared_data: Path, order: int
) -> None:
    """In one batch stand texts that a token joins with the prompt, and texts whose prompt has another spelling."""
    tokenizer = load_tokenizer((shared_data / "tokenizers/bert-base-uncased/tokenizer.json").read_bytes())
    texts = ["ing of an owl", "rain of owls", "ings", "find an owl", "an owl", ""]
    rows = [
        tokenizer.encode(before + text, add_special_tokens=False).ids
        for before, text in zip(["Find", "a "] * 3, texts, strict=True)
    ]
    assert without_prompt(tokenizer, rows[::order], "Find") == texts[::order]


@pytest.mark.guarantee("prompts-held-out")
def test_the_ids_of_a_prompt_are_those_before_a_text_without_special_tokens(shared_data: Path) -> None:
    tokenizer = load_tokenizer((shared_data / "tokenizers/roberta-base/tokenizer.json").read_bytes())
    for prompt, leading in [("query: ", "query:"), ("query:", "query:"), (" find  ", " find"), ("   ", ""), ("", "")]:
        assert leading_ids(tokenizer, prompt) == tokenizer.encode(leading, add_special_tokens=False).ids
