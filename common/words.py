"""Find words in texts of any language.

Scripts that are written without spaces between words (`common.scripts`) are cut into single characters. A lone ー,
which lengthens the syllable before it, is no word. `regex` counts combining marks as parts of a word, which `re` does
not.
"""

import regex

from clearspan.common.scripts import UNSPACED

VERSION = 1
"""Version of the definition of a word, increased whenever it changes; part of the names of stored indexes of words."""
_WORD = regex.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]{{2,}}")
_UNIT = regex.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")


def words(text: str) -> list[str]:
    """Return a text's words without punctuation: runs of two or more letters or digits, as in scikit-learn."""
    found: list[str] = _WORD.findall(text)
    return found


def places(text: str) -> list[tuple[int, int]]:
    """Return (start, end), in characters, of each word that `words(text)` returns."""
    return [match.span() for match in _WORD.finditer(text)]


def word_spans(text: str) -> list[tuple[int, int]]:
    """Return (start, end), in characters, of each word with its punctuation: everything between spaces."""
    return [match.span() for match in _UNIT.finditer(text)]
