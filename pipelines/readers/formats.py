"""Input formats: the base class of a format, and the list of the built-in formats.

    a file's name, its first 64 KiB -> Format.recognizes -> the plan: Format.cut -> splits
    workers: a split of the file, decompressed as it is read -> Format.read -> records

A format is one class in one file, which holds all that planning and reading must know about the format. Built-in
formats are listed in `BUILT_IN` as `module:name`; `--format module:name` adds a format of your own, which is loaded in
the same way.
"""

import abc
import contextlib
import functools
import numbers
from collections.abc import Collection, Iterator, Mapping
from typing import BinaryIO, Self

from clearspan.common import plugins
from clearspan.common.errors import PipelineError
from clearspan.pipelines.readers.streams import DAMAGE, DamagedFileError
from clearspan.pipelines.records import ReadOptions, Record, Split

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
        described: name of the format in messages that list the supported formats; "" to leave it out of the list.
        suffixes: extensions of the format's files, in lower case. If a text has one of them, this format is tried
            before the other formats of texts.
        by_name: if true, a file with one of the extensions has this format, whatever its first bytes are.
        otherwise: message to the user about a text that has one of the extensions, but that no format recognizes; "" if
            such a text is read as plain text.
        is_text: true if the files are texts. They may then have a different encoding than UTF-8 (`--encoding`), and are
            converted to UTF-8 before `read` gets them.
        has_fields: true if the records may be objects with fields, or rows with columns.
        is_container: true if the files are binary, such as tars or Parquet files. They are never empty, and are
            recognized by their first bytes. An error of the library that reads them means that the file is damaged.
            Within a tar of texts, such a file is a bad record, except if it is a tar.
        seeks: true if `read` seeks in the file. A compressed file then cannot have this format.
        is_numbered: true if `read` sets the `number` of each record; otherwise its caller numbers the records from 1.
        by_lines: true if the number of a record is the number of its line. To read a split of a file, the number of
            line ends before the split is then needed.
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
        """Return whether a file is of this format.

        Args:
            head: the first bytes of the file, decompressed, at most 64 KiB.
            path: the path of the file.
        """

    @abc.abstractmethod
    def read(self, stream: BinaryIO, split: Split, reading: ReadOptions) -> Iterator[Record]:
        """Yield the records of a split of a file, in order.

        The value of a record is its text, or a dict with the fields or columns that `reading` names. Its name is
        `split.input.name`, and its offset is any number by which the user can find the record in the file. A record
        that cannot be read, or is larger than `reading.max_bytes`, has a `problem` instead of a value.

        Args:
            stream: the whole file, decompressed, at its start; a text is converted to UTF-8.
            split: the part of the file to read; if its `end` is None, it goes to the end of the stream.
            reading: rules by which to find the records, such as the names of fields.

        Raises:
            DamagedFileError, PipelineError: the rest of the file cannot be read.
        """

    def check(self, path: str) -> None:  # noqa: B027 (most formats need none)
        """Raise PipelineError if a package that is needed to read files of this format is not installed.

        Args:
            path: the path of such a file, for the message.
        """

    def cut(self, path: str, num_bytes: int, unit_bytes: int, whole: bool) -> list[tuple[int, int | None]]:
        """Return the splits into which to cut an uncompressed file, as (start, end) in bytes.

        There is at least one split. The splits follow one another without a gap, from 0 to `num_bytes`: every byte
        belongs to exactly one split. An end of None is the end of the file.

        Args:
            path: the path of the file.
            num_bytes: the size of the file.
            unit_bytes: the desired size of a split.
            whole: if true, texts and tables must not be cut; a tar may be cut between its members even then.
        """
        return [(0, None)]

    def ranges_outside(self, stream: BinaryIO, split: Split) -> list[tuple[int, int]]:
        """Return the byte ranges (start, end) outside a split that `read` also reads, such as the file's metadata.

        A change in these ranges, too, must be noticed when a later run checks whether the split has changed.

        Args:
            stream: the file, in which this method may seek.
        """
        return []

    def read_as(self, reading: ReadOptions) -> str:
        """Return the name of the format in which to read a file that this format recognized.

        It is the name of this format, or of another one if `reading` asks for it: if the user names columns, a text
        file is read as csv.
        """
        return self.name

    def descriptions(self, files: Collection[str]) -> set[str]:
        """Return the names of files that only describe files of this format, such as state.json of `datasets`.

        An input with one of these names is not read as data. The files need not exist.

        Args:
            files: the names of all input files, as paths relative to their common folder. A describing file lies in the
                same folder as the files that it describes, or in a folder above.
        """
        return set()

    def check_description(self, path: str, name: str, files: Collection[str]) -> None:  # noqa: B027 (as above)
        """Raise PipelineError if a describing file contradicts the input files, for example if a table is missing.

        Args:
            path: the path of the describing file, whose name `descriptions` returned.
            name: its path relative to the common folder of the inputs.
            files: the names of all input files, as paths relative to their common folder.
        """


CUT_RULE = (
    "cut() must return ranges of whole bytes that follow one another without a gap, from 0 to {}, the file's size"
)
"""What `splits` checks, for its error messages; the placeholder is the size in bytes."""


def splits(format_name: str, path: str, num_bytes: int, unit_bytes: int, whole: bool) -> list[tuple[int, int | None]]:
    """Return the splits into which a format cuts an uncompressed file, as (start, end) in bytes, after checking them.

    Args:
        format_name: the name of the format.
        path, num_bytes, unit_bytes, whole: the arguments of `Format.cut`.

    Raises:
        PipelineError: the user's own format raises an error, or its splits are not those that `Format.cut` describes.
    """
    with naming_own_format(format_name, path):
        ranges = [(start, end) for start, end in format_named(format_name).cut(path, num_bytes, unit_bytes, whole)]
    before = 0
    for start, end in ranges:
        stop = num_bytes if end is None else end
        are_whole = isinstance(start, numbers.Integral) and isinstance(stop, numbers.Integral)
        if not are_whole or not before == start <= stop <= num_bytes:
            raise PipelineError(
                f"{path}: the format {format_name} cuts out a split from {start!r} to {end!r}, after byte {before}: "
                f"{CUT_RULE.format(num_bytes)}"
            )
        before = int(stop)
    if not ranges or before < num_bytes:
        raise PipelineError(
            f"{path}: the format {format_name} cuts out no split from {before} to {num_bytes}: "
            f"{CUT_RULE.format(num_bytes)}"
        )
    return [(int(start), None if end is None else int(end)) for start, end in ranges]


def byte_ranges(num_bytes: int, unit_bytes: int) -> list[tuple[int, int | None]]:
    """Return the splits, as (start, end) in bytes, of a file that can be cut at any byte.

    A record belongs to the split in which it starts.

    Args:
        num_bytes: the size of the file.
        unit_bytes: the size of a split; the last split may be smaller.
    """
    return [(start, min(start + unit_bytes, num_bytes)) for start in range(0, max(num_bytes, 1), unit_bytes)]


@functools.cache
def built_in() -> Mapping[str, Format]:
    """Return the built-in formats by name, in the order in which they are tried on a file."""
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
    """Return the built-in formats whose files are texts, such as JSON lines, csv and plain text (`Format.is_text`)."""
    return tuple(known for known in built_in().values() if known.is_text)


@functools.lru_cache(maxsize=1024)
def with_suffixes(suffixes: tuple[str, ...]) -> tuple[Format, ...]:
    """Return the built-in formats whose files have one of these extensions (`Format.suffixes`)."""
    return tuple(known for known in built_in().values() if set(known.suffixes) & set(suffixes))


def format_named(name: str) -> Format:
    """Return the format with this name in the plan: the name of a built-in format, or `module:name`.

    Raises:
        PluginError: there is no such format.
    """
    return built_in().get(name) or own_format(name)


def own_format(spec: str) -> Format:
    """Return an instance of the user's own format class. Its name in plans is `spec`.

    Args:
        spec: the class, as `module:name`.

    Raises:
        PluginError: there is no such class, it is not a subclass of `Format`, or its constructor needs arguments.
    """
    own = _loaded(spec)
    own.name = spec
    return own


def _loaded(spec: str) -> Format:
    return plugins.call(spec, plugins.load_class(spec, Format, "an input format"), "without arguments")


@contextlib.contextmanager
def naming_own_format(format_name: str, path: str, compression: str | None = None) -> Iterator[None]:
    """Turn an error that the code of a user's own format raises within the context into a PipelineError.

    Its message names the file, the format and the error. These errors pass unchanged: a PipelineError or a
    DamagedFileError, an error of the disk, an error that the damage of a compressed file causes, and any error of a
    built-in format, which is a bug in this package.

    Args:
        format_name: the name of the format.
        path: the path of the file that the format handles, for the message.
        compression: the compression of the file; None if the file is not compressed, or is not read.
    """
    try:
        yield
    except (PipelineError, DamagedFileError):
        raise
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        is_of_disk = isinstance(error, OSError) and error.errno is not None
        is_damage = compression is not None and isinstance(error, DAMAGE)
        if is_of_disk or is_damage or format_name in built_in():
            raise
        raise PipelineError(f"{path}: the format {format_name} raised {plugins.cause(error)}") from None


def described() -> str:
    """Return the names of the supported formats in one line, "A, B or C", for messages."""
    *names, last = [known.described for known in built_in().values() if known.described]
    return f"{', '.join(names)} or {last}"
