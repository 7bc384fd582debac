"""Contracts of text filters and of language detectors, and lookup of a built-in filter or a user's own by name.

    text -> detector: is it in a language to keep? -> each filter: True to keep it, or (False, reason)

A filter is a function of a document, as in datatrove. It may shorten the document's text, and must then count the lines
that it removes. Reasons are counted with the filter's name before them. With `--quality my_module:long_enough`, the
documents that this filter drops are counted as `long_enough_short`:

    def long_enough(document):
        return len(document.text) >= 200 or (False, "short")
"""

import dataclasses
import functools
import hashlib
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from clearspan.common import plugins
from clearspan.common.plugins import PluginError
from clearspan.common.terminal import visible
from clearspan.pipelines.counter import RecordError

FILTERS = {name: f"clearspan.plugins.quality:{name.upper()}" for name in ("gopher", "c4")}
"""Built-in filters by name (`--quality`)."""
MAX_VALUE = 80
"""Maximum number of characters of a reason, and of a filter's answer that an error message shows."""
DETECTOR = "clearspan.plugins.language:DETECTOR"


@dataclasses.dataclass
class FilteredText:
    """A document, as a filter sees it.

    Attributes:
        text: the text, which a filter may replace by a shortened text.
        language: code of the text's language, e.g. "de"; None if it was not identified.
        removed: reason -> number of removed lines. A filter that removes lines adds their number here.
    """

    text: str
    language: str | None = None
    removed: Counter[str] = dataclasses.field(default_factory=Counter)


Answer = bool | tuple[bool, str]
"""A filter's answer: True to keep the document, False or (False, reason) to drop it."""


@dataclasses.dataclass(frozen=True)
class NamedFilter:
    """A filter of texts and its name.

    Attributes:
        name: the name that the user gives: `gopher`, or `module:name`.
        function: the function, or the callable object, that filters.
        version: the function's attribute `version`, or else a hash of the file that defines the function. The version
            is a part of a dataset's fingerprint.
        declared: the function's attribute `reasons`: reasons that are reported even if they drop no document.
    """

    name: str
    function: Callable[[FilteredText], Answer]
    version: int | str
    declared: tuple[str, ...] = ()

    @property
    def prefix(self) -> str:
        """The prefix of the filter's reasons: its name without the module, and an underscore."""
        return f"{self.name.rpartition(':')[2]}_"

    @property
    def reasons(self) -> tuple[str, ...]:
        """The declared reasons, with the prefix under which they are counted."""
        return tuple(f"{self.prefix}{reason}" for reason in self.declared)

    def reason(self, document: FilteredText) -> str:
        """Call the filter, and return the reason to drop the document, with `prefix`; "" to keep the document.

        Raises:
            RecordError: the filter raises an error, returns something other than True, False or (False, reason), or
                sets the document's text to something other than a string; or the reason is not printable or has more
                than 80 characters.
        """
        try:
            answer = self.function(document)
        except RecordError:
            raise
        except (Exception, SystemExit) as error:  # the user's code may raise anything
            raise RecordError(f"the filter {self.name} raised {plugins.cause(error)}") from None
        kept, reason = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, "")
        if not isinstance(kept, bool | np.bool_) or not isinstance(reason, str) or not isinstance(document.text, str):
            wanted = "True to keep a document, or (False, reason), and leave its text a string"
            raise RecordError(f"the filter {self.name} must return {wanted}; it returned {_shown(answer)}")
        if len(reason) > MAX_VALUE or not reason.isprintable():
            wanted = f"a reason in one line of at most {MAX_VALUE} characters"
            raise RecordError(f"the filter {self.name} must return {wanted}; it returned {_shown(reason)}")
        return "" if kept else f"{self.prefix}{reason}" if reason else self.prefix.removesuffix("_")

    def described(self) -> dict[str, str | int]:
        """Return the filter's entry in a dataset's fingerprint: its name and version."""
        return {"name": self.name, "version": self.version}


@functools.cache
def text_filter(name: str) -> NamedFilter:
    """Return the filter with this name: the name of a built-in filter, or `module:name` of a user's own filter.

    A user's own filter is a function, or a class whose instance, made without arguments, is called like a function. It
    may have an attribute `version`, a number or a text, which becomes a part of the dataset's fingerprint; without one,
    a hash of its source file is used.

    Raises:
        ValueError: there is no such filter, or it cannot be used, for example because its `version` has another type.
            The message begins with the name.
    """
    if name not in FILTERS and not plugins.is_spec(name):
        raise ValueError(f"{name}: choose {', '.join(FILTERS)}, or a filter of your own as module:name")
    spec = FILTERS.get(name, name)
    loaded = plugins.load_function(spec, "a filter of texts (a function of a document)")
    function = plugins.call(spec, loaded, "without arguments") if inspect.isclass(loaded) else loaded
    if not callable(function):
        raise PluginError(f"{spec}: has no __call__, which filters a document")
    version = getattr(function, "version", None)
    if version is None:
        version = _hash_of_source(spec)
    if not isinstance(version, int | str):
        raise PluginError(f"{spec}: its version must be a number or a text, not {_shown(version)}")
    declared: Any = getattr(function, "reasons", ())
    if isinstance(declared, str) or not all(isinstance(reason, str) for reason in declared):
        raise PluginError(f"{spec}: its reasons must be texts, not {_shown(declared)}")
    return NamedFilter(name, function, version, tuple(declared))


def _hash_of_source(spec: str) -> str:
    """Return a hash of the source file of the module in `spec`, which is `module:name`. Any edit changes the hash.

    Raises:
        PluginError: the source file cannot be read.
    """
    module = sys.modules[spec.partition(":")[0]]
    try:
        return hashlib.sha256(Path(str(module.__file__)).read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise PluginError(
            f"{spec}: the source of its module cannot be read ({error.strerror}): give it an attribute version"
        ) from None


def _shown(value: object) -> str:
    return visible(repr(value)[:MAX_VALUE])


class LanguageDetector(Protocol):
    """Detector of languages. A language is a code such as "de"."""

    @property
    def version(self) -> str:
        """The detector's name and version, which become part of a dataset's fingerprint."""

    def known(self) -> list[str]:
        """Return the codes of the languages that the detector can identify, sorted.

        Raises:
            PipelineError: the detector's package is not installed.
        """

    def likeliest(self, text: str, languages: Sequence[str]) -> tuple[str, float]:
        """Return the most probable language of a text, and its probability, from 0 to 1.

        Args:
            languages: the codes of the languages to choose from.
        """


@functools.cache
def detector() -> LanguageDetector:
    """Return the language detector, which is loaded at the first call."""
    return plugins.load_object(DETECTOR, LanguageDetector, "a detector of languages")
