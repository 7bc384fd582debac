"""Contracts of the parts that select texts, and the names by which they are loaded as a user's own would be.

text -> detector: is it in a wanted language? -> each filter: what is left of it, or why it is dropped
"""

import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from clearspan.common.plugins import load_object

FILTERS = {name: f"clearspan.plugins.quality:{name.upper()}" for name in ("gopher", "c4")}
"""Filters by name (`--quality`)."""
DETECTOR = "clearspan.plugins.language:DETECTOR"


class Verdict(NamedTuple):
    """The text that is left, the reason to drop it ("" to keep it), and the number of removed lines by reason."""

    text: str
    reason: str = ""
    removed: Mapping[str, int] = MappingProxyType({})


class TextFilter(Protocol):
    """A filter of texts.

    Attributes:
        version: part of a dataset's fingerprint.
        reasons: reasons for which it drops a text.
        removed: reasons for which it removes a line.
    """

    version: int
    reasons: tuple[str, ...]
    removed: tuple[str, ...]

    def judge(self, text: str, language: str | None) -> Verdict:
        """Return the verdict on a text, whose language may be known; raise RecordError if the filter fails on it."""


class LanguageDetector(Protocol):
    """A detector of languages, which are codes such as "de"."""

    @property
    def version(self) -> str:
        """Its name and version, for a dataset's fingerprint."""

    def known(self) -> list[str]:
        """Return the languages that it knows, sorted; raise PipelineError if it is not installed."""

    def likeliest(self, text: str, languages: Sequence[str]) -> tuple[str, float]:
        """Return the language among these that a text is most probably in, and the probability, from 0 to 1."""


@functools.cache
def text_filter(name: str) -> TextFilter:
    """Return the filter of a name."""
    return load_object(FILTERS[name], TextFilter, "a filter of texts")


@functools.cache
def detector() -> LanguageDetector:
    """Return the detector of languages."""
    return load_object(DETECTOR, LanguageDetector, "a detector of languages")
