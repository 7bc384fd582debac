"""Tables of text (csv, tsv): one record per row (`columns`), numbered from 0, without blank lines.

    head -> delimiter, whether cells are quoted -> names in the header -> rows, each parsed by itself

A quoted cell may hold line breaks (RFC 4180), so that a file is never cut. The delimiter of a .csv file (, ; | or a
tab) is inferred from its head. In tab-separated files a quote is an ordinary character, as in GLUE and SNLI, unless the
head has cells that only quoting explains. A row with another number of cells than the header is bad. A quote that is
not closed ends the run, because it is unknown how many rows it swallowed.
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.readers.columns import plain, row_columns, text_column
from clearspan.pipelines.readers.streams import BOM, check_holes
from clearspan.pipelines.records import HEAD_BYTES, MAX_BYTES, Reading, Record
from clearspan.pipelines.suffixes import suffixes_of

Row = tuple[list[str], bytes, str]
"""A row: its cells, the head of its bytes, and its problem, if any."""
HEAD = 1 << 20
"""Bytes of a file from which its form and its columns are inferred."""
NAME_WORDS = 3
"""A column name of more words is taken for a text."""


def records(stream: BinaryIO, name: str, reading: Reading) -> Iterator[Record]:
    """Yield the rows of a stream; `name` names the stream.

    Raises:
        PipelineError: the columns are missing or ambiguous, or a quote is not closed.
        DamagedError: there is a hole in it.
    """
    rows, names, read = _begun(stream, name, reading)
    places = [names.index(column) for column in read]
    for number, (cells, raw, problem) in enumerate(rows):
        if not problem and not names:
            raise PipelineError(f"{name}: its first rows are not readable, so its columns are unknown: mend them")
        if not problem and len(cells) != len(names):
            problem = f"{len(cells):,} cells in a row, of {len(names):,} columns"
        if problem:
            yield Record(name, number if names else None, None, raw, problem)
        elif reading.columns:
            yield Record(name, number, {names[place]: cells[place] for place in places}, raw)
        else:
            yield Record(name, number, cells[places[0]], raw)


def _begun(stream: BinaryIO, name: str, reading: Reading) -> tuple[Iterator[Row], list[str], list[str]]:
    """Return the rows below the header, the names of all columns, and of those to read."""
    lines = _Lines(stream)
    form = form_of(lines, name)
    head = _head_rows(lines, form)
    rows = _rows(lines, name, form, reading.max_bytes)
    if not head:
        return rows, [], []
    names = [str(number) for number in range(1, len(head[0]) + 1)]
    if reading.header:
        names, _, problem = next(rows)
        if problem:
            raise PipelineError(
                f"{name}: its header is not readable ({problem}): mend its first line, or name the encoding of text "
                "that is not UTF-8, e.g. --encoding cp1252"
            )
        head = head[1:]
    if reading.columns:
        read = row_columns(names, name, reading)
        if reading.header and tuple(map(plain, read)) not in {tuple(map(plain, names)) for names in reading.columns}:
            _check_names(read, name, reading.option)
    else:
        texts = [name for index, name in enumerate(names) if _is_text(head, index)]
        read = [text_column(names, texts, name, reading.field)]
        if reading.field is None and reading.header:
            _check_names(read, name, "--text-field")
    return rows, names, read


def _check_names(columns: Sequence[str], name: str, option: str) -> None:
    """Raise PipelineError if a column name, which the user has not named, looks like a text."""
    for column in columns:
        if len(column.split()) > NAME_WORDS:
            raise PipelineError(
                f'{name}: its first line ("{column[:40]}...") looks like a text, not like a column name: add '
                f"--no-header if it is a text, or name it with {option}"
            )


class _Lines:
    """The lines of a stream whose head, from which the columns are inferred, was read before."""

    def __init__(self, stream: BinaryIO) -> None:
        data = stream.read(HEAD)
        self._stream, self._rest = stream, io.BytesIO(data)
        self.is_all = len(data) < HEAD
        whole = data if self.is_all else data[: data.rfind(b"\n") + 1]
        self.head = [line.decode("utf-8", "replace") for line in io.BytesIO(whole.removeprefix(BOM))]
        """The complete lines of the head."""

    def readline(self, size: int) -> bytes:
        line = self._rest.readline(size)
        if line.endswith(b"\n") or len(line) == size:
            return line
        return line + self._stream.readline(size - len(line))


Form = Mapping[str, Any]
"""The options of `csv.reader`: the delimiter of a table's cells, and whether cells may be quoted."""
TABS: Form = {"delimiter": "\t", "quoting": csv.QUOTE_NONE}


def _quoted(delimiter: str) -> Form:
    return {"delimiter": delimiter, "strict": True}


def _parse(lines: Iterator[str], form: Form) -> list[str] | None:
    """Return the cells of the row that begins with the first line, or None if there are no lines.

    Raises:
        csv.Error: the row does not have this form.
    """
    return next(csv.reader(lines, **form), None)


def form_of(head: _Lines, name: str) -> Form:
    """Return the form of a table with this head: tabs for .tsv, otherwise the form that suits most rows.

    A form suits a row with as many cells as the first row, which must have more than one.
    """

    def agreeing(form: Form) -> int:
        widths = [len(row) for row in _head_rows(head, form)]
        return widths.count(widths[0]) if widths and widths[0] > 1 else 0

    if ".tsv" not in suffixes_of(name):
        return max((*map(_quoted, ",;|"), _tabs(head)), key=agreeing)
    return _tabs(head)


def _tabs(head: _Lines) -> Form:
    """Return the form of a tab-separated table, with quotes only if they explain the head.

    They do if all rows have equally many cells with quoting and not without, or if a quote is doubled within quotes.
    """
    quoted = _quoted("\t")
    literal, unquoted = _head_rows(head, TABS), _head_rows(head, quoted)
    if len({len(row) for row in unquoted}) != 1 or not _is_whole(head, quoted):
        return TABS
    doubled = any(cell[:1] == cell[-1:] == '"' and '""' in cell[1:-1] for row in literal for cell in row)
    return quoted if doubled or len({len(row) for row in literal}) > 1 else TABS


def _head_rows(head: _Lines, form: Form) -> list[list[str]]:
    """Return the readable rows of a head, without blank ones."""
    lines = iter(head.head)
    rows: list[list[str]] = []
    while True:
        try:
            row = _parse(lines, form)
        except csv.Error:
            continue
        if row is None:
            return rows
        if row:
            rows.append(row)


def _is_whole(head: _Lines, form: Form) -> bool:
    """Return whether a whole head has this form, up to a row that continues behind it."""
    lines = iter(head.head)
    try:
        while _parse(lines, form) is not None:
            pass
    except csv.Error:
        return not head.is_all and next(lines, None) is None
    return True


def _is_text(rows: list[list[str]], index: int) -> bool:
    """Return whether a column of the head holds something other than numbers."""
    return any(_is_word(row[index]) for row in rows if len(row) > index)


def _is_word(cell: str) -> bool:
    try:
        float(cell or 0)
    except ValueError:
        return True
    return False


class _RowLines:
    """The lines of one row: more than one if a quoted cell has line breaks."""

    def __init__(self, lines: _Lines, name: str, max_bytes: int, offset: int) -> None:
        self.lines, self.name, self.max_bytes, self.offset = lines, name, max_bytes, offset
        self.raw = b""
        self.size = self.num_lines = 0
        self.is_ended = self.ends_line = False
        self.problem = ""

    def __iter__(self) -> Iterator[str]:
        while line := self.lines.readline(self.max_bytes + 2 - self.size):
            check_holes(line, self.offset + self.size)
            start, self.size, self.num_lines = self.size, self.size + len(line), self.num_lines + 1
            self.raw = self.raw or line[:HEAD_BYTES]
            self.ends_line = line.endswith(b"\n")
            if self.size > self.max_bytes + self.ends_line:
                raise PipelineError(
                    f"{self.name}: the row at byte {self.offset:,} is longer than {self.max_bytes:,} bytes, or has a "
                    "quote that is not closed: mend it, or raise --max-document-bytes"
                )
            if self.offset == start == 0:
                line = line.removeprefix(BOM)
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError as error:
                self.problem = self.problem or f"invalid UTF-8 at byte {start + error.start} of the row"
                yield line.decode("utf-8", "replace")
        self.is_ended = True


def _rows(lines: _Lines, name: str, form: Form, max_bytes: int) -> Iterator[Row]:
    """Yield the rows that are not blank. Each is parsed by itself, so that a bad row does not affect the next."""
    csv.field_size_limit(max(csv.field_size_limit(), max_bytes + 1, MAX_BYTES + 1))
    offset = num_lines = 0
    while True:
        row = _RowLines(lines, name, max(max_bytes, MAX_BYTES), offset)
        try:
            cells, problem = _parse(iter(row), form), row.problem
        except csv.Error as error:
            if row.is_ended or row.num_lines > 1:
                reason = "the row that begins there has a quote that is not closed"
                raise PipelineError(f"{name}: line {num_lines + 1:,}: {reason} ({error}): mend it") from None
            cells, problem = [], f"broken csv: {error}"
        if cells is None:
            return
        if row.size > max_bytes + row.ends_line:
            problem = f"longer than {max_bytes:,} bytes: {row.size:,}"
        offset, num_lines = offset + row.size, num_lines + row.num_lines
        if cells or problem:
            yield cells, row.raw, problem
