"""Tables of text (csv, tsv): one record per row (`columns`), numbered from 0, without blank lines.

    head -> delimiter, whether cells are quoted -> names in the header -> rows, each parsed by itself

A quoted cell may hold line breaks (RFC 4180), so that a file is never cut. The delimiter of a .csv file (, ; | or a
tab) is inferred from its head. In tab-separated files a quote is an ordinary character, as in GLUE and SNLI, unless the
head has cells that only quoting explains. A row with another number of cells than the header is bad. A quote that is
not closed ends the run, because it is unknown how many rows it swallowed.
"""

import csv
import dataclasses
import io
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.readers.columns import plain, row_columns, text_column
from clearspan.pipelines.readers.sniff import LOOK_BYTES, suffixes_of
from clearspan.pipelines.readers.streams import BOM, BUFFER_BYTES, check_holes
from clearspan.pipelines.records import HEAD_BYTES, Reading, Record

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
    for number, row in enumerate(rows):
        problem = row.problem
        if not problem and not names:
            raise PipelineError(f"{name}: its first rows are not readable, so its columns are unknown: mend them")
        if not problem and len(row.cells) != len(names):
            problem = f"{len(row.cells):,} cells in a row, of {len(names):,} columns"
        if problem:
            yield Record(name, number if names else None, None, row.raw, problem)
        elif reading.columns:
            yield Record(name, number, {names[place]: row.cells[place] for place in places}, row.raw)
        else:
            yield Record(name, number, row.cells[places[0]], row.raw)


def columns(stream: BinaryIO, name: str, reading: Reading) -> tuple[list[str], list[str]]:
    """Return the names of all columns, and of those that `records` reads; none if no row is readable."""
    _, names, read = _begun(stream, name, reading)
    return names, read


def _begun(stream: BinaryIO, name: str, reading: Reading) -> tuple[Iterator["_Row"], list[str], list[str]]:
    """Return the rows below the header, the names of all columns, and of those to read."""
    lines = _Lines(stream)
    form = form_of(lines, name)
    while not (head := _head_rows(lines, form)) and lines.look_further(reading.max_bytes):
        form = form_of(lines, name)
    rows = _rows(lines, name, form, reading.max_bytes)
    if not head:
        return rows, [], []
    names = [str(number) for number in range(1, len(head[0]) + 1)]
    if reading.header:
        first = next(rows)
        if first.problem:
            raise PipelineError(f"{name}: its header is not readable ({first.problem}): mend its first line")
        names, head = first.cells, head[1:]
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
                f"--no-header if it is a text, or name {'the columns' if option == '--columns' else 'the column'} with "
                f"{option}"
            )


class _Lines:
    """The lines of a stream whose head, bytes from which the columns are inferred, was read before."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._take(stream.read(LOOK_BYTES), LOOK_BYTES)

    def _take(self, data: bytes, size: int) -> None:
        self._data, self._rest = data, io.BytesIO(data)
        self.is_all = len(data) < size
        whole = data if self.is_all else data[: data.rfind(b"\n") + 1]
        self.head = [line.decode("utf-8", "replace") for line in io.BytesIO(whole.removeprefix(BOM))]
        """The complete lines of the head."""

    def look_further(self, max_bytes: int) -> bool:
        """Double the head, up to a row of the longest record; return whether there is more."""
        size = len(self._data)
        if self.is_all or size > max_bytes:
            return False
        self._take(self._data + self._stream.read(size), 2 * size)
        return True

    def readline(self, size: int) -> bytes:
        line = self._rest.readline(size)
        if line.endswith(b"\n") or len(line) == size:
            return line
        return line + self._stream.readline(size - len(line))


@dataclasses.dataclass(frozen=True)
class Form:
    """The delimiter of a table's cells, and whether cells may be quoted."""

    delimiter: str
    quoted: bool

    def parse(self, lines: Iterator[str]) -> list[str] | None:
        """Return the cells of the row that begins with the first line, or None if there are no lines.

        Raises:
            csv.Error: the row does not have this form.
        """
        if self.quoted:
            return next(csv.reader(lines, delimiter=self.delimiter, strict=True), None)
        return next(csv.reader(lines, delimiter=self.delimiter, quoting=csv.QUOTE_NONE), None)


def form_of(head: _Lines, name: str) -> Form:
    """Return the form of a table with this head: tabs for .tsv, otherwise the form that suits most rows.

    A form suits a row with as many cells as the first row, which must have more than one.
    """

    def agreeing(form: Form) -> int:
        widths = [len(row) for row in _head_rows(head, form)]
        return widths.count(widths[0]) if widths and widths[0] > 1 else 0

    if ".tsv" not in suffixes_of(name):
        return max((*(Form(delimiter, True) for delimiter in ",;|"), _tabs(head)), key=agreeing)
    return _tabs(head)


def _tabs(head: _Lines) -> Form:
    """Return the form of a tab-separated table, with quotes only if they explain the head.

    They do if all rows have equally many cells with quoting and not without, or if a quote is doubled within quotes.
    """
    plain, quoted = Form("\t", False), Form("\t", True)
    literal, unquoted = _head_rows(head, plain), _head_rows(head, quoted)
    if len({len(row) for row in unquoted}) != 1 or not _is_whole(head, quoted):
        return plain
    doubled = any(cell[:1] == cell[-1:] == '"' and '""' in cell[1:-1] for row in literal for cell in row)
    return quoted if doubled or len({len(row) for row in literal}) > 1 else plain


def _head_rows(head: _Lines, form: Form) -> list[list[str]]:
    """Return the readable rows of a head, without blank ones."""
    lines = iter(head.head)
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


def _is_whole(head: _Lines, form: Form) -> bool:
    """Return whether a whole head has this form, up to a row that continues behind it."""
    lines = iter(head.head)
    try:
        while form.parse(lines) is not None:
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


@dataclasses.dataclass(frozen=True)
class _Row:
    """A row: its cells, the head of its bytes, and its problem, if any."""

    cells: list[str]
    raw: bytes
    problem: str = ""


class _LongError(Exception):
    """A line is longer than a record may be."""


class _Source:
    """The lines of one row: more than one if a quoted cell has line breaks."""

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
        """Read to the end of a line that is too long; return whether a quote is still open there."""
        while part := self.lines.readline(BUFFER_BYTES):
            check_holes(part, self.offset + self.size)
            self.size += len(part)
            self.num_quotes += part.count(b'"')
            if part.endswith(b"\n"):
                break
        return self.num_quotes % 2 == 1


def _rows(lines: _Lines, name: str, form: Form, max_bytes: int) -> Iterator[_Row]:
    """Yield the rows that are not blank. Each is parsed by itself, so that a bad row does not affect the next."""
    csv.field_size_limit(max(csv.field_size_limit(), max_bytes + 1))
    offset = num_lines = 0
    while True:
        source = _Source(lines, max_bytes, offset)
        unclosed = f"{name}: line {num_lines + 1:,}: the row that begins there has a quote that is not closed"
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
