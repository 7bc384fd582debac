"""Detector of the language of a text for `--language`, by py3langid (`common.language`).

The probabilities of the languages of an ISO 639-3 macrolanguage are added up: "zh" includes Wu and Cantonese.
"""

from collections.abc import Sequence
from importlib import metadata
from typing import Any

from clearspan.common.errors import check_extra
from clearspan.common.language import MEMBERS, PACKAGE, excerpt, identifier


class Py3langid:
    """Detector of the language of a text, by py3langid. It implements `pipelines.text.filters.LanguageDetector`."""

    @property
    def version(self) -> str:
        check_extra("language", PACKAGE, feature="`language`")
        return f"{PACKAGE} {metadata.version(PACKAGE)}"

    def known(self) -> list[str]:
        """Return the codes of the languages that the detector knows, sorted.

        Raises:
            PipelineError: the extra `language` is not installed.
        """
        return sorted(identifier().labels)

    def likeliest(self, text: str, languages: Sequence[str]) -> tuple[str, float]:
        """Return the code and the probability, from 0 to 1, of the most probable language of a text.

        Args:
            text: the text, of which only an excerpt is read if it is long.
            languages: the codes of the languages to choose from.
        """
        ranked: dict[str, Any] = dict(identifier().rank(excerpt(text)))
        probabilities = {code: sum(ranked[one] for one in (code, *MEMBERS.get(code, ()))) for code in languages}
        best = max(languages, key=lambda code: probabilities[code])
        return best, float(probabilities[best])


DETECTOR = Py3langid()
