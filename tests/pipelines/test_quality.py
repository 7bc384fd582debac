"""Gopher's and C4's heuristics: against slow references on real text, and each on a text that it is made for."""

import dataclasses
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearspan.common.plugins import PluginError
from clearspan.pipelines.counter import Counts, RecordError
from clearspan.pipelines.text import filters as text_filters
from clearspan.pipelines.text.filters import FilteredText, Languages, MinWords, NamedFilter, kept, text_filter
from clearspan.plugins.quality import C4
from clearspan.shards import Manifest
from clearspan.shards.manifest import MAX_REASONS, Reconciliation
from tests.conftest import ROOT
from tests.pipelines.conftest import summary


def reason_of(chosen: NamedFilter, document: FilteredText) -> str:
    """Return the reason for which a filter drops a document; "" if it keeps it."""
    answer = chosen.filter(document)
    return "" if answer is True else answer[1]  # type: ignore[index]


def reason(name: str, text: str, language: str | None = None) -> str:
    """The reason for which a filter drops a text; "" if it keeps it."""
    return reason_of(text_filter(name), FilteredText(text, language))


@pytest.fixture(scope="module")
def paragraph(texts: list[str]) -> str:
    """A text of 300 words that passes."""
    long = (text for text in texts if len(text.split()) > 400 and "{" not in text)
    text = next(text for text in long if not reason("gopher", text))
    return " ".join(text.split()[:300])


@pytest.fixture(autouse=True)
def loaded_anew() -> Iterator[None]:
    """Forget the filters of another test's modules, which have the same names."""
    text_filter.cache_clear()
    yield
    text_filter.cache_clear()


def plain_gopher(text: str) -> str:
    """Gopher's rules as the paper states them, one after the other, over lists of words."""
    words = text.split()
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    paragraphs = [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]
    if len(words) < 50 or len(words) > 100_000:
        return "gopher_words"
    if not 3 <= sum(len(word) for word in words) / len(words) <= 10:
        return "gopher_word_length"
    if text.count("#") / len(words) > 0.1 or (text.count("...") + text.count("…")) / len(words) > 0.1:
        return "gopher_symbols"
    if sum(line[0] in "•‣◦●▪-*" for line in lines) / len(lines) > 0.9:
        return "gopher_bullets"
    if sum(line.endswith(("...", "…")) for line in lines) / len(lines) > 0.3:
        return "gopher_ellipses"
    if sum(any(character.isalpha() for character in word) for word in words) / len(words) < 0.8:
        return "gopher_alphabetic"
    if len({"the", "be", "to", "of", "and", "that", "have", "with"} & set(words)) < 2:
        return "gopher_stop_words"
    for parts, reason in ((lines, "gopher_duplicate_lines"), (paragraphs, "gopher_duplicate_paragraphs")):
        again = [part for number, part in enumerate(parts) if part in parts[:number]]
        if len(again) / len(parts) > 0.3 or sum(map(len, again)) / sum(map(len, parts)) > 0.2:
            return reason
    num_characters = sum(map(len, words))
    for n, most in ((2, 0.2), (3, 0.18), (4, 0.16)):
        counts = Counter(tuple(words[first : first + n]) for first in range(len(words) - n + 1))
        top = max(counts.values())
        longest = max(sum(map(len, gram)) for gram, count in counts.items() if count == top)
        if top > 1 and top * longest / num_characters > most:
            return "gopher_top_ngram"
    for n, most in ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.1)):
        seen, repeated = set(), set()
        for first in range(len(words) - n + 1):
            gram = tuple(words[first : first + n])
            if gram in seen:
                repeated |= set(range(first, first + n))
            seen.add(gram)
        if sum(len(words[place]) for place in repeated) / num_characters > most:
            return "gopher_duplicate_ngrams"
    return ""


@pytest.mark.exhaustive
def test_real_documents_are_judged_as_by_the_slow_references(texts: list[str]) -> None:
    some = texts[::4]
    documents = list(map(FilteredText, some))
    assert [reason_of(text_filter("gopher"), each) for each in documents] == list(map(plain_gopher, some))
    assert all(document.text is text for document, text in zip(documents, some, strict=True))
    kept = [sum(not reason(name, text) for text in some) for name in ("gopher", "c4")]
    assert all(0.8 * len(some) < number < len(some) for number in kept)  # OpenWebText was filtered once


repeating = st.lists(
    st.sampled_from(["the", "cat", "and", "a", "very", "long", "winter", "to"]), min_size=1, max_size=9
)


@given(repeating, st.integers(1, 40), st.integers(0, 60), st.sampled_from([" ", "\n", "\n\n"]))
@settings(max_examples=200)
def test_repetition_is_found_as_by_the_slow_reference(part: list[str], times: int, others: int, end: str) -> None:
    text = " ".join(f"word{number}" for number in range(others)) + end + end.join([" ".join(part)] * times)
    assert reason("gopher", text) == plain_gopher(text)


WORDS = [f"{name}{number}" for number in range(30) for name in ("able", "baker", "charlie", "dog", "easy")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" ".join(WORDS[:40]), "gopher_words"),
        ("the of " * 50_001, "gopher_words"),
        ("a b of the " * 20, "gopher_word_length"),
        (" ".join(f"#{word}" if number % 8 == 0 else word for number, word in enumerate(WORDS)), "gopher_symbols"),
        ("\n".join(f"• the end of {word}" for word in WORDS), "gopher_bullets"),
        ("\n".join(f"the end of the very long and very sad story of {word}..." for word in WORDS), "gopher_ellipses"),
        (" ".join(f"{word} 12345" for word in WORDS), "gopher_alphabetic"),
        (" ".join(WORDS), "gopher_stop_words"),
        ("\n".join(["the end of it"] * 80 + WORDS), "gopher_duplicate_lines"),
        ("\n\n".join(["the end\nof it"] * 9 + [" ".join(WORDS)]), "gopher_duplicate_lines"),
        ("the end of it " * 20 + " ".join(WORDS), "gopher_top_ngram"),
        (" ".join(["of the", *WORDS, *WORDS[:40]]), "gopher_duplicate_ngrams"),
    ],
)
def test_each_rule_of_gopher_drops_what_it_is_for(text: str, expected: str) -> None:
    assert reason("gopher", text) == plain_gopher(text) == expected


def test_stop_words_are_looked_for_in_english_only() -> None:
    text = " ".join(WORDS)
    assert [reason("gopher", text, language) for language in ("en", "de", "zh")] == ["gopher_stop_words", "", ""]


def test_c4_removes_lines_and_counts_them(paragraph: str) -> None:
    text = (
        f"{paragraph}.\nHome\nPlease enable Javascript to see this page.\nThis page uses cookies, as all do.\nRead on!"
    )
    document = FilteredText(
        f"{text}\nIt rained [12] all day in Paris.[citation needed]\nHe said: “We will see what comes.”"
    )
    assert reason_of(text_filter("c4"), document) == ""
    assert document.text == f"{paragraph}.\nIt rained  all day in Paris.\nHe said: “We will see what comes.”"
    assert document.removed == {"no_end_mark": 1, "javascript": 1, "policy": 1, "few_words": 1}


@pytest.mark.parametrize(
    ("addition", "expected"), [("Lorem Ipsum dolor.", "c4_lorem_ipsum"), ("if (x) { y }", "c4_curly_bracket")]
)
def test_c4_drops_pages_with_code_or_filler(paragraph: str, addition: str, expected: str) -> None:
    assert reason("c4", f"{paragraph}.\n{addition}") == expected
    assert reason("c4", "It is one sentence, no more.") == "c4_sentences"


@pytest.mark.guarantee("records-counted", "own-filter")
@pytest.mark.parametrize("kind", ["documents", "sentences"])
def test_a_run_counts_each_reason_and_keeps_the_rest(direct, head: Path, tmp_path: Path, kind: str) -> None:
    texts = [json.loads(line)["text"] for line in head.read_text().splitlines()]
    words = [kind, "--input", head, "--min-tokens", "1", "--json"]
    found = summary(direct(*words, "--quality", "gopher", "--quality", "c4"))
    expected, removed = Counter[str](), Counter[str]()
    for text in texts:
        document = FilteredText(text)
        expected[plain_gopher(text) or reason_of(text_filter("c4"), document)] += 1
        removed.update({f"c4_{name}": number for name, number in document.removed.items()})
    quality_reasons = {name: number for name, number in found["filtered"].items() if name.startswith(("gopher", "c4"))}
    assert quality_reasons == {
        name: expected[name] for filtering in ("gopher", "c4") for name in text_filter(filtering).reasons
    }
    assert found["sums"] == removed and removed["c4_no_end_mark"]
    if kind == "documents":
        assert found["kept"] == expected[""] and sum(expected.values()) == len(texts)
    options = Manifest.load(str(tmp_path / "out")).fingerprint["options"]
    assert options["quality"] == [{"name": "gopher", "version": 1}, {"name": "c4", "version": 1}]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--quality", "gophers"], "--quality gophers: choose gopher, c4, or a filter of your own as module:name"),
        (["--quality", "no_such_module:short"], "--quality no_such_module:short: there is no module no_such_module"),
        (["--quality", ""], "--quality: names nothing: leave it out"),
        (["--quality", "c4,c4"], "--quality: c4 is named twice"),
    ],
)
def test_an_unknown_filter_is_refused(direct, head: Path, words: list[str], message: str) -> None:
    outcome = direct("--input", head, *words)
    assert outcome.code == 2 and message in outcome.err


OWN = (ROOT / "examples" / "extend" / "texts_filters.py").read_text(encoding="utf-8")
WRONG = """
def forgetful(document):
    len(document.text)


def failing(document):
    return document.metadata["score"] > 1


def wordy(document):
    return False, document.text


def each(document):
    return False, document.text[:70].replace("\\n", " ")
"""


@pytest.mark.guarantee("own-filter")
def test_a_filter_of_ones_own_is_counted_as_the_built_in_ones(
    direct, decoded, head: Path, tmp_path: Path, own_module: Callable[[str], str]
) -> None:
    module = own_module(OWN)
    texts = [json.loads(line)["text"] for line in head.read_text().splitlines()]
    texts = [f"{text}\nBUY NOW" if number % 2 else text for number, text in enumerate(texts)]
    head = tmp_path / "texts.jsonl"
    head.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    chosen = ("--quality", f"{module}:long_enough,{module}:Shouting", "--quality", "gopher")
    outcome = direct("--input", head, "--min-tokens", "1", "--json", *chosen)
    found = summary(outcome)
    long = [text for text in texts if len(text) >= 2000]
    gone = [line.isupper() for text in long for line in text.split("\n")]
    assert 0 < len(long) < len(texts) and any(gone)
    assert found["filtered"]["long_enough_short"] == len(texts) - len(long)
    assert found["filtered"]["Shouting_loud"] == 0
    assert found["sums"] == {"Shouting_capitals": sum(gone)}
    assert found["kept"] == sum(not plain_gopher(text.removesuffix("\nBUY NOW")) for text in long)
    written = [text for (text,) in decoded(tmp_path / "out")]
    assert len(written) == found["kept"] and not any("BUY NOW" in text for text in written)
    quality = Manifest.load(str(tmp_path / "out")).fingerprint["options"]["quality"]
    assert [each["name"] for each in quality] == [f"{module}:long_enough", f"{module}:Shouting", "gopher"]
    assert [each["version"] for each in quality][1:] == [3, 1]


@pytest.mark.guarantee("own-filter")
def test_a_changed_filter_is_noticed_and_an_unused_one_does_not_matter(
    direct, head: Path, tmp_path: Path, own_module: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    strict, lax = own_module(OWN), own_module(OWN.replace("LEAST = 2000", "LEAST = 1000"))
    words = ("--input", head, "--min-tokens", "1")
    assert direct(*words, "--quality", f"{strict}:long_enough").code == 0
    (tmp_path / f"{strict}.py").write_text((tmp_path / f"{lax}.py").read_text())
    del sys.modules[strict]
    text_filter.cache_clear()
    refused = direct(*words, "--quality", f"{strict}:long_enough")
    assert refused.code == 1 and f"quality[{strict}:long_enough].version: " in refused.err
    monkeypatch.setattr("clearspan.plugins.quality.C4", dataclasses.replace(C4, version=2))
    text_filter.cache_clear()
    only = ("--output", tmp_path / "gopher", "--quality", "gopher")
    assert direct(*words, *only).code == 0
    fingerprint = Manifest.load(str(tmp_path / "gopher")).fingerprint
    assert fingerprint["options"]["quality"] == [{"name": "gopher", "version": 1}]


@pytest.mark.guarantee("records-counted", "own-filter")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "forgetful",
            "must return True to keep a document, or (False, reason), and leave its text a string; it returned",
        ),
        ("failing", "raised AttributeError: "),
        ("wordy", "must return a reason in one line"),
    ],
)
def test_a_filter_that_fails_makes_its_records_bad(
    direct, head: Path, own_module: Callable[[str], str], name: str, message: str
) -> None:
    module = own_module(WRONG)
    outcome = direct("--input", head, "--quality", f"{module}:{name}")
    assert outcome.code == 1 and f"the filter {module}:{name} {message}" in outcome.err


def test_reasons_of_any_number_make_a_line_of_bounded_length(
    direct, head: Path, tmp_path: Path, own_module: Callable[[str], str]
) -> None:
    """A filter that returns another reason for each document."""
    texts = [json.loads(line)["text"] for line in head.read_text().splitlines()]
    texts = [f"{number}. {text}" for number, text in enumerate(texts * 2)]
    head.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    outcome = direct("--input", head, "--quality", f"{own_module(WRONG)}:each")
    assert outcome.code == 1
    assert f", {len(texts) - MAX_REASONS} for {len(texts) - MAX_REASONS} other reasons" in outcome.err
    assert len(outcome.err) < MAX_REASONS * 110


def test_the_most_frequent_reasons_are_named_and_the_others_counted() -> None:
    counts = {f"reason_{number}": number for number in range(100)}
    line = str(Reconciliation(sum(counts.values()), 0, counts, 0))
    assert line.startswith("read 4,950 = kept 0, 99 reason_99, 98 reason_98, ")
    assert line.endswith(f", 50 reason_50, {sum(range(50)):,} for 50 other reasons, bad 0")
    few = Reconciliation(3, 1, {"short": 1, "long": 1}, 0)
    assert str(few) == "read 3 = kept 1, 1 short, 1 long, bad 0"


@pytest.mark.guarantee("own-filter")
def test_a_run_that_stopped_is_not_continued_with_a_changed_filter(
    direct, head: Path, tmp_path: Path, own_module: Callable[[str], str]
) -> None:
    """Its first error is mended in the filter's file: the units that were done had the old one."""
    partly = "def filtering(document):\n    assert 'owl owl' not in document.text\n    return True\n"
    module, mended = own_module(partly), own_module(partly.replace("    assert", "    # assert"))
    lines = head.read_text().splitlines()
    with head.open("a") as file:
        file.write(f"{json.dumps({'text': 'owl owl'})}\n" * 3 * len(lines))
    words = ("--input", head, "--min-tokens", "1", "--quality", f"{module}:filtering", "--unit-bytes", "20000")
    assert direct(*words).code == 1
    (tmp_path / f"{module}.py").write_text((tmp_path / f"{mended}.py").read_text())
    del sys.modules[module]
    text_filter.cache_clear()
    refused = direct(*words)
    assert refused.code == 1 and f"quality[{module}:filtering].version: " in refused.err
    assert "choose another --output" in refused.err and refused.err.count("\n") == 1
    assert direct(*words, "--output", tmp_path / "mended").code == 0


def answering(answer: Any) -> NamedFilter:
    return NamedFilter("owls:mine", lambda document: answer, 1)


@pytest.mark.guarantee("own-filter")
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        *((kept, "") for kept in (True, np.True_, (True, ""), (True, "short"))),
        *((dropped, "mine") for dropped in (False, np.False_, (False, ""))),
        ((False, "short"), "mine_short"),
        ((False, "Too short "), "mine_Too short "),
        ((False, "x" * 80), f"mine_{'x' * 80}"),
    ],
)
def test_a_reason_is_counted_under_the_filters_name(answer: Any, reason: str) -> None:
    chosen = answering(answer)
    assert reason_of(chosen, FilteredText("An owl.")) == reason
    assert dataclasses.replace(chosen, declared=("short", "long")).reasons == ("mine_short", "mine_long")
    assert chosen.described() == {"name": "owls:mine", "version": 1}


@dataclasses.dataclass(frozen=True)
class Measuring:
    """A filter that measures sizes, and keeps what it has not seen."""

    sizes: tuple[str, ...]
    answer: bool
    prefix: str = "owls"
    reasons: tuple[str, ...] = ()

    def filter(self, document: FilteredText) -> bool:
        document.measured |= dict.fromkeys(self.sizes, len(document.text))
        return self.answer


@pytest.mark.guarantee("own-filter")
def test_a_filter_that_gives_no_reason_counts_by_its_prefix_and_each_size_is_measured() -> None:
    counts = Counts()
    filters = [Measuring(("words", "owls"), True), Measuring(("nests",), False), Measuring((), True)]
    assert kept(FilteredText("An owl."), filters, counts) is None
    assert counts.filtered == {"owls": 1}
    assert counts.longest == {"words": 7, "owls": 7, "nests": 7}


@pytest.mark.guarantee("own-filter")
@pytest.mark.parametrize("answer", [None, "short", 0, (False, 1), (False, "short", 2), (None, ""), (False,)])
def test_an_answer_that_is_neither_yes_nor_no_makes_the_record_bad(answer: Any) -> None:
    wanted = "the filter owls:mine must return True"
    with pytest.raises(RecordError, match=re.escape(wanted)):
        reason_of(answering(answer), FilteredText("An owl."))


@pytest.mark.guarantee("own-filter")
@pytest.mark.parametrize("reason", ["x" * 81, "two\nlines", "a bell\a"])
def test_a_reason_is_one_short_line(reason: str) -> None:
    with pytest.raises(RecordError, match="must return a reason in one line"):
        reason_of(answering((False, reason)), FilteredText("An owl."))


@pytest.mark.guarantee("own-filter")
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (KeyError("owl"), "the filter owls:mine raised KeyError: "),
        (SystemExit(3), "the filter owls:mine raised SystemExit"),
        (RecordError("the text is no page"), "^the text is no page$"),
    ],
)
def test_a_filter_that_raises_makes_the_record_bad(error: BaseException, message: str) -> None:
    def raising(document: FilteredText) -> bool:
        raise error

    with pytest.raises(RecordError, match=message):
        reason_of(NamedFilter("owls:mine", raising, 1), FilteredText("An owl."))


@pytest.mark.guarantee("own-filter")
def test_a_filter_that_leaves_no_text_makes_the_record_bad() -> None:
    def emptying(document: FilteredText) -> bool:
        document.text = cast(str, None)
        return True

    with pytest.raises(RecordError, match="leave its text a string"):
        reason_of(NamedFilter("owls:mine", emptying, 1), FilteredText("An owl."))


@pytest.mark.guarantee("own-filter")
def test_a_filter_has_the_version_that_it_states_or_that_of_its_source(
    tmp_path: Path, own_module: Callable[[str], str]
) -> None:
    source = """
def plain(document): return True
def numbered(document): return True
def named(document): return True
numbered.version, named.version, named.reasons = 7, "7b", ["short", "long"]
def first(document): return True
def blank(document): return True
first.version, blank.version = 0, ""
class Counting:
    version = 3
    reasons = ("few",)
    def __call__(self, document): return False
class Without: pass
def halved(document): return True
halved.version = 1.5
def worded(document): return True
worded.reasons = "short"
def counted(document): return True
counted.reasons = ["short", 1]
"""
    module = own_module(source)
    assert [text_filter(f"{module}:{name}").version for name in ("first", "blank")] == [0, ""]
    found = {name: text_filter(f"{module}:{name}") for name in ("plain", "numbered", "named", "Counting")}
    digest = hashlib.sha256((tmp_path / f"{module}.py").read_bytes()).hexdigest()
    assert [each.version for each in found.values()] == [digest[:16], 7, "7b", 3]
    assert [each.declared for each in found.values()] == [(), (), ("short", "long"), ("few",)]
    assert [each.name for each in found.values()] == [f"{module}:{name}" for name in found]
    assert [reason_of(each, FilteredText("An owl.")) for each in found.values()] == ["", "", "", "Counting"]
    assert (text_filter("c4").name, text_filter("c4").version) == ("c4", 1)
    for name, complaint in (
        ("Without", "has no __call__, which filters a document"),
        ("halved", "its version must be a number or a text, not 1.5"),
        ("worded", "its reasons must be texts, not 'short'"),
        ("counted", r"its reasons must be texts, not \['short', 1\]"),
    ):
        with pytest.raises(PluginError, match=f"^{module}:{name}: {complaint}$"):
            text_filter(f"{module}:{name}")
    with pytest.raises(ValueError, match=r"^owls: choose gopher, c4, or a filter of your own as module:name$"):
        text_filter("owls")
    (tmp_path / f"{module}.py").unlink()
    text_filter.cache_clear()
    with pytest.raises(
        PluginError, match=r"the source of its module cannot be read \(No such .*: give it an attribute version"
    ):
        text_filter(f"{module}:plain")
    assert text_filter(f"{module}:numbered").version == 7


@pytest.mark.guarantee("own-filter")
def test_filters_of_the_same_name_in_two_modules_are_two(own_module: Callable[[str], str]) -> None:
    source = "def short(document): return len(document.text) > LEAST\nLEAST = "
    names = [f"{own_module(source + least)}:short" for least in ("3", "9")]
    found = [text_filter(name) for name in (*names, *names)]
    assert [each.filter(FilteredText("An owl.")) for each in found] == [True, (False, "short")] * 2
    assert [each.described()["name"] for each in found] == names * 2
    assert found[0].version != found[1].version


@pytest.mark.guarantee("own-filter")
def test_each_filter_reads_what_the_one_before_left_and_what_they_drop_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = set[str | None]()

    def trimming(document: FilteredText) -> bool:
        kept = [line for line in document.text.split("\n") if not line.isupper()]
        document.removed["capitals"] += document.text.count("\n") + 1 - len(kept)
        document.removed["seen"] += 1
        document.text = "\n".join(kept)
        seen.add(document.language)
        document.language = "sv"  # not the filter's to say
        return True

    def german(document: FilteredText) -> Any:
        return document.language == "en" or (False, "language")

    filters = {
        "owls:trimming": NamedFilter("owls:trimming", trimming, 1),
        "owls:short": NamedFilter("owls:short", lambda document: len(document.text) > 8 or (False, "letters"), 1),
        "owls:german": NamedFilter("owls:german", german, 1),
    }
    likeliest = {"en": ("en", 0.9), "de": ("de", 0.9), "": ("en", 0.5)}
    detector = SimpleNamespace(likeliest=lambda text, languages: likeliest[text[:2] if text[:2] in languages else ""])
    monkeypatch.setattr(text_filters, "detector", lambda: detector)
    chosen = (MinWords(3), Languages(("en", "de"), 0.9), *filters.values())

    def left(text: str, shortest: str | None = None) -> tuple[str, str | None] | None:
        document = kept(FilteredText(text, shortest=shortest), chosen, counts)
        return document and (document.text, document.language)

    counts = Counts(filtered={"few_words": 0, "language": 0})
    assert left("en owls hunt\nBUY NOW\nby night\nBUY") == ("en owls hunt\nby night", "en")
    assert left("en BUY NOW\nBUY\nBUY NOW TOO") is not None
    assert left("en owl\nBUY OWLS NOW") is None
    assert left("en owls hunt") == ("en owls hunt", "en")
    assert left("de eine Eule jagt") is None
    assert left("en owls hunt", "two words") is None and left("en owls") is None
    assert left("fr un hibou chasse") is None
    assert counts.filtered == {"few_words": 2, "language": 1, "short_letters": 1, "german_language": 1}
    assert counts.sums == {"trimming_capitals": 5, "trimming_seen": 5}
    assert counts.longest["words"] == 8
    chosen = ()
    counts = Counts()
    assert left("owls") == ("owls", None) and counts == Counts()
