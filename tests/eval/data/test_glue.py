"""GLUE's files as downloaded; an error names the malformed line."""

from pathlib import Path

import pytest

from clearspan.common.records import DataError
from clearspan.eval.data.glue_data import LAYOUTS, read_glue


@pytest.mark.published("glue")
@pytest.mark.parametrize(
    ("task", "num_train", "num_dev"),
    [("RTE", 2490, 277), ("CoLA", 8551, 1043), ("MRPC", 3667, 408), ("STS-B", 5749, 1500)],
)
def test_a_task_has_the_rows_of_its_files(shared_data: Path, task: str, num_train: int, num_dev: int) -> None:
    layout = LAYOUTS[task]
    train, dev = (read_glue(shared_data / "glue" / task / f"{name}.tsv", layout) for name in ("train", "dev"))
    assert (len(train), len(dev)) == (num_train, num_dev)
    assert len(train.columns) == len(layout.texts)
    assert all(len(texts) == num_train for texts in train.columns)
    assert set(train.labels) == set(range(len(layout.classes))) or task == "STS-B"
    assert all(texts == [text.strip() for text in texts] and all(texts) for texts in dev.columns)


@pytest.mark.parametrize(
    ("task", "header", "row", "texts", "label"),
    [
        ("SST-2", "sentence\tlabel", "it 's a charming journey . \t1", ("it 's a charming journey . ",), 1),
        ("QNLI", "index\tquestion\tsentence\tlabel", "0\tWho ?\tHe .\tnot_entailment", ("Who ?", "He ."), 1),
        (
            "QQP",
            "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
            "1\t2\t3\tWhy ?\tHow ?\t0",
            ("Why ?", "How ?"),
            0,
        ),
        (
            "MNLI",
            "index\tpromptID\tpairID\tgenre\tsentence1\tsentence2\tlabel1\tgold_label",
            "0\t1\t1n\tfiction\tIt is.\tIt is not.\tneutral\tcontradiction",
            ("It is.", "It is not."),
            2,
        ),
    ],
)
def test_columns_are_found_by_name(
    tmp_path: Path, task: str, header: str, row: str, texts: tuple[str, ...], label: int
) -> None:
    (tmp_path / "dev.tsv").write_text(f"{header}\n{row}\n")
    split = read_glue(tmp_path / "dev.tsv", LAYOUTS[task])
    assert tuple(column[0] for column in split.columns) == texts
    assert split.labels.tolist() == [label]


def test_a_question_broken_over_two_lines_is_left_out_of_qqp_and_counted(tmp_path: Path) -> None:
    lines = [
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        "1\t2\t3\tWas he a real figure?\tWhat is the evidence",
        '"\tWas he a real figure? What is the evidence?\t0',
        "4\t5\t6\tWhy ?\tHow ?\t1",
    ]
    (tmp_path / "train.tsv").write_text("\n".join(lines) + "\n")
    split = read_glue(tmp_path / "train.tsv", LAYOUTS["QQP"])
    assert (split.columns, split.labels.tolist(), split.num_broken) == ((["Why ?"], ["How ?"]), [1.0], 2)


@pytest.mark.parametrize(
    ("task", "content", "message"),
    [
        ("RTE", "index\tsentence1\tlabel\n", r"dev\.tsv:1: .*sentence2"),
        ("RTE", "index\tsentence1\tsentence2\tlabel\n", r"dev\.tsv: holds no row"),
        ("RTE", "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\n", r"dev\.tsv:2: expected 4 fields, found 3"),
        ("RTE", "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\tyes\n", r"dev\.tsv:2: label must .*'yes'"),
        ("CoLA", "gj04\t1\t\tFine.\ngj04\t2\t*\tNot.\n", r"dev\.tsv:2: label must .*0, 1"),
        ("CoLA", "gj04\t1\tFine.\n", r":1: expected 4 fields, found 3"),
        ("STS-B", "sentence1\tsentence2\tscore\nA.\tB.\tnan\n", r"dev\.tsv:2: score must"),
        ("STS-B", "sentence1\tsentence2\tscore\nA.\tB.\t5.5\n", r"dev\.tsv:2: score must"),
    ],
)
def test_a_malformed_row_is_named_with_its_line(tmp_path: Path, task: str, content: str, message: str) -> None:
    (tmp_path / "dev.tsv").write_text(content)
    with pytest.raises(DataError, match=message) as error:
        read_glue(tmp_path / "dev.tsv", LAYOUTS[task])
    assert "\n" not in str(error.value)
