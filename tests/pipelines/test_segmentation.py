"""Sentence segmentation: sentences are found in any context, and nothing of a text is lost."""

import csv
import itertools
import random
from pathlib import Path

import pytest
import sentencex
from hypothesis import given, settings
from hypothesis import strategies as st

from clearspan.pipelines.text import segmentation
from clearspan.pipelines.text.segmentation import WINDOW, normalize, segment, segment_spaced


def letters(text: str) -> str:
    return "".join(text.split())


AWKWARD = [*'aB!?"“”«()\n\t。「」é🙂।\x00', "B\u00a0. ", "B\u2028. ", "word ", "Mr. ", "p. ", "3.", "...", ". "]
AWKWARD += ["\n \n", "\n\n", "\r\n\r\n", "日本", "e\u0301", "x@y.z"]


@pytest.mark.slow
@given(st.lists(st.sampled_from(AWKWARD) | st.characters(codec="utf-8"), max_size=60), st.sampled_from(["en", "hi"]))
@settings(max_examples=300)
def test_nothing_of_any_text_is_lost(parts: list[str], language: str) -> None:
    text = "".join(parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segmentation, "WINDOW", 20)
        assert letters("".join(segment(text, language))) == letters(text)
        assert "".join(segment_spaced(text, language)) == normalize(text)


@pytest.fixture(scope="module")
def sentences(shared_data: Path) -> dict[str, list[str]]:
    """Whole sentences, by language: English from Wikipedia, German and Chinese from STS-B."""
    english = (shared_data / "sentences" / "wiki1m_head_11914.txt").read_text(encoding="utf-8").splitlines()
    found = {"en": [line for line in english if line.endswith(".") and line[0].isupper() and len(line) > 40]}
    for language, stop in (("de", "."), ("zh", "。")):
        with (shared_data / "stsb_multi_mt" / f"stsb-{language}-train.csv").open(encoding="utf-8", newline="") as file:
            cells = dict.fromkeys(cell for row in csv.reader(file) for cell in row[:2])
        found[language] = [cell for cell in cells if cell.endswith(stop) and not cell[0].isdigit()]
    # What is no sentence of German: machine translation in lower case.
    found["de"] = [sentence for sentence in found["de"] if sentence[0].isupper()]
    return {language: random.Random(0).sample(lines, 3000) for language, lines in found.items()}


def ends(sentences: list[str]) -> set[int]:
    """Return the ends of all sentences but the last, in letters from the text's beginning."""
    return set(itertools.accumulate(len(letters(sentence)) for sentence in sentences[:-1]))


@pytest.mark.parametrize(
    ("language", "precision", "recall"), [("en", 0.99, 0.99), ("de", 0.98, 0.99), ("zh", 0.965, 0.94)]
)
@pytest.mark.parametrize("together", [5, 1000])
def test_sentences_are_found_in_paragraphs_of_any_length(
    sentences: dict[str, list[str]], language: str, precision: float, recall: float, together: int
) -> None:
    hits = found = wanted = 0
    for first in range(0, 3000, together):
        lines = sentences[language][first : first + together]
        paragraph = ("" if language == "zh" else " ").join(lines)
        given, expected = ends(segment(paragraph, language)), ends(lines)
        hits, found, wanted = hits + len(given & expected), found + len(given), wanted + len(expected)
    assert hits / found >= precision
    assert hits / wanted >= recall


def test_a_sentence_longer_than_a_window_is_not_cut() -> None:
    long = "It was, " + "and was again, " * (WINDOW // 5) + "and that was that."
    assert len(long) > 2 * WINDOW
    text = f"Nobody came. {long} Somebody went. {long}"
    assert segment(text, "en") == ["Nobody came.", long, "Somebody went.", long]


def test_a_line_end_is_a_space_and_a_blank_line_an_end() -> None:
    text = (
        "HARD TIMES\n \nNow, what I want is,\r\n   Facts.\tTeach these boys\nnothing else. \r\n\r\nPlant nothing else"
    )
    expected = ["HARD TIMES", "Now, what I want is, Facts.", "Teach these boys nothing else.", "Plant nothing else"]
    assert segment(text, "en") == expected
    assert segment(" \n\n\u3000 \t", "en") == []


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("de", ["Am 3. Oktober war er bzw. Anna dort.", "Danach nicht."]),
        ("fr", ["Voir p. ex. Paris.", "C'est grand."]),
        ("es", ["La Dra. López vive en la Av. Juárez.", "Nadie más."]),
        ("ru", ["Он родился в г. Москве.", "Он умер рано."]),
        ("el", ["Πού πας;", "Δεν ξέρω."]),
    ],
)
def test_a_languages_own_signs_and_abbreviations_are_known(language: str, expected: list[str]) -> None:
    text = " ".join(expected)
    assert segment(text, language) == expected
    assert segment(text, "en") != expected


@pytest.mark.parametrize(("text", "number"), [("今天天气很好。" * 2000, 2000), ("。" * 20_000, 1)])
def test_full_width_stops_in_a_text_of_another_language_cost_a_window_no_more_than_others(
    monkeypatch: pytest.MonkeyPatch, text: str, number: int
) -> None:
    seen, own = [], sentencex.segment
    monkeypatch.setattr(sentencex, "segment", lambda language, part: (seen.append(len(part)), own(language, part))[1])
    assert len(segment(text, "en")) == number
    assert sum(seen) < 3 * len(text)


def test_a_no_break_space_after_an_initial_harms_nothing() -> None:
    assert segment("It was J\u00a0. B\u00a0. Priestley who came. He sat.", "en")[-1] == "He sat."
