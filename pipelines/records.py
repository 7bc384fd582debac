"""Data types of the readers: input files, pieces of them, and the records that they hold."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from clearspan.pipelines.labels import Classes, Wanted
from clearspan.shards.finding import Status

HEAD_BYTES = 1000
"""Number of leading bytes of a bad record that are written down."""
INVALID = "invalid UTF-8"
"""The beginning of a problem of text in another encoding."""
MAX_BYTES = 64_000_000
"""Default size in bytes above which a record is bad."""


@dataclasses.dataclass(frozen=True, slots=True)
class Input:
    """Input file.

    Attributes:
        name: path under the common folder of all inputs.
        bytes: size as stored.
        format, compression: type of the content.
        sample: hash of bytes spread over the file (`readers.sniff.sample`); empty for a file that planning does not
            open.
        label: class that a list file gives it.
        status: what the file system said of it when the run was planned; None if workers see the file on another file
            system. It is no part of the plan, which is the same for the same content anywhere.
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
    """Part of a file: all lines, row groups or members that start in bytes start..end; end None is the end of the
    file. `lines` is the number of line ends before `start`, of a file that is cut at lines, in a run that numbers its
    records (`units.numbering`).
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
        root: common folder.
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
        field: field of JSON objects and tables that holds the text; None for the one called "text", or a table's only
            column.
        text_per: "file" if a plain text file is one record, "line" if each of its lines is.
        as_bytes: records are whole files and members of tars, as bytes.
        extensions: with `as_bytes`, the extensions of the files and members to read; empty for any.
        wanted: with `as_bytes`, the classes that the user selects.
        classes: with `as_bytes`, the selected classes that planning found; only their files are records.
        separator: plain text is split into records at this string.
        columns: a record is a row, with the first of these sets of columns that the table has; plain text is read as a
            table.
        by_order: with `columns`, a table of two or three other columns is read in their order.
        option: with `columns`, the option that names them, for errors.
        header: whether csv files begin with column names; columns without names are called 1, 2, ...
        whole: files are not cut into pieces.
        encoding: Python's name of the encoding of text files, which are then not cut; None for UTF-8; `auto` for that
            of each file (`readers.encodings`).
        formats: input formats from outside this package, as `module:name`, tried before the built-in ones
            (`readers.formats`).
        keep: further fields of JSON objects and columns of tables to read beside the text, or beside `columns`. A row
            of a table is then an object, with the text under `field` or else "text"; fields that it lacks are absent.
        is_head: only the first records are wanted: what the whole file decides is decided by its beginning.
        skip_unknown: files of unknown type in folders and globs are skipped.
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
        """Return whether files are not cut: those in another encoding have other places of bytes when read."""
        return self.whole or self.encoding is not None


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """Record of an input file.

    Attributes:
        offset: bytes (rows in a table) before the record in the decompressed file; None if the record is the whole
            file.
        value: a JSON object, a text or a file's bytes; None for a text that is null.
        raw: the bytes as read, or at least the first of them.
        problem: why the record cannot be read; empty if it can.
        label: class of an image or audio clip.
        skipped: reason for which a good record holds nothing to read; empty if it does.
        encoding: of its file, where that was found to be another than UTF-8.
        number: that of the record in its file, from 1: of a text per line and of JSON lines the line; of a table the
            row, without the header; of an array the element; else the record that the reader gives, such as the
            document between two separators; 1 for a whole file.
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
        """Return the record of a text in UTF-8; `of` names the part of the file that holds it."""
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
