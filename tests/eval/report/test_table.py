"""Tables as text and HTML, and tables of several models as one."""

from pathlib import Path

import pytest

from clearspan.eval.details import Cell, Table, cell_text, merged
from clearspan.eval.report.html import Section, write_report
from clearspan.eval.report.text import text_table


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


def test_tables_of_several_models_are_one_with_a_row_of_each_in_turn() -> None:
    one, other = (Table(("text", "x"), [("a", value), ("b", value)], "q") for value in (1.0, 2.0))
    longer = Table(("text", "x"), [("c", 3.0), ("d", 3.0), ("e", 3.0)], "q")
    (table,) = merged({"one": [one], "other": [other], "longer": [longer]})
    assert (table.header, table.caption, table.names) == (("model", "text", "x"), "q", 2)
    assert [row[:2] for row in table.rows] == [
        ("one", "a"), ("other", "a"), ("longer", "c"), ("one", "b"), ("other", "b"), ("longer", "d"), ("longer", "e"),
    ]  # fmt: skip
    assert merged({"one": [one, longer]}) == [one, longer]


def test_tables_of_another_caption_or_header_stay_apart() -> None:
    tables = [Table(("text",), [("a",)], "q"), Table(("text",), [("b",)], "r"), Table(("other",), [("c",)], "q")]
    assert [table.rows for table in merged({"one": tables[:1], "two": tables[1:2], "three": tables[2:]})] == [
        [("one", "a")], [("two", "b")], [("three", "c")],
    ]  # fmt: skip


def test_columns_that_a_line_does_not_hold_follow_below_beside_the_names_of_their_rows() -> None:
    table = Table(("task", "first", "second"), [("STS12", Cell(1.0, "[0, 2]", strong=True), 22.5)])
    assert text_table(table) == ["task           first   second", "STS12   *1.00 [0, 2]    22.50"]
    assert text_table(table, notes=False) == ["task    first   second", "STS12   *1.00    22.50"]
    assert text_table(table, 20) == ["task           first", "STS12   *1.00 [0, 2]", "task    second", "STS12    22.50"]
    assert text_table(table, 1)[-1] == "STS12    22.50"
