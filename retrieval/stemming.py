"""Split a text into the words that BM25 compares: folded and, if a language is chosen, without endings.

    "Ein Ärger mit HÄUSERN" ──> folded (`common.words`): ein, ärger, mit, häusern ──> endings: ein, arg, mit, haus

BM25 takes any `WordFunction`: it splits a text into words, and has a key that becomes part of the names of stored
indexes. Commands use `Words`. The stemmers are Snowball's, from PyStemmer (extra `search`).
"""

import dataclasses
import functools
import unicodedata
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, Protocol

from clearspan.common import same_text
from clearspan.common import words as plain

STEMMERS = (
    "arabic", "armenian", "basque", "catalan", "danish", "dutch", "english", "finnish", "french", "german", "greek",
    "hindi", "hungarian", "indonesian", "irish", "italian", "lithuanian", "nepali", "norwegian", "portuguese",
    "romanian", "russian", "serbian", "spanish", "swedish", "tamil", "turkish", "yiddish",
)  # fmt: skip
"""Languages whose endings PyStemmer removes."""
TURKIC = ("turkish",)
"""Languages of STEMMERS whose alphabet has the letters ı and i, where others have i alone."""


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
        return key | {"stemmer": self.stemmer, "PyStemmer": version("PyStemmer")} if self.stemmer else key

    def __call__(self, text: str) -> list[str]:
        found = plain.words(plain.folded(text, self.stemmer in TURKIC))
        return _stemmer(self.stemmer)(found) if self.stemmer else found


PLAIN = Words()
"""Words without stemming."""


@functools.cache
def _stemmer(language: str) -> Callable[[list[str]], list[str]]:
    import Stemmer  # the extra `search`

    stemmer: Any = Stemmer.Stemmer(language)
    return stemmer.stemWords  # type: ignore[no-any-return]
