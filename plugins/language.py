"""Identification of a text's language by py3langid, from an excerpt.

py3langid (BSD) knows 140 languages, has its model in its wheel (4.5 MB), and takes 130 MB of memory in each process.
`docs/benchmarks.md` compares it with lingua, whose models for all languages take 1 GB.

The probabilities are a softmax, scaled by the length of the text. The detector separates some languages for which users
have one name: the probabilities of the languages of an ISO 639-3 macrolanguage are added up, so that "zh" covers Wu and
Cantonese.
"""

import functools
from collections.abc import Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

from clearspan.common.flags import flag
from clearspan.pipelines.errors import check_extra

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

PACKAGE = "py3langid"
EXCERPT = 300
"""Characters examined at the beginning of a text, and as many again from its middle. More change the result for less
than 0.5 % of the texts of `docs/benchmarks.md`, and take longer in proportion."""
MEMBERS = {
    "ar": ("ary", "arz"),
    "ku": ("sdh",),
    "lv": ("ltg",),
    "no": ("nn",),
    "uz": ("uzs",),
    "zh": ("wuu", "yue"),
}
"""Languages of the detector that belong to a macrolanguage."""


@functools.cache
def identifier() -> "LanguageIdentifier":
    """Return the detector, which is loaded once per process.

    Raises:
        PipelineError: the extra `language` is not installed.
    """
    check_extra("language", PACKAGE, what=flag("--language"))
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def excerpt(text: str) -> str:
    """Return the part of a text from which its language is identified."""
    middle = len(text) // 2
    return text if len(text) <= 2 * EXCERPT else f"{text[:EXCERPT]} {text[middle : middle + EXCERPT]}"


class Py3langid:
    """The detector, as `pipelines.text.filters.LanguageDetector`."""

    @property
    def version(self) -> str:
        return f"{PACKAGE} {metadata.version(PACKAGE)}"

    def known(self) -> list[str]:
        """Return the codes of the languages that the detector knows, sorted."""
        return sorted(identifier().labels)

    def likeliest(self, text: str, languages: Sequence[str]) -> tuple[str, float]:
        """Return the most probable language of a text, among the given languages, and its probability, from 0 to 1."""
        ranked: dict[str, Any] = dict(identifier().rank(excerpt(text)))
        probabilities = {code: sum(ranked[one] for one in (code, *MEMBERS.get(code, ()))) for code in languages}
        best = max(languages, key=lambda code: probabilities[code])
        return best, float(probabilities[best])


DETECTOR = Py3langid()
