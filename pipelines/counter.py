"""Counts of a work unit's records: each record is kept, filtered for a reason, or bad.

For every unit, and for the dataset as the sum of its units, this equation holds:

    read = kept + sum(filtered) + bad
"""

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from clearspan.common.errors import PipelineError
from clearspan.pipelines.records import HEAD_BYTES, Record

Made = TypeVar("Made")
_CUT_ESCAPE = re.compile(rb"\\(?:x[0-9a-f]?)?\Z")
"""Pattern of the beginning of an escape such as \\xff, of which the rest was cut off."""
EARLY_STOP = 1000
"""Number of bad records from which a unit stops the run at once, if it also has more bad records than good records."""
MAX_LACKING = 100
"""Maximum number of files for which the records that lack fields are counted."""
NUM_EXAMPLES = 3
"""Maximum number of bad records, and of files, that a message names."""
NUM_RECODED = 20
"""Maximum number of files that are not UTF-8 that the summary names."""


def encoding_advice() -> str:
    """Return advice for the user on text that is not UTF-8."""
    return "name the encoding of text that is not UTF-8, e.g. `encoding` cp1252, or auto to detect it"


class RecordError(ValueError):
    """A record cannot be used for the kind of dataset, and counts as bad. The message is the reason."""


class MissingFieldError(RecordError):
    """A record lacks fields or columns that a row of the dataset is made of. The message names the fields that it has.

    The command `pairs` counts such a record as filtered; `triplets` counts it as bad.
    """


@dataclasses.dataclass
class Counts:
    """Counts of the records of one work unit, or of several.

    Attributes:
        read, kept, bad: the numbers of records that were read, that were kept, and that are bad.
        filtered: reason -> number of valid records that were left out for this reason.
        longest: name of a size that the kind of dataset measures, such as `bytes` -> the largest size.
        sums: name of a further count that the kind of dataset makes, such as `chunks` -> the count. It includes
            examples that are later dropped as duplicates.
        not_utf8: the number of bad records whose bytes are not UTF-8.
        bad_examples: [source, reason] of the first three bad records.
        lacking: the message about the first record that was left out because it lacks columns; "" if there is none.
        encodings: encoding -> number of files in this encoding, for files that are not UTF-8 (`--encoding auto`).
        recoded: [file, encoding] of the first 20 files that are not UTF-8.
        lacking_in: file -> number of its records that were left out because they lack columns; at most 100 files.
    """

    read: int = 0
    kept: int = 0
    filtered: dict[str, int] = dataclasses.field(default_factory=dict)
    bad: int = 0
    not_utf8: int = 0
    longest: dict[str, int] = dataclasses.field(default_factory=dict)
    sums: dict[str, int] = dataclasses.field(default_factory=dict)
    bad_examples: list[list[str]] = dataclasses.field(default_factory=list)
    lacking: str = ""
    encodings: dict[str, int] = dataclasses.field(default_factory=dict)
    recoded: list[list[str]] = dataclasses.field(default_factory=list)
    lacking_in: dict[str, int] = dataclasses.field(default_factory=dict)

    def measure(self, name: str, size: int) -> None:
        """Store `size` as the largest size with this name (`longest`), if it is larger than the largest so far."""
        self.longest[name] = max(size, self.longest.get(name, 0))

    def count(self, name: str, number: int) -> None:
        """Add `number` to the count with this name in `sums`."""
        self.sums[name] = self.sums.get(name, 0) + number

    def add(self, other: "Counts") -> None:
        """Add the counts of a later work unit to these counts."""
        for name in ("read", "kept", "bad", "not_utf8"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for reason, number in other.filtered.items():
            self.filtered[reason] = self.filtered.get(reason, 0) + number
        for name, size in other.longest.items():
            self.measure(name, size)
        for name, number in other.sums.items():
            self.count(name, number)
        self.bad_examples = [*self.bad_examples, *other.bad_examples][:NUM_EXAMPLES]
        for encoding, number in other.encodings.items():
            self.encodings[encoding] = self.encodings.get(encoding, 0) + number
        self.recoded = [*self.recoded, *other.recoded][:NUM_RECODED]
        for name, number in other.lacking_in.items():
            self.lack(name, other.lacking, number)

    def recode(self, name: str, encoding: str) -> None:
        """Count a file that is not in UTF-8.

        Args:
            name: the file's path.
            encoding: the encoding in which the file is read.
        """
        self.encodings[encoding] = self.encodings.get(encoding, 0) + 1
        if len(self.recoded) < NUM_RECODED:
            self.recoded.append([name, encoding])

    def lack(self, name: str, fault: str, number: int = 1) -> None:
        """Count records of a file that were left out because they lack columns.

        Args:
            name: the file's path.
            fault: the message that names the columns. It is stored for the first such record (`lacking`).
            number: the number of records.
        """
        self.lacking = self.lacking or fault
        if name in self.lacking_in or len(self.lacking_in) < MAX_LACKING:
            self.lacking_in[name] = self.lacking_in.get(name, 0) + number

    @property
    def files_lacking(self) -> str:
        """A line that names the files with records that lack columns, most records first; "" if there are none."""
        ordered = sorted(self.lacking_in, key=lambda name: (-self.lacking_in[name], name))
        named = ", ".join(f"{name} {self.lacking_in[name]:,}" for name in ordered[:NUM_EXAMPLES])
        more = f" and {len(ordered) - NUM_EXAMPLES:,} more files" if len(ordered) > NUM_EXAMPLES else ""
        return f"records left out, by file: {named}{more}: {self.lacking}" if named else ""

    def check_bad(self, max_fraction: float, place: str = "") -> None:
        """Raise PipelineError if the fraction of bad records is larger than `max_fraction`.

        Args:
            place: text that is added to the message, such as where the list of bad records is; "" to add nothing.
        """
        if self.bad > max_fraction * self.read:
            raise PipelineError(f"{self.complaint()} (allowed: `max_bad_fraction` {max_fraction:g}{place})")

    def complaint(self) -> str:
        """Return a line with the number of bad records, examples with their reasons, and advice on encodings."""
        sources = {reason: source for source, reason in reversed(self.bad_examples)}
        examples = "; ".join(f"{source}: {reason}" for reason, source in sources.items())
        mend = f": {encoding_advice()}" if self.not_utf8 else ""
        return f"{self.bad:,} of {self.read:,} records are bad, e.g. {examples}{mend}"


def encoding_lines(encodings: Mapping[str, int], recoded: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a summary about files that are not UTF-8: their number, and the names of the first files.

    If all files are UTF-8, there are no lines.

    Args:
        encodings: encoding -> number of files in this encoding.
        recoded: (file, encoding) of the first files.
    """
    if not encodings:
        return []
    numbers = ", ".join(f"{number:,} {encoding}" for encoding, number in sorted(encodings.items()))
    files = ", ".join(f"{name} ({encoding})" for name, encoding in recoded)
    more = ", ..." if sum(encodings.values()) > len(recoded) else ""
    return [f"not UTF-8, but as found by their bytes: {numbers}: {files}{more}"]


def json_line(record: Mapping[str, Any]) -> bytes:
    """Return a dict as a line of JSON in UTF-8, with a line break."""
    return json.dumps(record).encode() + b"\n"


class RecordCounter:
    """Counter of the records of a work unit.

    Args:
        reasons: reasons for which records may be filtered. These are reported even if no record is filtered for them.
        max_bad_fraction: fraction of the records that may be bad (`--max-bad-fraction`).

    Attributes:
        counts: the counts so far.
        rejected: the bad records so far, as JSON lines.
        excluded: the examples so far that were dropped because they hold an excluded text, as JSON lines.
    """

    def __init__(self, reasons: tuple[str, ...], max_bad_fraction: float) -> None:
        self.counts = Counts(filtered=dict.fromkeys(reasons, 0))
        self.max_bad_fraction = max_bad_fraction
        self.rejected, self.excluded = bytearray(), bytearray()

    def readable(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield the records that are not to be skipped. Count the others as read and as filtered.

        A record is skipped if its reader has set a reason for it (`Record.skipped`). Files that are not in UTF-8 are
        counted as well.
        """
        recoded = ""
        for record in records:
            if record.encoding and record.name != recoded:  # such a file is not cut: one unit reads it
                recoded = record.name
                self.counts.recode(record.name, record.encoding)
            if record.skipped:
                self.counts.read += 1
                self.counts.filtered[record.skipped] = self.counts.filtered.get(record.skipped, 0) + 1
            else:
                yield record

    def made(self, records: Iterable[Record], make: Callable[[Record], Made | None]) -> Iterator[Made]:
        """Call `make` for each record, and yield the results that are not None.

        Count every record as read. If `make` raises RecordError, count the record as bad (`reject`) and go on. If it
        returns None, it must have counted the record as filtered.
        """
        for record in records:
            self.counts.read += 1
            try:
                made = make(record)
            except RecordError as problem:
                self.reject(record, problem)
                continue
            if made is not None:
                yield made

    def reject(self, record: Record, problem: RecordError) -> None:
        """Count a bad record and add it to `rejected`.

        Args:
            problem: the reason why the record is bad.

        Raises:
            PipelineError: at least 1,000 records of the work unit, and more than half of those read so far, are bad.
                It is not raised if `max_bad_fraction` is 0.5 or more.
        """
        counts, reason = self.counts, str(problem)
        counts.bad += 1
        counts.not_utf8 += record.is_not_utf8
        if len(counts.bad_examples) < NUM_EXAMPLES:
            counts.bad_examples.append([record.source, reason])
        safe = record.raw[:HEAD_BYTES].decode("utf-8", "backslashreplace").encode()
        if len(safe) > HEAD_BYTES:
            safe = _CUT_ESCAPE.sub(b"", safe[:HEAD_BYTES])
        head = safe.decode("utf-8", "ignore").rstrip("\r\n")
        self.rejected += json_line({"source": record.name, "offset": record.offset, "reason": reason, "head": head})
        if counts.bad >= EARLY_STOP and 2 * counts.bad > counts.read and self.max_bad_fraction < 0.5:
            raise PipelineError(counts.complaint())

    def exclude(self, source: str, id: int, text: str) -> None:
        """Count an example that holds an excluded text as filtered, and add its source, id and text to `excluded`."""
        self.counts.filtered["excluded"] += 1
        self.excluded += json_line({"source": source, "id": id, "text": text})
