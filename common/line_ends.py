"""Line ends of text files: LF, CR LF, or CR alone, as old programs for the Mac and some exports write them.

A CR within a file whose lines end with LF is a character like any other. Only a file without LF has lines that end with
CR; in a table, whose quoted cells may hold LF, the end of the header decides.
"""

import re

_HEADER = re.compile(rb'(?:[^"\r\n]|"[^"]*")*+\r(?!\r*\n|\Z)')
"""Pattern of the header of a table that ends with CR alone. It may have quoted names. CR CR LF, which programs write that
turn LF into CR LF twice, is an end with LF."""


def end_with_cr(head: bytes) -> bool:
    """Return whether the lines of a text end with CR alone.

    A single LF after the last line, which an editor may have added, does not count.

    Args:
        head: the first bytes of the text, or the whole text.
    """
    return b"\r" in head and b"\n" not in head[:-1] and not head.endswith(b"\r\n")


def rows_end_with_cr(head: bytes) -> bool:
    """Return whether the rows of a csv or tsv table end with CR alone.

    Args:
        head: the first bytes of the table, or the whole table.
    """
    return _HEADER.match(head) is not None


def with_lf(data: bytes) -> bytes:
    """Return a part of a text with LF in place of CR, so that lines that end with CR alone end with LF."""
    return data.replace(b"\r", b"\n")
