"""Find words in texts of any language, in the form in which BM25 compares them.

    "Straße: HAEUSER, C++" ──> folded: letter case, Unicode form ──> "strasse: haeuser, c++" ──> strasse, haeuser, c

Text in scripts that are written without spaces between words (`common.scripts`) is cut into single characters. The sign
ー alone is not a word, since it only lengthens the syllable before it. The library `regex` is used because it counts
combining marks as parts of a word, while `re` does not.
"""

import itertools
import unicodedata

import regex

from clearspan.common import same_text
from clearspan.common.scripts import LETTERS, UNSPACED

VERSION = 3
"""Version of the definition and the form of a word, increased whenever one changes; a part of BM25 indexes' names."""
_APOSTROPHES = "['\u2019]"
_ONE = rf"(?<!\p{{L}}{_APOSTROPHES})[\p{{L}}--{LETTERS}]|\p{{Nd}}"
_WORD = regex.compile(rf"[{UNSPACED}]|[^\W_{UNSPACED}]{{2,}}|{_ONE}", regex.V1)
_UNIT = regex.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")
_BETWEEN_SPACES = regex.compile(r"\S+")
_CHARACTER = regex.compile(r"\X")
_DOTTED_I = regex.compile("i\u0307+")


def folded(text: str, is_turkic: bool = False) -> str:
    """Return a text in the form in which its words are compared: the key of `common.same_text`, without a dot over i.

    Unicode has no small letter for İ but i with a dot, and no keyboard writes that: *İstanbul* becomes *istanbul*.

    Args:
        is_turkic: fold I to ı, as in Turkish, and not to i.
    """
    if is_turkic:
        text = same_text.normal(text).replace("İ", "i").replace("I", "ı")
    key = same_text.key(text)
    return unicodedata.normalize("NFC", _DOTTED_I.sub("i", key)) if "\u0307" in key else key


def words(text: str) -> list[str]:
    """Return the words of a folded text, without punctuation.

    A word is a run of letters or digits, or a single character of a script that is written without spaces between
    words. An underscore is punctuation. A single letter after an apostrophe (don't, the owl's) is not a word.
    """
    found: list[str] = _WORD.findall(text)
    return found


def places(text: str) -> list[tuple[int, int]]:
    """Return the start and end, in characters, of each word of a text that is not folded.

    Words that have a character of the text in common after folding (the digits of ½) have one place.
    """
    if text.isascii():
        return [match.span() for match in _WORD.finditer(text)]
    found: list[tuple[int, int]] = []
    for run in _BETWEEN_SPACES.finditer(text):
        for start, end in _places_in(run[0]):
            start, end = start + run.start(), end + run.start()
            if found and start < found[-1][1]:
                start = found.pop()[0]
            found.append((start, end))
    return found


def _places_in(run: str) -> list[tuple[int, int]]:
    """Return the start and end of each word of a text without spaces. The places of two words may overlap."""
    form = run if run.isascii() else folded(run)
    if len(form) == len(run) and form in (run, run.casefold()):  # each character has become one
        return [match.span() for match in _WORD.finditer(form)]
    characters: list[str] = _CHARACTER.findall(run)  # with their marks: a form may join these
    forms = list(map(folded, characters))
    ends = list(itertools.accumulate(map(len, characters)))
    of_form = [number for number, form in enumerate(forms) for _ in form]
    spans = [match.span() for match in _WORD.finditer("".join(forms))]
    return [(ends[of_form[start]] - len(characters[of_form[start]]), ends[of_form[end - 1]]) for start, end in spans]


def word_spans(text: str) -> list[tuple[int, int]]:
    """Return the start and end, in characters, of each word of a text, where punctuation belongs to the words.

    A word is here a run of characters between spaces, or a single character of a script that is written without spaces
    between words.
    """
    return [match.span() for match in _UNIT.finditer(text)]
