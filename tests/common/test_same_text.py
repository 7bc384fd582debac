"""The form in which texts are compared."""

import time
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearspan.common.same_text import digest, digests, key


@pytest.mark.guarantee("copies-are-one-text")
@pytest.mark.parametrize(
    "copy",
    [" The owls of Zürich\n", "THE OWLS OF ZÜRICH", "The  owls\tof\u00a0Zu\u0308rich", "Ｔｈｅ owls of Zürich",
     "The ow\u00adls of Zür\u200bich\ufeff", "the owlſ of Zürich"],
)  # fmt: skip
def test_white_space_case_and_form_make_no_other_text(copy: str) -> None:
    assert key(copy) == "the owls of zürich" == key("The owls of Zürich")
    assert (digests([copy]) == digests(["The owls of Zürich"])).all()


@pytest.mark.guarantee("copies-are-one-text")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  An OWL,\r\n and\x1canother ", "an owl, and another"),
        ("Straße und STRASSE", "strasse und strasse"),
        ("ΟΔΟΣ οδος οδοσ", "οδοσ οδοσ οδοσ"),
        ("ﬁve Ⅳ ½ km²", "five iv 1⁄2 km2"),
        ("\u1fb3 \u0391\u0345", "αι αι"),
        ("\u1e9b\u0323", "\u1e69"),
        ("an\u3000owl\u2028calls", "an owl calls"),
        ("하늘 \u1112\u1161\u1102\u1173\u11af", "하늘 하늘"),
        ("soft\u00adly\u200d hid\u2060den\u180e", "softly hidden"),
        ("a\u00ad b", "a b"),
        ("a \u200b b", "a b"),
        ("á" + "\u0301" * 29, "á" + "\u0301" * 29),
        ("á" + "\u0301" * 60, "á" + "\u0301" * 30),
    ],
)
def test_the_key_of_a_text(text: str, expected: str) -> None:
    assert key(text) == expected
    assert key(" ".join(text.split()), is_spaced=True) == expected


@pytest.mark.guarantee("copies-are-one-text")
def test_white_space_is_looked_for_unless_a_caller_says_that_there_is_none() -> None:
    assert key("An  owl") == "an owl" != key("An  owl", is_spaced=True)
    assert key("Ein  Käuzchen") == "ein käuzchen" != key("Ein  Käuzchen", is_spaced=True)
    assert digest("An  owl\n") == digest("an owl") == digest("an owl", is_spaced=True)


@pytest.mark.guarantee("copies-are-one-text")
def test_half_a_character_is_a_text_too() -> None:
    assert digest("An owl \ud800") == digest("AN OWL  \ud800") != digest("An owl \ud801")


@pytest.mark.guarantee("copies-are-one-text")
@pytest.mark.parametrize("other", ["Theowls of Zürich", "The owls of Zurich", "The owls of Zürich."])
def test_letters_spaces_between_words_and_signs_do(other: str) -> None:
    assert key(other) != key("The owls of Zürich")
    assert (digests([other]) != digests(["The owls of Zürich"])).all()


@pytest.mark.guarantee("copies-are-one-text")
@pytest.mark.parametrize("text", ["The owls of Zürich call. ", "The owls of Chur call. "])
def test_texts_that_differ_at_their_end_alone_are_no_copies(text: str) -> None:
    by_day, at_night = (text * 5000 + time for time in ("by day", "at night"))
    assert digest(by_day) == digest(by_day.upper()) != digest(at_night)
    assert (digests([by_day]) != digests([at_night])).all()
    assert digest(f"{by_day} so\u00adft\u200bly\ufe0f") == digest(f"{by_day} softly")


@pytest.mark.guarantee("copies-are-one-text")
@given(st.text(st.characters(codec="utf-8") | st.sampled_from("aA\u0301\u0323ßẞİıǅﬁ\u00ad\u200b \u3000가\u1100\u1161")))
def test_a_key_is_its_own_key_and_that_of_every_form(text: str) -> None:
    found = key(text)
    assert key(" ".join(text.split()), is_spaced=True) == found
    assert key(found) == found == key(f"\n{text} ") == key(normalize("NFC", text)) == key(normalize("NFD", text))


def test_many_marks_take_no_time() -> None:
    start = time.perf_counter()
    key("a" + "\u0301\u0316" * 20_000)
    assert time.perf_counter() - start < 0.5
