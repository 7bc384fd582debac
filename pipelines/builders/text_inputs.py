"""Inputs of the builders of texts: options of files and of texts in them, the text of a record, the id of a text."""

import codecs
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar

from clearspan.common.field_names import matching_name
from clearspan.common.options import Flag, Options, checking
from clearspan.common.same_text import text_id
from clearspan.pipelines.counter import Counts, RecordCounter, RecordError
from clearspan.pipelines.readers import encodings
from clearspan.pipelines.readers.columns import DEFAULT, names_in
from clearspan.pipelines.readers.encodings import AUTO
from clearspan.pipelines.readers.formats import own_format
from clearspan.pipelines.readers.jsonl import json_name
from clearspan.pipelines.records import ReadOptions, Record


def separator(word: str) -> str:
    r"""Return the separator that a user writes in an option, with escapes such as \n and \x1e replaced by characters.

    Args:
        word: the option's value as the user writes it.

    Raises:
        ValueError: the value is empty.
    """
    if not word:
        raise ValueError("must not be empty")
    return word.encode("latin-1", "backslashreplace").decode("unicode_escape")


def encoding_named(name: str) -> str | None:
    """Return Python's usual name of a text encoding; None for UTF-8 and ASCII.

    Args:
        name: a name of the encoding, such as "latin1" (Python's usual name for it is "iso8859-1"); or "auto" (detect
            the encoding), which is returned unchanged.

    Raises:
        ValueError: Python has no text encoding of this name.
    """
    if name == AUTO:
        return AUTO
    try:
        "".encode(name)  # raises LookupError for a codec that is not for text, such as base64
        usual = codecs.lookup(name).name
        codecs.getincrementaldecoder(usual)
    except (LookupError, ValueError):
        known = "give one that Python knows, such as cp1252, shift_jis, gb18030 or utf-16, or auto"
        raise ValueError(f"{name}: no such encoding of text: {known}") from None
    return None if usual in ("utf-8", "utf-8-sig", "ascii") else usual


MAX_FIELDS = 20
"""Maximum number of a record's fields that an error message names."""
EMPTY = "empty"
"""Reason for which an empty or null text is filtered, in every kind and format."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileOptions(Options):
    """Options that say how files of texts and tables are read."""

    header: Annotated[bool, Flag()] = True
    """Csv and tsv files have no header row: their columns are named 1, 2, ..."""
    formats: Annotated[tuple[str, ...], Flag("MODULE:NAME", name="--format", parse=checking(own_format))] = ()
    """Input format of your own, tried before the built-in ones (docs/data.md); may be repeated."""
    encoding: Annotated[str | None, Flag("NAME", parse=encoding_named)] = None
    """Encoding of text files, e.g. cp1252; auto: detect the encoding of each file (default utf-8). Files in other
    encodings than utf-8 are not split.
    """

    def reading(self, **rules: Any) -> ReadOptions:
        """Return the rules for reading the inputs.

        Args:
            rules: further attributes of `ReadOptions`.
        """
        return ReadOptions(header=self.header, formats=self.formats, encoding=self.encoding, **rules)

    def described(self) -> dict[str, Any]:
        """Return the options that determine a dataset's content, by name, for its fingerprint."""
        own: dict[str, Any] = {"header": self.header}
        if self.formats:
            own["formats"] = list(self.formats)
        if self.encoding:
            own["encoding"] = encodings.described(self.encoding)
        return own


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextOptions(Options):
    """Options that say where the texts are in the files, for records that hold one text each."""

    text_field: Annotated[str | None, Flag("NAME")] = None
    """JSON field or table column of the text, e.g. meta.text (default: text, or the only column of text)."""
    text_per: Annotated[Literal["file", "line"], Flag()] = "file"
    """Read each file, or each line, of plain text as one text."""
    document_separator: Annotated[str | None, Flag("TEXT", parse=separator)] = None
    """Split plain-text files into documents at TEXT, e.g. '\\n\\n\\n' (if it begins with -, write =TEXT)."""

    def validate(self) -> None:
        super().validate()
        if self.document_separator is not None and self.text_per == "line":
            raise ValueError("`document_separator` has no effect with `text_per` line: leave one of them out")

    def reading(self, files: FileOptions, **rules: Any) -> ReadOptions:
        """Return the rules for reading the inputs.

        Args:
            files: how the files are read.
            rules: further attributes of `ReadOptions`.
        """
        own = {"field": self.text_field, "text_per": self.text_per, "separator": self.document_separator}
        return files.reading(**own, **rules)

    def described(self) -> dict[str, Any]:
        """Return the options that determine a dataset's content, by name, for its fingerprint."""
        return dataclasses.asdict(self)


def text_of(record: Record, field: str | None = None) -> tuple[str, bytes]:
    """Return a record's text, and the same text as bytes in UTF-8; ("", b"") if the text is null.

    Args:
        field: if the record is a JSON object, the name of the field that holds the text, in any letter case; None for
            the name "text".

    Raises:
        RecordError: the record cannot be read or lacks the field; or the field holds neither a string nor null; or the
            string cannot be stored as UTF-8.
    """
    if record.problem:
        raise RecordError(record.problem)
    text: Any = record.value
    if isinstance(text, dict):
        wanted = field or DEFAULT
        name = matching_name(text, wanted)
        if name is None:
            raise RecordError(f'no field "{wanted}" among {fields(text)}: name the field of the text with `text_field`')
        text = text[name]
        if not isinstance(text, str | None):
            raise RecordError(f'"{name}" is not a string but {json_name(text)}')
    elif not isinstance(text, str | None):
        raise RecordError(f"its value is not a text but {json_name(text)}")
    text = text or ""
    return text, utf8(text)


def fields(record: Mapping[str, Any]) -> str:
    """Return the names of a record's fields, joined by commas, for error messages; "none" if it has no fields.

    Names after the first 20 (MAX_FIELDS) are left out.
    """
    return ", ".join(itertools.islice(names_in(record), MAX_FIELDS)) or "none"


def text_in(record: Record, field: str | None, counts: Counts) -> tuple[str, bytes] | None:
    """Return a record's text, and the same text as bytes in UTF-8; None if the text is null or blank.

    A record whose text is null or blank is counted in `counts` as filtered.

    Args:
        field: if the record is a JSON object, the name of the field that holds the text; None for the name "text".

    Raises:
        RecordError: the record cannot be read or lacks the field; or the field holds neither a string nor null; or the
            string cannot be stored as UTF-8.
    """
    text, data = text_of(record, field)
    if not text or text.isspace():
        counts.filtered[EMPTY] += 1
        return None
    return text, data


def texts_of(
    records: Iterable[Record], field: str | None, counter: RecordCounter
) -> Iterator[tuple[Record, str, bytes]]:
    """Yield (record, text, the text as bytes in UTF-8) for each record that has a text.

    Every record is counted in `counter` as read. A record whose text is null or blank is also counted as filtered, and
    a record that cannot be read, or holds something other than a text, as bad. These records are not yielded. The
    caller counts the yielded records.

    Args:
        field: if a record is a JSON object, the name of the field that holds the text; None for the name "text".
    """

    def of(record: Record) -> tuple[Record, str, bytes] | None:
        made = text_in(record, field, counter.counts)
        return None if made is None else (record, *made)

    return counter.made(records, of)


def utf8(text: str) -> bytes:
    """Return a text as bytes in UTF-8.

    Raises:
        RecordError: the text holds half of a surrogate pair, which an escape in JSON can produce.
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RecordError(f"half of a surrogate pair at character {error.start} of the text") from None


def checked_text(cell: object) -> str:
    """Return the text in a cell of a table; "" if the cell is null.

    Raises:
        RecordError: the cell holds neither a text nor null, or a text that cannot be stored as UTF-8.
    """
    if cell is None:
        return ""
    if not isinstance(cell, str):
        raise RecordError(f"a text of the row is not a string but {json_name(cell)}")
    utf8(cell)
    return cell


def grouped_id(group: bytes, texts: bytes) -> int:
    """Return the id of an example, 63 bits: 31 bits of the hash of `group`, followed by 32 bits of the hash of `texts`.

    The ids of examples with the same `group` therefore have the same upper bits.

    Args:
        group: bytes that related examples have in common, such as their first text.
        texts: the bytes of all texts of the example.
    """
    return text_id(group) >> 32 << 32 | text_id(texts) & 0xFFFF_FFFF


Item = TypeVar("Item")


def grouped(items: Iterable[tuple[Item, int]], full_size: int, max_items: int) -> Iterator[list[Item]]:
    """Yield the items in groups of consecutive items.

    A group ends as soon as it has `max_items` items, or the sizes of its items add up to `full_size` or more.

    Args:
        items: a pair (item, size) for each item.
    """
    group: list[Item] = []
    total = 0
    for item, size in items:
        group.append(item)
        total += size
        if total >= full_size or len(group) >= max_items:
            yield group
            group = []
            total = 0
    if group:
        yield group
