"""Word starts, inferred from the vocabulary: the words that a reader of the text would see."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from clearspan.pipelines.augment.words import WordStarts


def words(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    starts = WordStarts(tokenizer)(np.array(ids), np.array([0, len(ids)]))
    return [tokenizer.decode(part.tolist()).strip() for part in np.split(np.array(ids), np.flatnonzero(starts)[1:])]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["roberta-base", "gpt2"])
def test_words_of_byte_level_tokens(shared_data: Path, name: str) -> None:
    tokenizer = Tokenizer.from_file(str(shared_data / "tokenizers" / name / "tokenizer.json"))
    text = "Australia's antiquarianism (don't): 1,024 naïve cafés... ‘Ça va?’ an ersatz 東京タワー is tall"
    expected = ["Australia", "'s", "antiquarianism", "(", "don't", "):", "1", ",", "024", "naïve", "cafés"]
    expected += ["...", "‘", "Ça", "va", "?’", "an", "ersatz"]
    found = words(tokenizer, tokenizer.encode(text, add_special_tokens=False).ids)
    assert found[: len(expected)] == expected and found[-2:] == ["is", "tall"]
    assert len(found) > len(expected) + 3, "each token of Japanese is a word"


@pytest.mark.slow
def test_words_of_wordpiece(shared_data: Path) -> None:
    tokenizer = Tokenizer.from_file(str(shared_data / "tokenizers" / "bert-base-uncased" / "tokenizer.json"))
    found = words(tokenizer, tokenizer.encode("Antiquarianism, naïvely; 東京 'is'", add_special_tokens=False).ids)
    assert found == ["antiquarianism", ",", "naively", ";", "東", "京", "'", "is", "'"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("apostrophe", ["'", "’"])
@pytest.mark.parametrize("name", ["roberta-base", "bert-base-uncased"])
def test_contractions_are_one_word_and_a_genitive_is_two(shared_data: Path, name: str, apostrophe: str) -> None:
    tokenizer = Tokenizer.from_file(str(shared_data / "tokenizers" / name / "tokenizer.json"))
    text = "i can't, they've said; the film's dogs' tail: 'tail".replace("'", apostrophe)
    found = words(tokenizer, tokenizer.encode(text, add_special_tokens=False).ids)
    expected = "i|can't|,|they've|said|;|the|film|'s|dogs|'|tail|:|'|tail".replace("'", apostrophe).split("|")
    assert [word.replace(" ", "") for word in found] == expected


def test_a_contraction_does_not_reach_into_the_next_sentence(del_tokenizer: Tokenizer, word_starts: WordStarts) -> None:
    ids = np.array(del_tokenizer.encode("don’t", add_special_tokens=False).ids)
    for end in range(1, len(ids)):
        assert word_starts(ids, np.array([0, end, len(ids)]))[end]
    assert word_starts(ids, np.array([0, len(ids)])).sum() == 1


def test_words_of_sentencepiece(tmp_path: Path) -> None:
    """Unigram writes ▁ for a space, and bytes for unknown characters."""
    from tokenizers.decoders import Metaspace as Decoder
    from tokenizers.models import Unigram
    from tokenizers.pre_tokenizers import Metaspace

    pieces = ["<unk>", "▁the", "▁film", "s", "▁an", "ti", "quarian", ",", ".", "<0xE6>", "<0x9D>", "<0xB1>"]
    pieces += ["▁", "東"]
    tokenizer = Tokenizer(Unigram([(piece, -float(i)) for i, piece in enumerate(pieces)], 0, True))
    tokenizer.pre_tokenizer, tokenizer.decoder = Metaspace(), Decoder()
    ids = [pieces.index(piece) for piece in ("▁an", "ti", "quarian", "▁film", "s", ",", "<0xE6>", "<0x9D>", "<0xB1>")]
    starts = WordStarts(tokenizer)(np.array(ids), np.array([0, len(ids)]))
    assert starts.tolist() == [True, False, False, True, False, True, True, False, False]
    ids = [pieces.index(piece) for piece in ("▁the", "▁", "東", "▁", "ti")]
    starts = WordStarts(tokenizer)(np.array(ids), np.array([0, len(ids)]))
    assert starts.tolist() == [True, True, False, True, False], "a space of its own belongs to what follows it"


def test_what_the_tokenizer_cannot_write_is_part_of_its_word() -> None:
    from tokenizers.models import Unigram

    tokenizer = Tokenizer(Unigram([(piece, 0.0) for piece in ("<unk>", "▁na", "ve", "</s>", ",")], 0))
    tokenizer.add_special_tokens(["<unk>", "</s>"])
    words = WordStarts(tokenizer)
    assert words(np.array([1, 0, 2, 4, 3, 0]), np.array([0, 6])).tolist() == [True, False, False, True, True, True]
    assert words.special.tolist() == [False, False, False, True, False]


def test_a_sentence_starts_a_word_and_so_does_what_follows_a_special_token(
    del_tokenizer: Tokenizer, word_starts: WordStarts
) -> None:
    (piece,) = del_tokenizer.encode("arianism", add_special_tokens=False).ids[:1]
    mask = del_tokenizer.token_to_id("<mask>")
    starts = word_starts(np.array([piece, piece, mask, piece, piece, piece]), np.array([0, 1, 1, 5, 6, 6]))
    assert starts.tolist() == [True, True, True, True, False, True]


def test_words_of_a_vocabulary_of_words_and_of_one_that_marks_their_ends() -> None:
    from tokenizers.models import BPE, WordLevel

    plain = Tokenizer(WordLevel({"the": 0, "film": 1, ".": 2}, "the"))
    assert WordStarts(plain)(np.array([0, 1, 2]), np.array([0, 3])).all()
    pieces = ["mov", "ie</w>", "film</w>", ",</w>", ".</w>", "s</w>"]
    marked = Tokenizer(BPE({piece: i for i, piece in enumerate(pieces)}, [], end_of_word_suffix="</w>"))
    starts = WordStarts(marked)(np.array([0, 1, 2, 3, 0, 5, 4]), np.array([0, 7]))
    assert starts.tolist() == [True, False, True, True, True, False, True]


def test_bytes_inside_a_character_take_nothing_from_the_sentence_before(
    del_tokenizer: Tokenizer, word_starts: WordStarts
) -> None:
    inside, film = del_tokenizer.token_to_id("\u013e"), del_tokenizer.encode("film", add_special_tokens=False).ids[0]
    both = word_starts(np.array([film, inside, film]), np.array([0, 1, 3]))
    assert both.tolist()[1:] == word_starts(np.array([inside, film]), np.array([0, 2])).tolist()
