"""Identification of the language of a text by py3langid, from an excerpt.

py3langid (BSD) knows 140 languages, has its model in its wheel (4.5 MB), and takes 130 MB of memory in each process.
`docs/benchmarks.md` compares it with lingua, whose models for all languages take 1 GB.

The probabilities are a softmax over the languages, whose temperature depends on the length of the text. py3langid
distinguishes some languages that users know by one name (`MEMBERS`).
"""

import functools
from typing import TYPE_CHECKING

from clearspan.common.errors import check_extra

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

PACKAGE = "py3langid"
EXCERPT = 300
"""Number of characters that are examined at the beginning of a text, and again in its middle. Longer excerpts change
the result for less than 0.5 % of the texts of `docs/benchmarks.md`, and take proportionally more time."""
MEMBERS = {
    "ar": ("ary", "arz"),
    "ku": ("sdh",),
    "lv": ("ltg",),
    "no": ("nn",),
    "uz": ("uzs",),
    "zh": ("wuu", "yue"),
}
"""Code of a macrolanguage -> further codes of py3langid for languages that belong to it."""


@functools.cache
def identifier() -> "LanguageIdentifier":
    """Return py3langid's detector, which is loaded once per process.

    Raises:
        PipelineError: the extra `language` is not installed.
    """
    check_extra("language", PACKAGE, feature="`language`")
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def excerpt(text: str) -> str:
    """Return the part of a text from which its language is identified.

    This is the whole text or, if it has more than 600 characters, the first 300 characters, a space, and 300 characters
    from the middle.
    """
    middle = len(text) // 2
    return text if len(text) <= 2 * EXCERPT else f"{text[:EXCERPT]} {text[middle : middle + EXCERPT]}"
