"""Text files of data, with errors that name the line; JSON of results."""

import csv
import json
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np


class DataError(ValueError):
    """A data file is malformed. The message names the file, the line and the remedy, in one line."""


class MissingDataError(Exception):
    """A data file is missing. The message names the file and its expected place, in one line."""


def read_lines(path: Path, encoding: str = "utf-8") -> Iterator[str]:
    """Yield the lines of a UTF-8 or Latin-1 file without line ends (LF or CR LF) and without UTF-8's byte order mark.

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
                marked = number == 1 and encoding == "utf-8"
                yield line.decode("utf-8-sig" if marked else encoding).removesuffix("\n").removesuffix("\r")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path}:{number}: not UTF-8 at byte {error.start + 1} of the line; convert the file to UTF-8"
                ) from None


def csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a UTF-8 csv file, each with the number of its first line.

    Raises:
        MissingDataError: the file does not exist.
        DataError: a line is not UTF-8, or quotes do not match.
    """
    rows = csv.reader((f"{line}\n" for line in read_lines(path)), strict=True)
    number = 1
    try:
        for fields in rows:
            yield number, fields
            number = rows.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"{path}:{number}: not a row of a csv file ({error}): quote a text that contains a quote, and double the "
            "quotes inside it"
        ) from None


def head(text: str, limit: int = 60) -> str:
    """Return the beginning of a piece of data, quoted, for an error message."""
    return repr(text if len(text) <= limit else text[:limit] + "…")


def json_text(value: Any) -> str:
    """Return strict JSON in ASCII with a trailing newline; NaN and infinities, which JSON lacks, become null."""
    return json.dumps(_plain(value), indent=2, allow_nan=False) + "\n"


def check_writable(folder: Path) -> None:
    """Create the folder and check that it is writable by a temporary file: permission bits alone do not tell.

    Raises:
        OSError: the folder cannot be created or written; names the folder.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"writable")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from None


def _plain(value: Any) -> Any:
    """Return the value in JSON's types: numpy's arrays and numbers as lists and numbers, paths as strings."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
