"""The form of a csv or tsv table: its delimiter, and whether its cells may be quoted.

    .csv    the delimiter , ; | or tab that suits most rows; cells may be quoted (RFC 4180)
    .tsv    a tab; quotes enclose cells, or are plain characters as in GLUE, SNLI and SentEval: `are_quotes` decides

The rule for tab-separated files reads the whole file, since its beginning may have no quotes.
"""

import csv
import io
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

Form = Mapping[str, Any]
"""The options of `csv.reader`."""
TABS: Form = {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
TABLE_SUFFIXES = (".csv", ".tsv")
"""Extensions of tables of text, in lower case."""
DELIMITERS = ",;|"
CELL_BYTES = 1 << 24
"""A quote that is not closed within this many bytes is a plain character."""
_OPENING = re.compile(rb'(?:\A|\t)"')
_INSIDE = rb'[^"]*+(?:""[^"]*+)*+'
_CLOSED = re.compile(rb'(%b)"(?=[\t\r\n]|\Z)' % _INSIDE)
"""The rest of a quoted cell in a line, up to the quote that closes it."""
_GOES_ON = re.compile(rb"%b\Z" % _INSIDE)
"""The rest of a line in which a quoted cell is not closed."""
_NEEDED = re.compile(rb'["\t]')
"""Characters, other than line breaks, because of which a csv writer quotes a cell."""
_ALL_QUOTED = re.compile(rb'(?:"[^"\t\r\n]+"\t)+"[^"\t\r\n]+"\r?\n?\Z')
"""Pattern of a header whose names are all quoted, as by writers that quote every text."""


def quoted(delimiter: str) -> Form:
    """Return the form of a table whose cells may be quoted."""
    return {"delimiter": delimiter, "strict": True}


def parse(lines: Iterator[str], form: Form) -> list[str] | None:
    """Return the cells of the row that begins with the first line, or None if there are no lines.

    Raises:
        csv.Error: the row does not have this form.
    """
    return next(csv.reader(lines, **form), None)


def form_of(head: Sequence[str], is_tsv: bool, are_quotes: Callable[[], bool]) -> Form:
    """Infer the form of a table from its first lines.

    The form that suits most rows is chosen. It suits a row if the row has the same number of cells as the first row,
    and that number is at least two.

    Args:
        head: the first lines, complete.
        are_quotes: called for a tab-separated file; returns whether its quotes enclose cells.
    """

    def agreeing(form: Form) -> int:
        widths = [len(row) for row in readable_rows(head, form)]
        return widths.count(widths[0]) if widths and widths[0] > 1 else 0

    if is_tsv:
        return quoted("\t") if are_quotes() else TABS
    best = max((*map(quoted, DELIMITERS), TABS, quoted("\t")), key=agreeing)
    return best if best["delimiter"] != "\t" else quoted("\t") if are_quotes() else TABS


def readable_rows(head: Sequence[str], form: Form) -> list[list[str]]:
    """Return the rows of these lines that can be parsed in this form, without blank ones."""
    lines = iter(head)
    rows: list[list[str]] = []
    while True:
        try:
            row = parse(lines, form)
        except csv.Error:
            continue
        if row is None:
            return rows
        if row:
            rows.append(row)


def are_quotes(parts: Iterable[bytes]) -> bool:
    """Return whether the quotes of a tab-separated file enclose cells; otherwise they are plain characters.

    Quotes enclose cells if all names in the header are quoted, or if more cells are evidence for this than against it.
    Only cells that begin with a quote count. A cell is evidence for it if a closing quote ends the cell, every quote in
    between is doubled, and the content needs quotes: it holds a quote, a tab or a line break. A cell without such a
    closing quote is evidence against it.

    Args:
        parts: the whole file in UTF-8, in parts of any size; all of them are read.
    """
    needed = contradicted = size = 0  # size: bytes of an open cell
    are_all = False
    for number, line in enumerate(_lines_with_quotes(parts)):
        if number == 0:
            are_all = _ALL_QUOTED.match(line) is not None
        at = 0
        if size:
            closed = _CLOSED.match(line)
            if not closed and size + len(line) < CELL_BYTES and _GOES_ON.match(line):
                size += len(line)
                continue
            needed, contradicted = needed + bool(closed), contradicted + (not closed)
            at, size = closed.end() if closed else 0, 0
        while opening := _OPENING.search(line, at):
            at = opening.end()
            if closed := _CLOSED.match(line, at):
                needed += _NEEDED.search(closed[1]) is not None
                at = closed.end()
            elif _GOES_ON.match(line, at):
                size = len(line)
                break
            else:
                contradicted += 1
    return are_all or needed > contradicted + bool(size)


def _lines_with_quotes(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the first line of a text that comes in parts, and all later lines that contain a quote."""
    rest, is_first = b"", True
    for part in itertools.chain(parts, [b""]):
        data = rest + part
        end = data.rfind(b"\n") + 1 if part else len(data)
        whole, rest = data[:end], data[end:]
        if is_first and whole:
            whole = whole.removeprefix(b"\xef\xbb\xbf")
        elif b'"' not in whole:
            continue
        for line in io.BytesIO(whole):
            if is_first or b'"' in line:
                yield line
            is_first = False
