"""The papers' figures: spot checks against the papers, and the baselines in a report."""

from pathlib import Path

import pytest

from clearspan.eval.tables import published
from clearspan.eval.tables.__main__ import main
from clearspan.eval.tables.averages import AVERAGES, HALVES
from clearspan.eval.tables.published import tables

NAMES = [
    "clear-1", "clear-2", "clear-3",
    "declutr-1", "declutr-2", "declutr-3", "declutr-4",
    "declutr-v1-1", "declutr-v1-s1", "declutr-v1-s3", "declutr-v1-s4", "declutr-v1-s5", "declutr-v1-s6",
    "nonling-1", "nonling-2", "nonling-3", "nonling-4", "nonling-5", "nonling-6", "nonling-e1", "nonling-g1",
    "nonling-h1",
]  # fmt: skip


def test_every_result_table_of_the_four_papers_has_a_name() -> None:
    assert list(tables()) == NAMES


def test_another_paper_is_a_file_of_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "simcse.yaml").write_text(
        "paper: SimCSE (Gao et al., EMNLP 2021)\n"
        "simcse-5:\n"
        "  title: 'Table 5: STS, test sets'\n"
        "  decimals: 2\n"
        "  columns: [{head: STS12, of: STS12 spearman_all}]\n"
        "  rows: [{group: Unsupervised}, [SimCSE-BERT-base, 68.40]]\n"
    )
    monkeypatch.setattr(published, "_FOLDER", tmp_path)
    tables.cache_clear()
    try:
        assert main(["simcse-5"]) == 0
    finally:
        tables.cache_clear()
    assert "68.40" in capsys.readouterr().out


def test_figures_stand_where_the_papers_print_them() -> None:
    assert tables()["declutr-2"].cell("DeCLUTR-base", "MRPC") == (74.61, 82.65)
    assert tables()["declutr-2"].cell("QuickThoughts", "COCO") == 60.55
    assert tables()["declutr-3"].cell("DeCLUTR-small", "SOMO") == 61.27
    assert tables()["clear-1"].cell("MLM+del-span+reorder", "CoLA") == 64.3
    assert tables()["clear-2"].cell("MLM+subs+del-span-[CLS]", "STS16") == 65.6
    assert tables()["nonling-1"].cell("VisualCSE-BERT-base", "SICK-R") == 71.23
    assert tables()["nonling-3"].cell("SimCSE-RoBERTa-base", "p") == "<0.0001"
    assert tables()["nonling-5"].cell("VisualCSE", "Russian") == 77.48


def test_every_column_names_an_average_that_there_is_or_figures() -> None:
    for table in tables().values():
        heads = [column.head for column in table.columns]
        assert len(set(heads)) == len(heads), table.name
        for column in table.columns:
            assert column.average is None or column.average in {*AVERAGES, *HALVES}
            assert column.minus is None or isinstance(table.cell(column.minus[1], column.minus[0]), float)
            assert sum(map(bool, (column.of, column.average, column.minus, column.environment))) <= 1
