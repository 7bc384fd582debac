"""Tables of text (csv, tsv): one record per row. Rows are numbered from 0, and blank lines do not count.

    first MiB -> delimiter, whether cells are quoted -> names in the header -> rows, each parsed by itself

A quoted cell may hold line breaks (RFC 4180), so a file is never cut into splits. `common.delimited` infers the
delimiter from the first MiB of the file. For tab-separated files it also decides whether quotes are plain characters.
It does so from the whole file, which is therefore read twice. A row whose number of cells differs from the header's is
a bad record. A quote that is not closed ends the run with an error, because it is unknown how many rows follow within
the quote.
"""

import csv
import functools
import io
import tempfile
from collections.abc import Iterator, Sequence
from typing import BinaryIO, cast

from clearspan.common.delimited import (
    TABLE_SUFFIXES,
    Dialect,
    Form,
    fault,
    is_carriage_return,
    parse,
)
from clearspan.common.errors import PipelineError
from clearspan.common.line_ends import rows_end_with_cr, with_lf
from clearspan.common.parsing import normalized_name
from clearspan.pipelines.readers.columns import DEFAULT, kept_columns, row_columns, text_column
from clearspan.pipelines.readers.encodings import SPOOL_BYTES
from clearspan.pipelines.readers.formats import FirstBytes, Format
from clearspan.pipelines.readers.streams import BOM, buffered, check_holes
from clearspan.pipelines.records import HEAD_BYTES, MAX_BYTES, ReadOptions, Record, Split, invalid_utf8
from clearspan.pipelines.suffixes import suffixes_of

Row = tuple[list[str], bytes, str, bool]
"""A row of a table: its cells, its first bytes, its problem ("" if there is none), and whether it is not UTF-8."""
HEAD = 1 << 20
"""Number of bytes of a file from which its delimiter, quoting and columns are inferred."""
NAME_WORDS = 3
"""Maximum number of words of a column name. A longer cell in the header looks like a text."""


class TextTables(Format):
    """Format of tables of text: csv and tsv."""

    name = described = "csv"
    suffixes = TABLE_SUFFIXES
    is_text = has_fields = is_numbered = True

    def recognizes(self, head: FirstBytes, path: str) -> bool:
        return bool(set(self.suffixes) & set(suffixes_of(path)))

    def read(self, stream: BinaryIO, split: Split, reading: ReadOptions) -> Iterator[Record]:
        return records(stream, split.input.name, reading)


def records(stream: BinaryIO, name: str, reading: ReadOptions) -> Iterator[Record]:
    """Yield the rows of a table as records. The offset of a record is the row's number, from 0.

    Args:
        stream: the whole table, in UTF-8.
        name: name of the file, for the records.
        reading: rules that say which columns to read.

    Raises:
        PipelineError: the header cannot be read or looks like a text; the columns are missing or ambiguous; a quote is
            not closed; or a row is longer than both `reading.max_bytes` and 64 MB.
        DamagedFileError: there is a hole (a long run of zero bytes) in a row.
    """
    rows, names, read = _open_table(stream, name, reading)
    keys = dict(zip(read, read, strict=True)) if reading.columns else {}
    if reading.keep:
        keys = keys or (dict.fromkeys([reading.field or DEFAULT], read[0]) if read else {})
        keys |= kept_columns(names, name, reading)
    places = [names.index(column) for column in keys.values() or read]
    for row, (cells, raw, problem, is_not_utf8) in enumerate(rows):
        number = row + 1
        if not problem and not names:
            raise PipelineError(
                f"{name}: its first rows are not readable, so that its columns are not known: correct them"
            )
        if not problem and len(cells) != len(names):
            problem = f"{len(cells):,} cells in a row, of {len(names):,} columns"
        if problem:
            offset = row if names else None
            yield Record(name, offset, None, raw, problem, number=number, is_not_utf8=is_not_utf8)
        elif keys:
            value = {key: cells[place] for key, place in zip(keys, places, strict=True)}
            yield Record(name, row, value, raw, number=number)
        else:
            yield Record(name, row, cells[places[0]], raw, number=number)


def _open_table(stream: BinaryIO, name: str, reading: ReadOptions) -> tuple[Iterator[Row], list[str], list[str]]:
    """Return (the rows below the header, the names of all columns, the names of the columns to read).

    If no row can be parsed in the first MiB of the stream, the two lists of names are empty.

    Raises:
        PipelineError: the header cannot be read or looks like a text, or the columns are missing or ambiguous.
    """
    lines = _Lines(stream)
    dialect = Dialect.of(lines.head, ".tsv" in suffixes_of(name), lambda: lines.parts(reading.is_head))
    head = dialect.first_rows(lines.head)
    rows = _rows(lines, name, dialect.form, reading.max_bytes)
    for _ in range(dialect.num_declared):
        next(rows)
    if not head:
        return rows, [], []
    names = [str(number) for number in range(1, len(head[0]) + 1)]
    if reading.header:
        names, _, problem, _ = next(rows)
        if problem:
            raise PipelineError(
                f"{name}: its header is not readable ({problem}): correct the first line, or name the encoding of text "
                f"that is not UTF-8, e.g. `encoding` cp1252"
            )
        head = head[1:]
    if reading.columns:
        read = row_columns(names, name, reading)
        if reading.header and tuple(map(normalized_name, read)) not in {
            tuple(map(normalized_name, names)) for names in reading.columns
        }:
            _check_names(read, name, reading.option)
    else:
        texts = [name for index, name in enumerate(names) if _is_text(head, index)]
        read = [text_column(names, texts, name, reading.field)]
        if reading.field is None and reading.header:
            _check_names(read, name, "text_field")
    return rows, names, read


def _check_names(columns: Sequence[str], name: str, option: str) -> None:
    """Raise PipelineError if a column name looks like a text, because the table then probably has no header.

    A name looks like a text if it has more than three words.

    Args:
        columns: the names in the header that are to be checked. Names that the user passed need no check.
        name: name of the file, for the message.
        option: the option by which the user can name the columns, for the message.
    """
    for column in columns:
        if len(column.split()) > NAME_WORDS:
            raise PipelineError(
                f'{name}: its first line ("{column[:40]}...") looks like a text, not like a column name: add '
                f"`no_header` if the line is a text, or name the column with `{option}`"
            )


class _Lines:
    """The lines of a stream. Its first MiB, the head, is read at once, so that columns can be inferred from it.

    Lines that end with CR alone are read as if they ended with LF.
    """

    def __init__(self, stream: BinaryIO) -> None:
        data = stream.read(HEAD)
        self.is_all = len(data) < HEAD
        if rows_end_with_cr(data):
            data, stream = with_lf(data), buffered(map(with_lf, iter(functools.partial(stream.read, HEAD), b"")))
        self._stream, self._rest = stream, io.BytesIO(data)
        whole = data if self.is_all else data[: data.rfind(b"\n") + 1]
        self.head = [line.decode("utf-8", "replace") for line in io.BytesIO(whole.removeprefix(BOM))]
        """The complete lines of the head."""

    def parts(self, is_head: bool) -> Iterator[bytes]:
        """Yield the bytes of the stream, from its start. Afterwards all lines can still be read.

        Args:
            is_head: if true, only the head of the stream is yielded, its first MiB; otherwise the whole stream.
        """
        yield self._rest.getvalue()
        if is_head or self.is_all:
            return
        if isinstance(getattr(self._stream, "raw", None), io.FileIO):  # a file can be read twice
            start = self._stream.tell()
            yield from iter(lambda: self._stream.read(HEAD), b"")
            self._stream.seek(start)
            return
        spool = cast(BinaryIO, tempfile.SpooledTemporaryFile(SPOOL_BYTES))
        while data := self._stream.read(HEAD):
            spool.write(data)
            yield data
        spool.seek(0)
        self._stream = spool

    def readline(self, size: int) -> bytes:
        line = self._rest.readline(size)
        if line.endswith(b"\n") or len(line) == size:
            return line
        return line + self._stream.readline(size - len(line))


def _is_text(rows: list[list[str]], index: int) -> bool:
    """Return whether a column has a cell that is neither a number nor empty.

    Args:
        rows: the cells of the table's first rows.
        index: the index of the column.
    """
    return any(_is_word(row[index]) for row in rows if len(row) > index)


def _is_word(cell: str) -> bool:
    try:
        float(cell or 0)
    except ValueError:
        return True
    return False


class _RowLines:
    """Iterator over the lines of one row of a table. A row has several lines if a quoted cell has line breaks."""

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
                    f"quote that is not closed: correct it, or raise `max_document_bytes`"
                )
            if self.offset == start == 0:
                line = line.removeprefix(BOM)
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError as error:
                self.problem = self.problem or invalid_utf8(start + error.start, "row")
                yield line.decode("utf-8", "replace")
        self.is_ended = True


def _rows(lines: _Lines, name: str, form: Form, max_bytes: int) -> Iterator[Row]:
    """Yield each row that is not blank. Its problem is "" if the row can be used.

    Each row is parsed by itself, so that a bad row does not affect others.

    Args:
        name: name of the file, for error messages.
        form: the delimiter of the table, and whether its cells are quoted.
        max_bytes: maximum size of a row; a longer row has a problem.

    Raises:
        PipelineError: a quote is not closed, or a row is longer than both `max_bytes` and 64 MB.
        DamagedFileError: there is a hole (a long run of zero bytes) in a row.
    """
    csv.field_size_limit(max(csv.field_size_limit(), max_bytes + 1, MAX_BYTES + 1))
    offset = num_lines = 0
    while True:
        row = _RowLines(lines, name, max(max_bytes, MAX_BYTES), offset)
        try:
            cells, problem, is_not_utf8 = parse(iter(row), form), row.problem, bool(row.problem)
        except csv.Error as error:
            if (row.is_ended or row.num_lines > 1) and not is_carriage_return(error):
                reason = "the row that begins there has a quote that is not closed"
                raise PipelineError(f"{name}: line {num_lines + 1:,}: {reason} ({error}): correct it") from None
            cells, problem, is_not_utf8 = [], f"broken csv: {fault(error)}", False
        if cells is None:
            return
        if row.size > max_bytes + row.ends_line:
            problem, is_not_utf8 = f"longer than {max_bytes:,} bytes: {row.size:,}", False
        offset, num_lines = offset + row.size, num_lines + row.num_lines
        if cells or problem:
            yield cells, row.raw, problem, is_not_utf8
