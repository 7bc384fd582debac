"""Tables of text (csv, tsv): one record a row (`columns`), numbered as in parquet, blank lines not counted.

    head -> what parts the cells, whether quotes do -> the header's names -> rows, each parsed by itself

As RFC 4180 has it, a cell in quotes may hold line ends, so a file is never cut. In .csv the head tells what parts the
cells: , ; | or a tab. Between tabs a quote is a character like any other, as GLUE and SNLI have it, unless the head has
cells that only quoting explains. A row that has not as many cells as the header is bad; a quote that is not closed ends
the run, for it is unknown what it swallowed.
"""

import csv
import dataclasses
import io
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.readers.columns import row_columns, text_column
from clearspan.pipelines.readers.sniff import LOOK_BYTES, suffixes_of
from clearspan.pipelines.readers.streams import BOM, BUFFER_BYTES, check_holes
from clearspan.pipelines.records import HEAD_BYTES, Piece, Reading, Record

NAME_WORDS = 3
"""A name of a column with more words is taken for a text."""


def read(stream: BinaryIO, piece: Piece, reading: Reading) -> Iterator[Record]:
    """The file's rows."""
    return records(stream, piece.input.name, reading)


def records(stream: BinaryIO, name: str, reading: Reading) -> Iterator[Record]:
    """The rows of a stream of this name.

    Raises:
        PipelineError: its columns are not those that are wanted, or a quote is not closed.
        DamagedError: there is a hole in it.
    """
    lines = _Lines(stream)
    form = form_of(lines.head, name)
    head = _head_rows(lines.head, form)
    rows = _rows(lines, name, form, reading.max_bytes)
    if not head:
        yield from (Record(name, None, None, row.raw, row.problem) for row in rows)
        return
    names = [str(number) for number in range(1, len(head[0]) + 1)]
    if reading.header:
        first = next(rows)
        if first.problem:
            raise PipelineError(f"{name}: its header is not readable ({first.problem}): mend its first line")
        names, head = first.cells, head[1:]
    if reading.columns:
        columns = row_columns(names, name, reading.columns)
        if reading.header and tuple(columns) not in reading.columns:
            _check_names(columns, name, "--columns")
    else:
        texts = [name for index, name in enumerate(names) if _is_text(head, index)]
        columns = [text_column(names, texts, name, reading.field)]
        if reading.field is None and reading.header:
            _check_names(columns, name, "--text-field")
    places = [names.index(column) for column in columns]
    for number, row in enumerate(rows):
        problem = row.problem
        if not problem and len(row.cells) != len(names):
            problem = f"{len(row.cells):,} cells in a row, of {len(names):,} columns"
        if problem:
            yield Record(name, number, None, row.raw, problem)
        elif reading.columns:
            yield Record(name, number, {names[place]: row.cells[place] for place in places}, row.raw)
        else:
            yield Record(name, number, row.cells[places[0]], row.raw)


def _check_names(columns: Sequence[str], name: str, option: str) -> None:
    """Raises PipelineError where a header's names, which nobody has named, look like the first of the texts."""
    for column in columns:
        if len(column.split()) > NAME_WORDS:
            raise PipelineError(
                f'{name}: its first line ("{column[:40]}...") looks like a text, not like columns\' names: say '
                f"--no-header if it is one, or name {'the columns' if option == '--columns' else 'the column'} with "
                f"{option}"
            )


class _Lines:
    """A stream by lines, whose head is known beforehand."""

    def __init__(self, stream: BinaryIO) -> None:
        self.head = stream.read(LOOK_BYTES)
        self._rest, self._stream = io.BytesIO(self.head), stream

    def readline(self, size: int) -> bytes:
        line = self._rest.readline(size)
        if line.endswith(b"\n") or len(line) == size:
            return line
        return line + self._stream.readline(size - len(line))


@dataclasses.dataclass(frozen=True)
class Form:
    """What parts a table's cells, and whether a quote encloses one."""

    delimiter: str
    quoted: bool

    def parse(self, lines: Iterator[str]) -> list[str] | None:
        """The cells of the row that begins with the first line; None where there is none.

        Raises:
            csv.Error: it is not written as the form has it.
        """
        if self.quoted:
            return next(csv.reader(lines, delimiter=self.delimiter, strict=True), None)
        return next(csv.reader(lines, delimiter=self.delimiter, quoting=csv.QUOTE_NONE), None)


def form_of(head: bytes, name: str) -> Form:
    """What a table that begins so has between its cells: of .tsv a tab, otherwise what gives most rows as many as the
    first, and more than one.
    """

    def agreeing(form: Form) -> int:
        widths = [len(row) for row in _head_rows(head, form)]
        return widths.count(widths[0]) if widths and widths[0] > 1 else 0

    if ".tsv" not in suffixes_of(name):
        return max((*(Form(delimiter, True) for delimiter in ",;|"), _tabs(head)), key=agreeing)
    return _tabs(head)


def _tabs(head: bytes) -> Form:
    """Cells between tabs, in quotes if these explain the head: all rows then have equally many cells, which they have
    not otherwise, or a quote is doubled within quotes.
    """
    plain, quoted = Form("\t", False), Form("\t", True)
    literal, unquoted = _head_rows(head, plain), _head_rows(head, quoted)
    if len({len(row) for row in unquoted}) != 1 or not _is_whole(head, quoted):
        return plain
    doubled = any(cell[:1] == cell[-1:] == '"' and '""' in cell[1:-1] for row in literal for cell in row)
    return quoted if doubled or len({len(row) for row in literal}) > 1 else plain


def _head_lines(head: bytes) -> list[str]:
    """A head's whole lines, or what there is of its only one."""
    lines = [line.decode("utf-8", "replace") for line in io.BytesIO(head.removeprefix(BOM))]
    return lines[:-1] if len(head) == LOOK_BYTES and len(lines) > 1 else lines


def _head_rows(head: bytes, form: Form) -> list[list[str]]:
    """The rows of a head that can be read, but blank ones."""
    lines = iter(_head_lines(head))
    rows: list[list[str]] = []
    while True:
        try:
            row = form.parse(lines)
        except csv.Error:
            continue
        if row is None:
            return rows
        if row:
            rows.append(row)


def _is_whole(head: bytes, form: Form) -> bool:
    """Whether all of a head is written as the form has it, up to a row that goes on after it."""
    lines = iter(_head_lines(head))
    try:
        while form.parse(lines) is not None:
            pass
    except csv.Error:
        return len(head) == LOOK_BYTES and next(lines, None) is None
    return True


def _is_text(rows: list[list[str]], index: int) -> bool:
    """Whether a column of the head holds what is no number."""
    return any(_is_word(row[index]) for row in rows if len(row) > index)


def _is_word(cell: str) -> bool:
    try:
        float(cell or 0)
    except ValueError:
        return True
    return False


@dataclasses.dataclass(frozen=True)
class _Row:
    """A row's cells, the head of its bytes, and what is wrong with it."""

    cells: list[str]
    raw: bytes
    problem: str = ""


class _LongError(Exception):
    """A line has more bytes than a record may."""


class _Source:
    """The lines of one row: as many as its quotes take."""

    def __init__(self, lines: _Lines, max_bytes: int, offset: int) -> None:
        self.lines, self.max_bytes, self.offset = lines, max_bytes, offset
        self.raw = b""
        self.size = self.num_lines = 0
        self.num_quotes = 0
        self.is_ended = False
        self.invalid: int | None = None

    def __iter__(self) -> Iterator[str]:
        while line := self.lines.readline(self.max_bytes + 1):
            check_holes(line, self.offset + self.size)
            start, self.size, self.num_lines = self.size, self.size + len(line), self.num_lines + 1
            self.raw = self.raw or line[:HEAD_BYTES]
            if self.size > self.max_bytes + 1 or (self.size > self.max_bytes and not line.endswith(b"\n")):
                self.num_quotes = line.count(b'"')
                raise _LongError
            if self.offset == start == 0:
                line = line.removeprefix(BOM)
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError as error:
                if self.invalid is None:
                    self.invalid = start + error.start
                yield line.decode("utf-8", "replace")
        self.is_ended = True

    def skip_line(self) -> bool:
        """Reads to the end of a line that is too long; whether a quote is still open there."""
        while part := self.lines.readline(BUFFER_BYTES):
            check_holes(part, self.offset + self.size)
            self.size += len(part)
            self.num_quotes += part.count(b'"')
            if part.endswith(b"\n"):
                break
        return self.num_quotes % 2 == 1


def _rows(lines: _Lines, name: str, form: Form, max_bytes: int) -> Iterator[_Row]:
    """The rows but blank ones, each parsed by itself, so that a bad one leaves the next as they are."""
    csv.field_size_limit(max(csv.field_size_limit(), max_bytes + 1))
    offset = num_lines = 0
    while True:
        source = _Source(lines, max_bytes, offset)
        unclosed = f"{name}: line {num_lines + 1:,}: in the row that begins there a quote is opened and not closed"
        cells: list[str] | None = []
        problem = ""
        try:
            cells = form.parse(iter(source))
        except _LongError:
            if source.num_lines > 1 or (source.skip_line() and form.quoted):
                raise PipelineError(
                    f"{unclosed} within {max_bytes:,} bytes: mend it, or raise --max-document-bytes"
                ) from None
            problem = f"longer than {max_bytes:,} bytes: {source.size:,}"
        except csv.Error as error:
            if source.is_ended or source.num_lines > 1:
                raise PipelineError(f"{unclosed} ({error}): mend it") from None
            problem = f"broken csv: {error}"
        if cells is None:
            return
        offset, num_lines = offset + source.size, num_lines + source.num_lines
        if not problem and source.invalid is not None:
            problem = f"invalid UTF-8 at byte {source.invalid} of the row"
        if cells or problem:
            yield _Row(cells, source.raw, problem)
