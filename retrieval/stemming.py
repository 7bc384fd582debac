"""Split a text into the words that BM25 compares: folded and, if a language is chosen, without endings.

    "Ein Ärger mit HÄUSERN" ──> folded (`common.words`): ein, ärger, mit, häusern ──> endings: ein, arg, mit, haus

BM25 takes any `WordFunction`: it splits a text into words, and has a key that becomes part of the names of stored
indexes. Commands use `Words`, with the stemmer of the language of the texts (`stemmer_of`) if the user names none. The
stemmers are Snowball's, from PyStemmer, but for Korean: its particles join the words before them, also foreign ones, so
words are cut where the script changes, and each two syllables in a row are compared.
"""

import dataclasses
import functools
import itertools
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import version
from typing import Protocol

import regex

from clearspan.common import same_text
from clearspan.common import words as plain
from clearspan.common.errors import check_extra
from clearspan.common.language import MEMBERS, excerpt, identifier

STEMMERS = (
    "arabic", "armenian", "basque", "catalan", "danish", "dutch", "english", "finnish", "french", "german", "greek",
    "hindi", "hungarian", "indonesian", "irish", "italian", "korean", "lithuanian", "nepali", "norwegian",
    "portuguese", "romanian", "russian", "serbian", "spanish", "swedish", "tamil", "turkish", "yiddish",
)  # fmt: skip
"""Languages whose endings BM25 can ignore."""
KOREAN, KOREAN_VERSION = "korean", 1
"""The language of STEMMERS without a stemmer of PyStemmer, and the version of what replaces it."""
LANGUAGES = {
    "ar": "arabic", "hy": "armenian", "eu": "basque", "ca": "catalan", "da": "danish", "nl": "dutch", "en": "english",
    "fi": "finnish", "fr": "french", "de": "german", "el": "greek", "hi": "hindi", "hu": "hungarian",
    "id": "indonesian", "ga": "irish", "it": "italian", "ko": "korean", "lt": "lithuanian", "ne": "nepali",
    "no": "norwegian", "pt": "portuguese", "ro": "romanian", "ru": "russian", "sr": "serbian", "es": "spanish",
    "sv": "swedish", "ta": "tamil", "tr": "turkish",
}  # fmt: skip
"""Code of ISO 639-1 -> the language of STEMMERS, for the languages that can be identified."""
VERSION = 2
"""Version of the method by which the language of a collection is identified, increased whenever it changes."""
AUTO, NO_STEMMER = "auto", "none"
"""Stemmers besides those of languages: that of the language of the texts, and none at all."""
CHOICES = (*STEMMERS, NO_STEMMER)
"""Values of the option `stemmer`, whose default is AUTO."""
_MACROLANGUAGES = {member: code for code, members in MEMBERS.items() for member in members}
MIN_PROBABILITY = 0.5
"""Probability of a text's language below which the text counts as of none: numbers and product codes have less than
0.15, lists of short words 0.4, titles of two words in German, joined to 200 characters, 0.83 or more."""
NUM_SAMPLED, MIN_SHARE, MIN_CHARACTERS = 200, 0.8, 200
"""Number of texts by which the language of a collection is identified; the share that must have this language; and the
length below which texts are joined to one, since the language of a title alone is uncertain."""
MAX_STEMS = 100_000
"""Number of words whose stems are held in memory."""
TURKIC = ("turkish",)
"""Languages of STEMMERS whose alphabet has the letters ı and i, where others have i alone."""


_RUNS = regex.compile(r"(?P<hangul>\p{Hangul}+)|\P{Hangul}+")


class WordFunction(Protocol):
    """Function that splits a text into the words that BM25 compares; a word must not contain a line break."""

    @property
    def key(self) -> dict[str, str | int]:
        """The versions and settings that determine the words, by name. A stored BM25 index's name depends on them."""

    def __call__(self, text: str) -> list[str]: ...


@dataclasses.dataclass(frozen=True)
class Words:
    """The function that commands use to split a text into the words that BM25 compares.

    Words are compared without letter case and in one Unicode form (`common.words.folded`).

    Attributes:
        stemmer: the language whose word endings are removed, such as `german` (one of STEMMERS); None to keep them.
            With `turkish`, the lower case of I is ı.

    Raises:
        ValueError: the language is not one of STEMMERS.
    """

    stemmer: str | None = None

    def __post_init__(self) -> None:
        if self.stemmer not in (None, *STEMMERS):
            raise ValueError(f"`stemmer` {self.stemmer}: choose {', '.join(STEMMERS[:-1])} or {STEMMERS[-1]}")

    @property
    def key(self) -> dict[str, str | int]:
        """The versions of the words, their form, `regex` and Python's Unicode, and the stemmer and its version."""
        key: dict[str, str | int] = {"words": plain.VERSION, "regex": version("regex")}
        key |= {"same_text": same_text.VERSION, "unicode": unicodedata.unidata_version}
        return key | _versions(self.stemmer) if self.stemmer else key

    def __call__(self, text: str) -> list[str]:
        found = plain.words(plain.folded(text, self.stemmer in TURKIC))
        return _stemmer(self.stemmer)(found) if self.stemmer else found


def stemmer_of(texts: Iterable[str]) -> str | None:
    """Return the stemmer, one of STEMMERS, for the language of texts; None for whole words.

    The stemmer is that of the language of 80 % or more of the texts (MIN_SHARE), where short texts count as one with
    those that follow; None if no language has so many, or if PyStemmer has no stemmer for it.

    Args:
        texts: a sample of a collection, of which 200 texts (NUM_SAMPLED) are read at most.
    """
    numbers = Counter(map(_language, itertools.islice(_joined(texts), NUM_SAMPLED)))
    language, number = max(numbers.items(), key=lambda item: item[1], default=("", 0))
    return LANGUAGES.get(language) if number >= MIN_SHARE * numbers.total() else None


def _language(text: str) -> str:
    """Return the code of a text's language; "" if no language is probable, as for numbers and product codes."""
    code, probability = identifier().classify(excerpt(text))
    return _MACROLANGUAGES.get(code, str(code)) if probability >= MIN_PROBABILITY else ""


def spread(texts: Sequence[str]) -> list[str]:
    """Return at most 200 texts of a collection (NUM_SAMPLED), evenly spread."""
    return [texts[row] for row in spread_rows(len(texts))]


def spread_rows(number: int) -> list[int]:
    """Return at most 200 rows of `number` (NUM_SAMPLED), evenly spread, ascending."""
    count = min(number, NUM_SAMPLED)
    return [row * number // count for row in range(count)]


def _joined(texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts; short ones are joined with those that follow, so that each but the last has 200 characters."""
    parts: list[str] = []
    for text in texts:
        parts.append(text)
        if sum(map(len, parts)) >= MIN_CHARACTERS:
            yield " ".join(parts)
            parts.clear()
    if any(map(str.strip, parts)):
        yield " ".join(parts)


def words_named(stemmer: str | None, sample: Callable[[], Iterable[str]]) -> Words:
    """Return the words that BM25 compares for a value of the option `stemmer`.

    Args:
        stemmer: one of STEMMERS; `auto` for the language of the texts; `none` or None to compare whole words.
        sample: function that returns a sample of the texts, which is called for `auto`.

    Raises:
        PipelineError: a package is not installed.
    """
    if stemmer in (None, NO_STEMMER):
        return PLAIN
    check_packages(stemmer)
    return Words(stemmer_of(sample()) if stemmer == AUTO else stemmer)


def versions_of(stemmer: str) -> dict[str, str | int]:
    """Return a value of the option `stemmer`, and the versions of all that the words then depend on, for a record."""
    if stemmer == NO_STEMMER:
        return {"stemmer": stemmer}
    check_packages(stemmer)
    identified: dict[str, str | int] = {
        "language": VERSION,
        "py3langid": version("py3langid"),
        "korean": KOREAN_VERSION,
    }
    return _versions(stemmer) | (identified if stemmer == AUTO else {})


def _versions(stemmer: str) -> dict[str, str | int]:
    of_words = {"korean": KOREAN_VERSION} if stemmer == KOREAN else {"PyStemmer": version("PyStemmer")}
    return {"stemmer": stemmer, **of_words}


def check_packages(stemmer: str) -> None:
    """Raise PipelineError if a package that a stemmer or `auto` needs is not installed."""
    needed = {AUTO: ("Stemmer", "py3langid"), KOREAN: ()}.get(stemmer, ("Stemmer",))
    check_extra("search", *needed, feature="BM25 with stems (`stemmer` none compares whole words)")


def of_language(stemmer: str) -> str:
    """Return the line that says which stemmer was chosen for a collection."""
    if stemmer == KOREAN:
        return "BM25 compares two syllables of Korean words at a time; `stemmer` none compares whole words"
    return f"BM25 ignores {stemmer.title()} word endings, the texts' language; `stemmer` none compares whole words"


PLAIN = Words()
"""Words without stemming."""


@functools.cache
def _stemmer(language: str) -> Callable[[list[str]], list[str]]:
    if language == KOREAN:
        return _syllables
    import Stemmer

    stems = _Stems(Stemmer.Stemmer(language, 0).stemWord)
    return lambda words: list(map(stems.__getitem__, words))


class _Stems(dict[str, str]):
    """Word -> stem, of at most 100,000 words (MAX_STEMS): faster than PyStemmer's own cache, which has 10,000."""

    def __init__(self, stem: Callable[[str], str]) -> None:
        super().__init__()
        self._stem = stem

    def __missing__(self, word: str) -> str:
        if len(self) >= MAX_STEMS:
            self.clear()
        self[word] = stem = self._stem(word)
        return stem


def _syllables(words: list[str]) -> list[str]:
    """Return each two syllables in a row of Korean words, and what is not Hangul: gnome용 -> gnome, 용."""
    found = []
    for run in (run for word in words for run in _RUNS.finditer(word)):
        start, end = run.span("hangul")
        found += [run.string[at : at + 2] for at in range(start, end - 1)] or [run[0]]
    return found
