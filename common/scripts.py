"""Characters of the scripts that are written without spaces between words, as sets for regular expressions.

    UNSPACED    Unicode's property Script is Han, Hiragana, Katakana, Thai, Lao, Khmer or Myanmar
    LETTERS     UNSPACED, and ー, 〆 and voicing marks, to which Unicode gives no script because Han and Kana share them

Text in these scripts is cut into single characters where other text is cut into words: by BM25, by --exclude and
--near-dedup, and where tokens are grouped into words. Han is written in Chinese, Japanese and Korean (hanja). Hangul
and Bopomofo are not included.
"""

import regex

SCRIPTS = ("Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar")
UNSPACED = "".join(rf"\p{{Script={script}}}" for script in SCRIPTS)
"""The characters of these scripts, digits and signs included, for use inside brackets in a pattern of `regex`."""
_SHARED = r"[\p{scx=Han}\p{scx=Hiragana}\p{scx=Katakana}]&&[\p{Script=Common}\p{Script=Inherited}]&&[\p{L}\p{M}]"
"""Letters and marks without a script of their own that are used with Han or Kana, as a set of `regex`."""
LETTERS = rf"[{UNSPACED}[[{_SHARED}]--\p{{scx=Latin}}]]"
"""The characters of UNSPACED and the letters and marks that are used with them: a set of `regex`, for its flag V1."""
_LETTER = regex.compile(LETTERS, regex.V1)


def is_unspaced(character: str) -> bool:
    """Return whether a character belongs to a script that is written without spaces between words."""
    return bool(_LETTER.match(character))
