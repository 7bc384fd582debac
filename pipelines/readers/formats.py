"""Input formats: the base class of a format, and the list of the built-in formats.

    a file's name, its first 64 KiB -> Format.recognizes -> the plan: Format.cut -> pieces
    workers: a piece of the file, decompressed as it is read -> Format.read -> records

A format is one class in one file, which holds all that planning and reading must know about the format. Built-in
formats are listed in `BUILT_IN` as `module:name`; `--format module:name` adds a format of your own, which is loaded in
the same way.
"""

import abc
import contextlib
import functools
from collections.abc import Collection, Iterator, Mapping
from typing import BinaryIO, Self

from clearspan.common import plugins
from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.readers.streams import DAMAGE, DamagedFileError
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
"""Built-in formats, in the order in which they are tried on a file, and in which messages name them."""
PLAIN_TEXT = "text"
"""Format of a text that no other format recognizes."""


class FirstBytes(bytes):
    """The first bytes of a file or of a tar's member, after decompression; the bytes of a text are converted to UTF-8.

    Attributes:
        is_whole: whether these are all bytes of the file or member.
    """

    is_whole: bool

    def __new__(cls, data: bytes, is_whole: bool) -> Self:
        head = super().__new__(cls, data)
        head.is_whole = is_whole
        return head


class Format(abc.ABC):
    """An input format. A subclass must implement `recognizes` and `read`; everything else has a default.

    Attributes:
        name: name of the format in plans. A format of your own needs none: its name is `module:name`.
        described: name of the format in the message about files of unknown type; empty to leave it out there.
        suffixes: extensions of the format's files, in lower case. For a file with one of them, this format is tried
            before other formats.
        by_name: a file with one of the extensions has this format whatever its content, and is not opened to detect it.
        otherwise: message to the user about a text that has one of the extensions and that no format recognizes; empty
            if such a text is read as plain text.
        is_text: files may be in a different encoding than UTF-8 (`--encoding`); `read` gets them as UTF-8.
        has_fields: records may be objects with columns or fields.
        is_container: files are binary, as of tar or Parquet: they are never empty, and begin with bytes by which the
            format is recognized. Reading detects damage even if they are not compressed. A tar of texts cannot
            hold such a file.
        seeks: `read` seeks in the file, so that the file cannot be compressed.
        is_numbered: `read` sets the `number` of each record; otherwise records are numbered in their order.
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

        The value of a record is the text, or a JSON object with the field or the columns that `reading` names. The name
        is `piece.input.name`, and the offset any number by which the record can be found again. A record that cannot be
        read, or is larger than `reading.max_bytes`, has a `problem` instead of a value.

        Raises:
            DamagedFileError, PipelineError: the rest of the file cannot be read.
        """

    def check(self, path: str) -> None:  # noqa: B027 (most formats need none)
        """Raise PipelineError if the package that reads files of this format is not installed."""

    def cut(self, path: str, num_bytes: int, unit_bytes: int, whole: bool) -> list[tuple[int, int | None]]:
        """Return the pieces of an uncompressed file, as (start, end) in bytes; an end of None is the end of the file.

        The pieces are in ascending order, and do not overlap.

        Args:
            num_bytes: the size of the file.
            unit_bytes: the desired size of a piece.
            whole: texts and tables must not be cut; a tar may still be cut between its members.
        """
        return [(0, None)]

    def overhang(self, stream: BinaryIO, piece: Piece) -> list[tuple[int, int]]:
        """Return the byte ranges (start, end) outside a piece that its reader also reads, such as a file's metadata."""
        return []

    def read_as(self, reading: Reading) -> str:
        """Return the name of the format in which to read a file that this format recognized.

        It is this format, or another one if `reading` asks for it: a text file may be read as csv.
        """
        return self.name

    def descriptions(self, files: Collection[str]) -> set[str]:
        """Return the names of those files that hold no data, but describe files of this format.

        Args:
            files: the names of all input files. A describing file stands in the same folder as the files that it
                describes, or in a folder above.
        """
        return set()

    def check_description(self, path: str, name: str, files: Collection[str]) -> None:  # noqa: B027 (as above)
        """Raise PipelineError if a file of `descriptions` does not agree with the files of a run.

        Args:
            path: the path of the describing file.
            name: its name among `files`.
            files: the names of all input files.
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
    """Return the built-in binary formats, which are recognized by the first bytes of a file (`Format.is_container`)."""
    return tuple(known for known in built_in().values() if known.is_container)


@functools.cache
def texts() -> tuple[Format, ...]:
    """Return the built-in formats of text."""
    return tuple(known for known in built_in().values() if known.is_text)


@functools.lru_cache(maxsize=1024)
def with_suffixes(suffixes: tuple[str, ...]) -> tuple[Format, ...]:
    """Return the built-in formats that have one of these extensions."""
    return tuple(known for known in built_in().values() if set(known.suffixes) & set(suffixes))


def format_named(name: str) -> Format:
    """Return the format with this name in the plan: the name of a built-in format, or `module:name`.

    Raises:
        PluginError: there is no such format.
    """
    return built_in().get(name) or own_format(name)


def own_format(spec: str) -> Format:
    """Return the user's own format that `module:name` refers to; `module:name` is also its name in plans.

    Raises:
        PluginError: there is no such class, it is not a subclass of `Format`, or its constructor needs arguments.
    """
    own = _loaded(spec)
    own.name = spec
    return own


def _loaded(spec: str) -> Format:
    return plugins.call(spec, plugins.load_class(spec, Format, "an input format"), "without arguments")


@contextlib.contextmanager
def blaming(format_name: str, path: str, compression: str | None = None) -> Iterator[None]:
    """Blame a format of the user's own for an error that its code raises while it handles a file.

    Errors of the disk, and errors that damage of a compressed file causes, pass unchanged. So does any error of a
    built-in format, which is a bug.

    Raises:
        PipelineError: the user's code raised an error; the message names the file, the format and the error.
    """
    try:
        yield
    except (PipelineError, DamagedFileError):
        raise
    except Exception as error:  # the user's code may raise anything
        is_of_disk = isinstance(error, OSError) and error.errno is not None
        is_damage = compression is not None and isinstance(error, DAMAGE)
        if is_of_disk or is_damage or format_name in built_in():
            raise
        raise PipelineError(f"{path}: the format {format_name} raised {plugins.cause(error)}") from None


def described() -> str:
    """Return the names of the supported formats, for messages."""
    *names, last = [known.described for known in built_in().values() if known.described]
    return f"{', '.join(names)} or {last}"
