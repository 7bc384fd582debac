"""Excluded texts: no text of a test set stays, whatever the form of its file, and nothing else is dropped."""

import csv
import gzip
import io
import json
import re
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from clearspan.common import files
from clearspan.eval.data.labeled import (
    LabeledPairs,
    read_mrpc,
    read_sick_entailment,
    read_snli,
    read_sst,
    read_trec,
    read_two_classes,
)
from clearspan.eval.data.sts import Pairs, read_sts_subset, read_stsb
from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.kinds.text import meeting
from clearspan.pipelines.kinds.text_inputs import text_id
from clearspan.pipelines.text.exclude import Excluded, read_texts
from clearspan.pipelines.text.segmentation import normalize
from clearspan.pipelines.text.tokenization import Tokenization
from clearspan.pipelines.text.word_hashes import comparable
from clearspan.shards import Dataset

UNIT = ("--unit-bytes", "30000", "--min-tokens", "300")


@pytest.fixture
def corpus(texts: list[str], tmp_path: Path) -> Path:
    """Sixty documents."""
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts[:60]))
    return tmp_path / "corpus"


SICK = "A group of kids is playing in a yard and an old man is standing in the background"


@pytest.mark.parametrize(
    ("excluded", "text", "met"),
    [
        (SICK, f"He wrote: {SICK.upper()}!", True),
        (SICK, "Then: kids is playing in a yard, and an old -- he said.", True),
        (SICK, "kids is playing in a yard and", False),
        (SICK, "a yard and an old man is. Standing in the background", True),
        ("A man is playing a guitar.", "It was late.\nA man is playing a guitar\nNobody listens.", True),
        ("A man is playing a guitar.", "There: “A man is playing a guitar!” Nobody listens.", False),
        ("A man is playing a guitar.", "Here a man is playing a guitar.", False),
        ("Don’t you ever do that", "“Stop. Don't you ever do that.” He left.", True),
        ("The man slept.", "The man\nslept!", True),
        ("The man slept.", "The man slept. Nobody listens.", False),
        ("", "Anything at all.", False),
    ],
)
def test_a_text_is_met_by_eight_words_in_a_row_or_as_a_whole_sentence(excluded: str, text: str, met: bool) -> None:
    assert Excluded.of([excluded]).meets(text) is met


def test_a_short_text_of_several_sentences_is_met_as_a_line() -> None:
    excluded = Excluded.of(["Oct. 31: shares fall"])
    assert excluded.meets("First of all.\nOct. 31: shares fall\nLater more.")
    assert not excluded.meets("Oct. 31: shares fall again")


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("The beginning. A man\nis playing a guitar. The end", True),
        ("A heading\nA man is\r\nplaying a\n> guitar\nThe end", True),
        ("There a man\nis playing a guitar.", False),
        ("A man is\nplaying a guitar again.", False),
    ],
)
def test_a_short_text_is_met_where_it_is_wrapped_over_lines(text: str, met: bool) -> None:
    assert Excluded.of(["A man is playing a guitar."]).meets(text) is met


WALKING = "A man is walking home. He looks old and tired."


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
    assert Excluded.of(texts).meets(text) is as_document
    made = Excluded.of(texts, among_sentences=True)
    excluded = Excluded.from_bytes(made.to_bytes(), made.heads)
    assert meeting(["Nobody looks.", text], excluded) == [1] * as_sentence


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
    assert Excluded.of([one]).meets(other) and Excluded.of([other]).meets(one)


def test_signs_that_say_something_still_tell_words_apart() -> None:
    excluded = Excluded.of(["We shall see the ship"])
    for text in ("Well see the ship", "We shell see the ship", "We shall see theship"):
        assert not excluded.meets(text)


def test_vowel_signs_are_part_of_the_word_and_count_as_none() -> None:
    excluded = Excluded.of(["मैं घर जा रहा हूँ आज"])
    assert excluded.meets("मैं घर जा रहा हूँ आज।") and not excluded.meets("मैं घर जी रही हूँ आज")
    assert not Excluded.of(["हिन्दी में लिखा"]).meets("हिन्दी में लिखा। आज")  # three words


@pytest.mark.parametrize("marks", ["\u0301\u0323", "\uff9e\u0323"])
def test_of_a_heap_of_marks_on_one_letter_only_the_first_count(marks: str) -> None:
    """NFKC takes quadratic time to sort the marks of a letter."""
    assert comparable("a" + marks * 100) == comparable("a" + marks * 15) != comparable("a" + marks)


def words_of(text: str) -> list[str]:
    return re.sub(r"[\W_]+", " ", re.sub(r" ?'(?=(s|d|m|t|re|ve|ll)\b)", "", text.lower())).split()


def runs_of(text: str) -> set[tuple[str, ...]]:
    """Return the n-grams: eight words, or twelve if there is a Chinese letter, each of which is a word."""
    words = words_of(re.sub("([日本])", r" \1 ", text))
    runs = {tuple(words[at : at + size]) for size in (8, 12) for at in range(len(words) - size + 1)}
    return {run for run in runs if (len(run) == 12) is bool({"日", "本"} & set(run))}


@pytest.mark.slow
@pytest.mark.parametrize("other", ["日本", "나 네"])
@given(st.lists(st.sampled_from(["a", "b", "Ä", "?", "c3", ",", "."]), max_size=40), st.integers(0, 30))
@settings(max_examples=200)
def test_hashes_meet_exactly_where_words_do(other: str, words: list[str], start: int) -> None:
    words = [other if word == "?" else word for word in words]
    text, planted = " ".join(words), " ".join(["a b", *words[start : start + 13], "a"])
    if not runs_of(planted):
        return
    assert Excluded.of([planted]).meets(text) is bool(runs_of(planted) & runs_of(text))


@pytest.mark.slow
def test_real_test_sentences_planted_in_real_documents_are_found(shared_data: Path, texts: list[str]) -> None:
    folder = shared_data / "senteval" / "downstream"
    sentences = list(
        read_texts([str(folder / "SICK" / "SICK_test_annotated.txt"), str(folder / "STS" / "STS12-en-test")])
    )
    excluded = Excluded.of(sentences[:4000])
    clean = [text for text in texts[:200] if not excluded.meets(text)]
    assert len(clean) >= 195
    planted = [sentence for sentence in sentences[:4000] if len(words_of(sentence)) >= 8][:200]
    for text, sentence in zip(clean, planted, strict=False):
        middle = text.find(" ", len(text) // 2)
        assert excluded.meets(f"{text[:middle]} {sentence.upper()} {text[middle:]}")
    same = Excluded.from_bytes(excluded.to_bytes(), excluded.heads)
    assert same.options() == excluded.options()
    assert same.options()["texts"] == 4000


DOWNSTREAM: dict[str, tuple[tuple[str, ...], Callable[[Path], list[str]], int]] = {
    "MR": (("MR",), lambda at: read_two_classes(at / "MR/rt-polarity.pos", at / "MR/rt-polarity.neg").texts, 175),
    "SUBJ": (
        ("SUBJ",),
        lambda at: read_two_classes(at / "SUBJ/subj.objective", at / "SUBJ/subj.subjective").texts,
        0,
    ),
    "SST2": (("SST/binary/sentiment-test",), lambda at: read_sst(at / "SST/binary/sentiment-test", 2).texts, 26),
    "SST5": (("SST/fine/sentiment-test",), lambda at: read_sst(at / "SST/fine/sentiment-test", 5).texts, 47),
    "TREC": (("TREC/TREC_10.label",), lambda at: read_trec(at / "TREC/TREC_10.label").texts, 72),
    "MRPC": (
        ("MRPC/msr_paraphrase_test.txt",),
        lambda at: both(read_mrpc(at / "MRPC/msr_paraphrase_test.txt")),
        0,
    ),
    "SICK": (
        ("SICK/SICK_test_annotated.txt",),
        lambda at: both(read_sick_entailment(at / "SICK/SICK_test_annotated.txt")),
        5,
    ),
    "SNLI": (("SNLI/s1.test", "SNLI/s2.test"), lambda at: both(read_snli(at / "SNLI", "test")), 305),
    "STS12": (("STS/STS12-en-test",), lambda at: sts(at / "STS/STS12-en-test"), 206),
    "STS14": (("STS/STS14-en-test",), lambda at: sts(at / "STS/STS14-en-test"), 34),
    "STS16": (("STS/STS16-en-test",), lambda at: sts(at / "STS/STS16-en-test"), 3),
    "STSBenchmark": (
        ("STS/STSBenchmark/sts-test.csv",),
        lambda at: both(read_stsb(at / "STS/STSBenchmark/sts-test.csv")),
        7,
    ),
}
"""By test set of SentEval: its files, its texts as the evaluator reads them, and how many have fewer than 4 words,
which only exclude an example that is nothing else."""


def both(pairs: LabeledPairs | Pairs) -> list[str]:
    return pairs.left + pairs.right


def sts(folder: Path) -> list[str]:
    subsets = [path.name.removeprefix("STS.input.").removesuffix(".txt") for path in folder.glob("STS.input.*.txt")]
    return [text for subset in subsets for text in both(read_sts_subset(folder, subset))]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", DOWNSTREAM)
def test_no_text_of_a_test_set_is_kept_that_its_own_files_exclude(shared_data: Path, name: str) -> None:
    at = shared_data / "senteval" / "downstream"
    paths, read, num_short = DOWNSTREAM[name]
    excluded = Excluded.of(read_texts([str(at / path) for path in paths]))
    texts = read(at)
    assert not [text for text in texts if not excluded.meets(text)]
    assert not [text for text in texts if not excluded.meets(textwrap.fill(text, 60))]
    # In a document, each text begins in the middle of a line, and those of fewer than four words may occur.
    wrapped = (textwrap.fill(f"{'So it was said in those days.':>45} {text}", 60) for text in texts)
    assert sum(not excluded.meets(text) for text in wrapped) == num_short


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
    assert Excluded.of(read_texts([str(tmp_path / "test.txt")])).meets(text)


def test_excluded_texts_are_read_as_test_sets_are_written(tmp_path: Path) -> None:
    (tmp_path / "sts.txt").write_text("3.5\tA cat sits.\tA dog runs.\n\n")
    (tmp_path / "stsb.csv").write_text('"One, two",three\n')
    (tmp_path / "snli.jsonl").write_text('{"sentence1": "A man.", "label": 3}\n')
    (tmp_path / "mr.txt").write_bytes("naïve film .\n".encode("latin-1"))
    names = ("sts.txt", "stsb.csv", "snli.jsonl", "mr.txt")
    assert list(read_texts([str(tmp_path / name) for name in names])) == [
        *("A cat sits.", "A dog runs.", "One, two", "three", '"One, two",three', "A man.", "naïve film ."),
    ]


@pytest.mark.parametrize("number", ["3.5", "-2", "1,234.5", "0", "1e-05", "40 %", "2.0,3.1,0"])
def test_numbers_are_no_texts_to_look_for(tmp_path: Path, number: str) -> None:
    (tmp_path / "sts.txt").write_text(f"{number}\nA cat sits.\n")
    assert list(read_texts([str(tmp_path / "sts.txt")])) == ["A cat sits."]
    (tmp_path / "gold.txt").write_text(f"{number}\n")
    with pytest.raises(PipelineError, match=r"gold.txt: holds only numbers: name the files with the texts"):
        list(read_texts([str(tmp_path / "gold.txt")]))


ABOUT = ("LICENSE", "licence.txt", "README.md", "Copying", "CITATION.cff", "notice.html")


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


@pytest.fixture(scope="module")
def chinese(shared_data: Path) -> dict[str, list[str]]:
    """Distinct sentences of the Chinese STS-B by split, without training sentences that are in the test set."""
    found = {}
    for split in ("test", "train"):
        with (shared_data / "stsb_multi_mt" / f"stsb-zh-{split}.csv").open(encoding="utf-8", newline="") as lines:
            found[split] = list(dict.fromkeys(cell for row in csv.reader(lines) for cell in row[:2]))
    found["train"] = [sentence for sentence in found["train"] if sentence not in set(found["test"])]
    return found


@pytest.mark.exhaustive
def test_chinese_sentences_are_met_by_their_letters_and_few_others_are(chinese: dict[str, list[str]]) -> None:
    excluded = Excluded.of(chinese["test"], among_sentences=True)
    assert all(map(excluded.meets, chinese["test"]))
    others = chinese["train"]
    assert len(others) == 10_100 and 0.005 < sum(map(excluded.meets, others)) / len(others) < 0.01
    long = [text for text in chinese["test"] if re.search(r"[\u4e00-\u9fff]{12}", text)]
    assert len(long) > 1000
    for text, before, after in zip(long, others, others[1:], strict=False):
        assert excluded.meets(f"{before}，{text.rstrip('。')}，{after}")


SWIMMING = "他每天早上都在海里游泳。"
HOME = "昨天晚上我和朋友一起回家"


@pytest.mark.parametrize(
    ("excluded", "text", "met"),
    [
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
    ],
)
def test_without_spaces_between_words_letters_are_compared(excluded: str, text: str, met: bool) -> None:
    assert Excluded.of([excluded]).meets(text) is met


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "delimiter"),
    [
        *(("sts-test.csv", delimiter) for delimiter in "\t,;|"),
        *((name, ",") for name in ("STS-TEST.CSV", "sts.csv.gz", "sts.tsv", "sts.txt", "old-mac.csv")),
    ],
)
def test_every_sentence_of_a_table_is_met_whatever_parts_its_cells(
    shared_data: Path, tmp_path: Path, name: str, delimiter: str
) -> None:
    path = shared_data / "senteval" / "downstream" / "STS" / "STSBenchmark" / "sts-test.csv"
    table = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    text = io.StringIO()
    if delimiter == "\t":
        text.write(path.read_text(encoding="utf-8"))
    else:
        csv.writer(text, delimiter=delimiter).writerows(table)
    data = text.getvalue().encode()
    if name == "old-mac.csv":
        data = data.replace(b"\r\n", b"\r").replace(b"\n", b"\r")
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    excluded = Excluded.of(read_texts([str(tmp_path / name)]), among_sentences=True)
    sentences = {cell for row in table for cell in row[5:7] if len(words_of(cell)) >= 4}
    assert len(sentences) == 2544
    assert [sentence for sentence in sentences if not excluded.meets(sentence)] == []


def test_every_string_of_a_json_record_counts(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text('{"texts": ["A man.", {"other": "A dog."}], "id": 3, "gold": NaN}\n')
    assert list(read_texts([str(tmp_path / "pairs.jsonl")])) == ["A man.", "A dog."]


def test_a_broken_line_of_json_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "pretty.jsonl").write_text('{\n "text": "He said \\"no\\" to the caf\\u00e9 owner"\n}\n')
    with pytest.raises(PipelineError, match=r"pretty.jsonl: line 1 is no JSON: mend it, or give the texts as lines"):
        list(read_texts([str(tmp_path / "pretty.jsonl")]))


def test_utf_16_without_its_mark_is_refused(tmp_path: Path) -> None:
    (tmp_path / "test.txt").write_bytes("The movie was bad\n".encode("utf-16-le"))
    with pytest.raises(PipelineError, match=r"--exclude .*test.txt: holds bytes of zero, as UTF-16 does"):
        list(read_texts([str(tmp_path / "test.txt")]))


@pytest.mark.parametrize(
    ("before", "text"),
    [
        ("Yes, of course we can", "Not a single person came to the party"),
        ("Yes we can", "Not that I know of"),
        ("He said 'hello'", "Re: your mail to me"),
        ("can", "not"),
    ],
)
def test_an_example_is_found_whatever_stands_before_it(before: str, text: str) -> None:
    """Neighbours are searched together, and their words do not become one."""
    assert meeting([before, text], Excluded.of([text])) == [1]


def test_a_sentence_a_line_with_a_comma_in_each_is_met(tmp_path: Path) -> None:
    (tmp_path / "lines.csv").write_text("It was late, nobody was there\nHe came home, and he slept very well\n")
    excluded = Excluded.of(read_texts([str(tmp_path / "lines.csv")]))
    assert excluded.meets("Then: It was late, nobody was there.\nHe came home, and he slept very well.\n")
    assert excluded.meets("So he came home and he slept very well then.")


@pytest.mark.parametrize("name", ["list.txt", "list.csv", "list.jsonl"])
def test_a_hole_in_a_list_is_damage(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b'"A man is playing a guitar."\n' + bytes(5000))
    with pytest.raises(PipelineError, match=rf"{name}: (damaged .*512 zero bytes in a row at byte 29|binary)"):
        list(read_texts([str(tmp_path / name)]))


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("empty.txt", "\n\n", "empty.txt: holds no text"),
        ("numbers.jsonl", '{"id": 3}\n', "numbers.jsonl: holds no text"),
        ("quote.csv", 'one,two\n"three,four\nfive,six\n', "quote.csv: line 3: unexpected end of data: mend its quotes"),
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


def test_what_else_mattered_where_something_is_excluded_is_said_too(
    direct, corpus: Path, texts: list[str], roberta_tokenization: Tokenization, tmp_path: Path
) -> None:
    longest = roberta_tokenization.tokenize(texts[:60], texts[:60]).lengths.max()
    (tmp_path / "test.txt").write_text(max(texts[:60], key=len).replace("\n", " "))
    with (corpus / "a.jsonl").open("a") as lines:
        lines.write("broken\n")
    words = ("--input", corpus, "--exclude", tmp_path / "test.txt", "--max-bad-fraction", "1")
    complaint = direct(*words, "--min-tokens", str(longest)).err
    assert "5 short_tokens, 1 excluded, 1 bad; the longest has " in complaint
    assert complaint.endswith(f"{longest:,} tokens: lower --min-tokens\n")


def excluded_of(folder: Path) -> list[dict]:
    files = sorted((folder / "_excluded").glob("*.jsonl.zst"))
    data = b"".join(zstandard.ZstdDecompressor().decompressobj().decompress(file.read_bytes()) for file in files)
    return [json.loads(line) for line in data.splitlines()]


CURATED = ("--dedup", "--holdout-fraction", "0.3")


@pytest.mark.slow
@pytest.mark.parametrize("switches", [(), CURATED])
def test_what_went_is_written_down_with_the_text_that_it_holds(
    direct, corpus: Path, texts: list[str], tmp_path: Path, tree, switches: tuple
) -> None:
    sentences = [" ".join(text.split()[40:70]) for text in (texts[0], texts[33])]
    (tmp_path / "test.txt").write_text("".join(f"{sentence}\n" for sentence in sentences))
    command = ("--input", corpus, *UNIT, *switches, "--exclude", tmp_path / "test.txt")
    assert direct(*command).code == 0
    offset = sum(len(json.dumps({"text": text})) + 1 for text in texts[:33])
    assert excluded_of(tmp_path / "out") == [
        {"source": f"a.jsonl:{place}", "id": text_id(text.encode()), "text": sentence}
        for place, text, sentence in zip((0, offset), (texts[0], texts[33]), sentences, strict=True)
    ]
    finished = tree(tmp_path / "out")
    for lost in sorted((tmp_path / "out" / "_excluded").iterdir()):
        lost.unlink()
        assert direct(*command).code == 0
        assert tree(tmp_path / "out") == finished
    (tmp_path / "out" / "_excluded" / files.temporary_name("00000.jsonl.zst")).touch()
    assert direct(*command).code == 0
    assert tree(tmp_path / "out") == finished


@pytest.mark.parametrize("switches", [("--no-split", "--text-per", "line"), ("--pack", "100")])
def test_sentences_and_pieces_that_went_are_written_down(direct, wiki: Path, tmp_path: Path, switches: tuple) -> None:
    lines = wiki.read_text(encoding="utf-8").splitlines()
    long = [line for line in lines[100:] if len(line.split()) > 12][:20]
    (tmp_path / "test.txt").write_text("\n".join(long))
    assert direct("sentences", "--input", wiki, "--exclude", tmp_path / "test.txt", *switches).code == 0
    found = excluded_of(tmp_path / "out")
    assert len(found) == Dataset(tmp_path / "out").manifest.counts["filtered"]["excluded"] > 0
    assert {line["text"] for line in found} <= {line.strip()[:300] for line in long}
    kept = {row["id"] for batch in Dataset(tmp_path / "out") for row in batch.to_pylist()}
    assert not kept & {line["id"] for line in found}
    if "--pack" not in switches:
        assert {text_id(normalize(line).encode()) for line in long} <= {line["id"] for line in found}
        assert {line["source"].split(":")[0] for line in found} == {"wiki.txt"}


def test_the_excluded_texts_lie_beside_the_shards(direct, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "test.txt").write_text(f"{SICK}\n...\ntoo short\nA man is playing a guitar.\n")
    assert direct("--input", corpus, *UNIT, "--exclude", tmp_path / "test.txt").code == 0
    lines = Dataset(tmp_path / "out").read_file("excluded.jsonl").splitlines()
    assert list(map(json.loads, lines)) == [SICK, "too short", "A man is playing a guitar."]


@pytest.mark.slow
def test_documents_that_hold_excluded_texts_are_counted(direct, corpus: Path, texts: list[str], tmp_path: Path) -> None:
    sentence = " ".join(texts[0].split()[40:52])
    (tmp_path / "test.txt").write_text(f"{sentence}\n...\n")
    arguments = ("--input", corpus, *UNIT, "--exclude", tmp_path / "test.txt")
    outcome = direct(*arguments)
    assert outcome.code == 0
    assert "2 texts excluded; 1 without words" in outcome.out
    found = Dataset(tmp_path / "out")
    assert found.manifest.counts["filtered"]["excluded"] == 1
    assert text_id(texts[0].encode()) not in {row["id"] for batch in found for row in batch.to_pylist()}
    (tmp_path / "test.txt").write_text("other words altogether\n")
    assert "options.exclude.sha256" in direct(*arguments).err
    missing = direct(*arguments, "--exclude", tmp_path / "absent.txt")
    assert (missing.code, missing.err.count("\n")) == (1, 1)
    assert "--exclude" in missing.err and "no such file" in missing.err
