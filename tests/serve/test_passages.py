"""Where a text has a query's words, and the part of it that is shown."""

import string
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearspan.retrieval.stemming import Words
from clearspan.serve.passages import content_words, marked_spans, passage

TEXT = (
    "The barn owl is the most widely distributed species of owl in the world. It hunts by sound. "
    "Farmers welcome it, because owls hunt mice and voles at night, without a sound of their wings. "
    "It nests in hollow trees, in old buildings and in boxes."
)


def test_stop_words_mark_nothing_unless_there_are_no_others() -> None:
    assert content_words("How do the Owls hunt at night?") == {"owls", "hunt", "night"}
    assert content_words("to be or not to be") == {"to", "be", "or", "not"}
    assert content_words("猫头鹰") == {"猫", "头", "鹰"}


def test_words_are_marked_whatever_their_case_and_neighbors_without_a_space_are_one() -> None:
    text = "Ein ÄRGER, kein Ärgernis"
    assert [text[slice(*mark)] for mark in marked_spans(text, {"ärger"})] == ["ÄRGER"]
    assert marked_spans("夜里猫头鹰捕鼠", {"猫", "头", "鹰"}) == [(2, 5)]


def test_words_are_marked_whatever_their_unicode_form() -> None:
    text = normalize("NFD", "Die Häuser von İzmir") + " an der STRASSE"
    marks = marked_spans(text, content_words("häuser izmir Straße"))
    assert [normalize("NFC", text[slice(*mark)]) for mark in marks] == ["Häuser", "İzmir", "STRASSE"]
    turkish = Words("turkish")
    marks = marked_spans("ISI POMPASI", content_words("bir ısı için", turkish), turkish)
    assert marks == [(0, 3)], "bir and için are stop words"


@pytest.mark.parametrize("width", [40, 90])
def test_the_passage_has_most_of_the_words(width: int) -> None:
    marks = marked_spans(TEXT, content_words("When do owls hunt mice?"))
    start, end = passage(TEXT, marks, width)
    shown = TEXT[start:end]
    assert len(shown) <= width and all(word in shown for word in ("owls", "hunt", "mice"))
    assert TEXT[start - 1].isspace() and TEXT[end].isspace()


def test_without_marks_the_passage_is_the_beginning() -> None:
    assert TEXT[slice(*passage(TEXT, [], 30))] == "The barn owl is the most"
    assert passage(TEXT, [], len(TEXT)) == (0, len(TEXT))


WORDS = st.lists(st.sampled_from(["owl", "owls", "a", "night" * 30, "猫头", " ", "\n", "hunt.", "É"]), max_size=60)


@given(WORDS, st.integers(1, 80), st.text(string.ascii_lowercase + " É猫", max_size=20))
def test_a_passage_lies_in_the_text_and_is_short_enough(parts: list[str], width: int, query: str) -> None:
    text = " ".join(parts)
    marks = marked_spans(text, content_words(query) | {"owl"})
    start, end = passage(text, marks, width)
    assert 0 <= start <= end <= len(text) and end - start <= width
    assert all(first < last for first, last in marks) and marks == sorted(marks)
    fits = [mark for mark in marks if mark[1] - mark[0] <= width - width // 4]
    assert not fits or any(start <= first and last <= end for first, last in marks)
