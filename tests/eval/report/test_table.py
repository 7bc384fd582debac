"""Tables as text and HTML, and tables of several models side by side."""

from pathlib import Path

import pytest

from clearspan.eval.details import Cell, Table, cell_text
from clearspan.eval.report.html import Section, write_report
from clearspan.eval.report.side_by_side import side_by_side


def table_html(table: Table, heading: str, folder: Path) -> str:
    """Return the table's HTML in the report, in a section of this heading."""
    write_report(folder / "report.html", "", [Section(heading, tables=[table])])
    return (folder / "report.html").read_text("utf-8").split("<main>")[1]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (72.367, "72.37"),
        (float("nan"), "undefined"),
        (None, ""),
        (750, "750"),
        (Cell(72.367, "[70.1, 74.5]"), "72.37 [70.1, 74.5]"),
        (Cell(None), ""),
    ],
)
def test_a_value_is_shown_the_same_everywhere(value: object, shown: str) -> None:
    assert cell_text(value) == shown


def test_rows_and_columns_are_named_for_screen_readers(tmp_path: Path) -> None:
    shown = table_html(Table(("task", "metric", "x"), [("STS12", "all", 1.0)], names=2), "Scores", tmp_path)
    assert shown.count('scope="col"') == 3
    assert shown.count('scope="row"') == 2
    assert 'aria-label="Scores"' in shown
    assert "<caption>of 3 &lt;tasks&gt;</caption>" in table_html(
        Table(("a",), [("b",)], "of 3 <tasks>"), "Scores", tmp_path
    )


def test_a_table_of_numbers_alone_has_no_names_of_rows(tmp_path: Path) -> None:
    assert 'scope="row"' not in table_html(Table(("mrr", "recall"), [(1.0, 2.0)]), "s", tmp_path)


def test_the_best_stands_out_and_its_interval_is_small(tmp_path: Path) -> None:
    shown = table_html(Table(("task", "x"), [("STS12", Cell(72.0, "[70.0, 74.0]", strong=True))]), "s", tmp_path)
    assert "<b>72.00</b> <small>[70.0, 74.0]</small>" in shown


def test_a_groups_heading_stands_before_its_rows(tmp_path: Path) -> None:
    shown = table_html(
        Table(("task", "x"), [("MR", 1.0), ("CR", 2.0), ("STS12", 3.0)], groups={0: "A", 2: "B"}), "s", tmp_path
    )
    order = [shown.index(f">{word}<") for word in ("A", "MR", "CR", "B", "STS12")]
    assert order == sorted(order)
    assert shown.count("<tbody>") == shown.count("</tbody>") == 2


def subsets(*values: float) -> Table:
    return Table(("subset", "pairs", "Spearman"), [(f"s{i}", 750, value) for i, value in enumerate(values)])


def test_what_models_share_stands_once_and_what_differs_a_column_each() -> None:
    (table,) = side_by_side({"one": [subsets(1.0, 2.0)], "other": [subsets(1.0, 3.0)]})
    assert table.header == ["subset", "pairs", "one", "other"]
    assert table.rows == [("s0", 750, 1.0, 1.0), ("s1", 750, 2.0, 3.0)]
    assert table.caption == "Spearman"


def test_several_columns_that_differ_say_which_they_are() -> None:
    one, other = (Table(("rank", "text", "cosine"), [("#1", x, y)], "Query: bus") for x, y in (("a", 0.5), ("b", 0.25)))
    (table,) = side_by_side({"one": [one], "other": [other]})
    assert table.header == ["rank", "text, one", "text, other", "cosine, one", "cosine, other"]
    assert (table.rows, table.caption) == ([("#1", "a", "b", 0.5, 0.25)], "Query: bus")


def test_the_same_table_stands_once_undefined_values_and_all() -> None:
    (table,) = side_by_side({"one": [subsets(float("nan"))], "other": [subsets(float("nan"))]})
    assert table.header == ["subset", "pairs", "Spearman"]


def test_other_rows_follow_each_other_and_other_columns_stay_tables_of_their_own() -> None:
    (table,) = side_by_side({"one": [Table(("text",), [("a",)])], "other": [Table(("text",), [("b",), ("c",)])]})
    assert (table.header, table.rows) == (("model", "text"), [("one", "a"), ("other", "b"), ("other", "c")])
    tables = side_by_side({"one": [Table(("x",), [("a",)], "q")], "other": [Table(("y",), [("b",)], "q")]})
    assert [table.caption for table in tables] == ["q (one)", "q (other)"]


def test_captions_tell_which_tables_belong_together() -> None:
    tables = side_by_side(
        {"one": [subsets(1.0), Table(("a", "b"), [("x", 1)], "q")], "other": [Table(("a", "b"), [("x", 2)], "q")]}
    )
    assert [table.header for table in tables] == [("subset", "pairs", "Spearman"), ["a", "one", "other"]]
