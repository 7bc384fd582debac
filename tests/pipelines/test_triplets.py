"""Triplets: rows become examples, NLI rows are paired, and each row is counted."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from clearspan.shards import Dataset, verify
from tests.pipelines.conftest import summary

Rows = list[tuple[str, ...]]
COLUMNS = ("tokens", "positive", "negative")


@pytest.fixture(scope="module")
def snli(shared_data: Path) -> Path:
    return shared_data / "nli" / "snli_triplets.csv"


@pytest.fixture(scope="module")
def rows(snli: Path) -> Rows:
    """Return the file's rows, read with Python's csv module."""
    with snli.open(encoding="utf-8", newline="") as lines:
        return [tuple(row) for row in list(csv.reader(lines))[1:]]


def as_csv(rows: Rows, header: tuple[str, ...] = ()) -> bytes:
    data = io.StringIO()
    csv.writer(data).writerows([header, *rows] if header else rows)
    return data.getvalue().encode()


@pytest.mark.exhaustive
def test_simcses_file_is_read_whole(direct, snli: Path, rows: Rows, decoded, tmp_path: Path) -> None:
    found = summary(direct("triplets", "--input", snli, "--json"))
    assert (found["read"], found["kept"], found["bad"]) == (5883, 5883, 0)
    assert decoded(tmp_path / "out") == rows
    assert verify(tmp_path / "out") == []


@pytest.mark.slow
def test_nli_rows_are_paired_as_in_simcses_file(direct, shared_data: Path, rows: Rows, decoded, tmp_path: Path) -> None:
    files = [shared_data / "nli" / f"snli_{part}.txt" for part in ("dev", "test")]
    lines = [line for file in files for line in file.read_text("utf-8").splitlines()]
    num_neutral = sum(line.endswith("\t1") for line in lines)
    found = summary(direct("triplets", "--nli", "--no-header", "--input", *files, "--json"))
    assert found["filtered"] == {
        "neutral": num_neutral,
        "unlabelled": 0,
        "negative": len(rows),
        "unpaired": len(lines) - num_neutral - 2 * len(rows),
        **dict.fromkeys(("empty", "short_tokens", "long_tokens"), 0),
    }
    assert decoded(tmp_path / "out") == rows


NLI = [
    ("A man eats.", "A person eats.", "entailment"),
    ("A dog runs.", "A cat runs.", "contradiction"),
    ("A man eats.", "He sleeps.", "contradiction"),
    ("A dog runs.", "It is brown.", "neutral"),
    ("A dog runs.", "Who knows?", "-"),
    ("A man eats.", "Nobody eats.", "contradiction"),
    ("A dog runs.", "An animal moves.", "entailment"),
    ("A bird.", "An animal.", "entailment"),
    ("A bird.", " ", "contradiction"),
]


def nli_jsonl(rows: Rows) -> bytes:
    names = ("sentence1", "sentence2", "gold_label")
    return b"".join(json.dumps({"pairID": "1", **dict(zip(names, row, strict=True))}).encode() + b"\n" for row in rows)


def nli_parquet(rows: Rows) -> bytes:
    labels = {"entailment": 0, "neutral": 1, "contradiction": 2, "-": -1}
    columns = [*zip(*rows, strict=True)]
    data = io.BytesIO()
    names = ["premise", "hypothesis", "label"]
    pq.write_table(pa.table([columns[0], columns[1], [labels[label] for label in columns[2]]], names), data)
    return data.getvalue()


def snli_txt(rows: Rows) -> bytes:
    """Write rows like SNLI's files, in which a quote is an ordinary character."""
    quoted = [f'"{row[1]}' if row[1].strip() else row[1] for row in rows]
    names = ("gold_label", "sentence1", "sentence2", "captionID")
    lines = [names, *((row[2], row[0], text, "7") for row, text in zip(rows, quoted, strict=True))]
    return "".join("\t".join(line) + "\n" for line in lines).encode()


@pytest.mark.guarantee("records-counted")
@pytest.mark.parametrize(
    ("name", "pack"), [("a.jsonl", nli_jsonl), ("a.parquet", nli_parquet), ("snli_1.0.txt", snli_txt)]
)
def test_premises_need_not_be_adjacent_and_no_file_is_cut(
    direct, decoded, tmp_path: Path, name: str, pack: Callable[[Rows], bytes]
) -> None:
    (tmp_path / name).write_bytes(pack(NLI))
    found = summary(direct("triplets", "--nli", "--input", tmp_path / name, "--unit-bytes", "60", "--json"))
    quote = '"' if pack is snli_txt else ""
    assert decoded(tmp_path / "out") == [
        ("A man eats.", f"{quote}A person eats.", f"{quote}He sleeps."),
        ("A dog runs.", f"{quote}An animal moves.", f"{quote}A cat runs."),
    ]
    reasons = {reason: number for reason, number in found["filtered"].items() if number}
    assert reasons == {"neutral": 1, "unlabelled": 1, "negative": 2, "empty": 1, "unpaired": 2}
    assert (found["read"], found["kept"]) == (9, 2)


@pytest.mark.parametrize("form", ["parquet", "tsv"])
def test_columns_are_named_in_order(direct, rows: Rows, decoded, tmp_path: Path, form: str) -> None:
    table = pa.table({"n": list(range(50)), "b": [r[1] for r in rows[:50]], "a": [r[0] for r in rows[:50]]})
    path = tmp_path / f"a.{form}"
    if form == "parquet":
        pq.write_table(table, path)
    else:
        path.write_text("".join("\t".join(map(str, row)) + "\n" for row in ["nba", *zip(*table.columns, strict=True)]))
    summary(direct("triplets", "--columns", "a,b", "--input", path, "--json"))
    assert decoded(tmp_path / "out") == [row[:2] for row in rows[:50]]


def test_a_longer_text_is_cut_if_wanted(direct, rows: Rows, roberta_tokenizer: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(as_csv(rows[:50], ("sent0", "sent1", "hard_neg")))
    words = ("triplets", "--input", tmp_path / "a.csv", "--max-tokens", "12", "--json")
    found = summary(direct(*words, "--long", "cut"))
    tokenizer = Tokenizer.from_file(str(roberta_tokenizer / "tokenizer.json"))
    ids = [[tokenizer.encode(text, add_special_tokens=False).ids for text in row] for row in rows[:50]]
    examples = [row for batch in Dataset(tmp_path / "out") for row in batch.to_pylist()]
    assert [[row[name] for name in COLUMNS] for row in examples] == [[text[:12] for text in row] for row in ids]
    num_cut = sum(any(len(text) > 12 for text in row) for row in ids)
    assert (found["kept"], found["sums"]) == (50, {"cut": num_cut}) and "long_tokens" not in found["filtered"]
    dropped = summary(direct(*words, "--output", tmp_path / "dropped"))
    assert dropped["filtered"]["long_tokens"] == num_cut > 0


def test_an_id_is_of_the_sentence_above_and_of_the_row_below(direct, rows: Rows, tmp_path: Path) -> None:
    first, second = rows[0], (rows[0][0], *rows[1][1:])
    (tmp_path / "a.csv").write_bytes(as_csv([first, second, rows[2], first], ("sent0", "sent1", "hard_neg")))
    found = summary(direct("triplets", "--dedup", "--input", tmp_path / "a.csv", "--json"))
    assert found["filtered"]["duplicate"] == 1
    ids = [row["id"] for batch in Dataset(tmp_path / "out") for row in batch.to_pylist()]
    assert ids[0] >> 32 == ids[1] >> 32 != ids[2] >> 32
    assert len({number & 0xFFFF_FFFF for number in ids}) == 3 and min(ids) >= 0


@pytest.mark.guarantee("excluded-texts")
def test_limits_and_excluded_texts_hold_for_every_text_of_a_row(direct, decoded, tmp_path: Path) -> None:
    rows: Rows = [
        ("A man is eating food.", "A man eats.", "Nobody is eating anything here."),
        ("A man is eating food.", "Yes", "Nobody is eating anything here."),
        ("A man is eating food.", "A man eats.", "word " * 30),
        ("A man is eating food.", "A man eats.", "the cat sat on a mat."),
        ("A man is eating food.", "  ", "Nobody is eating anything here."),
    ]
    (tmp_path / "a.csv").write_bytes(as_csv(rows, ("sent0", "sent1", "hard_neg")))
    (tmp_path / "test.txt").write_text("The cat sat on a mat.\n")
    limits = ("--min-tokens", "3", "--max-tokens", "20", "--exclude", tmp_path / "test.txt")
    found = summary(direct("triplets", *limits, "--input", tmp_path / "a.csv", "--json"))
    assert found["filtered"] == {"empty": 1, "short_tokens": 1, "long_tokens": 1, "excluded": 1}
    assert decoded(tmp_path / "out") == rows[:1]


@pytest.mark.guarantee("linked-rows")
@pytest.mark.slow
def test_no_text_of_a_held_out_row_is_in_a_row_to_train_on(direct, decoded, rows: Rows, tmp_path: Path) -> None:
    mirrored = [pair for one, other, _ in rows[:700] for pair in ((one, other), (other, one))]
    mirrored.sort(key=lambda pair: pair[1])
    (tmp_path / "a.csv").write_bytes(as_csv(mirrored, ("sent0", "sent1")))
    (tmp_path / "b.csv").write_bytes(as_csv([row[::2] for row in rows[:700]], ("sent0", "sent1")))
    files = ("--input", tmp_path / "a.csv", tmp_path / "b.csv", "--unit-bytes", "30000")
    found = summary(direct("triplets", *files, "--holdout-fraction", "0.1", "--json"))
    train, held = decoded(tmp_path / "out"), decoded(tmp_path / "out" / "validation")
    assert len(train) + len(held) == 2100 and found["filtered"]["held_out"] == len(held)
    assert 100 < len(held) < 300
    assert not {text for row in held for text in row} & {text for row in train for text in row}
    assert verify(tmp_path / "out") == verify(tmp_path / "out" / "validation") == []


@pytest.mark.parametrize(
    ("data", "words", "complaint"),
    [
        (
            b"a,b,c\n1,2,3\n",
            ("--columns", "a,d"),
            "no columns a,d; there are a, b, c: name them in order with --columns",
        ),
        (b"a,b,c,d\n1,2,3,4\n", (), "no columns sent0,sent1,hard_neg or sent0,sent1 or anchor,positive,negative or"),
        (b"a,b,c\nx,y,maybe\n", ("--nli",), 'the label "maybe" is not one of entailment, neutral'),
        (b"a,b,c\nx,y,0\n", ("--nli",), "none of 1 triplets is kept: 1 unpaired: a premise needs an entailed"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(
    direct, tmp_path: Path, data: bytes, words: tuple[str, ...], complaint: str
) -> None:
    (tmp_path / "a.csv").write_bytes(data)
    outcome = direct("triplets", *words, "--input", tmp_path / "a.csv")
    assert outcome.code == 1 and complaint in outcome.err and outcome.err.count("\n") == 1
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize("unit_bytes", ["1", "1000000"])
def test_files_with_and_without_negatives_are_two_datasets(direct, rows: Rows, tmp_path: Path, unit_bytes: str) -> None:
    (tmp_path / "a.csv").write_bytes(as_csv(rows[:9], ("sent0", "sent1", "hard_neg")))
    (tmp_path / "b.csv").write_bytes(as_csv([row[:2] for row in rows[:9]], ("sent0", "sent1")))
    outcome = direct("triplets", "--input", tmp_path / "[ab].csv", "--unit-bytes", unit_bytes)
    assert outcome.code == 1
    assert (
        "make a separate dataset for each" if unit_bytes == "1" else "b.csv:0: a row of 2 texts, after rows of 3"
    ) in outcome.err


@pytest.mark.parametrize("words", [("--columns", "a"), ("--columns", "a,a"), ("--columns", "a,b", "--nli")])
def test_columns_that_make_no_sense_are_refused(direct, snli: Path, words: tuple[str, ...]) -> None:
    outcome = direct("triplets", *words, "--input", snli)
    assert outcome.code == 2 and words[0] in outcome.err


@pytest.mark.parametrize("name", ["rows.tsv", "rows.jsonl"])
def test_labels_are_not_taken_for_negatives(direct, tmp_path: Path, rows: Rows, name: str) -> None:
    labelled = [(row[0], row[1], number % 3) for number, row in enumerate(rows[:30])]
    path = tmp_path / name
    if path.suffix == ".tsv":
        path.write_text("a\tb\tc\n" + "".join(f"{first}\t{second}\t{label}\n" for first, second, label in labelled))
    else:
        names = ("entailment", "neutral", "contradiction")
        lines = [json.dumps({"a": first, "b": second, "c": names[label]}) for first, second, label in labelled]
        path.write_text("\n".join(lines))
    done = direct("triplets", "--input", path)
    assert done.code == 1 and "are labels or numbers, not texts: add --nli if rows" in done.err


def test_rows_of_nli_without_the_switch_are_told_of_it(direct, tmp_path: Path) -> None:
    (tmp_path / "snli.jsonl").write_text(
        json.dumps({"sentence1": "a man eats", "sentence2": "he eats", "gold_label": "neutral", "pairID": "1"})
    )
    done = direct("triplets", "--input", tmp_path / "snli.jsonl")
    assert done.code == 1 and "gold_label, pairID: add --nli" in done.err


LISTS = [
    {
        "query": f"What is question {number}?",
        "pos": [f"Answer {number}.", f"Another answer {number}."][: 1 + number % 2],
        "neg": [f"A wrong answer {number}, {wrong}." for wrong in range(number % 5)],
    }
    for number in range(30)
]


def several(decode: Callable[[list[int]], str], folder: Path) -> list[dict[str, object]]:
    """The rows of a dataset as FlagEmbedding writes them."""
    found = []
    for batch in Dataset(folder):
        for row in batch.to_pylist():
            texts = {name: decode(ids) for name, ids in row.items() if name != "id" and ids}
            sorts = ([text for name, text in texts.items() if name.startswith(sort)] for sort in ("pos", "neg"))
            found.append(dict(zip(("query", "pos", "neg"), (texts["tokens"], *sorts), strict=True)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_lists_of_positives_and_negatives_are_read_and_what_is_beyond_is_counted(
    direct, roberta_tokenizer: Path, form: str, tmp_path: Path
) -> None:
    path = tmp_path / f"a.{form}"
    if form == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in LISTS))
    else:
        pq.write_table(pa.Table.from_pylist(LISTS), path)
    words = ["--max-positives", "2", "--max-negatives", "3", "--holdout-fraction", "0.2"]
    found = summary(direct("triplets", "--input", path, *words, "--json"))
    assert (found["read"], found["filtered"]["empty"], found["sums"]["beyond"]) == (30, 0, 6)
    decode = Tokenizer.from_file(str(roberta_tokenizer / "tokenizer.json")).decode
    parts = [several(decode, tmp_path / "out" / part) for part in ("", "validation")]
    expected = [{**row, "neg": row["neg"][:3]} for row in LISTS]
    assert all(parts) and sorted(map(str, [*parts[0], *parts[1]])) == sorted(map(str, expected))
    assert len(parts[1]) < 10  # rows that lack a text are not linked by it
    assert verify(tmp_path / "out") == verify(tmp_path / "out" / "validation") == []


@pytest.mark.slow
@pytest.mark.parametrize("named", [False, True])
def test_tuples_of_sentence_transformers_are_read_by_their_names(
    direct, roberta_tokenizer: Path, named: bool, tmp_path: Path
) -> None:
    header = ("anchor", "positive", "negative_1", "negative_2", "negative_3")
    cells = [(row["query"], row["pos"][0], *[*row["neg"], "", "", ""][:3]) for row in LISTS]
    (tmp_path / "a.csv").write_bytes(as_csv(cells, tuple("abcde") if named else header))
    words = ["--columns", "a,b,c,d,e"] if named else []
    ended = direct("triplets", "--input", tmp_path / "a.csv", *words)
    assert ended.code == 0, ended.err
    decode = Tokenizer.from_file(str(roberta_tokenizer / "tokenizer.json")).decode
    assert several(decode, tmp_path / "out") == [{**r, "pos": r["pos"][:1], "neg": r["neg"][:3]} for r in LISTS]


def test_a_list_longer_than_its_place_names_the_option(direct, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(LISTS[3]) + "\n")
    ended = direct("triplets", "--input", tmp_path / "a.jsonl")
    assert ended.code == 1
    assert "2 positives in a row, which has 1 column for them: keep some with --max-positives N" in ended.err
