"""Excluded texts: none of a test set stays, in whatever form its file is, and nothing else is left out."""

import csv
import gzip
import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import PipelineError
from pipelines.kinds.text import meeting, text_id
from pipelines.text.exclude import Excluded, read_texts
from shards import Dataset

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
        ("The man slept.", "The man slept.", False),
        ("", "Anything at all.", False),
    ],
)
def test_a_text_is_met_by_eight_words_in_a_row_or_as_a_whole_sentence(excluded: str, text: str, met: bool) -> None:
    assert Excluded.of([excluded]).meets(text) is met


def test_a_short_text_of_several_sentences_is_met_as_a_line() -> None:
    excluded = Excluded.of(["Oct. 31: shares fall"])
    assert excluded.meets("First of all.\nOct. 31: shares fall\nLater more.")
    assert not excluded.meets("Oct. 31: shares fall again")


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
    excluded = Excluded.from_bytes(Excluded.of(texts, among_sentences=True).to_bytes())
    assert meeting(["Nobody looks.", text], excluded) == [1] * as_sentence


def words_of(text: str) -> list[str]:
    return re.sub(r"[\W_]+", " ", text.lower()).split()


@given(st.lists(st.sampled_from(["a", "b", "Ä", "日本", "c3", ",", "."]), max_size=40), st.integers(0, 30))
@settings(max_examples=300, deadline=None)
def test_hashes_meet_exactly_where_words_do(words: list[str], start: int) -> None:
    text, planted = " ".join(words), " ".join(["a b", *words[start : start + 9], "a"])
    if len(words_of(planted)) < 8:
        return
    grams = [tuple(words_of(text)[at : at + 8]) for at in range(max(0, len(words_of(text)) - 7))]
    wanted = {tuple(words_of(planted)[at : at + 8]) for at in range(len(words_of(planted)) - 7)}
    assert Excluded.of([planted]).meets(text) is bool(wanted & set(grams))


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
    same = Excluded.from_bytes(excluded.to_bytes())
    assert same.options() == excluded.options()
    assert same.options()["texts"] == 4000


def test_excluded_texts_are_read_as_test_sets_are_written(tmp_path: Path) -> None:
    (tmp_path / "sts.txt").write_text("3.5\tA cat sits.\tA dog runs.\n\n")
    (tmp_path / "stsb.csv").write_text('"One, two",three\n')
    (tmp_path / "snli.jsonl").write_text('{"sentence1": "A man.", "label": 3}\n')
    (tmp_path / "mr.txt").write_bytes("naïve film .\n".encode("latin-1"))
    names = ("sts.txt", "stsb.csv", "snli.jsonl", "mr.txt")
    assert list(read_texts([str(tmp_path / name) for name in names])) == [
        *("3.5", "A cat sits.", "A dog runs.", '"One, two",three', "One, two", "three", "A man.", "na\ufffdve film ."),
    ]


@pytest.mark.parametrize("delimiter", ["\t", ",", ";", "|"])
@pytest.mark.parametrize("name", ["sts-test.csv", "STS-TEST.CSV", "sts.csv.gz", "sts.tsv", "sts.txt", "old-mac.csv"])
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


def test_one_json_array_in_a_text_counts_by_its_strings(tmp_path: Path) -> None:
    (tmp_path / "test.txt").write_text('["A small cat sat.", "The dogs run fast."]\n')
    excluded = Excluded.of(read_texts([str(tmp_path / "test.txt")]))
    assert excluded.meets("A small cat sat.") and excluded.meets("The dogs run fast.")


def test_json_lines_of_any_value_count(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text('["A small cat sat.", "The dogs run fast.", NaN]\n"A man."\n3\nno JSON\n')
    assert list(read_texts([str(tmp_path / "pairs.jsonl")])) == [
        *("A small cat sat.", "The dogs run fast.", "A man.", "no JSON\n"),
    ]


def test_a_sentence_a_line_with_a_comma_in_each_is_met(tmp_path: Path) -> None:
    (tmp_path / "lines.csv").write_text("It was late, nobody was there\nHe came home, and he slept very well\n")
    excluded = Excluded.of(read_texts([str(tmp_path / "lines.csv")]))
    assert excluded.meets("Then: It was late, nobody was there.\nHe came home, and he slept very well.\n")
    assert excluded.meets("So he came home and he slept very well then.")


@pytest.mark.parametrize("name", ["list.txt", "list.csv", "list.jsonl"])
def test_a_hole_in_a_list_is_damage(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"A man is playing a guitar.\n" + bytes(5000))
    with pytest.raises(PipelineError, match=rf"{name}: (damaged .*512 zero bytes in a row at byte 27|binary)"):
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


def test_that_all_is_excluded_is_said_and_no_other_mend(direct, corpus: Path, tmp_path: Path) -> None:
    outcome = direct("--input", corpus, *UNIT, "--exclude", corpus)
    assert outcome.code == 1
    assert "hold a text of --exclude" in outcome.err and "lower --min-tokens" not in outcome.err


def test_that_all_are_too_long_is_said_and_no_other_mend(direct, corpus: Path) -> None:
    outcome = direct("--input", corpus, "--min-tokens", "2", "--max-tokens", "3")
    assert outcome.code == 1
    assert "has 2 to 3 tokens" in outcome.err and "have more: change --min-tokens or --max-tokens" in outcome.err


def test_documents_that_hold_excluded_texts_are_counted(direct, corpus: Path, texts: list[str], tmp_path: Path) -> None:
    sentence = " ".join(texts[0].split()[40:52])
    (tmp_path / "test.txt").write_text(f"{sentence}\nshort one\n")
    arguments = ("--input", corpus, *UNIT, "--exclude", tmp_path / "test.txt")
    outcome = direct(*arguments)
    assert outcome.code == 0
    assert "2 texts excluded; 1 too short to look for" in outcome.out
    found = Dataset(tmp_path / "out")
    assert found.manifest.counts["filtered"]["excluded"] == 1
    assert text_id(texts[0].encode()) not in {row["id"] for batch in found for row in batch.to_pylist()}
    (tmp_path / "test.txt").write_text("other words altogether\n")
    assert "options.exclude.sha256" in direct(*arguments).err
    missing = direct(*arguments, "--exclude", tmp_path / "absent.txt")
    assert (missing.code, missing.err.count("\n")) == (1, 1)
    assert "--exclude" in missing.err and "no such file" in missing.err
