"""Which delimiter a table has, and whether its quotes enclose cells: the rule, on small tables."""

import csv
import itertools
from collections.abc import Callable

import pytest

from clearspan.common import delimited
from clearspan.common.delimited import TABS, are_quotes, form_of, quoted

HEAD = "id\ttext\n"
YES = '1\t"a ""word"""\n'  # only a writer doubles quotes
NO = '2\t"What is it?" he said.\n'
EITHER = '3\t"All."\n'


@pytest.mark.guarantee("quotes-in-tables")
@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], False),
        (["1\tplain\n"], False),
        ([YES], True),
        ([NO], False),
        ([EITHER], False),
        ([YES, NO], False),
        ([NO, YES], False),
        ([YES, YES, NO], True),
        ([NO, YES, YES], True),
        ([YES, NO, NO], False),
        ([YES, EITHER, EITHER], True),
        ([NO, EITHER, EITHER], False),
        (['1\t"a\ttab"\n'], True),
        (['1\t"two\nlines"\n'], True),
        (['1\t"two\r\nlines"\r\n'], True),
        (['1\t"two\n"\n'], True),
        (['1\t"two\n\n\nlines"'], True),
        (['1\t"two\nlines" and more\n'], False),
        (['1\t"two\nlines\n'], False),
        (['1\t"two\nlines\n', YES], False),
        (['1\t"Quite.\n', "2\tQuite so.\n"], False),
        (['1\t"Quite.\n', YES], False),
        (['1\t"a\t""b""\nend"\n'], True),
        (['1\t"Quite.\n', YES, YES], True),
        (['1\t"Quite.\n', *['"a ""word"""\t1\n'] * 2], True),
        (['1\t"a ""word"""\t"b ""word"""\t"c" d\n'], True),
        (['1\t"a" b\t"c" d\t"e ""word"""\n'], False),
        (['1\t"a ""word""" b\n'], False),
        (['"1"\t"a ""word"""\n'], True),
        (['"a ""word"""\t1\n'], True),
        (['"What?" he said.\t1\n'], False),
        (['1\tan "odd" word\n'], False),
        (['1\ta"\tb"\n'], False),
        (['1\t"two\nlines"\t"a ""word"""\n', NO], True),
        (['1\t"two\nlines"\t"a" b\n'], False),
        (['1\t""\n'], False),
        (['1\t""""\n'], True),
        (['1\t"\n'], False),
        ([NO, '3\tat least 5"\t1\n'], False),  # no cell is open in the second line
        (['1\t"a" b\t"c" d\t"e"\n', YES], False),
    ],
)
def test_the_cells_that_begin_with_a_quote_decide_by_majority(rows: list[str], expected: bool) -> None:
    data = (HEAD + "".join(rows)).encode()
    for size in (1, 7, len(data)):
        assert are_quotes(data[at : at + size] for at in range(0, len(data), size)) == expected
    assert are_quotes([("\ufeff" + data.decode()).encode()]) == expected


@pytest.mark.guarantee("quotes-in-tables")
def test_an_empty_table_has_no_quotes() -> None:
    assert not are_quotes([]) and not are_quotes([b""])


@pytest.mark.guarantee("quotes-in-tables")
@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ('"id"\t"text"\n', True),
        ('"id"\t"text"\r\n', True),
        ('"id"\t"text"', True),
        ('\ufeff"id"\t"text"\n', True),
        ('"a"\t"b"\t"c"\n', True),
        ('"text"\n', False),
        ('"id"\ttext\n', False),
        ('id\t"text"\n', False),
        ('"id"\t""\n', False),
        ('"id"\t"text" \n', False),
    ],
)
def test_a_header_whose_names_are_all_quoted_decides_alone(head: str, expected: bool) -> None:
    assert are_quotes([head.encode()]) == expected
    assert are_quotes([(head + "1\tplain\n" if head.endswith("\n") else head).encode()]) == expected
    if expected and head.endswith("\n"):
        assert are_quotes([(head + NO * 3).encode()])
    assert not are_quotes([f"id\ttext\n{head}{NO}".encode()])  # only the first line is a header


@pytest.mark.guarantee("quotes-in-tables")
def test_only_the_mark_at_the_start_of_a_file_is_left_out() -> None:
    row = ("\ufeff" + '"a ""word"""\t1\n').encode()
    assert are_quotes([row])
    assert not are_quotes([HEAD.encode(), row]) and not are_quotes([HEAD.encode() + row])


@pytest.mark.guarantee("quotes-in-tables")
@pytest.mark.parametrize(("size", "expected"), [(40, True), (41, False)])
def test_a_quote_that_is_closed_too_far_away_is_a_character(
    monkeypatch: pytest.MonkeyPatch, size: int, expected: bool
) -> None:
    monkeypatch.setattr(delimited, "CELL_BYTES", 41)
    rows = '1\t"' + "x" * 16 + "\n" + "y" * (size - 23) + '""\nend"\n'  # `size` bytes, and a line that ends the cell
    assert are_quotes([(HEAD + rows).encode()]) == expected
    parted = '1\t"' + "x" * 16 + "\n" + 'yyyyyy""\n' + "y" * (size - 32) + '""\nend"\n'  # in three lines
    assert are_quotes([(HEAD + parted).encode()]) == expected
    monkeypatch.setattr(delimited, "CELL_BYTES", 10**6)
    assert are_quotes([(HEAD + rows).encode()])


@pytest.mark.guarantee("quotes-in-tables")
def test_quotes_count_behind_many_megabytes_and_around_a_text_of_one() -> None:
    many = itertools.repeat(b"1\tOwls hunt at night.\n" * 50_000, 60)
    long = '2\t"' + 'Owls ""hoot"".\n' * 80_000 + '"\n'
    assert are_quotes(itertools.chain([HEAD.encode()], many, [long.encode()]))
    assert not are_quotes(itertools.chain([HEAD.encode(), YES.encode()], many, [NO.encode() * 2]))


def asked(answer: bool) -> tuple[list[bool], Callable[[], bool]]:
    """Return a list of the times that the quotes were asked about, and a function that answers."""
    times: list[bool] = []

    def answered() -> bool:
        times.append(answer)
        return answer

    return times, answered


@pytest.mark.guarantee("quotes-in-tables")
@pytest.mark.parametrize("answer", [True, False])
@pytest.mark.parametrize(
    ("head", "is_tsv", "delimiter"),
    [
        (["id,text\n", '1,"a, b"\n'], False, ","),
        (["id;text\n", "1;a, b\n", "2;c, d, e\n"], False, ";"),
        (["id|text\n", "1|a, b; c\n"], False, "|"),
        (["id\ttext\n", "1\ta, b; c\n"], False, "\t"),
        (["id\ttext\n", '1\t"a" b\n'], False, "\t"),
        (["text\n", "a; b\n", "c; d\n"], False, ","),
        (["text\n"], False, ","),
        ([], False, ","),
        (["a;b,c\n", "1;2,3\n", "4;5\n"], False, ";"),
        (["a,b;c\n", "1,2;3\n", "4,5\n"], False, ","),
        (["a,b;c\n", "1,2;3\n"], False, ","),
        (["id,text\n", "1,a\n"], True, "\t"),
        (["id\ttext\n", "1\ta\n"], True, "\t"),
        ([], True, "\t"),
        (["id\ttext, en\n", '1\t"Yes", he said.\n', '2\t"No" she said.\n'], False, "\t"),  # as characters
        (["id\ttext, en\n", '1\t"one, a\ttwo"\n', '2\t"a\tb"\n'], False, "\t"),  # only around cells
        (["sep=;\n", "a,b;c\n", "1,2;3\n"], False, ";"),
        (["sep=;\n", "a\tb;c\n"], True, ";"),
        (["sep=\t\n", "a,b\tc,d\n"], False, "\t"),
    ],
)
def test_the_delimiter_that_parts_most_rows_alike_is_taken_and_only_tabs_ask_for_quotes(
    head: list[str], is_tsv: bool, delimiter: str, answer: bool
) -> None:
    times, answered = asked(answer)
    form = form_of(head, is_tsv, answered)
    if delimiter == "\t":
        assert form == (quoted("\t") if answer else TABS) and times == [answer]
    else:
        assert form == quoted(delimiter) == {"delimiter": delimiter, "strict": True} and not times


@pytest.mark.guarantee("quotes-in-tables")
def test_quotes_enclose_cells_of_tables_with_any_delimiter_but_tabs() -> None:
    assert TABS == {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
    rows = ["id;text\n", '1;"a; b"\n', '2;"two\n', 'lines; of it"\n', "3;c\n", "4,d,e\n"]
    assert form_of(rows, False, lambda: False) == quoted(";")
