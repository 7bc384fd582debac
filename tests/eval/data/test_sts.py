"""SentEval's files of pairs as published; messages about malformed files name file and line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from clearspan.common.records import DataError
from clearspan.eval.data.sts_data import ScoredPairs, read_sick, read_sts_subset, read_stsb


def subset(folder: Path, sentences: bytes, gold: bytes) -> ScoredPairs:
    (folder / "STS.input.headlines.txt").write_bytes(sentences)
    (folder / "STS.gs.headlines.txt").write_bytes(gold)
    return read_sts_subset(folder, "headlines")


def test_pairs_without_a_gold_score_are_dropped(shared_data: Path) -> None:
    folder = shared_data / "senteval/downstream/STS/STS16-en-test"
    pairs = read_sts_subset(folder, "headlines")
    lines = (folder / "STS.input.headlines.txt").read_text("utf-8").split("\n")
    gold = (folder / "STS.gs.headlines.txt").read_text("utf-8").split("\n")
    kept = [(line, score) for line, score in zip(lines, gold, strict=True) if score]
    assert len(lines) > 1400
    assert len(pairs) == len(kept) == 249
    rebuilt = zip(pairs.left, pairs.right, pairs.gold, strict=True)
    assert [(f"{left}\t{right}", f"{score:g}") for left, right, score in rebuilt] == kept


@pytest.mark.published("senteval")
def test_stsb_and_sick_keep_every_row_and_its_case(shared_data: Path) -> None:
    downstream = shared_data / "senteval/downstream"
    stsb = read_stsb(downstream / "STS/STSBenchmark/sts-test.csv")
    assert (len(stsb), stsb.left[0], stsb.gold[0]) == (1379, "a girl is styling her hair .", 2.5)
    sick = read_sick(downstream / "SICK/SICK_test_annotated.txt")
    assert len(sick) == 4927
    assert sick.left[0] == "There is no boy playing outdoors and there is no man smiling"
    assert sick.gold[0] == 3.3
    assert not any("\r" in text for text in sick.left + sick.right)


def test_tokens_are_joined_by_single_spaces(tmp_path: Path) -> None:
    pairs = subset(tmp_path, b"a  cat \t the  cat\r\nx\ty\r\n", b"4.2\r\n1\r\n")
    assert (pairs.left, pairs.right, pairs.gold.tolist()) == (["a cat", "x"], ["the cat", "y"], [4.2, 1.0])


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    pairs = subset(tmp_path, "first\u2028half\tone\nnext\u0085line\ttwo\n".encode(), b"1\n2\n")
    assert pairs.right == ["one", "two"]


@pytest.mark.parametrize(
    ("sentences", "gold", "message"),
    [
        (b"a\tb\nno tab\n", b"1\n2\n", r"STS\.input\.headlines\.txt:2: .*TAB.*'no tab'"),
        (b"a\tb\nc\td\n", b"1\nhigh\n", r"STS\.gs\.headlines\.txt:2: .*number.*'high'"),
        (b"a\tb\nc\td\n", b"1\n", r"STS\.gs\.headlines\.txt: 1 lines for the 2 of STS\.input\.headlines\.txt"),
        (b"a\tb\nc\t\xff\n", b"1\n2\n", r"STS\.input\.headlines\.txt:2: not UTF-8 at byte 3"),
        (b"a\tb\n", b"\n", r"STS\.gs\.headlines\.txt: holds no scored pair"),
    ],
)
def test_a_malformed_subset_is_named_with_file_and_line(
    tmp_path: Path, sentences: bytes, gold: bytes, message: str
) -> None:
    with pytest.raises(DataError, match=message) as error:
        subset(tmp_path, sentences, gold)
    assert "\n" not in str(error.value)


HEADER = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        (read_stsb, "g\tf\ty\t1\t2.5\ta\tb\ng\tf\ty\t2\t3\n", r"table:2: expected 7 TAB-separated fields, found 5"),
        (read_stsb, "g\tf\ty\t1\tx\ta\tb\n", r"table:1: expected a number.*'x'"),
        (read_sick, "1\ta\tb\t3.3\tNEUTRAL\n", r"table:1: expected a header with a field relatedness_score"),
        (read_sick, HEADER + "1\ta\tb\n", r"table:2: expected 5 TAB-separated fields, found 3"),
        (read_sick, HEADER + "1\ta\tb\tinf\tNEUTRAL\n", r"table:2: expected a number"),
    ],
)
def test_a_malformed_table_is_named_with_file_and_line(
    tmp_path: Path, read: Callable[[Path], ScoredPairs], content: str, message: str
) -> None:
    (tmp_path / "table").write_text(content)
    with pytest.raises(DataError, match=message):
        read(tmp_path / "table")
