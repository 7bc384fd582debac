"""Words of a text, and 64-bit hashes of its word n-grams, and of sentences and lines that are too short for an n-gram.

    text -> `comparable` -> words joined by spaces -> prefix sums over their bytes -> the hash of any run of words

A word is a run of letters and digits; everything else separates words. In scripts without spaces between words, such as
Chinese (`common.scripts`), each letter is a word, and vowel signs separate words. In other scripts, such as Devanagari,
vowel signs belong to the word. A Chinese letter says less than an English word, so an n-gram that contains letters of
scripts without spaces has more words than other n-grams.
"""

import functools
import html
import re
import unicodedata
from collections.abc import Sequence

import numpy as np
import regex

from clearspan.common.ragged import bounds
from clearspan.common.scripts import LETTERS, is_unspaced
from clearspan.shards import rolling
from clearspan.shards.keyed import GOLDEN

NGRAM = 8
SHORTEST = 4
"""Number of words of an n-gram (NGRAM), and minimum number of words of a sentence that is
searched for within a text (SHORTEST).
"""
NGRAM_LETTERS = 12
"""Number of words of an n-gram with a letter of a script without spaces between words. A sentence with such letters
needs SHORTEST words as well. With 12, all sentences of STS-B's Chinese test set are found, and 0.9 % of the 10,100
other sentences of its training set match, most of them a test sentence with other figures or names (4.8 % with 8
letters, 0.5 % with 16).
"""
_FOREIGN = re.compile(r"[^\w\x00-\x7f]")
"""Pattern of a non-ASCII character that is neither a letter nor a digit."""
_MARK = r"(?:[^\w\x00-\x7f]|[\uff9e\uff9f])"
"""Pattern of a combining mark, or of one of the two letters that NFKC turns into marks."""
_MANY_MARKS = re.compile(rf"({_MARK}{{30}}){_MARK}+")
"""Pattern of more marks on one letter than Unicode's stream-safe format allows. NFKC
takes n^2 steps to sort n marks.
"""
_IGNORED = re.compile("[\u034f\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Marks that only change the appearance of a character; they are dropped like format characters."""
_POINTS = range(10, 36)
"""Combining classes of the vowel points of Hebrew and Arabic."""
_LETTER_RUN = regex.compile(f"{LETTERS}+", regex.V1)
_WIDE_STOPS = "。．｡！？។။"
_APOSTROPHES = "\u2019\u2018\u201b\u2032\u02bc\u00b4"
_ENTITY = re.compile(r"&(?:amp;)*(#\d{1,7}|#x[0-9a-f]{1,6}|[a-z][a-z0-9]{1,31});", re.IGNORECASE)
"""Pattern of an HTML entity, whose ampersand may have been escaped again."""
_NOT = re.compile(r"n'\s*t\b")
_CLITIC = re.compile(r"'\s*(?=(?:s|d|m|t|re|ve|ll)\b)")
"""Pattern of an apostrophe before an English clitic, which is joined to the word before it."""
_PARTED = {
    first: re.compile(rf"{first}\s+(?={second}\b)")
    for first, second in (("can", "not"), ("gon", "na"), ("wan", "na"), ("got", "ta"))
}
"""Patterns of words that the Penn Treebank's tokenization splits without an apostrophe, such as "can not"."""
_BRACKET = re.compile("-[lr][rsc]b-")
"""Pattern of brackets in the notation of the Penn Treebank, such as -lrb-."""
NORMALIZATION = 4
"""Version of `comparable`. It is a part of a dataset's fingerprint."""
_LETTER = "\x0e"
"""Sign that is put before a letter that is a word by itself."""
_NEWLINE, _STOP, _SPACE = 1, 2, 4
_IS_WORD = np.array([byte >= 128 or chr(byte).isalnum() for byte in range(256)])
_MARKS = np.zeros(256, np.uint8)
_MARKS[list(b" \t\f\v\r\n" + _LETTER.encode())] |= _SPACE
_MARKS[list(b"\r\n")] |= _NEWLINE
_MARKS[list(b".!?")] |= _STOP
_MIX = np.uint64(0xD6E8FEB86659FD93)


def comparable(text: str) -> str:
    """Return the text in the normal form in which words are compared.

    The text is case-folded and in Unicode's form NFKC. Format characters (soft hyphens, zero-width spaces) are removed,
    and so are the vowel points of Arabic and Hebrew, which most texts omit. Other non-ASCII characters that are neither
    letters nor digits become spaces. A contraction becomes one word, however it is written: "don't", "don’t", "don`t",
    "do n't" and "dont" become "dont", "it 's" becomes "its", and "can not" becomes "cannot", even if a line ends within
    the contraction. The names that the Penn Treebank gives to brackets, such as -LRB-, become spaces. HTML entities
    become the characters that they stand for.
    """
    if "&" in text:
        text = _ENTITY.sub(lambda entity: html.unescape(f"&{entity[1]};"), text)
    text = text.casefold().replace("`", "'")
    if not text.isascii():
        text = _FOREIGN.sub(lambda sign: _ascii_form(sign[0]), text)
    if not text.isascii():  # more than curly quotes was not ASCII
        text = _MANY_MARKS.sub(r"\1", text)
        text = unicodedata.normalize("NFKC", text).replace("\u02bc", "'").casefold()
        text = _FOREIGN.sub(lambda mark: _mark_replacement(mark[0]), text)
    text = _replace_with_gap(_CLITIC, "", _replace_with_gap(_NOT, "nt", text))
    for first, pattern in _PARTED.items():
        text = pattern.sub(first, text)
    return _BRACKET.sub(" ", text) if "b-" in text else text


def _replace_with_gap(pattern: re.Pattern[str], replacement: str, text: str) -> str:
    """Replace each match of a pattern in a text, and the white space before the match; return the new text."""
    *before, rest = pattern.split(text)
    return replacement.join([*map(str.rstrip, before), rest])


@functools.lru_cache(1 << 12)
def _mark_replacement(mark: str) -> str:
    """Return the replacement of a combining mark that NFKC did not compose with its letter.

    The replacement is "" for a vowel point of Hebrew or Arabic, the mark itself if it is part of a word, and otherwise
    a space.
    """
    if unicodedata.combining(mark) in _POINTS:
        return ""
    return mark if unicodedata.category(mark) in ("Mn", "Mc") and not is_unspaced(mark) else " "


@functools.lru_cache(1 << 12)
def _ascii_form(sign: str) -> str:
    """Return the replacement of a non-ASCII character that is neither a letter nor a digit: its ASCII form, or a space.

    The result is a space if the character has no ASCII form, and "" if it is invisible. A combining mark is returned
    unchanged, because NFKC composes it with its letter later.
    """
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
    """Return the first `size` powers, from exponent 0, of GOLDEN, the base of the rolling hash (`shards.rolling`).

    Returns:
        The powers of GOLDEN, and the powers of its inverse modulo 2^64, (size,) int64 each.
    """
    up, down = (rolling.powers(np.empty(size, np.int64), base) for base in (GOLDEN, rolling.INVERSE))
    return up, down


class WordHashes:
    """The words of a text, from which hashes of runs of words are computed.

    The hash of a run of words is the rolling hash (`shards.rolling`) of the bytes of the words, joined by spaces. Its
    bits are then mixed, because the low bits of a rolling hash are weak.
    """

    _up, _down = _powers(1 << 12)

    def __init__(self, *texts: str) -> None:
        """Read a text, or several texts, each as a line of one text.

        An n-gram may span two texts; a word or a contraction does not.
        """
        self._read("\n".join(map(comparable, texts)))

    def _read(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Find the words and sentences of a text, and set the attributes from which hashes are computed.

        Args:
            text: a text in normal form (`comparable`).

        Returns:
            data: the bytes of the text, (n,) uint8, with the byte _LETTER before each letter that is a word by itself.
            starts: for each word, the index in `data` of its first byte, (words,) int64.
        """
        text = text.replace(_LETTER, " ")
        if not text.isascii():
            text = _LETTER_RUN.sub(lambda run: f"{_LETTER}{_LETTER.join(run[0])} ", text)
        data = np.frombuffer(text.encode("utf-8", "replace"), np.uint8)
        is_word = _IS_WORD[data]
        edges = np.flatnonzero(np.diff(is_word, prepend=False, append=False))
        starts, ends = edges[::2], edges[1::2]
        self.starts = self.ends = self.unit_starts = self.unit_ends = starts
        self.sums = np.zeros(1, np.int64)
        is_letter = data[starts - 1] == ord(_LETTER)
        self.has_letters = bool(is_letter.any())
        self.letters_before = bounds(is_letter)
        if not len(starts):
            return data, starts
        # `joined`: the words with one space between them; `starts` and `ends` are their places in it.
        kept = is_word
        kept[ends[:-1]] = True
        joined = data[kept]
        self.ends = np.cumsum(ends - starts + 1) - 1
        self.starts = self.ends - (ends - starts)
        joined[self.ends[:-1]] = ord(" ")
        if len(joined) > len(self._up):
            WordHashes._up, WordHashes._down = _powers(2 * len(joined))
        self.sums = np.zeros(len(joined) + 1, np.int64)
        np.cumsum((joined.astype(np.int64) + 1) * self._up[: len(joined)], out=self.sums[1:])
        # A unit is a sentence or a part of a sentence. It ends at the end of a line, or at a stop followed by a space.
        between = _marks_between(data, starts, ends)
        is_end = ((between & _NEWLINE) > 0) | ((between & (_STOP | _SPACE)) == _STOP | _SPACE)
        self.unit_ends = np.append(np.flatnonzero(is_end) + 1, len(starts))
        self.unit_starts = np.append(0, self.unit_ends[:-1])
        return data, starts

    def _has_letters(self, first: np.ndarray, end: np.ndarray) -> np.ndarray:
        has_letters: np.ndarray = self.letters_before[end] > self.letters_before[first]
        return has_letters

    def _hashes(self, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Return the hashes of m runs of words, (m,) uint64. Run i has the words first[i] to last[i], both included.

        Args:
            first, last: indices of words, (m,) int64 each.
        """
        mixed: np.ndarray = rolling.hashes(self.sums, self._down, self.starts[first], self.ends[last]).view(np.uint64)
        mixed = (mixed ^ (mixed >> np.uint64(32))) * _MIX
        mixed ^= mixed >> np.uint64(29)
        return mixed

    def ngrams(self, size: int = NGRAM, num_letters: int = NGRAM_LETTERS) -> np.ndarray:
        """Return the hashes of all n-grams of the text, in no particular order, (n,) uint64.

        A text that is shorter than an n-gram has none.

        Args:
            size: the number of words of an n-gram, unless it contains a letter of a script without spaces between
                words. In such a script, each letter is a word.
            num_letters: the number of words of an n-gram that contains such a letter.
        """
        return self._hashes(*self._ngrams(size, num_letters))

    @classmethod
    def ngrams_of(cls, texts: Sequence[str], size: int, num_letters: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the hashes of the n-grams of each text, and the index of the text that each hash belongs to.

        A text that is shorter than an n-gram has one hash, of all its words. A text without words has none.

        Args:
            size: the number of words of an n-gram, unless it contains a letter of a script without spaces between
                words. In such a script, each letter is a word.
            num_letters: the number of words of an n-gram that contains such a letter.

        Returns:
            The hashes, (n,) uint64, in no particular order, and the indices of their texts, (n,) int64.
        """
        words = cls.__new__(cls)
        data, starts = words._read("\n".join(comparable(text).replace("\n", " ") for text in texts))
        line = np.searchsorted(np.flatnonzero(data == ord("\n")), starts)
        first, last = words._ngrams(size, num_letters)
        within = line[first] == line[last]
        first, last = first[within], last[within]
        has_ngrams = np.zeros(line[-1] + 1 if len(line) else 0, bool)
        has_ngrams[line[first]] = True
        starts = np.flatnonzero(np.diff(line, prepend=-1))
        ends = np.append(starts[1:], len(line)) - 1
        short = ~has_ngrams[line[starts]]
        first, last = np.append(first, starts[short]), np.append(last, ends[: len(starts)][short])
        return words._hashes(first, last), line[first]

    def _ngrams(self, size: int, num_letters: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices of the first and the last word of each n-gram, (n,) int64 each.

        In a script without spaces between words, such as Chinese, each letter is a word. An n-gram that contains such a
        letter has `num_letters` words, and any other n-gram has `size` words.
        """
        first = np.arange(len(self.starts) - size + 1)
        if not self.has_letters:
            return first, first + size - 1
        first = first[~self._has_letters(first, first + size)]
        longer = np.arange(len(self.starts) - num_letters + 1)
        longer = longer[self._has_letters(longer, longer + num_letters)]
        return np.append(first, longer), np.append(first + size - 1, longer + num_letters - 1)

    def sentences(self, min_words: int = SHORTEST) -> np.ndarray:
        """Return the hashes of the sentences and lines that have fewer words than an n-gram, (n,) uint64.

        An n-gram has 8 words (NGRAM), or 12 (NGRAM_LETTERS) if it contains a letter of a script without spaces between
        words; each such letter is a word. A sentence may be wrapped over several lines. Therefore consecutive sentences
        or lines that together have fewer words than an n-gram are also hashed as one sentence.

        Args:
            min_words: the minimum number of words of a sentence; shorter sentences are left out.
        """
        runs = []
        longest = (NGRAM_LETTERS if self.has_letters else NGRAM) - 1
        first = last = np.arange(len(self.unit_starts))
        while len(first):
            starts, ends = self.unit_starts[first], self.unit_ends[last]
            runs.append(self._short(starts, ends, min_words))
            can_grow = (ends - starts < longest) & (last + 1 < len(self.unit_ends))
            first, last = first[can_grow], last[can_grow] + 1
        return np.concatenate(runs) if runs else np.empty(0, np.uint64)

    def whole(self) -> np.ndarray:
        """Return the hash of the whole text, (1,) uint64, if the text is short; otherwise an empty array.

        A text is short if it has from 1 to 7 words, fewer than an n-gram (NGRAM). If it contains a letter of a script
        without spaces between words, it is short if it has from 1 to 11 words (NGRAM_LETTERS is 12); each such letter
        is a word.
        """
        return self._short(self.unit_starts[:1], self.unit_ends[-1:], min_words=1)

    def _short(self, starts: np.ndarray, ends: np.ndarray, min_words: int) -> np.ndarray:
        """Return the hashes of the runs with at least `min_words` words and fewer words than an n-gram, (n,) uint64.

        An n-gram has 8 words (NGRAM), or 12 (NGRAM_LETTERS) if it contains a letter of a script without spaces between
        words; each such letter is a word.

        Args:
            starts, ends: runs of words, (m,) int64 each. Run i has the words starts[i], ..., ends[i] - 1.
        """
        lengths = ends - starts
        most = np.where(self._has_letters(starts, ends), NGRAM_LETTERS, NGRAM) if self.has_letters else NGRAM
        wanted = (lengths >= min_words) & (lengths < most)
        return self._hashes(starts[wanted], ends[wanted] - 1)


def _marks_between(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the characters between each of n words and the next word, as a set of bits, (n - 1,) uint8.

    The bits are _NEWLINE for the end of a line, _STOP for a full stop, question mark or exclamation mark, and _SPACE
    for white space or the byte _LETTER.

    Args:
        data: the bytes of the text, uint8, with the byte _LETTER before each letter that is a word by itself.
        starts, ends: for each word, the index of its first byte and of the byte after its last, (n,) int64 each.
    """
    if len(starts) < 2:
        return np.empty(0, np.uint8)
    gaps = np.column_stack([ends[:-1], starts[1:]]).ravel()
    marks: np.ndarray = np.bitwise_or.reduceat(_MARKS[data], gaps)[::2]
    return marks
