"""The report of `adapt` shows texts as they are in the inputs, not as a tokenizer decodes them."""

import dataclasses
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from clearspan.adapt import __main__ as adapt
from clearspan.adapt import originals
from clearspan.eval.verdict import Example
from tests.adapt.conftest import write_verdict
from tests.adapt.test_decision import verdict

TITLES = ["Überwachung von Eulen (2021)", "C++ & Wörter: die “ersten” Schritte…", "日本語の本", "🦉"]
TEXTS = [
    "Eulen jagen NACHTS; sie hören — anders als Füchse — jede Maus, z.B. unter dem Schnee.",
    "What's new in Python 3.13? A better REPL, colors, and more than 1,000 fixes (see PEP 602).",
    "They hunt at night. " * 60 + "The End.",
]


@pytest.fixture(scope="module")
def decoded(shared_data: Path) -> dict[str, str]:
    """Text as BERT's tokenizer, which knows no upper case and accents, decodes it -> the text."""
    tokenizer = Tokenizer.from_file(str(shared_data / "tokenizers/bert-base-uncased/tokenizer.json"))
    found = {tokenizer.decode(tokenizer.encode(each, add_special_tokens=False).ids): each for each in TITLES + TEXTS}
    assert not {*found} & {*found.values()}, "none of them is as it was"
    return found


def test_each_text_is_shown_as_it_is_in_the_inputs(decoded: dict[str, str]) -> None:
    shown = originals._search(decoded, [*TEXTS, *TITLES], are_parts=False)
    assert shown == {text: originals.cut(original) for text, original in decoded.items() if original != "🦉"}
    alike = ["uberwachung von eulen 2021 und 2022", "eulen (2021)"]
    assert originals._search(decoded, alike, are_parts=False) == {}, (
        "a part of a title, or a longer one, is another one"
    )


@pytest.mark.parametrize("order", [1, -1])
def test_texts_that_differ_in_marks_alone_have_each_its_own_original(order: int) -> None:
    texts = ["C", "C++", "C#", "v1.2", "v12", "naïve C++", "Naive C"][::order]
    wanted = {"c #": "C#", "c + +": "C++", "c": "C", "v1. 2": "v1.2", "v12": "v12", "naive c + +": "naïve C++"}
    assert originals._search(wanted, texts, are_parts=False) == wanted


def test_a_long_text_that_tokens_hold_in_part_is_found_by_its_beginning() -> None:
    beginning = TEXTS[2].lower()[:900]
    assert originals._search([beginning], TEXTS, are_parts=False) == {beginning: originals.cut(TEXTS[2])}


@pytest.mark.parametrize("order", [1, -1])
def test_texts_with_one_beginning_have_each_its_own_original(order: int) -> None:
    preamble = "The following text was made by the owls of the county, who answer for nothing in it. " * 3
    texts = [f"{preamble}Item {name}: {item}" for name, item in (("A", "An owl, lit."), ("B", "A cat's bowl, blue."))]
    wanted = {f"{text.lower()[:-6]}": originals.cut(text) for text in texts}
    assert originals._search(wanted, [f"{preamble}Nothing else.", *texts[::order]], are_parts=False) == wanted


def test_a_crop_is_shown_with_the_letters_of_its_text() -> None:
    crop = "sie horen — anders als fuchse — jede maus, z. b"
    assert originals._search([crop], TEXTS, are_parts=True) == {crop: "sie hören — anders als Füchse — jede Maus, z.B."}
    assert originals._search([crop], TEXTS, are_parts=False) == {}


def test_the_report_has_the_originals_and_keeps_them(
    line: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hunts = "they hunt at night in county 7 , and roost by day in the barns of county 7 , where many mice are ."
    example = Example("owls of county 7", hunts, 3, 1, "owls of [UNK]", "owls of county 12")
    write_verdict(tmp_path / "adapted", dataclasses.replace(verdict("untrained static"), examples=(example,)))
    given = [*line, str(tmp_path / "owls.jsonl")]
    for _ in range(2):
        assert adapt.main(given) == 0
        source = (tmp_path / "adapted/report.html").read_text()
        assert "<td>Owls of county 7</td>" in source and "owls of county 7" not in source
        assert "They hunt at night in county 7, and roost by day in the barns of county 7, where" in source
        assert "owls of [UNK]" in source, "as it was decoded, if the original is not known"
        monkeypatch.setattr(originals, "_texts", None)  # the second call knows them


def test_the_order_of_the_originals_is_that_of_their_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A set of texts has another order in each process; adapt.json is the same in all."""
    texts = [f"owl {number}" for number in range(40)]
    examples = tuple(Example(text, f"{text} text", 1, 2, f"{text} first", f"{text} other") for text in texts)
    monkeypatch.setattr(originals, "_texts", lambda *given: [])
    found = originals.find_originals(dataclasses.replace(verdict("BM25"), examples=examples), tmp_path, None, {})
    assert [*found] == sorted(found) and len(found) == 160
