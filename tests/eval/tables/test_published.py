"""The papers' figures: spot checks against the papers, and the baselines in a report."""

from clearspan.eval.tables.averages import AVERAGES, HALVES
from clearspan.eval.tables.published import tables

NAMES = [
    "declutr-1", "declutr-2", "declutr-3", "declutr-4",
    "declutr-v1-1", "declutr-v1-s1", "declutr-v1-s3", "declutr-v1-s4", "declutr-v1-s5", "declutr-v1-s6",
    "clear-1", "clear-2", "clear-3",
    "nonling-1", "nonling-2", "nonling-3", "nonling-4", "nonling-5", "nonling-6", "nonling-e1", "nonling-g1",
    "nonling-h1",
]  # fmt: skip


def test_every_result_table_of_the_four_papers_has_a_name() -> None:
    assert list(tables()) == NAMES


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
