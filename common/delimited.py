"""Dialect of a csv or tsv table: its delimiter, whether its cells may be quoted, and the lines before its rows.

    first lines, and the whole file if needed -> Dialect -> rows    (datasets, --exclude, queries, data of evaluation)

    .csv    the delimiter is the comma, semicolon, vertical bar or tab that splits most rows into as many cells as the
            first row; cells may be quoted (RFC 4180), except that a tab is treated as in a .tsv
    .tsv    the delimiter is a tab; `are_quotes` decides whether quotes enclose cells, or are plain characters as in
            GLUE, SNLI and SentEval

`are_quotes` reads the whole file, since the beginning of a file may have no quotes.
"""

import csv
import dataclasses
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
MAX_CELL_BYTES = 1 << 26
"""Longest cell of a table that is read, unless the caller raises the limit; Python's own limit is 128 KiB."""
csv.field_size_limit(max(csv.field_size_limit(), MAX_CELL_BYTES))
_OPENING = re.compile(rb'(?:\A|\t)"')
_INSIDE = rb'[^"]*+(?:""[^"]*+)*+'
_CLOSED = re.compile(rb'(%b)"(?=[\t\r\n]|\Z)' % _INSIDE)
"""The rest of a quoted cell in a line, up to the quote that closes it."""
_GOES_ON = re.compile(rb"%b\Z" % _INSIDE)
"""The rest of a line in which a quoted cell is not closed."""
_NEEDED = re.compile(rb'["\t]')
"""Characters, other than line breaks, because of which a csv writer quotes a cell."""
_DECLARATION = re.compile(r'\ufeff?(?P<quote>"?)sep=(?P<delimiter>[^\r\n"])(?P=quote)\r?\n?', re.IGNORECASE)
"""Pattern of a first line by which Excel knows the delimiter."""
_ALL_QUOTED = re.compile(rb'(?:"[^"\t\r\n]+"\t)+"[^"\t\r\n]+"\r?\n?\Z')
"""Pattern of a header whose names are all quoted, as by writers that quote every text."""


def quoted(delimiter: str) -> Form:
    """Return the options of `csv.reader` for a table whose cells may be quoted."""
    return {"delimiter": delimiter, "strict": True}


class RowError(ValueError):
    """A row of a table cannot be parsed. The message is the reason.

    Attributes:
        line: the number of the row's first line, from 1.
    """

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


@dataclasses.dataclass(frozen=True)
class Dialect:
    """The way in which the rows of a table of text are written.

    Attributes:
        form: options of `csv.reader`.
        num_declared: number of first lines that are no rows: 1 if the first line declares the delimiter for Excel.
    """

    form: Form
    num_declared: int = 0

    @classmethod
    def of(cls, head: Sequence[str], is_tsv: bool, parts: Callable[[], Iterable[bytes]]) -> "Dialect":
        """Infer the dialect of a table.

        Args:
            head: the first lines of the table, each with its line break.
            is_tsv: whether the delimiter is known to be a tab.
            parts: function that returns the whole file in UTF-8, in parts of any size. It is called only if the
                delimiter is a tab, to decide whether quotes enclose cells.
        """
        return cls(form_of(head, is_tsv, lambda: are_quotes(parts())), int(bool(declared_delimiter(head))))

    def first_rows(self, head: Sequence[str]) -> list[list[str]]:
        """Return the cells of the first rows that can be parsed and are not blank.

        Args:
            head: the first lines of the table, each with its line break.
        """
        return readable_rows(head[self.num_declared :], self.form)

    def rows(self, lines: Sequence[str], **options: Any) -> Iterator[tuple[int, list[str]]]:
        """Yield the number of the first line, from 1, and the cells of each row. A blank line is a row without cells.

        Args:
            lines: all lines of the table, each with its line break.
            options: further options of `csv.reader`.

        Raises:
            RowError: a row cannot be parsed.
        """
        rows = csv.reader(lines[self.num_declared :], **self.form, **options)
        number = first = self.num_declared + 1
        try:
            for cells in rows:
                yield number, cells
                number = first + rows.line_num
        except csv.Error as error:
            raise RowError(number, fault(error)) from None


def parse(lines: Iterator[str], form: Form) -> list[str] | None:
    """Read one row from an iterator of lines; return its cells, or None if no lines are left.

    Args:
        lines: the remaining lines of a table; a row takes several lines if a quoted cell holds line breaks.
        form: options of `csv.reader`.

    Raises:
        csv.Error: the row cannot be parsed with these options.
    """
    return next(csv.reader(lines, **form), None)


def fault(error: csv.Error) -> str:
    """Return the reason why a row cannot be parsed, from the error that `parse` raised."""
    return "a carriage return in a cell without quotes" if is_carriage_return(error) else str(error)


def is_carriage_return(error: csv.Error) -> bool:
    """Return whether a row cannot be parsed because a cell without quotes holds a carriage return."""
    return "new-line character" in str(error)


def form_of(head: Sequence[str], is_tsv: bool, are_quotes: Callable[[], bool]) -> Form:
    """Infer the options of `csv.reader` for a table from its first lines.

    If the first line declares the delimiter (`declared_delimiter`), it is this one. If the delimiter is not known, each
    delimiter is tried, and the delimiter that splits most rows into as many cells as the first row is chosen. A
    delimiter that does not occur in the first row is not considered. If none occurs there, the delimiter is a comma.

    Args:
        head: the first lines of the table, each with its line break.
        is_tsv: whether the delimiter is known to be a tab.
        are_quotes: function that returns whether quotes enclose cells, rather than being plain characters. It is called
            only if the delimiter is a tab; with any other delimiter, cells may be quoted.
    """

    def agreeing(form: Form) -> int:
        widths = [len(row) for row in readable_rows(head, form)]
        return widths.count(widths[0]) if widths and widths[0] > 1 else 0

    declared = declared_delimiter(head)
    if declared == "\t" or (is_tsv and not declared):
        return quoted("\t") if are_quotes() else TABS
    if declared:
        return quoted(declared)
    best = max((*map(quoted, DELIMITERS), TABS, quoted("\t")), key=agreeing)
    return best if best["delimiter"] != "\t" else quoted("\t") if are_quotes() else TABS


def declared_delimiter(head: Sequence[str]) -> str:
    """Return the delimiter that the first line of a table declares for Excel, as in `sep=;`; "" if it declares none.

    Such a line is no row of the table.

    Args:
        head: the first lines of the table.
    """
    declaration = _DECLARATION.fullmatch(head[0]) if head else None
    return declaration["delimiter"] if declaration else ""


def readable_rows(head: Sequence[str], form: Form) -> list[list[str]]:
    """Parse the first lines of a table into rows of cells, leaving out blank rows and rows that cannot be parsed.

    Args:
        head: the first lines of the table, each with its line break.
        form: options of `csv.reader`.
    """
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

    Quotes enclose cells if all names in the header are quoted. Otherwise, the cells that begin with a quote decide by
    majority; in a tie, quotes are plain characters:

        for enclosing   the cell ends with a closing quote, quotes inside are doubled, and the cell has to be quoted
                        since it holds a quote, a tab or a line break
        against         the cell does not end with a closing quote, or quotes inside are not doubled
        no vote         the cell ends with a closing quote, but need not be quoted

    Args:
        parts: the whole file in UTF-8, in parts of any size; all parts are read.
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
    """Yield the first line of a file in UTF-8, without its byte order mark, and every later line that holds a quote."""
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
