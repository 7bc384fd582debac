"""Data types of the readers: input files, splits of input files, and records."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from clearspan.pipelines.labels import Classes, SelectionOptions
from clearspan.shards.finding import Status

HEAD_BYTES = 1000
"""Maximum number of bytes of a bad record that are written to the list of bad records."""
MAX_BYTES = 64_000_000
"""Default maximum size of a record, in bytes; a larger record is bad."""


@dataclasses.dataclass(frozen=True, slots=True)
class Input:
    """An input file.

    Attributes:
        name: the path relative to the common folder of all inputs.
        bytes: the size of the file as stored, which may be compressed.
        format: the name of the input format.
        compression: the name of the compression; None if the file is not compressed.
        sample: the hash of bytes sampled from the whole file (`readers.sniff.sample`); "" if planning does not open the
            file.
        label: the class of an image or audio clip, if a list of files states it; otherwise None.
        status: the size and the times that the file system reported when the run was planned; None if workers see the
            file on a different file system. The plan does not contain the status, because the same files must give the
            same plan on every machine.
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
        """All attributes except the status, as pairs (name, value), for the list of inputs in the plan."""
        return tuple((field.name, getattr(self, field.name)) for field in dataclasses.fields(self) if field.compare)


@dataclasses.dataclass(frozen=True, slots=True)
class Split:
    """A part of an input file: the lines, row groups or tar members that begin in a range of bytes.

    Attributes:
        input: the file.
        start, end: the range, as byte offsets in the file; `end` is excluded. None as `end` is the end of the file.
        lines: the number of line ends before `start`. It is counted only if the run numbers records and the records of
            the file are lines (`units.numbering`); otherwise it is 0.
    """

    input: Input
    start: int
    end: int | None
    lines: int = 0

    @property
    def bytes(self) -> int:
        """The number of bytes in the range."""
        return (self.input.bytes if self.end is None else self.end) - self.start


@dataclasses.dataclass(frozen=True)
class Inputs:
    """All input files of a run.

    Attributes:
        root: the common folder of the files.
        files: the input files.
        sample_ranges: name of a tar of images or audio clips -> the byte ranges (start, end) of its samples to read,
            where an end of -1 is the end of the tar; None for a tar that is not cut (compressed, or on an object
            store).
        classes: the selected classes of images or audio clips; None for other inputs.
        skipped: the number of files of unknown type that were skipped.
        left_out: the paths of files that were found and are not read, because of their names (`finding.is_auxiliary`).
    """

    root: str
    files: tuple[Input, ...]
    sample_ranges: Mapping[str, Sequence[tuple[int, int]] | None] = dataclasses.field(default_factory=dict)
    classes: Classes | None = None
    skipped: int = 0
    left_out: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class ReadOptions:
    """Rules by which the readers find the records in the inputs.

    Attributes:
        max_bytes: the maximum size of a record in bytes; a larger record is bad.
        field: the field of JSON objects, or the column of tables, that holds the text. None: the field or column
            "text"; if a table has no such column, its only column of texts.
        text_per: "file" if a plain text file is one record, "line" if each of its lines is a record.
        as_bytes: true if each image or audio clip, as a file or a member of a tar, is a record with the file's bytes.
        extensions: with `as_bytes`, the extensions of the files and members to read; if empty, all are read.
        wanted: with `as_bytes`, the user's options that select classes and files.
        classes: with `as_bytes`, the selected classes that planning found; only files of these classes are records.
        separator: the string at which plain text is split into records; None if a text is not split.
        columns: sets of column names. If there are any, a record is a row with the columns of the largest set that the
            table has completely, and plain text is read as a table. If there are none, a record is one text.
        by_order: with `columns`, true if a table of two or three columns that has none of these sets is read, too: all
            of its columns, in their order, whatever their names.
        option: with `columns`, the option that names the columns, for error messages.
        header: true if csv files begin with column names; if false, the columns are called 1, 2, ...
        whole: true if texts and tables are not cut into splits. Tars are cut between their members even then.
        encoding: Python's name for the encoding of text files, which are then not cut into splits; None for UTF-8;
            `auto` to detect the encoding of each file (`readers.encodings`).
        formats: the user's own input formats, as `module:name`, which are tried before the built-in formats
            (`readers.formats`).
        keep: further fields of JSON objects, or columns of tables, to read in addition to the text or to `columns`. The
            value of a record is then a dict, which holds the text under `field`, or under "text" if `field` is None.
            It has no entry for a field that the record lacks.
        is_head: true if only the first records of a file are read. Properties that depend on all of its content, such
            as its encoding, are then inferred from its beginning.
        skip_unknown: true if files of unknown type are skipped that are found in folders or by globs; if false, they
            are an error.
    """

    max_bytes: int = MAX_BYTES
    field: str | None = None
    text_per: str = "file"
    as_bytes: bool = False
    extensions: tuple[str, ...] = ()
    wanted: SelectionOptions = dataclasses.field(default_factory=SelectionOptions)
    classes: Classes | None = None
    separator: str | None = None
    columns: tuple[tuple[str, ...], ...] = ()
    by_order: bool = False
    option: str = "columns"
    header: bool = True
    whole: bool = False
    formats: tuple[str, ...] = ()
    skip_unknown: bool = False
    is_head: bool = False
    encoding: str | None = None
    keep: tuple[str, ...] = ()

    @property
    def uncut(self) -> bool:
        """Return whether texts and tables must not be cut into splits.

        This is so if `whole` is true; or if there is an `encoding`, because the readers then get texts that are
        converted to UTF-8, in which the offsets differ from those in the file.
        """
        return self.whole or self.encoding is not None


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """A record of an input file.

    Attributes:
        name: the path of the file relative to the common folder of all inputs; for a member of a tar, FILE/MEMBER.
        offset: the position of the record in the decompressed file: an offset in bytes, or in a table the index of the
            row; None if the record is the whole file.
        value: a JSON object or the row of a table, as a dict; a text; or the bytes of a file. None if the text is null
            or the record is bad.
        raw: the beginning of the record as bytes, to show it to the user; it may be the whole record.
        problem: the reason why the record is bad; "" if it is not bad.
        label: the class of an image or audio clip; "" for other records.
        skipped: the reason why a valid record is left out, for example because it only states a class; "" for others.
        encoding: the detected encoding of the file if it is not UTF-8, otherwise "".
        number: the number of the record in its file, from 1. It is the line number in JSON lines and in texts with one
            record per line, the row number in a table (not counting the header), and the number of the element in an
            array. In other files it counts the records that the reader returns, such as documents between separators.
        is_not_utf8: true if the record is bad because its bytes are not UTF-8. Messages then advise the user to name
            the encoding.
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
    is_not_utf8: bool = False

    @classmethod
    def of_text(
        cls, name: str, offset: int | None, data: bytes, max_bytes: int, part: str, number: int = 1
    ) -> "Record":
        """Return the record of a text in UTF-8; a bad record if it is too long or not valid UTF-8.

        Args:
            name, offset, number: the values for the attributes of these names.
            data: the bytes of the text.
            max_bytes: the maximum number of bytes.
            part: a noun for the part of the file that holds the text, for messages, e.g. `line`.
        """
        value, raw, problem, is_not_utf8 = None, data[:HEAD_BYTES], "", False
        if len(data) > max_bytes:
            problem = f"longer than {max_bytes:,} bytes"
        else:
            try:
                value, raw = data.decode("utf-8"), data
            except UnicodeDecodeError as error:
                problem, is_not_utf8 = invalid_utf8(error.start, part), True
        return cls(name, offset, value, raw, problem, number=number, is_not_utf8=is_not_utf8)

    @property
    def source(self) -> str:
        """The name of the file and the offset of the record, as NAME:OFFSET, for messages and lists.

        If the record is the whole file, it is only the name.
        """
        return self.name if self.offset is None else f"{self.name}:{self.offset}"


def invalid_utf8(byte: int, part: str) -> str:
    """Return the reason why a record is bad whose bytes are not UTF-8: "invalid UTF-8 at byte 7 of the line".

    Args:
        byte: the offset, in a part of the file, of the first byte that is not UTF-8.
        part: a noun for this part, e.g. `line`.
    """
    return f"invalid UTF-8 at byte {byte} of the {part}"
