"""The words of a text that BM25 compares: in lower case, and without their endings where a language is chosen.

BM25 takes any `WordFunction`: a function that splits a text into words, with a key by which stored indexes of these
words are named. Commands use `Words`. The stemmers are Snowball's, from PyStemmer (extra `search`).
"""

import dataclasses
import functools
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, Protocol

from clearspan.common import words as plain
from clearspan.common.flags import flag

STEMMERS = (
    "arabic", "armenian", "basque", "catalan", "danish", "dutch", "english", "finnish", "french", "german", "greek",
    "hindi", "hungarian", "indonesian", "irish", "italian", "lithuanian", "nepali", "norwegian", "portuguese",
    "romanian", "russian", "serbian", "spanish", "swedish", "tamil", "turkish", "yiddish",
)  # fmt: skip
"""Languages whose endings PyStemmer removes."""


class WordFunction(Protocol):
    """A function of a text that returns the words that BM25 compares, which must hold no line break."""

    @property
    def key(self) -> dict[str, str | int]:
        """Names and versions of everything that decides which words a text has."""

    def __call__(self, text: str) -> list[str]: ...


@dataclasses.dataclass(frozen=True)
class Words:
    """The words of a text that BM25 compares, in lower case.

    Attributes:
        stemmer: a language of STEMMERS, whose endings are removed; None: words stay as they are.
    """

    stemmer: str | None = None

    def __post_init__(self) -> None:
        if self.stemmer not in (None, *STEMMERS):
            raise ValueError(f"{flag('--stemmer')} {self.stemmer}: choose {', '.join(STEMMERS[:-1])} or {STEMMERS[-1]}")

    @property
    def key(self) -> dict[str, str | int]:
        """The versions of `common.words` and of its tables, and the stemmer with its version."""
        key: dict[str, str | int] = {"words": plain.VERSION, "regex": version("regex")}
        return key | {"stemmer": self.stemmer, "PyStemmer": version("PyStemmer")} if self.stemmer else key

    def __call__(self, text: str) -> list[str]:
        found = plain.words(text.lower())
        return _stemmer(self.stemmer)(found) if self.stemmer else found


PLAIN = Words()
"""Words in lower case, without stemming."""


@functools.cache
def _stemmer(language: str) -> Callable[[list[str]], list[str]]:
    import Stemmer  # the extra `search`

    stemmer: Any = Stemmer.Stemmer(language)
    return stemmer.stemWords  # type: ignore[no-any-return]
