"""What the kinds of text share: a tokenizer, the field that holds the text, excluded texts, duplicates.

    record -> text -> (too few words: out) -> prepared as asked: single spaces, small letters -> ids -> ... -> examples

A text's id is of its own bytes as prepared, so that the same text has the same id however it is packed, and texts that
preparation makes equal are duplicates, on one side of a held-out part. Excluded texts are looked for in the text as
read, whose lines tell where sentences end. A space that the tokenizer puts before a text is none of the text's.
"""

import argparse
import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar

from clearspan.pipelines.kinds import Kind
from clearspan.pipelines.readers.formats import own_format
from clearspan.pipelines.readers.jsonl import json_name
from clearspan.pipelines.readers.text import unescaped
from clearspan.pipelines.records import Inputs, Reading, Record
from clearspan.pipelines.tally import Counts, MissingFieldError, RecordError, Tally
from clearspan.pipelines.text.exclude import Excluded, read_texts
from clearspan.pipelines.text.segmentation import normalise
from clearspan.pipelines.text.tokenization import (
    BACKENDS,
    Tokenization,
    TokenizerFiles,
    read_tokenizer,
    with_prefix_space,
    with_special_token,
)
from clearspan.shards.manifest import FILES_FOLDER

EXCLUDED = f"{FILES_FOLDER}/excluded.u64"
EXCLUDED_TEXTS = f"{FILES_FOLDER}/excluded.jsonl"
"""The hashes of the excluded texts, and their heads."""
EXCLUDE_TOGETHER = 64
MAX_TOKENS = 510
"""Of a sentence or a piece: with RoBERTa's or BERT's two special tokens they are 512."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextKind(Kind):
    """A kind of text: `text_field` is the field of JSON objects, or the column of tables, that holds it; `exclude` are
    files of texts that must not occur. `document_separator` parts a plain text's documents; `header`: csv begins with
    its columns' names. `whitespace`, `lowercase`, `prefix_space` and `min_words` are as DeCLUTR's published preparation
    has them.
    """

    tokenizer: str = ""
    text_field: str | None = None
    text_per: str = "file"
    document_separator: str | None = None
    header: bool = True
    whitespace: str = "keep"
    lowercase: bool = False
    prefix_space: bool = False
    min_words: int | None = None
    dedup: bool = False
    exclude: Sequence[str] = ()
    tokenization: str = "auto"
    formats: Sequence[str] = ()

    whitespaces: ClassVar[tuple[str, ...]] = ("keep", "collapse")
    """What may become of whitespace."""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        add, name = parser.add_argument, cls.name
        add("--tokenizer", required=True, metavar="PATH", help="a tokenizer.json, or the folder with it")
        cls.add_reading_arguments(parser)
        own = "an input format of your own, tried before the built-in ones (docs/data.md)"
        add("--format", dest="formats", action="append", default=[], metavar="MODULE:NAME", help=own)
        spaces = f"collapse: a single space for all between two words (default {cls.whitespace})"
        add("--whitespace", choices=cls.whitespaces, default=cls.whitespace, help=spaces)
        add("--lowercase", action="store_true", help="small letters alone")
        add("--prefix-space", action="store_true", help="the tokenizer's add_prefix_space: a first word like others")
        add("--min-words", type=int, metavar="N", help="texts of fewer go; whitespace parts words")
        once = f"keep the first of equal {name} (default: {'yes' if cls.dedup else 'no'})"
        add("--dedup", action=argparse.BooleanOptionalAction, default=cls.dedup, help=once)
        add("--exclude", nargs="+", action="extend", default=[], metavar="FILE", help=f"drop {name} with its texts")
        proved = "auto: gigatoken where it gives the same ids"
        add("--tokenization", choices=BACKENDS, default="auto", help=proved)

    @classmethod
    def add_reading_arguments(cls, parser: argparse.ArgumentParser) -> None:
        """Adds the options that tell where the inputs hold the text."""
        add = parser.add_argument
        add("--text-field", metavar="NAME", help="of JSON (default text) or a table (default found)")
        add("--text-per", choices=("file", "line"), default="file", help="a plain text's record (default file)")
        separator = r"between a plain text's documents, e.g. '\n\n\n' (after = if it begins with -)"
        add("--document-separator", metavar="TEXT", help=separator)
        cls.add_header_argument(parser)

    @classmethod
    def add_header_argument(cls, parser: argparse.ArgumentParser) -> None:
        without = "csv begins with a row: its columns are called 1, 2, ..."
        parser.add_argument("--no-header", dest="header", action="store_false", help=without)

    @classmethod
    def from_arguments(cls, arguments: argparse.Namespace) -> Self:
        if arguments.min_words is not None and arguments.min_words < 1:
            raise ValueError("--min-words must be at least 1")
        for spec in arguments.formats:
            own_format(spec)
        changed = {"document_separator": separator_of(arguments)}
        return super().from_arguments(argparse.Namespace(**{**vars(arguments), **changed}))

    @property
    def reasons(self) -> tuple[str, ...]:
        used = {"few_words": self.min_words is not None, "excluded": bool(self.exclude)}
        return tuple(reason for reason, is_used in used.items() if is_used)

    @property
    def examples_are_sentences(self) -> bool:
        """Whether an example is one sentence: of excluded texts each short sentence is then looked for by itself."""
        return False

    @property
    def drops_duplicates(self) -> bool:
        return self.dedup

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """What the tokenizer must have, and is given where it lacks it."""
        return ()

    def options(self) -> dict[str, Any]:
        names = (
            "text_field",
            "text_per",
            "document_separator",
            "header",
            "whitespace",
            "lowercase",
            "prefix_space",
            "min_words",
        )
        own = {"formats": list(self.formats)} if self.formats else {}
        return {**{name: getattr(self, name) for name in names}, **own}

    def reading(self) -> Reading:
        return Reading(
            field=self.text_field,
            text_per=self.text_per,
            separator=self.document_separator,
            header=self.header,
            formats=tuple(self.formats),
        )

    def resources(self, inputs: Inputs) -> dict[str, bytes]:
        """The tokenizer's files, and the hashes of the excluded texts."""
        tokenizer = read_tokenizer(self.tokenizer)
        for token in self.special_tokens:
            tokenizer = with_special_token(tokenizer, token)
        if self.prefix_space:
            tokenizer = with_prefix_space(tokenizer)
        found = tokenizer.resources
        if self.exclude:
            excluded = Excluded.of(read_texts(self.exclude), self.examples_are_sentences)
            found |= {EXCLUDED: excluded.to_bytes(), EXCLUDED_TEXTS: excluded.heads}
        return found

    def fingerprint(self, resources: Mapping[str, bytes]) -> dict[str, Any]:
        """Adds to the kind's fingerprint the tokenizer, and what is excluded."""
        found = {"tokenizer": dataclasses.asdict(TokenizerFiles.of(resources).info), **super().fingerprint(resources)}
        excluded = excluded_of(resources)
        found["options"]["exclude"] = excluded.options() if excluded else None
        return found

    def tokenization_of(self, resources: Mapping[str, bytes]) -> Tokenization:
        """The tokenizer among the resources, ready for work."""
        return Tokenization(TokenizerFiles.main(resources), backend=self.tokenization)

    def has_few_words(self, text: str, counts: Counts) -> bool:
        """Whether a text has fewer words than are wanted, which is counted."""
        if self.min_words is None:
            return False
        number = len(text.split())
        counts.measure("words", number)
        if number >= self.min_words:
            return False
        counts.filtered["few_words"] += 1
        return True

    def prepared(self, text: str) -> str:
        """The text as it is tokenized."""
        if self.whitespace == "collapse":
            text = normalise(text)
        return text.lower() if self.lowercase else text

    def reasons_in_words(self, counts: Counts) -> dict[str, tuple[str, str]]:
        """What a reason says of the records left out for it, and the mend, if there is one; by reason."""
        found = {"excluded": ("hold a text of --exclude", ""), "bad": ("are bad (see _rejected)", "")}
        if self.min_words is not None:
            longest = f"(the longest of all has {counts.longest.get('words', 0):,})"
            found["few_words"] = f"have fewer than {self.min_words:,} words {longest}", "lower --min-words"
        return found

    def nothing_kept(self, counts: Counts) -> str:
        """Says how many were left out for each reason, so that all of them add up, and the mend of the commonest."""
        words = self.reasons_in_words(counts)
        numbers: dict[tuple[str, str], int] = {}
        for reason, number in {**counts.filtered, "bad": counts.bad}.items():
            if number:
                said = words.get(reason, (reason, ""))
                numbers[said] = numbers.get(said, 0) + number
        listed = ", ".join(f"{number:,} {phrase}" for (phrase, _), number in numbers.items())
        _, mend = max(numbers, key=lambda said: numbers[said])
        return f"none of {counts.read:,} {self.name} is kept: {listed}{mend and ': '}{mend}"

    def remarks(self, fingerprint: Mapping[str, Any], sums: Mapping[str, int]) -> list[str]:
        """Says how many texts are excluded."""
        excluded = fingerprint["options"]["exclude"]
        if not excluded:
            return []
        return [f"{excluded['texts']:,} texts excluded; {excluded['too_short']:,} too short to look for"]


def separator_of(arguments: argparse.Namespace) -> str | None:
    """The --document-separator given, with what its escapes stand for. Raises ValueError where it makes no sense."""
    if arguments.document_separator is None:
        return None
    if arguments.text_per == "line":
        raise ValueError("--document-separator has no effect with --text-per line: leave one of them out")
    if not (separator := unescaped(arguments.document_separator)):
        raise ValueError("--document-separator must not be empty")
    return separator


AnyTextKind = TypeVar("AnyTextKind", bound=TextKind)


@dataclasses.dataclass(frozen=True)
class TextWorker(Generic[AnyTextKind]):
    """What the workers of the kinds of text have."""

    kind: AnyTextKind
    tokenization: Tokenization
    excluded: Excluded | None = None

    def excludes(self, text: str, data: bytes, source: str, tally: Tally) -> bool:
        """Whether a text as read, whose id is of `data`, holds an excluded one; it is then counted and written down."""
        if not self.excluded or (held := self.excluded.found_in(text)) is None:
            return False
        tally.exclude(source, text_id(data), held)
        return True


def excluded_of(resources: Mapping[str, bytes]) -> Excluded | None:
    """The excluded texts among the resources."""
    if EXCLUDED not in resources:
        return None
    return Excluded.from_bytes(resources[EXCLUDED], resources[EXCLUDED_TEXTS])


def text_of(record: Record, field: str | None = None) -> tuple[str, bytes]:
    """A record's text, and the same as UTF-8; of a JSON object the text is its `field` (None: "text").

    Raises:
        RecordError: there is none, or it is no text.
    """
    if record.problem:
        raise RecordError(record.problem)
    text: Any = record.value
    if isinstance(text, dict):
        field = field or "text"
        if field not in text:
            raise MissingFieldError(
                f'no field "{field}"', list(text), "name the one that holds the text with --text-field"
            )
        text = text[field]
        if not isinstance(text, str):
            raise RecordError(f'"{field}" is not a string but {json_name(text)}')
    return text, utf8(text)


def utf8(text: str) -> bytes:
    """A text as UTF-8.

    Raises:
        RecordError: JSON's escapes have put half of a surrogate pair into it.
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RecordError(f"half of a surrogate pair at character {error.start} of the text") from None


def text_id(data: bytes) -> int:
    """The first 63 bits of blake2b over a text's UTF-8 bytes."""
    return int.from_bytes(hashlib.blake2b(data).digest()[:8], "big") >> 1


def grouped_id(group: bytes, whole: bytes) -> int:
    """63 bits: the first 31 of the hash of a group, which all its examples share, then 32 of that of the whole example.

    So examples of a group, such as those of one premise, are on one side of anything that the upper bits decide.
    """
    return text_id(group) >> 32 << 32 | text_id(whole) & 0xFFFF_FFFF


def meeting(texts: Sequence[str], excluded: Excluded) -> list[int]:
    """Numbers the texts that hold an excluded one: many at once are asked for first, as lines of one text."""
    found = []
    for first in range(0, len(texts), EXCLUDE_TOGETHER):
        together = texts[first : first + EXCLUDE_TOGETHER]
        if excluded.meets("\n".join(together)):
            found += [first + index for index, text in enumerate(together) if excluded.meets(text)]
    return found
