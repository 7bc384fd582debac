"""One table of the letters of scripts without spaces, for all that cut texts into words."""

import numpy as np
import pytest
from tokenizers import Tokenizer, models

from clearspan.common.scripts import is_unspaced
from clearspan.common.words import words
from clearspan.pipelines.augment.words import WordStarts
from clearspan.pipelines.text.word_hashes import WordHashes

UNSPACED = "東々〆〇タｱーｰカひ〡ไทยລາວខ្មែរမြန်ꩦ"
"""Letters and vowel signs of every script of the table. ー and 〆 have no script of their own, and 〡 is a numeral."""
SPACED = "aßжωשعहক한ㅋㅎㄅ9é"
"""Letters of other scripts, among them Hangul's jamo, which stand in the same block as Kana's neighbors."""


def test_letters_of_scripts_without_spaces_follow_unicodes_property() -> None:
    assert all(map(is_unspaced, UNSPACED))
    assert not any(map(is_unspaced, f"{SPACED}，。・!฿"))
    assert not any(map(is_unspaced, "\u0303\u0323"))  # marks of Latin letters, which Kana has as well


@pytest.mark.parametrize("letter", ["東", "々", "タ", "ひ", "ไ", "ລ", "ខ", "မ", "ꩦ", "〡"])
def test_all_that_cut_texts_into_words_agree_on_a_letter(letter: str) -> None:
    assert words(f"{letter}{letter}") == [letter, letter]
    assert WordHashes(f"{letter}{letter}").has_letters
    tokenizer = Tokenizer(models.BPE({letter: 0, "a": 1}, []))
    starts = WordStarts(tokenizer)(np.array([0, 0, 1]), np.array([0, 3]))
    assert starts.tolist() == [True, True, True]


@pytest.mark.parametrize("letter", ["ж", "ह", "한", "ㅋ", "ㄅ"])
def test_all_that_cut_texts_into_words_join_letters_of_other_scripts(letter: str) -> None:
    assert words(f"{letter}{letter}") == [letter + letter]
    assert not WordHashes(f"{letter}{letter}").has_letters
    starts = WordStarts(Tokenizer(models.BPE({letter: 0}, [])))(np.array([0, 0]), np.array([0, 2]))
    assert starts.tolist() == [True, False]


def test_a_mark_that_lengthens_a_syllable_is_no_word_of_a_search() -> None:
    assert words("コーヒー") == ["コ", "ヒ"]
    assert WordHashes("コーヒー").has_letters
