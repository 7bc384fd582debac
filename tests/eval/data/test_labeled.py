"""SentEval's labeled files have the published numbers of rows; each malformed file has its message."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from clearspan.common.records import DataError, MissingDataError
from clearspan.eval.data.labeled import (
    read_mrpc,
    read_probing,
    read_sick_entailment,
    read_snli,
    read_sst,
    read_trec,
    read_two_classes,
)
from clearspan.eval.data.senteval import find_probing

REAL: list[tuple[Callable, tuple[str, ...], list[int]]] = [
    (read_two_classes, ("MR/rt-polarity.pos", "MR/rt-polarity.neg"), [5331, 5331]),
    (read_two_classes, ("SUBJ/subj.objective", "SUBJ/subj.subjective"), [5000, 5000]),
    (partial(read_sst, num_classes=2), ("SST/binary/sentiment-train",), [29780, 37569]),
    (partial(read_sst, num_classes=2), ("SST/binary/sentiment-dev",), [428, 444]),
    (partial(read_sst, num_classes=2), ("SST/binary/sentiment-test",), [912, 909]),
    (partial(read_sst, num_classes=5), ("SST/fine/sentiment-train",), [1092, 2218, 1624, 2322, 1288]),
    (read_trec, ("TREC/train_5500.label",), [86, 1162, 1250, 1223, 835, 896]),
    (read_trec, ("TREC/TREC_10.label",), [9, 138, 94, 65, 81, 113]),
    (read_mrpc, ("MRPC/msr_paraphrase_train.txt",), [1323, 2753]),
    (read_mrpc, ("MRPC/msr_paraphrase_test.txt",), [578, 1147]),
    (read_sick_entailment, ("SICK/SICK_train.txt",), [665, 2536, 1299]),
    (read_sick_entailment, ("SICK/SICK_trial.txt",), [74, 282, 144]),
    (read_sick_entailment, ("SICK/SICK_test_annotated.txt",), [720, 2793, 1414]),
]


@pytest.mark.published("senteval")
@pytest.mark.parametrize(("read", "files", "counts"), REAL, ids=[files[0] for _, files, _ in REAL])
def test_published_files_are_read_whole(
    shared_data: Path, read: Callable, files: tuple[str, ...], counts: list[int]
) -> None:
    data = read(*(shared_data / "senteval/downstream" / file for file in files))
    assert np.bincount(data.labels).tolist() == counts
    assert data.labels.dtype == np.int64


@pytest.mark.published("senteval")
@pytest.mark.parametrize(("split", "num"), [("dev", 9842), ("test", 9824)])
def test_snli_is_read_line_by_line(shared_data: Path, split: str, num: int) -> None:
    pairs = read_snli(shared_data / "senteval/downstream/SNLI", split)
    assert [len(pairs), *map(len, pairs.columns)] == [num] * 3
    if split == "dev":
        assert pairs.labels[:3].tolist() == [1, 0, 2]  # neutral, entailment, contradiction
        assert pairs.columns[1][0].startswith("The sisters")


def test_two_files_are_two_classes_the_positive_first(tmp_path: Path) -> None:
    (tmp_path / "custrev.pos").write_bytes(b"works  fine .\n\ncaf\xe9 mode \r\n")
    (tmp_path / "custrev.neg").write_bytes(b"broke\n")
    data = read_two_classes(tmp_path / "custrev.pos", tmp_path / "custrev.neg")
    assert data.columns[0] == ["works fine .", "", "café mode", "broke"]  # CR and MPQA have empty sentences
    assert data.labels.tolist() == [1, 1, 1, 0]


def test_snli_sentences_are_latin_1(tmp_path: Path) -> None:
    (tmp_path / "s1.train").write_bytes(b"A caf\xe9\nB \x85 b\n")
    (tmp_path / "s2.train").write_bytes(b"C\nD\n")
    (tmp_path / "labels.train").write_text("contradiction\nentailment\n")
    pairs = read_snli(tmp_path, "train")
    assert (pairs.columns, pairs.labels.tolist()) == ((["A café", "B b"], ["C", "D"]), [2, 0])


def test_probing_splits_by_line_and_orders_classes_by_name(tmp_path: Path) -> None:
    path = tmp_path / "past_present.txt"
    path.write_text("tr\tPRES\tHe  walks .\nva\tPAST\tHe walked .\ntr\tPAST\tShe ran .\nte\tPRES\tShe runs .\n")
    splits, classes = read_probing(path)
    assert classes == ("PAST", "PRES")
    assert {split: (data.columns[0], data.labels.tolist()) for split, data in splits.items()} == {
        "train": (["He walks .", "She ran ."], [1, 0]),
        "dev": (["He walked ."], [0]),
        "test": (["She runs ."], [1]),
    }


@pytest.mark.parametrize("inside", ["probing", "senteval/probing"])
def test_the_probing_folder_is_found_from_where_a_user_points(tmp_path: Path, inside: str) -> None:
    (tmp_path / inside).mkdir(parents=True)
    assert find_probing(tmp_path) == tmp_path / inside
    (tmp_path / inside / "tree_depth.txt").touch()
    assert find_probing(tmp_path / inside) == tmp_path / inside
    with pytest.raises(MissingDataError, match="neither probing/"):
        find_probing(Path("nowhere"))


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        (partial(read_sst, num_classes=2), "good\t1\nbad", r"table:2: expected a sentence, a TAB and its label"),
        (partial(read_sst, num_classes=5), "4 fine\n3\n", r"table:2: expected a label, a space and its sentence"),
        (read_trec, "NUM:dist How far ?\nNUM", r"table:2: expected COARSE:fine, a space and a question, found 'NUM'"),
        (read_mrpc, "1\t2\t3\ta\tb\n", r"table:1: expected a header with a field Quality"),
        (read_mrpc, "Quality\tx\n", r"table: holds no pair"),
        (read_mrpc, "Quality\tx\n1\t2\t3\ta\tb\n1\t2\t3\tcut", r"table:3: expected 5 TAB-separated fields, found 4"),
        (read_mrpc, "Quality\tx\nyes\t2\t3\ta\tb\n", r"table:2: expected one of 0, 1 as label, found 'yes'"),
        (read_probing, "tr\tA\tx\nxx\tA\ty\n", r"table:2: expected tr, va or te"),
        (read_probing, "tr\tA\tx\nva\tA\ty\n", r"table: holds no line of the split te; it may be truncated"),
        (read_probing, "tr\tA\tx\nva\tB\ty\nte\tA\tz\n", r"table:2: the label 'B' does not occur in the training"),
        (read_trec, "", r"table: is empty"),
    ],
)
def test_a_malformed_file_is_named_with_its_line(tmp_path: Path, read: Callable, content: str, message: str) -> None:
    (tmp_path / "table").write_text(content)
    with pytest.raises(DataError, match=message) as error:
        read(tmp_path / "table")
    assert "\n" not in str(error.value)


def test_snli_files_must_match_line_by_line(tmp_path: Path) -> None:
    for name, content in {"s1.dev": "a\nb\n", "s2.dev": "c\nd\n", "labels.dev": "neutral\n"}.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=r"labels\.dev: 1 lines for the 2 of s1\.dev"):
        read_snli(tmp_path, "dev")
    (tmp_path / "labels.dev").write_text("neutral\n-\n")
    with pytest.raises(DataError, match=r"labels\.dev:2: expected one of entailment, .* found '-'"):
        read_snli(tmp_path, "dev")
