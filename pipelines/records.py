"""Data types of the readers: input files, pieces of them, and the records that they hold."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from clearspan.pipelines.labels import Classes, Wanted
from clearspan.shards.finding import Status

HEAD_BYTES = 1000
"""Number of first bytes of a bad record that are written to the list of bad records."""
INVALID = "invalid UTF-8"
"""Beginning of the message about a text that is not in the expected encoding."""
MAX_BYTES = 64_000_000
"""Default size in bytes above which a record is bad."""


@dataclasses.dataclass(frozen=True, slots=True)
class Input:
    """Input file.

    Attributes:
        name: path under the common folder of all inputs.
        bytes: size as stored.
        format, compression: name of the format, and of the compression if there is one.
        sample: hash of bytes spread over the file (`readers.sniff.sample`); empty for a file that planning does not
            open.
        label: class of the file, if a list of files states it.
        status: size and times that the file system reported when the run was planned; None if workers see the file on a
            different file system. It is not part of the plan, which is the same for the same content anywhere.
    """

    name: str
    bytes: int
    format: str
    compression: str | None
    sample: str
    label: str | None = None
    status: Status | None = dataclasses.field(default=None, compare=False)

    @property
    def fields(self) -> tuple[tuple[str, Any], ...]:
        """The fields of the plan as (name, value)."""
        return tuple((field.name, getattr(self, field.name)) for field in dataclasses.fields(self) if field.compare)


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """Part of a file: all lines, row groups or members that start in bytes start..end; end None is the end of the file.

    `lines` is the number of line ends before `start`. It is set only for a file that is cut at lines, in a run that
    numbers its records (`units.numbering`).
    """

    input: Input
    start: int
    end: int | None
    lines: int = 0

    @property
    def bytes(self) -> int:
        """Size in bytes, as stored."""
        return (self.input.bytes if self.end is None else self.end) - self.start


@dataclasses.dataclass(frozen=True)
class Inputs:
    """All input files of a run.

    Attributes:
        root: common folder of the files.
        runs: for tars of images or audio clips, the byte ranges (start, end) of members that can be read separately;
            None for a tar that can only be read as a whole.
        classes: classes of labeled examples.
        skipped: number of files of unknown type that were skipped.
    """

    root: str
    files: tuple[Input, ...]
    runs: Mapping[str, Sequence[tuple[int, int]] | None] = dataclasses.field(default_factory=dict)
    classes: Classes | None = None
    skipped: int = 0


@dataclasses.dataclass(frozen=True)
class Reading:
    """Rules by which the readers find the records in the inputs.

    Attributes:
        max_bytes: a record larger than this is bad.
        field: field of JSON objects and tables that holds the text; None: the field "text", or the only column of a
            table.
        text_per: "file" if a plain text file is one record, "line" if each of its lines is.
        as_bytes: whether records are whole files, and members of tars, as bytes.
        extensions: with `as_bytes`, the extensions of the files and members to read; empty for any.
        wanted: with `as_bytes`, the classes that the user selects.
        classes: with `as_bytes`, the selected classes that planning found; only their files are records.
        separator: plain text is split into records at this string.
        columns: sets of column names. If there are any, a record is a row, with the first of these sets that the table
            has; plain text is read as a table.
        by_order: with `columns`, whether a table of two or three columns with different names is read in their order.
        option: with `columns`, the option that names the columns, for error messages.
        header: whether csv files begin with column names; columns without names are called 1, 2, ...
        whole: whether files are read whole, not cut into pieces.
        encoding: Python's name of the encoding of text files, which are then not cut; None for UTF-8; `auto` to detect
            the encoding of each file (`readers.encodings`).
        formats: input formats from outside this package, as `module:name`, tried before the built-in ones
            (`readers.formats`).
        keep: further fields of JSON objects, or columns of tables, to read in addition to the text or to `columns`. A
            row of a table is then an object, with the text under `field` or else "text"; fields that the row lacks are
            absent.
        is_head: whether only the first records are wanted: the beginning of a file then decides what the whole file
            would decide otherwise, such as its encoding.
        skip_unknown: whether files of unknown type in folders and globs are skipped.
    """

    max_bytes: int = MAX_BYTES
    field: str | None = None
    text_per: str = "file"
    as_bytes: bool = False
    extensions: tuple[str, ...] = ()
    wanted: Wanted = dataclasses.field(default_factory=Wanted)
    classes: Classes | None = None
    separator: str | None = None
    columns: tuple[tuple[str, ...], ...] = ()
    by_order: bool = False
    option: str = "--columns"
    header: bool = True
    whole: bool = False
    formats: tuple[str, ...] = ()
    skip_unknown: bool = False
    is_head: bool = False
    encoding: str | None = None
    keep: tuple[str, ...] = ()

    @property
    def uncut(self) -> bool:
        """Return whether files must not be cut. Files in another encoding are not: decoding changes byte offsets."""
        return self.whole or self.encoding is not None


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """Record of an input file.

    Attributes:
        offset: bytes (rows in a table) before the record in the decompressed file; None if the record is the whole
            file.
        value: a JSON object, a text or a file's bytes; None for a text that is null.
        raw: the bytes as read, or at least the first of these bytes.
        problem: the reason why the record cannot be read; empty if it can be read.
        label: class of an image or audio clip.
        skipped: the reason why a good record holds nothing to read; empty if it holds something.
        encoding: the encoding of its file, if it was detected not to be UTF-8.
        number: number of the record in its file, from 1: the line number in a text per line and in JSON lines; the row
            number in a table, without the header; the number of the element in an array; otherwise the number among the
            records that the reader returns, such as documents between separators; 1 for a whole file.
    """

    name: str
    offset: int | None
    value: Any
    raw: bytes
    problem: str = ""
    label: str = ""
    skipped: str = ""
    encoding: str = ""
    number: int = 1

    @classmethod
    def of_text(cls, name: str, offset: int | None, data: bytes, max_bytes: int, of: str, number: int = 1) -> "Record":
        """Return the record of a text in UTF-8. `of` is a noun for the part of the file that holds it, for messages."""
        value, raw, problem = None, data[:HEAD_BYTES], ""
        if len(data) > max_bytes:
            problem = f"longer than {max_bytes:,} bytes"
        else:
            try:
                value, raw = data.decode("utf-8"), data
            except UnicodeDecodeError as error:
                problem = f"invalid UTF-8 at byte {error.start} of the {of}"
        return cls(name, offset, value, raw, problem, number=number)

    @property
    def source(self) -> str:
        """Name and offset, for reports."""
        return self.name if self.offset is None else f"{self.name}:{self.offset}"
