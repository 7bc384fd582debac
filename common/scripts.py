"""Letters of the scripts that are written without spaces between words, by Unicode's properties of a character.

    Script             Han, Hiragana, Katakana, Thai, Lao, Khmer, Myanmar: each character is a word by itself
    Script_Extensions  ー, 〆 and voicing marks, which Unicode gives no script, since Han and Kana share them

Words of BM25, words that are compared for --exclude and --near-dedup, and word boundaries among tokens follow from this
table alone. Han is written in Chinese, Japanese and Korean (hanja); Hangul and Bopomofo are not in the table.
"""

import regex

SCRIPTS = ("Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar")
UNSPACED = "".join(rf"\p{{Script={script}}}" for script in SCRIPTS)
"""The characters of these scripts, signs included, for a set of `regex`: [...]."""
_SHARED = r"[\p{scx=Han}\p{scx=Hiragana}\p{scx=Katakana}]&&[\p{Script=Common}\p{Script=Inherited}]&&[\p{L}\p{M}]"
"""Letters and marks without a script of their own that occur with these scripts."""
LETTERS = rf"[{UNSPACED}[[{_SHARED}]--\p{{scx=Latin}}]]"
"""The characters of these scripts, and the characters that they share: a set of `regex`, with its flag V1."""
_LETTER = regex.compile(LETTERS, regex.V1)


def is_unspaced(character: str) -> bool:
    """Return whether a character is written without spaces around its word."""
    return bool(_LETTER.match(character))
