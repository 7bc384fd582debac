"""Excluded texts: no text of a test set stays, whatever the form of its file, and nothing else is dropped."""

import dataclasses
import gzip
import json
import re
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearspan.common import files
from clearspan.common.errors import PipelineError
from clearspan.common.same_text import text_id
from clearspan.eval.data.labeled import Labeled, read_snli, read_sst, read_trec, read_two_classes
from clearspan.eval.data.sts_data import ScoredPairs, read_sts_subset
from clearspan.pipelines.builders import text as text_kind
from clearspan.pipelines.builders.text import containing_excluded
from clearspan.pipelines.counter import RecordCounter
from clearspan.pipelines.text.exclude import Excluded, read_texts
from clearspan.pipelines.text.segmentation import normalize
from clearspan.pipelines.text.word_hashes import comparable
from clearspan.shards import Dataset
from tests.pipelines.conftest import Command, logged, rows, summary

UNIT = ("--unit-bytes", "30000", "--min-tokens", "300")


@pytest.fixture
def corpus(texts: list[str], tmp_path: Path) -> Path:
    """Sixty documents."""
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts[:60]))
    return tmp_path / "corpus"


SICK = "A group of kids is playing in a yard and an old man is standing in the background"
GUITAR = "A man is playing a guitar."
SWIMMING = "他每天早上都在海里游泳。"
HOME = "昨天晚上我和朋友一起回家"


@pytest.mark.guarantee("excluded-texts")
@pytest.mark.parametrize(
    ("excluded", "text", "met"),
    [
        (SICK, f"He wrote: {SICK.upper()}!", True),
        (SICK, "Then: kids is playing in a yard, and an old -- he said.", True),
        (SICK, "kids is playing in a yard and", False),
        (SICK, "a yard and an old man is. Standing in the background", True),
        (GUITAR, "It was late.\nA man is playing a guitar\nNobody listens.", True),
        (GUITAR, "There: “A man is playing a guitar!” Nobody listens.", False),
        (GUITAR, "Here a man is playing a guitar.", False),
        ("Don’t you ever do that", "“Stop. Don't you ever do that.” He left.", True),
        ("The man slept.", "The man\nslept!", True),
        ("The man slept.", "The man slept. Nobody listens.", False),
        ("Oct. 31: shares fall", "First of all.\nOct. 31: shares fall\nLater more.", True),
        ("Oct. 31: shares fall", "Oct. 31: shares fall again", False),
        ("We shall see the ship", "Well see the ship", False),
        ("We shall see the ship", "We shall see theship", False),
        (GUITAR, "The beginning. A man\nis playing a guitar. The end", True),
        (GUITAR, "A heading\nA man is\r\nplaying a\n> guitar\nThe end", True),
        (GUITAR, "There a man\nis playing a guitar.", False),
        (GUITAR, "A man is\nplaying a guitar again.", False),
        (SWIMMING, f"天气很好。{SWIMMING}然后回家。", True),
        (SWIMMING, "天气很好！他每天早上都在海里游泳？是的。", True),
        (SWIMMING, f"听说{SWIMMING}", False),
        (HOME, f"大家都说{HOME}了", True),
        (HOME, "昨天晚上我和朋友一起看电影，他们一起回家", False),
        ("我爱你", "我爱你。", True),
        ("我爱你", "我爱你。再见。", False),
        ("เขาว่ายน้ำในทะเลทุกเช้า", "ฉันเห็นว่า เขาว่ายน้ำในทะเลทุกเช้า และกลับบ้าน", True),
        ("彼は毎朝海で泳いでいるそうです", "友人によると彼は毎朝海で泳いでいるそうですよ。", True),
        ("한국 사람은 김치를 매일 먹는다", "그리고\n한국 사람은 김치를 매일 먹는다.\n", True),
        ("Windows用のIDE 2025年版を買う人々", "店で Windows 用の IDE 2025 年版を買う人々が多い", True),
        ("", "Anything at all.", False),
    ],
)
def test_a_text_is_met_by_words_or_letters_in_a_row_or_as_a_whole_sentence(excluded: str, text: str, met: bool) -> None:
    assert Excluded.of([excluded]).contains_excluded(text) is met


WALKING = "A man is walking home. He looks old and tired."


@pytest.mark.guarantee("excluded-texts")
@pytest.mark.parametrize(
    ("text", "as_document", "as_sentence"),
    [
        ("He looks old, and tired!", False, True),
        ("A man is walking home.\nNobody sees him.", False, True),
        ("He looks old and tired of it.", False, False),
        ("walking home. He looks old", False, False),
        ("A man is walking home; he looks old.", True, True),
    ],
)
def test_a_short_sentence_of_a_longer_text_is_met_among_sentences(
    text: str, as_document: bool, as_sentence: bool
) -> None:
    texts = [WALKING, "The man slept there.", SICK]
    assert Excluded.of(texts).contains_excluded(text) is as_document
    made = Excluded.of(texts, among_sentences=True)
    excluded = Excluded.from_bytes(made.to_bytes(), made.heads)
    assert containing_excluded(["Nobody looks.", text], excluded) == [1] * as_sentence


@pytest.mark.guarantee("excluded-texts")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("you do n't say so", "You don’t say so!"),
        ("you dont say so", "You don't say so!"),
        ("it 's what we 've seen", "It's what we've seen."),
        ("she can not see it", "She cannot see it."),
        ("I 'm gon na do it , Bob", "I’m gonna do it, Bob!"),
        ("the dog -LRB- a poodle -RRB- ran", "The dog (a poodle) ran."),
        ("you don`t say so", "You don't say so!"),
        ("you don\n't say so", "You don't say so!"),
        ("you do\r\n  n't say so", "You don't say so!"),
        ("you don'\nt say so", "You don't say so!"),
        ("she can\nnot see it", "She cannot see it."),
        ("you don&#39;t say so", "You don't say so!"),
        ("you don&#x27;t say so", "You don&amp;rsquo;t say so!"),
        ("a black &amp; white cat", "A black & white cat"),
        ("he said &quot;not now&quot;", 'He said "not now".'),
        ("the caf&Eacute; is closed", "The café is closed"),
        ("l ' homme qu ' il aime", "L’homme qu’il aime"),
        ("Straße und Fuß sind naß", "STRASSE UND FUSS SIND NASS"),
        ("the eﬃcient oﬃce is closed", "The efficient office is closed"),
        ("wait … he said it", "Wait... he said it."),
        ("كَتَبَ الوَلَدُ الدَّرسَ في المَدرَسَةِ", "كتب الولد الدرس في المدرسة"),
        ("שָׁלוֹם לְכָל הָעוֹלָם הַזֶּה", "שלום לכל העולם הזה"),
    ],
)
def test_words_are_the_same_however_they_are_written(one: str, other: str) -> None:
    assert Excluded.of([one]).contains_excluded(other) and Excluded.of([other]).contains_excluded(one)


@pytest.mark.guarantee("excluded-texts")
def test_vowel_signs_are_part_of_the_word_and_count_as_none() -> None:
    excluded = Excluded.of(["मैं घर जा रहा हूँ आज"])
    assert excluded.contains_excluded("मैं घर जा रहा हूँ आज।") and not excluded.contains_excluded("मैं घर जी रही हूँ आज")
    assert not Excluded.of(["हिन्दी में लिखा"]).contains_excluded("हिन्दी में लिखा। आज")  # three words


@pytest.mark.guarantee("excluded-texts")
@pytest.mark.parametrize("marks", ["\u0301\u0323", "\uff9e\u0323"])
def test_of_a_heap_of_marks_on_one_letter_only_the_first_count(marks: str) -> None:
    """NFKC takes quadratic time to sort the marks of a letter."""
    assert comparable("a" + marks * 100) == comparable("a" + marks * 15) != comparable("a" + marks)


@pytest.mark.guarantee("excluded-texts")
@pytest.mark.parametrize(
    ("text", "compared"),
    [
        ("Straße ‘n’ ﬃce &Eacute;", "strasse 'n' ffice é"),
        ("ℌello 𝛓", "hello σ"),
        ("a&amp;amp;b &#39;c&#x27; &d", "a&b 'c' &d"),
        ("co\u00adope\u200brate na\u0308ive", "cooperate näive"),
        ("I wan na go, I 've got\nta; he can not, she gon na", "i wanna go, ive gotta; he cannot, she gonna"),
        ("it `s said -LRB-so-RRB- b-", "its said  so  b-"),
        ("one—two • three…four。", "one two   three...four. "),
    ],
)
def test_texts_are_compared_in_a_normal_form(text: str, compared: str) -> None:
    assert comparable(text) == compared


def apart(texts: list[str], number: int) -> list[str]:
    """Return the beginnings of texts, none of which shares four consecutive words with one before it."""
    found, seen = [], set()
    for text in texts:
        start = " ".join(text.split()[:60])
        words = re.findall(r"\w+", start.casefold())
        runs = set(zip(words, words[1:], words[2:], words[3:], strict=False))
        if not runs & seen:
            found.append(start)
            seen |= runs
    assert len(found) >= number
    return found[:number]


@pytest.mark.guarantee("excluded-texts")
@pytest.mark.parametrize("among_sentences", [False, True])
def test_each_excluded_text_is_met_and_named_by_its_beginning(texts: list[str], among_sentences: bool) -> None:
    given = [
        "...",
        *apart(texts, 30),
        "They met at the café",
        "Two words",
        "",
        "Two\u2028lines\x85of words",
        f"  {SICK}\t",
        "The half \ud83d of a pair",
    ]
    excluded = Excluded.of(iter(given), among_sentences)
    assert (excluded.texts, excluded.short, excluded.ignored) == (37, 4, 2)
    assert (excluded.hashes.dtype, excluded.owners.dtype) == (np.uint64, np.uint32)
    assert (np.diff(excluded.hashes) > 0).all() and "café".encode() in excluded.heads
    for text in filter(str.strip, given[1:]):
        name = text.strip()[:300].replace("\ud83d", "?")
        assert excluded.found_in(text) == excluded.found_in(text.upper()) == name
    again = Excluded.of([SICK, f"{SICK} again"])
    assert again.found_in(f"{SICK} again") == SICK
    assert Excluded.of([]).found_in(SICK) is None


@pytest.mark.guarantee("excluded-texts")
def test_a_text_whose_hash_only_begins_like_an_excluded_ones_is_kept() -> None:
    made = Excluded.of([GUITAR])
    other = dataclasses.replace(made, hashes=made.hashes ^ np.uint64(1))
    assert (made.found_in(GUITAR), other.found_in(GUITAR)) == (GUITAR, None)


@pytest.mark.guarantee("excluded-texts")
def test_every_text_is_looked_at_however_many_are_looked_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_kind, "EXCLUDE_TOGETHER", 3)
    excluded = Excluded.of([SICK, GUITAR, "The man slept."])
    others = ["Nobody looks.", "It was late.", "A man is playing", "a guitar."]
    looked_at = [SICK, *others[:2], GUITAR, "The man slept!", others[0], *others, f"So: {SICK}.", others[0], GUITAR]
    assert containing_excluded(looked_at, excluded) == [0, 3, 4, 10, 12]
    assert containing_excluded(others, excluded) == containing_excluded([], excluded) == []
    long = ["Nobody looks at the sky. " * 10_000 + text for text in (SICK, GUITAR, "", "The end.")]
    assert containing_excluded(long, excluded) == [0, 1]
    book = Excluded.of([*others, "Nobody looks at the sky. " * 10_000 + SICK])
    assert containing_excluded([f"So: {SICK}.", SICK, GUITAR], book) == [0, 1]


@pytest.mark.guarantee("excluded-texts")
def test_each_dropped_example_is_counted_and_has_a_line() -> None:
    counter = RecordCounter(("excluded",), 0.0)
    counter.exclude("a.jsonl:0", 7, GUITAR)
    counter.exclude("b.txt:12", 9, SWIMMING)
    counter.exclude("c.txt:3", 7, GUITAR)  # a copy
    assert counter.counts.filtered["excluded"] == 3
    assert [json.loads(line) for line in counter.excluded.splitlines()] == [
        {"source": "a.jsonl:0", "id": 7, "text": GUITAR},
        {"source": "b.txt:12", "id": 9, "text": SWIMMING},
        {"source": "c.txt:3", "id": 7, "text": GUITAR},
    ]


def words_of(text: str) -> list[str]:
    return re.sub(r"[\W_]+", " ", re.sub(r" ?'(?=(s|d|m|t|re|ve|ll)\b)", "", text.lower())).split()


def runs_of(text: str) -> set[tuple[str, ...]]:
    """Return the n-grams: eight words, or twelve if there is a Chinese letter, each of which is a word."""
    words = words_of(re.sub("([日本])", r" \1 ", text))
    runs = {tuple(words[at : at + size]) for size in (8, 12) for at in range(len(words) - size + 1)}
    return {run for run in runs if (len(run) == 12) is bool({"日", "本"} & set(run))}


@pytest.mark.guarantee("excluded-texts")
@pytest.mark.slow
@pytest.mark.parametrize("other", ["日本", "나 네"])
@given(st.lists(st.sampled_from(["a", "b", "Ä", "?", "c3", ",", "."]), max_size=40), st.integers(0, 30))
@settings(max_examples=200)
def test_hashes_meet_exactly_where_words_do(other: str, words: list[str], start: int) -> None:
    words = [other if word == "?" else word for word in words]
    text, planted = " ".join(words), " ".join(["a b", *words[start : start + 13], "a"])
    if not runs_of(planted):
        return
    assert Excluded.of([planted]).contains_excluded(text) is bool(runs_of(planted) & runs_of(text))


DOWNSTREAM: dict[str, tuple[tuple[str, ...], Callable[[Path], list[str]], int]] = {
    "MR": (("MR",), lambda at: read_two_classes(at / "MR/rt-polarity.pos", at / "MR/rt-polarity.neg").columns[0], 175),
    "SST5": (("SST/fine/sentiment-test",), lambda at: read_sst(at / "SST/fine/sentiment-test", 5).columns[0], 47),
    "TREC": (("TREC/TREC_10.label",), lambda at: read_trec(at / "TREC/TREC_10.label").columns[0], 72),
    "SNLI": (("SNLI/s1.test", "SNLI/s2.test"), lambda at: both(read_snli(at / "SNLI", "test")), 305),
    "STS12": (("STS/STS12-en-test",), lambda at: sts(at / "STS/STS12-en-test"), 206),
}
"""By test set of SentEval: its files, its texts as the evaluator reads them, and how many have fewer than 4 words,
which only exclude an example that is nothing else."""


def both(pairs: Labeled | ScoredPairs) -> list[str]:
    left, right = (pairs.left, pairs.right) if isinstance(pairs, ScoredPairs) else pairs.columns
    return left + right


def sts(folder: Path) -> list[str]:
    subsets = [path.name.removeprefix("STS.input.").removesuffix(".txt") for path in folder.glob("STS.input.*.txt")]
    return [text for subset in subsets for text in both(read_sts_subset(folder, subset))]


@pytest.mark.published("senteval")
@pytest.mark.guarantee("excluded-texts")
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", DOWNSTREAM)
def test_no_text_of_a_test_set_is_kept_that_its_own_files_exclude(shared_data: Path, name: str) -> None:
    at = shared_data / "senteval" / "downstream"
    paths, read, num_short = DOWNSTREAM[name]
    excluded = Excluded.of(read_texts([str(at / path) for path in paths]))
    texts = read(at)
    assert not [text for text in texts if not excluded.contains_excluded(text)]
    assert not [text for text in texts if not excluded.contains_excluded(textwrap.fill(text, 60))]
    # In a document, each text begins in the middle of a line, and those of fewer than four words may occur.
    wrapped = (textwrap.fill(f"{'So it was said in those days.':>45} {text}", 60) for text in texts)
    assert sum(not excluded.contains_excluded(text) for text in wrapped) == num_short


@pytest.mark.guarantee("excluded-texts")
@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["NUM:dist How far is it from Denver", "HUM:ind Who was the man"], "Who was the man"),
        (["3 the man was not seen", "0 a very bad film"], "a very bad film"),
        (["the man was not seen 3", "a very bad film 0"], "a very bad film"),
        (["__label__pos the man was seen", "__label__neg a very bad film"], "a very bad film"),
        (["__label__a __label__b the man was seen", "__label__a a very bad film"], "the man was seen"),
        (["label sentence", "3 the man was not seen", "0 a very bad film"], "a very bad film"),
        (["2 dogs are running", "3 cats are not running"], "2 dogs are running"),
    ],
)
def test_a_label_beside_each_text_is_no_part_of_it(tmp_path: Path, lines: list[str], text: str) -> None:
    (tmp_path / "test.txt").write_text("\n".join(lines) + "\n")
    assert Excluded.of(read_texts([str(tmp_path / "test.txt")])).contains_excluded(text)


@pytest.mark.guarantee("excluded-texts")
def test_excluded_texts_are_read_as_test_sets_are_written(tmp_path: Path) -> None:
    (tmp_path / "sts.txt").write_text("3.5\tA cat sits.\tA dog runs.\n\n")
    (tmp_path / "stsb.csv").write_text('"One, two",three\n')
    (tmp_path / "snli.jsonl").write_text('{"sentence1": "A man.", "label": 3}\n')
    (tmp_path / "mr.txt").write_bytes("naïve film .\n".encode("latin-1"))
    answers = [{"question": "Who sat?", "answers": [{"text": ["A cat."], "start": 3}]}]
    (tmp_path / "squad.json").write_text(json.dumps({"data": [{"paragraphs": answers}, [["A mat."]]]}))
    names = ("sts.txt", "stsb.csv", "snli.jsonl", "mr.txt", "squad.json")
    assert list(read_texts([str(tmp_path / name) for name in names])) == [
        *("A cat sits.", "A dog runs.", "One, two", "three", "One, two,three", "A man.", "naïve film ."),
        *("Who sat?", "A cat.", "A mat."),
    ]


@pytest.mark.guarantee("excluded-texts")
def test_files_of_one_name_in_several_folders_are_all_read(tmp_path: Path) -> None:
    for folder, text in (("MR", "A cat sits."), ("SST", "A dog runs."), ("SST/dev", "A bird sings.")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "test.txt").write_text(f"{text}\n")
    (tmp_path / "SST" / "test.txt.gz").write_bytes(gzip.compress(b"A fish swims.\n"))
    assert sorted(read_texts([str(tmp_path)])) == ["A bird sings.", "A cat sits.", "A dog runs.", "A fish swims."]


@pytest.mark.guarantee("excluded-texts")
@pytest.mark.parametrize(
    "words",
    [
        ("documents", "--whitespace", "collapse", "--lowercase"),
        ("sentences", "--pack", "60"),
        ("pairs", "--fields", "title,text", "--whitespace", "collapse"),
    ],
)
def test_a_line_of_a_text_is_a_sentence_however_the_text_is_prepared(
    direct: Command, tmp_path: Path, words: tuple[str, ...]
) -> None:
    songs = [f"It was late {number}\n\nA man is playing a guitar\n\nNobody listens to him" for number in range(3)]
    songs.insert(1, "It was late\n\nHere a man is playing a guitar\n\nNobody listens to him")
    records = ({"title": f"Song {number}", "text": song} for number, song in enumerate(songs))
    (tmp_path / "songs.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (tmp_path / "test.txt").write_text(f"{GUITAR}\n")
    given = ("--input", tmp_path / "songs.jsonl", "--min-tokens", "1", "--exclude", tmp_path / "test.txt", "--json")
    found = summary(direct(*words, *given))
    assert found["filtered"]["excluded"] == len(logged(tmp_path / "out" / "_excluded")) == 3


@pytest.mark.guarantee("excluded-texts")
@pytest.mark.parametrize("number", ["3.5", "-2", "1,234.5", "0", "1e-05", "40 %", "2.0,3.1,0"])
def test_numbers_are_no_texts_to_look_for(tmp_path: Path, number: str) -> None:
    (tmp_path / "sts.txt").write_text(f"{number}\nA cat sits.\n")
    assert list(read_texts([str(tmp_path / "sts.txt")])) == ["A cat sits."]
    (tmp_path / "gold.txt").write_text(f"{number}\n")
    with pytest.raises(PipelineError, match=r"gold.txt: holds only numbers: name the files with the texts"):
        list(read_texts([str(tmp_path / "gold.txt")]))


ABOUT = ("LICENSE", "licence.txt", "README.md", "Copying", "CITATION.cff", "NOTICE")


def test_what_a_folder_holds_about_a_test_set_is_passed_over_and_read_where_it_is_named(tmp_path: Path) -> None:
    for name in (*ABOUT, "noticed.txt"):
        (tmp_path / name).write_text(f"The words of {name} are here for all to read.\n")
    for pattern in (tmp_path, tmp_path / "*"):
        (text,) = read_texts([str(pattern)])
        assert text.startswith("The words of noticed.txt")
    assert len(list(read_texts([str(tmp_path / name) for name in ABOUT]))) == len(ABOUT)
    (tmp_path / "noticed.txt").unlink()
    with pytest.raises(PipelineError, match="holds only licenses and readmes: name the files with the texts"):
        list(read_texts([str(tmp_path)]))


def test_a_file_of_a_folder_that_is_left_out_by_its_name_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("dev.txt", "_test.txt"):
        (tmp_path / name).write_text(f"The words of {name} are here for all to read.\n")
    assert len(list(read_texts([str(tmp_path)]))) == 1
    told = capsys.readouterr().err
    assert f"`exclude` {tmp_path}: 1 file left out, since names that begin with _" in told and "_test.txt" in told
    assert len(list(read_texts([str(tmp_path / "_test.txt")]))) == 1 and not capsys.readouterr().err


def test_a_broken_line_of_json_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "pretty.jsonl").write_text('{\n "text": "He said \\"no\\" to the caf\\u00e9 owner"\n}\n')
    with pytest.raises(PipelineError, match=r"pretty.jsonl: line 1 is no JSON"):
        list(read_texts([str(tmp_path / "pretty.jsonl")]))


def test_utf_16_without_its_mark_is_refused(tmp_path: Path) -> None:
    (tmp_path / "test.txt").write_bytes("The movie was bad\n".encode("utf-16-le"))
    with pytest.raises(PipelineError, match=r"`exclude` .*test.txt: .*UTF-16"):
        list(read_texts([str(tmp_path / "test.txt")]))


@pytest.mark.parametrize("name", ["list.txt", "list.csv", "list.jsonl"])
def test_a_hole_in_a_list_is_damage(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b'"A man is playing a guitar."\n' + bytes(5000))
    with pytest.raises(PipelineError, match=rf"{name}: (holds bytes of zero|binary)"):
        list(read_texts([str(tmp_path / name)]))


@pytest.mark.guarantee("excluded-texts")
@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("empty.txt", "\n\n", "empty.txt: holds no text"),
        ("numbers.jsonl", '{"id": 3}\n', "numbers.jsonl: holds no text"),
        (
            "quote.csv",
            'one,two\n"three,four\nfive,six\n',
            "quote.csv: line 2: unexpected end of data",
        ),
        ("quote.csv", 'a,b\n"three" four,five\nsix,seven\n', "quote.csv: line 2: ',' expected after"),
    ],
)
def test_a_file_without_readable_texts_excludes_nothing_in_silence(
    direct, corpus: Path, tmp_path: Path, name: str, text: str, complaint: str
) -> None:
    (tmp_path / name).write_text(text)
    outcome = direct("--input", corpus, *UNIT, "--exclude", tmp_path / name)
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
    assert complaint in outcome.err


CURATED = ("--dedup", "--holdout-fraction", "0.3")


@pytest.mark.guarantee("excluded-texts")
@pytest.mark.slow
@pytest.mark.parametrize("switches", [(), CURATED])
def test_what_went_is_written_down_with_the_text_that_it_holds(
    direct, corpus: Path, texts: list[str], tmp_path: Path, tree, switches: tuple
) -> None:
    number = next(number for number in range(33, 60) if len(texts[number].split()) > 240)
    sentences = [" ".join(text.split()[40:70]) for text in (texts[0], texts[number])]
    (tmp_path / "test.txt").write_text("".join(f"{sentence}\n" for sentence in sentences))
    command = ("--input", corpus, *UNIT, *switches, "--exclude", tmp_path / "test.txt")
    assert direct(*command).code == 0
    offset = sum(len(json.dumps({"text": text})) + 1 for text in texts[:number])
    assert logged(tmp_path / "out" / "_excluded") == [
        {"source": f"a.jsonl:{place}", "id": text_id(text.encode()), "text": sentence}
        for place, text, sentence in zip((0, offset), (texts[0], texts[number]), sentences, strict=True)
    ]
    finished = tree(tmp_path / "out")
    for lost in sorted((tmp_path / "out" / "_excluded").iterdir()):
        lost.unlink()
        assert direct(*command).code == 0
        assert tree(tmp_path / "out") == finished
    (tmp_path / "out" / "_excluded" / files.temporary_name("00000.jsonl.zst")).touch()
    assert direct(*command).code == 0
    assert tree(tmp_path / "out") == finished


@pytest.mark.guarantee("excluded-texts")
@pytest.mark.parametrize("switches", [("--no-split", "--text-per", "line"), ("--pack", "100")])
def test_sentences_and_pieces_that_went_are_written_down(direct, wiki: Path, tmp_path: Path, switches: tuple) -> None:
    lines = wiki.read_text(encoding="utf-8").splitlines()
    long = [line for line in lines[100:] if len(line.split()) > 12][:20]
    (tmp_path / "test.txt").write_text("\n".join(long))
    assert direct("sentences", "--input", wiki, "--exclude", tmp_path / "test.txt", *switches).code == 0
    found = logged(tmp_path / "out" / "_excluded")
    assert len(found) == Dataset(tmp_path / "out").manifest.counts["filtered"]["excluded"] > 0
    assert {line["text"] for line in found} <= {line.strip()[:300] for line in long}
    kept = {row["id"] for row in rows(tmp_path / "out")}
    assert not kept & {line["id"] for line in found}
    if "--pack" not in switches:
        assert {text_id(normalize(line).encode()) for line in long} <= {line["id"] for line in found}
        assert {line["source"].split(":")[0] for line in found} == {"wiki.txt"}


@pytest.mark.guarantee("excluded-texts")
def test_the_excluded_texts_lie_beside_the_shards(direct, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "test.txt").write_text(f"{SICK}\n...\ntoo short\nA man is playing a guitar.\n")
    assert direct("--input", corpus, *UNIT, "--exclude", tmp_path / "test.txt").code == 0
    lines = Dataset(tmp_path / "out").read_file("excluded.jsonl").splitlines()
    (tmp_path / "test.txt").write_text("other words altogether\n")
    assert "options.exclude.sha256" in direct("--input", corpus, *UNIT, "--exclude", tmp_path / "test.txt").err
    missing = direct("--input", corpus, "--exclude", tmp_path / "absent.txt")
    assert (missing.code, missing.err.count("\n")) == (1, 1) and "no such file" in missing.err
    assert list(map(json.loads, lines)) == [SICK, "too short", "A man is playing a guitar."]
