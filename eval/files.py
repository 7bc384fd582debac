"""Files at the edge: text lines in, with errors that name the line; results out, whole or not at all."""

import csv
import json
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np


class DataError(ValueError):
    """A data file is not what its format says. The message names file, line and mend, in one line."""


class MissingDataError(Exception):
    """A data file is not there. The message says which, and where it was looked for, in one line."""


def read_lines(path: Path, encoding: str = "utf-8") -> Iterator[str]:
    """The lines of a UTF-8 or Latin-1 file without their ends (LF or CR LF); a byte order mark of UTF-8 is dropped.

    Only LF ends a line: `str.splitlines` would also break at U+0085 or U+2028 inside a sentence.

    Raises:
        MissingDataError: there is no such file.
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
    """The rows of a UTF-8 csv, each with the number of its first line.

    Raises:
        MissingDataError: there is no such file.
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
            f"{path}:{number}: no row of a csv ({error}): put a text that holds a quote within quotes, and its quotes "
            "twice"
        ) from None


def head(text: str, limit: int = 60) -> str:
    """The beginning of a piece of data, quoted for an error message."""
    return repr(text if len(text) <= limit else text[:limit] + "…")


def json_text(value: Any) -> str:
    """Strict JSON in ASCII, which any terminal shows; NaN and infinities, which JSON lacks, are null. Ends its line."""
    return json.dumps(_plain(value), indent=2, allow_nan=False) + "\n"


def check_writable(folder: Path) -> None:
    """Makes the folder and writes to it, by a file that is gone again: permission bits alone do not tell.

    Raises:
        OSError: it cannot be made or written; names the folder.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"whether this can be written")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from None


def _plain(value: Any) -> Any:
    """What JSON has, numpy's values and paths as what they stand for."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
