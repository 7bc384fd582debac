"""Read TAB-separated tables, write JSON, and check folders."""

import json
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from clearspan.common.records import DataError, head, read_lines


def table_rows(path: Path, num_fields: int, header: str = "") -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, fields) for each row of a TAB-separated file without quoting, except header and blank lines.

    Args:
        num_fields: the smallest number of fields that a row may have.
        header: a column name that the header must contain; "" if the file has no header.

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


def json_text(value: Any) -> str:
    """Return a value as strict JSON in ASCII with a final newline. NaN and infinities become null."""
    return json.dumps(_plain(value), indent=2, allow_nan=False) + "\n"


def existing_folder(text: str) -> Path:
    """Return the path of a folder that the user gave as the value of an option.

    Raises:
        ValueError: there is no such folder. The parser of options shows the message.
    """
    if not Path(text).is_dir():
        raise ValueError(f"no such folder: {text}")
    return Path(text)


def check_writable(folder: Path) -> None:
    """Create a folder unless it exists, and check that files can be written in it.

    The check writes and deletes a temporary file, because permission bits do not tell whether writing will succeed.

    Raises:
        OSError: the folder cannot be created, or no file can be written in it. The message names the folder.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"whether this can be written")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from None


def _plain(value: Any) -> Any:
    """Return a value in types that JSON has, also within lists and dicts. NaN and infinities become None."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
