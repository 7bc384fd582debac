"""Find words in texts of any language.

Scripts that are written without spaces between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese) are cut into single
characters. `regex` knows them, and counts combining marks as parts of a word, which `re` does not.

`Words` is what BM25 compares of a text: its words in lower case, perhaps without their endings.
"""

import dataclasses
import functools
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import regex

VERSION = 1
"""Version of what a word is, increased whenever that changes: part of the name of what is kept of words."""
_WITHOUT_SPACES = "".join(
    rf"\p{{{script}}}" for script in ("Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar")
)
_WORD = regex.compile(rf"[{_WITHOUT_SPACES}]|[^\W{_WITHOUT_SPACES}]{{2,}}")
_UNIT = regex.compile(rf"[{_WITHOUT_SPACES}]|[^\s{_WITHOUT_SPACES}]+")

STEMMERS = (
    "arabic", "armenian", "basque", "catalan", "danish", "dutch", "english", "finnish", "french", "german", "greek",
    "hindi", "hungarian", "indonesian", "irish", "italian", "lithuanian", "nepali", "norwegian", "portuguese",
    "romanian", "russian", "serbian", "spanish", "swedish", "tamil", "turkish", "yiddish",
)  # fmt: skip
"""Languages whose endings PyStemmer removes."""


def words(text: str) -> list[str]:
    """Return a text's words without punctuation: runs of two or more letters or digits, as in scikit-learn."""
    found: list[str] = _WORD.findall(text)
    return found


def places(text: str) -> list[tuple[int, int]]:
    """Return (start, end) of each of `words(text)`, in characters."""
    return [match.span() for match in _WORD.finditer(text)]


def word_spans(text: str) -> list[tuple[int, int]]:
    """Return (start, end) of everything between spaces, in characters: words with their punctuation."""
    return [match.span() for match in _UNIT.finditer(text)]


@dataclasses.dataclass(frozen=True)
class Words:
    """The words of a text that BM25 compares, in lower case.

    Attributes:
        stemmer: a language of STEMMERS, whose endings are removed; None: words stay as they are.
    """

    stemmer: str | None = None

    def __post_init__(self) -> None:
        if self.stemmer not in (None, *STEMMERS):
            raise ValueError(f"--stemmer {self.stemmer}: choose {', '.join(STEMMERS[:-1])} or {STEMMERS[-1]}")

    @property
    def key(self) -> dict[str, str | int]:
        """Everything that decides what the words of a text are: names and versions."""
        key: dict[str, str | int] = {"words": VERSION, "regex": version("regex")}
        return key | {"stemmer": self.stemmer, "PyStemmer": version("PyStemmer")} if self.stemmer else key

    def __call__(self, text: str) -> list[str]:
        found = words(text.lower())
        return _stemmer(self.stemmer)(found) if self.stemmer else found


PLAIN = Words()
"""Words as they are."""


@functools.cache
def _stemmer(language: str) -> Callable[[list[str]], list[str]]:
    import Stemmer  # the extra `search`

    stemmer: Any = Stemmer.Stemmer(language)
    return stemmer.stemWords  # type: ignore[no-any-return]
