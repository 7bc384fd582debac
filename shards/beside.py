"""Texts beside each other on a terminal, each wrapped in a column of its own."""

import itertools
import unicodedata
from collections.abc import Iterator, Mapping

GAP = 3
NARROWEST = 8


def columns_of(texts: Mapping[str, str], width: int) -> list[str]:
    """The lines of texts under their headings, in columns of one width; together they take `width` cells at most, but
    none has fewer than NARROWEST.
    """
    each = max(NARROWEST, (width - GAP * (len(texts) - 1)) // len(texts))
    columns = [[*_wrapped(heading, each), *_wrapped(text, each)] for heading, text in texts.items()]
    rows = itertools.zip_longest(*columns, fillvalue="")
    return [(" " * GAP).join(line + " " * (each - _cells(line)) for line in row).rstrip() for row in rows]


def _wrapped(text: str, width: int) -> Iterator[str]:
    """A text's words in lines of at most `width` cells; a longer word is cut."""
    line = ""
    for word in text.split():
        if line and _cells(line) + 1 + _cells(word) <= width:
            line += f" {word}"
            continue
        if line:
            yield line
        line = ""
        for character in word:
            if _cells(line) + _cells(character) > width:
                yield line
                line = ""
            line += character
    if line:
        yield line


def _cells(text: str) -> int:
    """How many cells a terminal takes for it: two for a wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(character) else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
    )
