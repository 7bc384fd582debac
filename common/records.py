"""Read lines, tables and JSON lines of UTF-8 text, with errors that name the file and the line."""

import io
import itertools
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from clearspan.common import compressions, line_ends
from clearspan.common.delimited import Dialect, RowError

HEAD_LINES = 1000
"""Lines of a table from which its delimiter is inferred."""
HEAD_BYTES = 1 << 20
"""Number of first bytes of a file from which its line ends are inferred."""
_SURROGATE = re.compile("[\ud800-\udfff]")


class DataError(ValueError):
    """A data file is malformed. The message names the file, the line and the remedy, in one line."""


class MissingDataError(Exception):
    """A data file does not exist. The message names it in one line."""


def read_lines(
    path: Path, encoding: str = "utf-8", end_with_cr: Callable[[bytes], bool] = line_ends.end_with_cr
) -> Iterator[str]:
    """Yield the lines of a text file, without line ends (LF or CR LF) and without a UTF-8 byte order mark.

    Only LF ends a line, or only CR: `str.splitlines` would also break at U+0085 or U+2028 inside a sentence.

    Args:
        encoding: `utf-8` or `latin-1`.
        end_with_cr: function of the first bytes of a file that returns whether CR alone ends its lines.

    Raises:
        MissingDataError: the file does not exist.
        DataError: a line is not UTF-8, the file is compressed, or it is a folder.
        OSError: the file cannot be read.
    """
    try:
        file = path.open("rb")
    except (FileNotFoundError, NotADirectoryError):
        raise MissingDataError(f"no file {path}") from None
    except IsADirectoryError:
        raise DataError(f"{path}: is a folder: name a file in it") from None
    with file:
        first = file.read(HEAD_BYTES) + file.readline()  # a pipe cannot be read twice
        if packing := compressions.packing_of(first[:HEAD_BYTES], path.suffix.lower()):
            save = ", or save a spreadsheet as .csv" if packing == "zip" else ""
            raise DataError(f"{path}: {compressions.described(packing)}: unpack it first{save}")
        if end_with_cr(first):
            first = line_ends.with_lf(first + file.read())
        for number, line in enumerate(itertools.chain(io.BytesIO(first), file), start=1):
            try:
                may_have_mark = number == 1 and encoding == "utf-8"
                yield line.decode("utf-8-sig" if may_have_mark else encoding).removesuffix("\n").removesuffix("\r")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path}:{number}: not UTF-8 at byte {error.start + 1} of the line; convert the file to UTF-8"
                ) from None


def csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the cells of each row of a UTF-8 csv or tsv file.

    The line number is the number of the row's first line, from 1. A blank line is a row without cells. The delimiter
    and the use of quotes are inferred from the file.

    Raises:
        MissingDataError: the file does not exist.
        DataError: a line is not UTF-8, or quotes do not match.
    """
    lines = [f"{line}\n" for line in read_lines(path, end_with_cr=line_ends.rows_end_with_cr)]
    is_tsv = path.suffix.lower() == ".tsv"
    dialect = Dialect.of(lines[:HEAD_LINES], is_tsv, lambda: (line.encode("utf-8", "replace") for line in lines))
    try:
        yield from dialect.rows(lines)
    except RowError as error:
        raise DataError(
            f"{path}:{error.line}: not a csv row ({error}): enclose a text that contains quotes or line breaks in "
            "quotes, and double its own quotes"
        ) from None


def csv_records(
    path: Path,
    required_fields: Collection[str],
    field_of: Callable[[str], str] = str,
    optional_fields: Collection[str] = (),
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the place (`FILE:LINE`) and the record (field -> text) of each row of a UTF-8 csv or tsv with a header.

    Args:
        required_fields: names of fields that the header must contain.
        field_of: function that turns a name in the header into the name of the field; by default, it is the same name.
        optional_fields: names of further fields that the caller uses if the header has them.

    Raises:
        MissingDataError: the file does not exist.
        DataError: the header lacks a required field, or names a field twice that the caller uses; a row, such as a
            blank line, has more or fewer cells than the header; a line is not UTF-8; or quotes do not match.
    """
    header: list[str] = []
    for number, row in csv_rows(path):
        place = f"{path}:{number}"
        if not header:
            header = [field_of(name) for name in row]
            if not set(required_fields) <= set(header):
                expected = ", ".join(required_fields)
                raise DataError(f"{place}: expected a header with {expected}, found {head(','.join(row))}")
            for name in (*required_fields, *optional_fields):
                if (times := header.count(name)) > 1:
                    raise DataError(f'{place}: {times} columns are named "{name}": keep one, or rename the others')
        elif len(row) != len(header):
            raise DataError(f"{place}: expected {len(header)} fields, as in the header, found {len(row)}")
        else:
            yield place, dict(zip(header, row, strict=True))


def json_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place (`FILE:LINE`) and the JSON object of each line of a jsonl file; blank lines are skipped.

    Raises:
        MissingDataError: the file does not exist.
        DataError: a line is not a JSON object.
    """
    for number, line in enumerate(read_lines(path), start=1):
        if line.strip():
            place = f"{path}:{number}"
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{place}: not JSON ({error}): {head(line)}") from None
            if not isinstance(record, dict):
                raise DataError(f"{place}: expected a JSON object, found {head(line)}")
            yield place, record


def string_field(record: Mapping[str, Any], field: str, place: str) -> str:
    """Return a record's field, after checking that it is a string.

    Args:
        place: the file and line of the record, for the message.

    Raises:
        DataError: the field is missing, is not a string, or holds a lone surrogate (half of a character).
    """
    value = record.get(field)
    if not isinstance(value, str):
        raise DataError(f"{place}: field {field} must be a string, found {repr(value)[:60]}")
    if surrogate := _SURROGATE.search(value):
        raise DataError(f"{place}: field {field} holds {surrogate[0]!r}, half of a character: write the whole one")
    return value


def head(text: str, limit: int = 60) -> str:
    """Return a text in quotes for an error message; after `limit` characters, it is cut and ends in "…"."""
    return repr(text if len(text) <= limit else text[:limit] + "…")
