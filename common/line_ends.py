"""Line ends of text files: LF, CR LF, or CR alone, as old programs for the Mac and some exports write them.

A CR within a file whose lines end with LF is a character like any other. Only a file without LF has lines that end with
CR; in a table, whose quoted cells may hold LF, the end of the header decides.
"""

import re
from collections.abc import Iterable

_HEADER = re.compile(rb'(?:[^"\r\n]|"[^"]*")*+\r(?!\r*\n|\Z)')
"""Pattern of the header of a table that ends with CR alone. It may have quoted names. CR CR LF is an end with
LF: programs write it that turn LF into CR LF twice."""


def end_with_cr(head: bytes) -> bool:
    """Return whether the lines of a text end with CR alone.

    A single LF after the last line, which an editor may have added, does not count.

    Args:
        head: the first bytes of the text, at least to its first LF, or the whole text.
    """
    return parts_end_with_cr([head])


def parts_end_with_cr(parts: Iterable[bytes]) -> bool:
    """Return whether the lines of a text end with CR alone, as `end_with_cr` does.

    Args:
        parts: the parts of the text, of which no more are taken than are needed. If the first part holds no CR, the
            result is False.
    """
    last = None
    for part in parts:
        if last is None and b"\r" not in part:
            return False
        seen = (last or b"") + part
        if b"\n" in seen[:-1]:
            return False
        last = seen[-2:]
    return bool(last) and last != b"\r\n"


def rows_end_with_cr(head: bytes) -> bool:
    """Return whether the rows of a csv or tsv table end with CR alone.

    Args:
        head: the first bytes of the table, or the whole table.
    """
    return _HEADER.match(head) is not None


def with_lf(data: bytes) -> bytes:
    """Return a part of a text with LF in place of CR, so that lines that end with CR alone end with LF."""
    return data.replace(b"\r", b"\n")
