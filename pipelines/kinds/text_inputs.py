"""Texts of the inputs, for every kind of text: where a record holds its text, and the id of a text."""

import argparse
import codecs
import dataclasses
import hashlib
from typing import Any, Self

from clearspan.pipelines.kinds import Kind
from clearspan.pipelines.readers.columns import DEFAULT, named
from clearspan.pipelines.readers.formats import own_format
from clearspan.pipelines.readers.jsonl import json_name
from clearspan.pipelines.readers.text import unescaped
from clearspan.pipelines.records import Reading, Record
from clearspan.pipelines.tally import MissingFieldError, RecordError


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextInputs(Kind):
    """A kind whose records are texts: where the inputs hold them.

    `text_field` is the JSON field or table column with the text, `document_separator` stands between the documents of a
    plain text, `header` says that csv files begin with column names, `formats` are input formats from outside this
    package, and `encoding` is Python's name of the texts' encoding, None for UTF-8.
    """

    text_field: str | None = None
    text_per: str = "file"
    document_separator: str | None = None
    header: bool = True
    formats: tuple[str, ...] = ()
    encoding: str | None = None

    @classmethod
    def add_reading_arguments(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options that say where the inputs hold the text."""
        add = parser.add_argument
        add("--text-field", metavar="NAME", help="JSON field or table column (default: text, or a table's only text)")
        add("--text-per", choices=("file", "line"), default="file", help="the record of a plain text (default file)")
        separator = r"text between the documents of a plain text, e.g. '\n\n\n' (if it begins with -, write =TEXT)"
        add("--document-separator", metavar="TEXT", help=separator)
        cls.add_file_arguments(parser)

    @classmethod
    def add_file_arguments(cls, parser: argparse.ArgumentParser) -> None:
        without = "csv files begin with data: their columns are named 1, 2, ..."
        parser.add_argument("--no-header", dest="header", action="store_false", help=without)
        own = "an input format of your own, tried before the built-in ones (docs/data.md)"
        parser.add_argument("--format", dest="formats", action="append", default=[], metavar="MODULE:NAME", help=own)
        other = "encoding of text files, e.g. cp1252 or shift_jis (default utf-8); others than utf-8 are not cut"
        parser.add_argument("--encoding", metavar="NAME", help=other)

    @classmethod
    def from_arguments(cls, arguments: argparse.Namespace, **changed: Any) -> Self:
        return super().from_arguments(arguments, **reading_options(arguments), **changed)

    def reading(self) -> Reading:
        return Reading(
            field=self.text_field,
            text_per=self.text_per,
            separator=self.document_separator,
            header=self.header,
            formats=self.formats,
            encoding=self.encoding,
        )

    def options(self) -> dict[str, Any]:
        names = ("text_field", "text_per", "document_separator", "header")
        own: dict[str, Any] = {"formats": list(self.formats)} if self.formats else {}
        if self.encoding:
            own["encoding"] = self.encoding
        return {**{name: getattr(self, name) for name in names}, **own}


def reading_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options of `add_reading_arguments` that need work: the separator's escapes, formats and the encoding.

    Raises:
        ValueError: the separator is empty or has no effect, a format cannot be used, or there is no such encoding.
    """
    separator = arguments.document_separator
    if separator is not None:
        if arguments.text_per == "line":
            raise ValueError("--document-separator has no effect with --text-per line: leave one of them out")
        if not (separator := unescaped(separator)):
            raise ValueError("--document-separator must not be empty")
    for spec in arguments.formats:
        own_format(spec)
    encoding = None if arguments.encoding is None else encoding_named(arguments.encoding)
    return {"document_separator": separator, "formats": tuple(arguments.formats), "encoding": encoding}


def encoding_named(name: str) -> str | None:
    """Return the name of a text encoding in its usual form, None for UTF-8. Raise ValueError if there is none."""
    try:
        "".encode(name)  # refuses those that are not of text, such as base64
        usual = codecs.lookup(name).name
        codecs.getincrementaldecoder(usual)
    except (LookupError, ValueError):
        known = "give one that Python knows, such as cp1252, shift_jis, gb18030 or utf-16"
        raise ValueError(f"--encoding {name}: no such encoding of text: {known}") from None
    return None if usual in ("utf-8", "utf-8-sig", "ascii") else usual


def text_of(record: Record, field: str | None = None) -> tuple[str, bytes]:
    """Return a record's text, and the same in UTF-8. In a JSON object the text is `field` (None: "text"), in any
    letter case.

    Raises:
        RecordError: the record is bad, or lacks the field, or the field is not a string.
    """
    if record.problem:
        raise RecordError(record.problem)
    text: Any = record.value
    if isinstance(text, dict):
        wanted = field or DEFAULT
        name = named(text, wanted)
        if name is None:
            raise MissingFieldError(
                f'no field "{wanted}"', list(text), "name the one that holds the text with --text-field"
            )
        text = text[name]
        if not isinstance(text, str):
            raise RecordError(f'"{name}" is not a string but {json_name(text)}')
    return text, utf8(text)


def utf8(text: str) -> bytes:
    """Return a text in UTF-8.

    Raises:
        RecordError: the text holds half of a surrogate pair, from a JSON escape.
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RecordError(f"half of a surrogate pair at character {error.start} of the text") from None


def checked_text(cell: object) -> str:
    """Return a cell of a row. Raise RecordError unless it is a text."""
    if not isinstance(cell, str):
        raise RecordError(f"a text of the row is not a string but {json_name(cell)}")
    utf8(cell)
    return cell


def text_id(data: bytes) -> int:
    """Return the first 63 bits of blake2b over a text's UTF-8 bytes."""
    return int.from_bytes(hashlib.blake2b(data).digest()[:8], "big") >> 1


def grouped_id(group: bytes, whole: bytes) -> int:
    """Return a 63-bit id: the first 31 bits of the group's hash, then 32 bits of the hash of the whole example.

    Anything that the upper bits decide, such as the hold-out, then treats a group alike, e.g. the rows of a premise.
    """
    return text_id(group) >> 32 << 32 | text_id(whole) & 0xFFFF_FFFF
