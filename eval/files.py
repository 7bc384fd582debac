"""Files at the edge: text lines in, with errors that name the line; results out, whole or not at all."""

from collections.abc import Iterator
from pathlib import Path


class DataError(ValueError):
    """A data file is not what its format says. The message names file, line and mend, in one line."""


class MissingDataError(Exception):
    """A data file is not there. The message says which, and where it was looked for, in one line."""


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file without their ends (LF or CR LF); a byte order mark is dropped.

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
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").removesuffix("\n").removesuffix("\r")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path}:{number}: not UTF-8 at byte {error.start + 1} of the line; convert the file to UTF-8"
                ) from None


def head(text: str, limit: int = 60) -> str:
    """The beginning of a piece of data, quoted for an error message."""
    return repr(text if len(text) <= limit else text[:limit] + "…")


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 `text` to a temporary file beside `path`, then rename it there.

    Raises:
        OSError: the folder is missing or cannot be written.
    """
    temporary = path.with_name(f".{path.name}.part")
    try:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
