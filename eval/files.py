"""Read text files with errors that name the line; write JSON."""

import csv
import json
import math
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from clearspan.common.delimited import are_quotes, form_of

HEAD_LINES = 1000
"""Lines of a table from which its delimiter is inferred."""
_SURROGATE = re.compile("[\ud800-\udfff]")


class DataError(ValueError):
    """A data file is malformed. The message names the file, the line and the remedy, in one line."""


class MissingDataError(Exception):
    """A data file does not exist. The message names it in one line."""


def read_lines(path: Path, encoding: str = "utf-8") -> Iterator[str]:
    """Yield the lines of a UTF-8 or Latin-1 file without LF, CR LF or a UTF-8 byte order mark.

    Only LF ends a line: `str.splitlines` would also break at U+0085 or U+2028 inside a sentence.

    Raises:
        MissingDataError: the file does not exist.
        DataError: a line is not UTF-8.
    """
    try:
        file = path.open("rb")
    except (FileNotFoundError, NotADirectoryError):
        raise MissingDataError(f"no file {path}") from None
    with file:
        for number, line in enumerate(file, start=1):
            try:
                may_have_mark = number == 1 and encoding == "utf-8"
                yield line.decode("utf-8-sig" if may_have_mark else encoding).removesuffix("\n").removesuffix("\r")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path}:{number}: not UTF-8 at byte {error.start + 1} of the line; convert the file to UTF-8"
                ) from None


def csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a UTF-8 csv or tsv, each with the number of its first line (`common.delimited`: its form).

    Raises:
        MissingDataError: the file does not exist.
        DataError: a line is not UTF-8, or quotes do not match.
    """
    lines = [f"{line}\n" for line in read_lines(path)]
    is_tsv = path.suffix.lower() == ".tsv"
    form = form_of(lines[:HEAD_LINES], is_tsv, lambda: are_quotes(line.encode("utf-8", "replace") for line in lines))
    rows = csv.reader(lines, **form)
    number = 1
    try:
        for fields in rows:
            yield number, fields
            number = rows.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"{path}:{number}: not a csv row ({error}): enclose a text that contains quotes in quotes, and double its "
            "own quotes"
        ) from None


def csv_records(path: Path, required: Collection[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (file and line, field -> text) for each row of a UTF-8 csv with a header.

    Raises:
        MissingDataError: the file does not exist.
        DataError: the header lacks a required field, or a row is malformed.
    """
    header: list[str] = []
    for number, row in csv_rows(path):
        place = f"{path}:{number}"
        if not header:
            header = row
            if not set(required) <= set(header):
                raise DataError(f"{place}: expected a header with {', '.join(required)}, found {head(','.join(row))}")
        elif len(row) != len(header):
            raise DataError(f"{place}: expected {len(header)} fields, as in the header, found {len(row)}")
        else:
            yield place, dict(zip(header, row, strict=True))


def json_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (file and line, object) for each line of a jsonl file that is not blank.

    Raises:
        MissingDataError: the file does not exist.
        DataError: a line is no JSON object.
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


def table_rows(path: Path, num_fields: int, header: str = "") -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, fields) of each row of a TAB-separated file without quoting; skips blank lines.

    Args:
        num_fields: minimum number of fields in a row.
        header: a column name that the header must contain; empty: the file has no header.

    Raises:
        MissingDataError: the file does not exist.
        DataError: the header is missing, or a row has too few fields.
    """
    for number, line in enumerate(read_lines(path), start=1):
        fields = line.split("\t")
        if number == 1 and header:
            if header not in fields:
                raise DataError(f"{path}:1: expected a header with a field {header}, found {head(line)}")
        elif line.strip():
            if len(fields) < num_fields:
                raise DataError(
                    f"{path}:{number}: expected {num_fields} TAB-separated fields, found {len(fields)}: {head(line)}"
                )
            yield number, fields


def string_field(record: Mapping[str, Any], field: str, place: str) -> str:
    """Return the string of a record's field.

    Args:
        place: file and line, for the message.

    Raises:
        DataError: the field is missing, no string, or holds half of a character.
    """
    value = record.get(field)
    if not isinstance(value, str):
        raise DataError(f"{place}: field {field} must be a string, found {repr(value)[:60]}")
    if surrogate := _SURROGATE.search(value):
        raise DataError(f"{place}: field {field} holds {surrogate[0]!r}, half of a character: write the whole one")
    return value


def head(text: str, limit: int = 60) -> str:
    """Return the beginning of a text, quoted for an error message."""
    return repr(text if len(text) <= limit else text[:limit] + "…")


def json_text(value: Any) -> str:
    """Return strict ASCII JSON with a final newline; NaNs and infinities, which JSON lacks, become null."""
    return json.dumps(_plain(value), indent=2, allow_nan=False) + "\n"


def existing_folder(text: str) -> Path:
    """Return a folder; raise ValueError if it is none."""
    if not Path(text).is_dir():
        raise ValueError(f"no such folder: {text}")
    return Path(text)


def check_writable(folder: Path) -> None:
    """Create a folder, and write and delete a temporary file in it: permission bits do not suffice as a check.

    Raises:
        OSError: the folder cannot be created or written; the message names it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"whether this can be written")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from None


def _plain(value: Any) -> Any:
    """Convert numpy values and paths to the types of JSON."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
