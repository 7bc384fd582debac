"""Input formats: the class that each is a subclass of, and the list of those that are built in.

    a file's name, its first 64 KiB -> Format.recognizes -> the plan: Format.cut -> pieces
    workers: a piece of the file, decompressed as it is read -> Format.read -> records

A format is one class in one file, which says all that planning and reading must know of it. Those built in are named in
`BUILT_IN` as `module:name`, and `--format module:name` names one of your own: both are loaded alike.
"""

import abc
import functools
from collections.abc import Collection, Iterator, Mapping
from typing import BinaryIO, Self

from clearspan.common import plugins
from clearspan.common.terminal import MOST_SAID, one_line
from clearspan.pipelines.records import Piece, Reading, Record

BUILT_IN = (
    "clearspan.pipelines.readers.jsonl:JsonlFiles",
    "clearspan.pipelines.readers.arrays:JsonArrays",
    "clearspan.pipelines.readers.plain_text:PlainText",
    "clearspan.pipelines.readers.lines:TextLines",
    "clearspan.pipelines.readers.tables:TextTables",
    "clearspan.pipelines.readers.tars:Tars",
    "clearspan.pipelines.readers.parquet:ParquetTables",
    "clearspan.pipelines.readers.arrow:ArrowTables",
    "clearspan.plugins.web:WebArchives",
    "clearspan.pipelines.readers.files:WholeFiles",
)
"""Formats of this package, in the order in which they are asked for a file, and in which messages name them."""
PLAIN_TEXT = "text"
"""Format of a text that no other format recognizes."""


class FirstBytes(bytes):
    """The first bytes of a file or of a tar's member, decompressed; of a text, in UTF-8.

    Attributes:
        is_whole: they are all of its bytes.
    """

    is_whole: bool

    def __new__(cls, data: bytes, is_whole: bool) -> Self:
        head = super().__new__(cls, data)
        head.is_whole = is_whole
        return head


class Format(abc.ABC):
    """An input format. A subclass must say which files it recognizes, and read them; all else has a default.

    Attributes:
        name: its name in plans. One of your own needs none: it is the `module:name` by which you name it.
        described: its name in the message on files of unknown type; empty if it has none there.
        suffixes: extensions of its files, in lower case. A file that has one is told of it before other formats are.
        by_name: such a file is of this format whatever it begins with, and is not opened for it.
        otherwise: what the user is told of a text that has one of the extensions, and that no format recognizes; empty
            if it is then plain text.
        is_text: it may be in another encoding (`--encoding`), and is read as UTF-8.
        has_fields: its records may be objects with columns or fields.
        is_container: its files are never empty, and always begin with the bytes by which it is recognized; damage
            shows even without compression. A tar of texts holds no such file.
        seeks: it is read at several places, so that it cannot be compressed.
        is_numbered: its records have their own `number`; else they are numbered in their order.
        by_lines: records are numbered by lines, so that a piece needs the number of line ends before it.
    """

    name = ""
    described = ""
    suffixes: tuple[str, ...] = ()
    by_name = False
    otherwise = ""
    is_text = False
    has_fields = False
    is_container = False
    seeks = False
    is_numbered = False
    by_lines = False

    @abc.abstractmethod
    def recognizes(self, head: FirstBytes, path: str) -> bool:
        """Return whether a file is of this format, by its first 64 KiB (decompressed) and its path."""

    @abc.abstractmethod
    def read(self, stream: BinaryIO, piece: Piece, reading: Reading) -> Iterator[Record]:
        """Yield the records of a piece in order. A piece that is not cut is read to the end of the stream.

        A record's value is the text, or a JSON object with the field or the columns that `reading` names; its name is
        `piece.input.name`, its offset any number that finds it again. A record that cannot be read, or is larger than
        `reading.max_bytes`, has a `problem` in place of a value.

        Raises:
            DamagedFileError, PipelineError: the file cannot be read on.
        """

    def check(self, path: str) -> None:  # noqa: B027 (most formats need none)
        """Raise PipelineError if a package that reads a recognized file is not installed."""

    def cut(self, path: str, num_bytes: int, unit_bytes: int, whole: bool) -> list[tuple[int, int | None]]:
        """Return the pieces of a file that is not compressed, as (start, end) in bytes; an end of None is its end.

        Args:
            num_bytes: the file's size.
            unit_bytes: the size to aim at.
            whole: a text or table must not be cut; a tar still may be, between its members.
        """
        return [(0, None)]

    def overhang(self, stream: BinaryIO, piece: Piece) -> list[tuple[int, int]]:
        """Return the (start, end) of the bytes that are read of a file in addition to a piece's own."""
        return []

    def read_as(self, reading: Reading) -> str:
        """Return the name of the format in which a recognized file is read: it may depend on what is wanted."""
        return self.name

    def descriptions(self, files: Collection[str]) -> set[str]:
        """Return the names of those files of a run that only describe files of this format beside or below them."""
        return set()

    def check_description(self, path: str, name: str, files: Collection[str]) -> None:  # noqa: B027 (as above)
        """Raise PipelineError if a file of `descriptions` does not agree with the files of a run.

        Args:
            path: where it is stored.
            name: its name among the files.
        """


def byte_ranges(num_bytes: int, unit_bytes: int) -> list[tuple[int, int | None]]:
    """Return the pieces of a file that can be cut at any byte: a record belongs to the piece in which it starts."""
    return [(start, min(start + unit_bytes, num_bytes)) for start in range(0, max(num_bytes, 1), unit_bytes)]


@functools.cache
def built_in() -> Mapping[str, Format]:
    """Return the built-in formats by name, in the order of `BUILT_IN`."""
    loaded = [_loaded(spec) for spec in BUILT_IN]
    found = {known.name: known for known in loaded}
    if "" in found or len(found) < len(loaded):
        raise TypeError(f"a built-in format without a name, or two of one name: {[known.name for known in loaded]}")
    return found


@functools.cache
def containers() -> tuple[Format, ...]:
    """Return the built-in formats that are recognized by the first bytes of a file."""
    return tuple(known for known in built_in().values() if known.is_container)


@functools.cache
def texts() -> tuple[Format, ...]:
    """Return the built-in formats of text."""
    return tuple(known for known in built_in().values() if known.is_text)


@functools.lru_cache(maxsize=1024)
def with_suffixes(suffixes: tuple[str, ...]) -> tuple[Format, ...]:
    """Return the built-in formats of which a name has an extension."""
    return tuple(known for known in built_in().values() if set(known.suffixes) & set(suffixes))


def format_named(name: str) -> Format:
    """Return the format of an input by its name in the plan, which is built in or `module:name`.

    Raises:
        PluginError: there is no such format.
    """
    return built_in().get(name) or own_format(name)


def own_format(spec: str) -> Format:
    """Return the format of the user's own that `module:name` names; this is its name in plans.

    Raises:
        PluginError: there is none, or it is no subclass of `Format` that needs no arguments.
    """
    own = _loaded(spec)
    own.name = spec
    return own


def _loaded(spec: str) -> Format:
    named = plugins.load_class(spec, Format, "an input format")
    try:
        return named()
    except Exception as error:  # the user's code may raise anything
        what = f"{type(error).__name__}: {one_line(error, MOST_SAID)}"
        raise plugins.PluginError(f"{spec}: raised {what} when called without arguments") from None


def described() -> str:
    """Return the formats that are read, for messages."""
    *names, last = [known.described for known in built_in().values() if known.described]
    return f"{', '.join(names)} or {last}"
