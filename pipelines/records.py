"""What readers take and give: pieces of input files, and the records in them."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from clearspan.pipelines.labels import Classes, Wanted

HEAD_BYTES = 1000
"""So much of a bad record is kept."""
MAX_BYTES = 64_000_000
"""A longer record is bad, unless the user says otherwise."""


@dataclasses.dataclass(frozen=True, slots=True)
class Input:
    """A file by its name under the inputs' common folder, its size as stored, what it holds, and a hash of bytes spread
    over it (`readers.content.sample`); none of a file that is not looked at before its unit is. `label` is the class
    that a list gives it.
    """

    name: str
    bytes: int
    format: str
    compression: str | None
    sample: str
    label: str | None = None

    @property
    def fields(self) -> tuple[tuple[str, Any], ...]:
        """Name and value of each field."""
        return (
            ("name", self.name),
            ("bytes", self.bytes),
            ("format", self.format),
            ("compression", self.compression),
            ("sample", self.sample),
            ("label", self.label),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """Bytes start..end of a file, and the line, row group or member that starts there; end None: to the file's end."""

    input: Input
    start: int
    end: int | None

    @property
    def bytes(self) -> int:
        return (self.input.bytes if self.end is None else self.end) - self.start


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The files of a run, below `root`; of tars of pictures or clips `runs` says where groups of members lie together
    that may be read by themselves, as (start, end) in the tar; None: whole. `classes` are theirs, `skipped` the files
    of no known kind.
    """

    root: str
    files: tuple[Input, ...]
    runs: Mapping[str, Sequence[tuple[int, int]] | None] = dataclasses.field(default_factory=dict)
    classes: Classes | None = None
    skipped: int = 0


@dataclasses.dataclass(frozen=True)
class Reading:
    """A reading tells which of the inputs' content are records: texts and JSON objects, or (`as_bytes`) whole files
    and members of tars with these ends of their names, or with any (none given). Of them those of the `classes` are
    records; planning finds these, as they are `wanted`.

    Of JSON objects and tables `field` holds the text (None: the one called "text", or a table's only one); a plain text
    is a record as a whole, each of its lines is (`text_per`: "file" or "line"), or each part between `separator`s. A
    record of more than `max_bytes` is a problem.

    With `columns` a record is a row: a table's is an object of the first of these sets of columns that the table has,
    or of all its columns where they are two or three; a plain text is then a table. `header` says whether csv begins
    with the columns' names; they are called 1, 2, ... otherwise. With `whole` no file is cut into pieces.

    `formats` name input formats from outside this package, as `module:name`; they are tried before the built-in ones
    (`readers.formats`).

    `skip_unknown`: files of no known kind that a folder or a glob names are passed over.
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
    header: bool = True
    whole: bool = False
    formats: tuple[str, ...] = ()
    skip_unknown: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """What a reader found at one place: a JSON object, a whole text or a file's bytes (`value`), or a `problem`.

    `raw` is the record's bytes as read, or at least their head. `offset` counts in the decompressed file (rows
    in a table), None where the record is the whole file. `label` is the class of a picture or a clip.
    """

    name: str
    offset: int | None
    value: Any
    raw: bytes
    problem: str = ""
    label: str = ""

    def of_class(self, label: str) -> "Record":
        """The same, of a class."""
        return dataclasses.replace(self, label=label)

    @property
    def source(self) -> str:
        return self.name if self.offset is None else f"{self.name}:{self.offset}"
