"""A text's words, and 64-bit hashes of runs of them: every so many in a row, and its short sentences and lines.

    text -> `comparable` -> words only -> sums over their bytes -> the hash of any run at once, none looked at twice

A word is a run of letters and digits; all else separates words. Of scripts written without spaces between words
(Chinese, Japanese, Thai, Lao, Khmer, Burmese) each letter is a word of its own, and vowel signs separate. In other
scripts, such as Devanagari, vowel signs belong to the word.
A letter says less than a word, so a run with one of them in it is looked at from more of them on.
"""

import functools
import re
import unicodedata

import numpy as np

NGRAM = 8
SHORTEST = 4
"""Words of a run, and the fewest of a sentence that is looked at as a whole."""
NGRAM_LETTERS = 12
"""Of a run with a letter of a script without spaces among its words; of a sentence SHORTEST too. So all sentences of
STS-B's Chinese test set are met but three of fewer letters than that, and of the 10,100 other sentences of its training
set 0.9 %, most of them a test sentence with other figures or names. With 8 letters these are 4.8 %, with 16 0.5 %."""
_LETTERS = (
    "\u3005-\u3007\u3041-\u309f\u30a1-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Japanese
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese
    "\u0e01-\u0e5b\u0e81-\u0edf\u1780-\u17f9\u1000-\u109f"  # Thai, Lao, Khmer, Burmese
)
_FOREIGN = re.compile(r"[^\w\x00-\x7f]{1,64}")
"""Signs beyond ASCII, in runs that are short enough to be remembered (`_plain`)."""
_MARK = r"(?:[^\w\x00-\x7f]|[\uff9e\uff9f])"
"""A mark, or one of the two letters that NFKC turns into marks."""
_MANY_MARKS = re.compile(rf"({_MARK}{{30}}){_MARK}+")
"""More marks on one letter than Unicode's stream-safe format allows: NFKC sorts n of them in n^2 steps."""
_IGNORED = re.compile("[\u034f\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Marks that only change how a character is shown; they are dropped like format characters."""
_POINTS = range(10, 36)
"""The combining classes of the points of Hebrew and Arabic."""
_LETTER_RUN = re.compile(f"[{_LETTERS}]+")
_WIDE_STOPS = "。．｡！？។။"
_APOSTROPHES = "\u2019\u2018\u201b\u2032\u02bc\u00b4"
_CLITIC = re.compile(r"' ?(?=(?:s|d|m|t|re|ve|ll)\b)")
"""An apostrophe before what English writes in one word with the word before it."""
_PARTED = {parted: re.compile(rf"{parted}\b") for parted in ("can not", "gon na", "wan na", "got ta")}
"""Words that the Penn Treebank's tokenization splits where there is no apostrophe."""
_BRACKET = re.compile("-[lr][rsc]b-")
"""Brackets as the Penn Treebank writes them: -lrb-."""
NORMALIZATION = 2
"""The version of `comparable`, for the fingerprint of what it shapes."""
_NEWLINE, _STOP, _SPACE = 1, 2, 4
_IS_WORD = np.array([byte >= 128 or chr(byte).isalnum() for byte in range(256)])
_MARKS = np.zeros(256, np.uint8)
_MARKS[list(b" \t\f\v\r\n")] |= _SPACE
_MARKS[list(b"\r\n")] |= _NEWLINE
_MARKS[list(b".!?")] |= _STOP
_ODD = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xD6E8FEB86659FD93)


def comparable(text: str) -> str:
    """Return the text in the one form in which words are compared.

    It is case-folded and in Unicode's form NFKC, without format characters such as soft hyphens and zero-width spaces,
    and without the vowel points of Arabic and Hebrew, which most texts leave out; other signs beyond ASCII are spaces.
    Contractions are one word however they are written: "don't", "don’t", "do n't" and "dont" are "dont", "it 's" is
    "its", "can not" is "cannot". The Treebank's -LRB- and the like are spaces.
    """
    text = text.casefold()
    if not text.isascii():
        text = _FOREIGN.sub(lambda signs: _plain(signs[0]), text)
    if not text.isascii():  # it had more than curly quotes
        text = _MANY_MARKS.sub(r"\1", text)
        text = unicodedata.normalize("NFKC", text).replace("\u02bc", "'").casefold()
        text = _FOREIGN.sub(lambda marks: _left(marks[0]), text)
    text = _CLITIC.sub("", text.replace(" n't", "n't").replace(" '", "'"))
    for parted, pattern in _PARTED.items():
        if parted in text:  # a search that is much faster than the pattern's
            text = pattern.sub(parted.replace(" ", ""), text)
    return _BRACKET.sub(" ", text) if "b-" in text else text


@functools.lru_cache(1 << 12)
def _plain(signs: str) -> str:
    """Return what a run of signs beyond ASCII stands for, or a space; marks stay, to be composed with their letters."""
    return "".join(map(_plain_sign, signs))


@functools.lru_cache(1 << 12)
def _left(marks: str) -> str:
    """Return what stays of marks that compose with no letter: those that are part of a word."""
    return "".join(map(_left_mark, marks))


def _left_mark(mark: str) -> str:
    if unicodedata.combining(mark) in _POINTS:
        return ""
    return mark if unicodedata.category(mark) in ("Mn", "Mc") and not _LETTER_RUN.match(mark) else " "


def _plain_sign(sign: str) -> str:
    category = unicodedata.category(sign)
    if sign in _WIDE_STOPS:
        return ". "
    if sign in _APOSTROPHES:
        return "'"
    if category == "Cf" or _IGNORED.match(sign):
        return ""
    if category.startswith("M"):
        return sign
    return "".join(c if c.isascii() or c.isalnum() else " " for c in unicodedata.normalize("NFKC", sign).casefold())


def _powers(size: int) -> tuple[np.ndarray, np.ndarray]:
    """_ODD and its inverse modulo 2^64, to the powers 0..size-1."""
    inverse = np.uint64(pow(int(_ODD), -1, 1 << 64))
    ones = np.ones(1, np.uint64)
    up, down = (np.cumprod(np.concatenate([ones, np.full(size - 1, base)])) for base in (_ODD, inverse))
    return up, down


def _is_letter() -> np.ndarray:
    """Tells of each character up to U+FFFF whether it is a word of its own, (65536,) bool."""
    characters = "".join(map(chr, range(0xD800))) + "\0" * 0x800 + "".join(map(chr, range(0xE000, 0x10000)))
    found = np.zeros(1 << 16, bool)
    for run in _LETTER_RUN.finditer(characters):
        found[run.start() : run.end()] = True
    return found


class Words:
    """A text's words, and hashes of runs of them from sums over its bytes.

    The hash of bytes a..b is sum((byte + 1) * ODD^(i - a)) modulo 2^64, mixed; ODD is invertible, so prefix sums give
    it for any a and b.
    """

    _up, _down = _powers(1 << 12)
    _letters = _is_letter()

    def __init__(self, text: str) -> None:
        text, num_runs = comparable(text), 0
        if not text.isascii():
            text, num_runs = _LETTER_RUN.subn(lambda run: f" {' '.join(run[0])} ", text)
        data = np.frombuffer(text.encode("utf-8", "replace"), np.uint8)
        is_word = _IS_WORD[data]
        edges = np.flatnonzero(np.diff(is_word, prepend=False, append=False))
        starts, ends = edges[::2], edges[1::2]
        self.starts = self.ends = self.unit_starts = self.unit_ends = starts
        self.num_lines = 0
        self.sums = np.zeros(1, np.uint64)
        self.letters_before = self._count_letters(data, starts, ends) if num_runs else None
        if not len(starts):
            return
        # The words with one space between them: `joined`, and where they are in it.
        kept = is_word
        kept[ends[:-1]] = True
        joined = data[kept]
        self.ends = np.cumsum(ends - starts + 1) - 1
        self.starts = self.ends - (ends - starts)
        joined[self.ends[:-1]] = ord(" ")
        if len(joined) > len(self._up):
            Words._up, Words._down = _powers(2 * len(joined))
        self.sums = np.zeros(len(joined) + 1, np.uint64)
        np.cumsum((joined.astype(np.uint64) + np.uint64(1)) * self._up[: len(joined)], out=self.sums[1:])
        # A sentence ends between two words where a line does, or a stop stands there beside a space.
        between = _marks_between(data, starts, ends)
        line_ends = (between & _NEWLINE) > 0
        sentence_ends = line_ends | ((between & (_STOP | _SPACE)) == _STOP | _SPACE)
        ends_of = [np.append(np.flatnonzero(last) + 1, len(starts)) for last in (sentence_ends, line_ends)]
        self.unit_ends = np.concatenate(ends_of)
        self.unit_starts = np.concatenate([np.append(0, found[:-1]) for found in ends_of])
        self.num_lines = len(ends_of[1])

    def _count_letters(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """How many of the words before each, and before the end, are letters of scripts without spaces, (n + 1,)."""
        found = np.zeros(len(starts) + 1, np.int64)
        sizes = ends - starts
        (three,) = np.nonzero(sizes == 3)  # bytes of UTF-8
        first, second, third = (data[starts[three] + place].astype(np.int64) for place in range(3))
        points = (first & 15) << 12 | (second & 63) << 6 | third & 63
        found[1 + three] = (first >= 0xE0) & self._letters[points]
        (four,) = np.nonzero(sizes == 4)
        found[1 + four] = (data[starts[four]] == 0xF0) & (data[starts[four] + 1] >= 0xA0)  # from U+20000 on
        return np.cumsum(found)

    def _has_letters(self, first: np.ndarray, end: np.ndarray) -> np.ndarray:
        assert self.letters_before is not None
        return self.letters_before[end] > self.letters_before[first]

    def _hashes(self, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Hashes the words first..last, both inclusive."""
        start, end = self.starts[first], self.ends[last]
        mixed = (self.sums[end] - self.sums[start]) * self._down[start]
        mixed = (mixed ^ (mixed >> np.uint64(32))) * _MIX
        return mixed ^ (mixed >> np.uint64(29))

    def ngrams(self) -> np.ndarray:
        """Hashes every NGRAM words in a row, and every NGRAM_LETTERS with a letter among them."""
        first = np.arange(len(self.starts) - NGRAM + 1)
        if self.letters_before is None:
            return self._hashes(first, first + NGRAM - 1)
        first = first[~self._has_letters(first, first + NGRAM)]
        longer = np.arange(len(self.starts) - NGRAM_LETTERS + 1)
        longer = longer[self._has_letters(longer, longer + NGRAM_LETTERS)]
        return np.concatenate(
            [self._hashes(first, first + NGRAM - 1), self._hashes(longer, longer + NGRAM_LETTERS - 1)]
        )

    def sentences(self) -> np.ndarray:
        """Hashes its sentences and its lines that are shorter than those runs, and not too short."""
        wanted = self._wanted(self.unit_starts, self.unit_ends)
        return self._hashes(self.unit_starts[wanted], self.unit_ends[wanted] - 1)

    def line(self) -> np.ndarray:
        """Hashes the line that it is, if it is one, as `sentences` would; (1,) or (0,)."""
        start, end = self.unit_starts[-1:], self.unit_ends[-1:]
        wanted = self._wanted(start, end) & (self.num_lines == 1)
        return self._hashes(start[wanted], end[wanted] - 1)

    def _wanted(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        lengths = ends - starts
        wanted = (lengths >= SHORTEST) & (lengths < NGRAM)
        if self.letters_before is None:
            return wanted
        with_letters = (lengths >= SHORTEST) & (lengths < NGRAM_LETTERS)
        return np.where(self._has_letters(starts, ends), with_letters, wanted)


def _marks_between(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Tells which marks are among the bytes between each word and the next."""
    if len(starts) < 2:
        return np.empty(0, np.uint8)
    bounds = np.column_stack([ends[:-1], starts[1:]]).ravel()
    return np.bitwise_or.reduceat(_MARKS[data], bounds)[::2]
