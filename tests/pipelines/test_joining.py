"""Packing of sentences: as many as fit, compared with encoding each candidate; nothing is lost or too long."""

import itertools
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from clearspan.pipelines.text import joining
from clearspan.pipelines.text.joining import TokenizedTexts, join
from clearspan.pipelines.text.segmentation import segment_spaced
from clearspan.pipelines.text.tokenization import Tokenization, read_tokenizer, with_prefix_space


def joined(texts: list[list[str]], limit: int, tokenization: Tokenization) -> list[tuple[str, str, list[int]]]:
    """Return the name, the lines and the ids of each piece."""
    names = [f"text {number}" for number in range(len(texts))]
    tokenization.start_unit()
    found: list[TokenizedTexts] = list(join(texts, names, limit, tokenization.tokenize))
    rows = [zip(texts.prepared, texts.raw, map(list, texts.tokens), strict=True) for texts in found]
    return [(name, lines, [int(token) for token in ids]) for name, lines, ids in itertools.chain.from_iterable(rows)]


def slowly(texts: list[list[str]], limit: int, tokenizer: Tokenizer) -> list[tuple[str, list[int]]]:
    """Return the name and ids of each piece, adding sentences one by one until the encoded text is too long."""

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids

    found = []
    for sentences in texts:
        left = list(sentences)
        while left:
            number = 1
            while number < len(left) and len(encode("".join(left[: number + 1]).strip())) <= limit:
                number += 1
            text = "".join(left[:number]).strip()
            left = left[number:]
            ids = encode(text)
            if len(ids) <= limit:
                found.append((text, ids))
            else:
                assert number == 1
                parts = [ids[start : start + limit] for start in range(0, len(ids), limit)]
                found += [(f"{text}\0{place}", part) for place, part in enumerate(parts)]
    return found


@pytest.fixture(scope="module")
def segmented(texts: list[str]) -> list[list[str]]:
    return [segment_spaced(text, "en") for text in texts[:60]]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["roberta-base", "roberta-base with a space", "gpt2", "bert-base-uncased"])
@pytest.mark.parametrize("limit", [5, 60, 510])
def test_pieces_are_those_of_encoding_every_candidate(
    shared_data: Path, segmented: list[list[str]], name: str, limit: int
) -> None:
    files = read_tokenizer(str(shared_data / "tokenizers" / name.split()[0]))
    if name.endswith("space"):
        files = with_prefix_space(files)
    data = files.files["tokenizer.json"]
    sentences = [text for text in segmented[: 10 if limit > 60 else 5] if text]
    found = joined(sentences, limit, Tokenization(data))
    assert [(name, ids) for name, _, ids in found] == slowly(sentences, limit, Tokenizer.from_str(data.decode()))
    assert any("\0" in name for name, _, _ in found) is (limit < 510)


def test_a_piece_that_turns_out_too_long_is_halved_in_its_place(roberta_tokenization: Tokenization) -> None:
    """The lengths do not add up: two sentences together have twice as many ids as separately."""

    def tokenize(texts: list[str], sources: list[str]):
        return roberta_tokenization.tokenize([text * (1 + text.count(".") // 2) for text in texts], sources)

    (tokenized,) = join([["One day.", " Two days.", " Three days.", " Four."], [" Five."]], ["a", "b"], 12, tokenize)
    assert list(tokenized.prepared) == ["One day. Two days.", "Three days. Four.", "Five."]
    assert max(map(len, tokenized.tokens)) <= 12 and tokenized.num_cut == 0


@pytest.mark.exhaustive
def test_pieces_are_the_same_whatever_is_tokenized_together(
    roberta_tokenization: Tokenization, segmented: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for together in (1, 5000, 10**9):
        monkeypatch.setattr(joining, "TOGETHER", together)
        found.append(joined(segmented[:20], 40, roberta_tokenization))
    assert found[0] == found[1] == found[2]
    alone = [piece for text in segmented[:20] for piece in joined([text], 40, roberta_tokenization)]
    assert alone == found[0]
