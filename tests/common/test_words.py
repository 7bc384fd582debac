"""The words that BM25 compares, and where they stand in a text."""

import itertools
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearspan.common import same_text
from clearspan.common.words import folded, places
from clearspan.retrieval.stemming import PLAIN, Words

LETTERS = "aIcC+'’1½ \n\u0301\u0307\u0323ßẞİıǅﬁς\u00ad\u200bｶﾞガー東가\u1100\u1161가ไทย"
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Sk"]) | st.sampled_from(LETTERS))


@pytest.mark.parametrize("word", ["Häuser", "학점인정", "Việt", "Å", "が", "क़लम"])
def test_a_decomposed_word_is_the_composed_one(word: str) -> None:
    assert PLAIN(normalize("NFD", word)) == PLAIN(normalize("NFC", word)) != []


@pytest.mark.parametrize(
    ("word", "same"),
    [("İstanbul", "istanbul"), ("İSTANBUL", "istanbul"), ("STRASSE", "Straße"), ("ΟΔΟΣ", "οδος"), ("ﬁnden", "FINDEN"),
     ("ＴＯＫＹＯ", "Tokyo"), ("ﾊﾞｽ", "バス"), ("Häu\u00adser", "häuser"), ("می\u200cخواهم", "میخواهم")],
)  # fmt: skip
def test_case_width_and_what_is_not_shown_make_no_other_word(word: str, same: str) -> None:
    assert PLAIN(word) == PLAIN(same) != []


@pytest.mark.parametrize("word", ["ISI", "ısı", normalize("NFD", "ISI"), "ＩＳＩ"])
def test_in_turkish_i_without_a_dot_is_another_letter(word: str) -> None:
    turkish = Words("turkish")
    assert turkish(word) == turkish("ısı") != turkish("isi")
    assert turkish("İstanbul") == turkish(normalize("NFD", "İstanbul")) == turkish("istanbul")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("C++ or R?", "c or r"), ("vitamin C: 5 mg", "vitamin c 5 mg"), ("물 한 잔", "물 한 잔"), ("C's", "c"),
     ("don't, the owl’s", "don the owl"), ("コーヒー", "コ ヒ"), ("_ - +", ""),
     ("_very_ snake_case __5", "very snake case 5"), ("rock'5", "rock 5")],
)  # fmt: skip
def test_a_letter_or_digit_is_a_word_but_not_the_end_of_a_contraction(text: str, expected: str) -> None:
    assert PLAIN(text) == expected.split()


@given(TEXTS)
def test_texts_that_count_as_the_same_have_the_same_words(text: str) -> None:
    found = PLAIN(text)
    assert found == PLAIN(same_text.key(text)) == PLAIN(normalize("NFD", text)) == PLAIN(normalize("NFC", text))
    assert folded(folded(text)) == folded(text)


@given(TEXTS)
def test_each_word_has_its_place_in_the_text(text: str) -> None:
    spans = places(text)
    assert [word for start, end in spans for word in PLAIN(text[start:end])] == PLAIN(text)
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))


def test_a_place_is_that_of_the_word_as_it_is_written() -> None:
    text = normalize("NFD", "Die Häuser") + " in İzmir: ﬁnden Sie den ﾊﾞｽ 5½, Häu\u00adser"
    expected = normalize("NFD", "Häuser")
    assert [text[start:end] for start, end in places(text)] == [
        "Die", expected, "in", "İzmir", "ﬁnden", "Sie", "den", "ﾊﾞ", "ｽ", "5½", "Häu\u00adser",
    ]  # fmt: skip
