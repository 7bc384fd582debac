"""Filters of texts: the parts of a builder that decide which documents are kept, and their options.

    document -> MinWords -> Languages -> NamedFilter ...    each: filter(document) -> True to keep, or (False, reason)

`kept` calls the filters in turn, and counts what they drop, remove and measure. A user's own filter is a function of a
document, as in datatrove. It may shorten the document's text, and must then count the lines that it removes. Its
reasons are counted with its name before them. With `--quality my_module:long_enough`, the documents that this filter
drops are counted as `long_enough_short`:

    def long_enough(document):
        return len(document.text) >= 200 or (False, "short")
"""

import dataclasses
import functools
import hashlib
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol

import numpy as np
from annotated_types import Gt, Le

from clearspan.common import plugins
from clearspan.common.errors import PipelineError
from clearspan.common.options import Flag, Options
from clearspan.common.plugins import PluginError
from clearspan.common.terminal import visible
from clearspan.pipelines.counter import Counts, RecordError
from clearspan.shards.manifest import numbered

FILTERS = {name: f"clearspan.plugins.quality:{name.upper()}" for name in ("gopher", "c4")}
"""Built-in filters by name (`--quality`)."""
MAX_VALUE = 80
"""Maximum number of characters of a reason, and of a filter's answer that an error message shows."""
DETECTOR = "clearspan.plugins.language:DETECTOR"
LANGUAGE_THRESHOLD = 0.5
Threshold = Annotated[float | None, Flag("P"), Gt(0), Le(1)]


@dataclasses.dataclass
class FilteredText:
    """A document, as a filter sees it.

    Attributes:
        text: the text, which a filter may replace by a shortened text.
        language: code of the text's language, e.g. "de"; None if it was not identified.
        removed: reason -> number of removed lines. A filter that removes lines adds their number here.
        shortest: the part of the text whose words are counted, such as the shortest text of a row; None for all of it.
        measured: name of a size that a filter has measured, such as "words" -> the size.
    """

    text: str
    language: str | None = None
    removed: Counter[str] = dataclasses.field(default_factory=Counter)
    shortest: str | None = None
    measured: dict[str, int] = dataclasses.field(default_factory=dict)


Answer = bool | tuple[bool, str]
"""A filter's answer: True to keep the document, False or (False, reason) to drop it."""


class Filter(Protocol):
    """Filter of documents."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons that are counted even if they drop no document."""

    @property
    def prefix(self) -> str:
        """The beginning of the names under which removed lines are counted."""

    def filter(self, document: FilteredText) -> Answer:
        """Return True to keep a document, or (False, reason), the reason under which its drop is counted.

        Raises:
            RecordError: the document cannot be judged, and counts as bad.
        """


def kept(document: FilteredText, filters: Iterable[Filter], counts: Counts) -> FilteredText | None:
    """Return a document as the filters leave it: without the lines that they removed, and with its language.

    If a filter drops it, count it in `counts` as filtered and return None. What filters remove and measure is counted.

    Raises:
        RecordError: the code of a user's filter raises an error for this text, or returns something invalid.
    """
    for each in filters:
        document = dataclasses.replace(document, removed=Counter(), measured={})
        answer = each.filter(document)
        for name, size in document.measured.items():
            counts.measure(name, size)
        for reason, number in document.removed.items():
            counts.count(f"{each.prefix}{reason}", number)
        if answer is not True:
            _, reason = answer if isinstance(answer, tuple) else (False, each.prefix)
            counts.filtered[reason] = counts.filtered.get(reason, 0) + 1
            return None
    return document


@dataclasses.dataclass(frozen=True)
class MinWords:
    """Filter that drops texts of fewer words than `least`, counted by whitespace (`--min-words`)."""

    least: int

    reasons: ClassVar[tuple[str, ...]] = ("few_words",)
    prefix: ClassVar[str] = ""

    def filter(self, document: FilteredText) -> Answer:
        words = len((document.text if document.shortest is None else document.shortest).split())
        document.measured["words"] = words
        return words >= self.least or (False, "few_words")


@dataclasses.dataclass(frozen=True)
class Languages:
    """Filter that identifies the language of each text, and drops texts in other languages (`--language`).

    Attributes:
        codes: the codes of the languages to keep, at least one.
        min_probability: the least probability of the identified language.
    """

    codes: tuple[str, ...]
    min_probability: float

    reasons: ClassVar[tuple[str, ...]] = ("language",)
    prefix: ClassVar[str] = ""

    def filter(self, document: FilteredText) -> Answer:
        document.language, probability = detector().likeliest(document.text, self.codes)
        return probability >= self.min_probability or (False, "language")

    def described(self) -> dict[str, Any]:
        """Return the filter's entry in a dataset's fingerprint."""
        return {"keep": list(self.codes), "least": self.min_probability, "detector": detector().version}

    @classmethod
    def of(cls, codes: tuple[str, ...], threshold: float | None) -> "Languages | None":
        """Return the filter that --language and --language-threshold ask for; None if texts of any language are kept.

        Raises:
            ValueError: there is a threshold but no language; or the language detector is not installed, or does not
                know one of the languages.
        """
        if not codes:
            if threshold is None:
                return None
            raise ValueError("`language_threshold` has no effect without `language`: add it, e.g. `language` de,fr")
        try:
            known = detector().known()
        except PipelineError as error:
            raise ValueError(str(error)) from None
        if unknown := [code for code in codes if code not in known]:
            raise ValueError(f"`language` {unknown[0]}: the detector knows the languages {' '.join(known)}")
        return cls(codes, LANGUAGE_THRESHOLD if threshold is None else threshold)


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

    def filter(self, document: FilteredText) -> Answer:
        """Call the filter; return its answer, with a reason that begins with `prefix`.

        Raises:
            RecordError: the filter raises an error, returns something other than True, False or (False, reason), or
                sets the document's text to something other than a string; or the reason is not printable or has more
                than 80 characters.
        """
        language = document.language
        try:
            answer = self.function(document)
        except RecordError:
            raise
        except (Exception, SystemExit) as error:  # the user's code may raise anything
            raise RecordError(f"the filter {self.name} raised {plugins.cause(error)}") from None
        document.language = language  # only the detector says it
        is_kept, reason = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, "")
        is_answer = isinstance(is_kept, bool | np.bool_) and isinstance(reason, str)
        if not is_answer or not isinstance(document.text, str):
            wanted = "True to keep a document, or (False, reason), and leave its text a string"
            raise RecordError(f"the filter {self.name} must return {wanted}; it returned {_shown(answer)}")
        if len(reason) > MAX_VALUE or not reason.isprintable():
            wanted = f"a reason in one line of at most {MAX_VALUE} characters"
            raise RecordError(f"the filter {self.name} must return {wanted}; it returned {_shown(reason)}")
        return bool(is_kept) or (False, f"{self.prefix}{reason}" if reason else self.prefix.removesuffix("_"))

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageOptions(Options):
    """Options of the filter of languages."""

    language: Annotated[tuple[str, ...], Flag("CODES", commas=True)] = ()
    """Keep only texts in these languages: ISO 639-1 codes, e.g. de,fr (extra `language`; default: any language)."""
    language_threshold: Threshold = None
    """Minimum probability of the language that --language identifies, 0 to 1 (default 0.5)."""

    def validate(self) -> None:
        super().validate()
        Languages.of(self.language, self.language_threshold)

    @functools.cached_property
    def filter(self) -> Languages | None:
        """The filter; None if texts of any language are kept."""
        return Languages.of(self.language, self.language_threshold)


@dataclasses.dataclass(frozen=True, kw_only=True)
class QualityOptions(Options):
    """Options of the filters of quality."""

    quality: Annotated[tuple[str, ...], Flag("NAMES", commas=True)] = ()
    """Apply these filters in turn: gopher or c4 (English web pages), or your own as module:name (docs/data.md)."""

    def validate(self) -> None:
        super().validate()
        for name in self.quality:
            try:
                text_filter(name)
            except ValueError as error:
                raise ValueError(f"`quality` {error}") from None

    @property
    def filters(self) -> tuple[NamedFilter, ...]:
        return tuple(map(text_filter, self.quality))

    def described(self) -> dict[str, Any]:
        """Return the filters' entry in a dataset's fingerprint; {} if there are none."""
        return {"quality": [each.described() for each in self.filters]} if self.quality else {}

    def removed(self, sums: Mapping[str, int]) -> list[str]:
        """Return a line with the number of lines that the filters removed from texts; [] if they removed none.

        Args:
            sums: name of a count that the builder makes -> the count.
        """
        prefixes = tuple(each.prefix for each in self.filters)
        lines = {reason: number for reason, number in sums.items() if reason.startswith(prefixes)}
        return [f"lines removed: {', '.join(numbered(lines))}"] if lines else []
