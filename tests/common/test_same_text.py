"""The form in which texts are compared."""

import time
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearspan.common.same_text import digests, key


@pytest.mark.parametrize(
    "copy",
    [" The owls of Zürich\n", "THE OWLS OF ZÜRICH", "The  owls\tof\u00a0Zu\u0308rich", "Ｔｈｅ owls of Zürich",
     "The ow\u00adls of Zür\u200bich\ufeff", "the owlſ of Zürich"],
)  # fmt: skip
def test_white_space_case_and_form_make_no_other_text(copy: str) -> None:
    assert key(copy) == "the owls of zürich" == key("The owls of Zürich")
    assert (digests([copy]) == digests(["The owls of Zürich"])).all()


@pytest.mark.parametrize("other", ["Theowls of Zürich", "The owls of Zurich", "The owls of Zürich."])
def test_letters_spaces_between_words_and_signs_do(other: str) -> None:
    assert key(other) != key("The owls of Zürich")
    assert (digests([other]) != digests(["The owls of Zürich"])).all()


@given(st.text(st.characters(codec="utf-8") | st.sampled_from("aA\u0301\u0323ßẞİıǅﬁ\u00ad\u200b \u3000가\u1100\u1161")))
def test_a_key_is_its_own_key_and_that_of_every_form(text: str) -> None:
    found = key(text)
    assert key(found) == found == key(f"\n{text} ") == key(normalize("NFC", text)) == key(normalize("NFD", text))


def test_many_marks_take_no_time() -> None:
    start = time.perf_counter()
    key("a" + "\u0301\u0316" * 20_000)
    assert time.perf_counter() - start < 0.5
