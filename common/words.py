"""Find words in texts of any language.

Text in scripts that are written without spaces between words (`common.scripts`) is cut into single characters. The sign
ー alone is not a word, since it only lengthens the syllable before it. The library `regex` is used because it counts
combining marks as parts of a word, while `re` does not.
"""

import regex

from clearspan.common.scripts import UNSPACED

VERSION = 1
"""Version of the definition of a word, increased whenever the definition changes; a part of BM25 indexes' names."""
_WORD = regex.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]{{2,}}")
_UNIT = regex.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")


def words(text: str) -> list[str]:
    """Return the words of a text, without punctuation.

    A word is a run of two or more letters or digits, as in scikit-learn, or a single character of a script that is
    written without spaces between words.
    """
    found: list[str] = _WORD.findall(text)
    return found


def places(text: str) -> list[tuple[int, int]]:
    """Return the start and end, in characters, of each word that `words(text)` returns."""
    return [match.span() for match in _WORD.finditer(text)]


def word_spans(text: str) -> list[tuple[int, int]]:
    """Return the start and end, in characters, of each word of a text, where punctuation belongs to the words.

    A word is here a run of characters between spaces, or a single character of a script that is written without spaces
    between words.
    """
    return [match.span() for match in _UNIT.finditer(text)]
