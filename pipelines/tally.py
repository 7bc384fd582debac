"""Accounting of a work unit's records: kept, filtered by reason, or bad and written down.

    read = kept + sum(filtered) + bad

holds for every unit and, summed, for the dataset.
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from clearspan.common.flags import flag
from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.records import HEAD_BYTES, INVALID, Record

Made = TypeVar("Made")
EARLY_STOP = 1000
"""A unit with this many bad records, and more bad than good ones, stops the run at once."""
MOST_LACKING = 100
"""Maximum number of files for which the records that lack fields are counted."""
NUM_EXAMPLES = 3
"""Maximum number of bad records, and of files, that a message names."""
NUM_RECODED = 20
"""Maximum number of files that are not UTF-8 that the summary names."""


def name_encoding() -> str:
    """Return advice for the user on text that is not UTF-8."""
    return (
        f"name the encoding of text that is not UTF-8, e.g. {flag('--encoding')} cp1252, or auto for that of each file"
    )


class RecordError(ValueError):
    """A record cannot be used by the kind of dataset. The message is the reason."""


class MissingFieldError(RecordError):
    """A record lacks the field with its text, or fields of its row. The message names the fields that it has."""


@dataclasses.dataclass
class Counts:
    """Counts of one unit or of several.

    Attributes:
        filtered: reason -> number of records dropped for it.
        longest: name of a size that the kind measures, such as bytes -> largest size.
        sums: name of a further count of the kind -> count, taken before duplicates are dropped.
        bad_examples: (source, reason) of the first bad records.
        lacking: the message about the first good record that lacks the fields of a row.
        encodings: encoding -> number of files in it, for the files that are not UTF-8 (`--encoding auto`).
        recoded: (file, encoding) of the first files that are not UTF-8.
        lacking_in: file -> number of its records that lack the fields of a row; at most MOST_LACKING files.
    """

    read: int = 0
    kept: int = 0
    filtered: dict[str, int] = dataclasses.field(default_factory=dict)
    bad: int = 0
    longest: dict[str, int] = dataclasses.field(default_factory=dict)
    sums: dict[str, int] = dataclasses.field(default_factory=dict)
    bad_examples: list[list[str]] = dataclasses.field(default_factory=list)
    lacking: str = ""
    encodings: dict[str, int] = dataclasses.field(default_factory=dict)
    recoded: list[list[str]] = dataclasses.field(default_factory=list)
    lacking_in: dict[str, int] = dataclasses.field(default_factory=dict)

    def measure(self, name: str, size: int) -> None:
        """Update the largest size of this name."""
        self.longest[name] = max(size, self.longest.get(name, 0))

    def count(self, name: str, number: int) -> None:
        """Add to a sum."""
        self.sums[name] = self.sums.get(name, 0) + number

    def add(self, other: "Counts") -> None:
        """Add the counts of a later unit."""
        for name in ("read", "kept", "bad"):
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
        """Count a file that is not UTF-8."""
        self.encodings[encoding] = self.encodings.get(encoding, 0) + 1
        if len(self.recoded) < NUM_RECODED:
            self.recoded.append([name, encoding])

    def lack(self, name: str, fault: str, number: int = 1) -> None:
        """Count records of a file without the fields of a row."""
        self.lacking = self.lacking or fault
        if name in self.lacking_in or len(self.lacking_in) < MOST_LACKING:
            self.lacking_in[name] = self.lacking_in.get(name, 0) + number

    @property
    def files_lacking(self) -> str:
        """Line with the files whose records lack the fields of a row, most records first; "" if there are none."""
        ordered = sorted(self.lacking_in, key=lambda name: (-self.lacking_in[name], name))
        named = ", ".join(f"{name} {self.lacking_in[name]:,}" for name in ordered[:NUM_EXAMPLES])
        more = f" and {len(ordered) - NUM_EXAMPLES:,} more files" if len(ordered) > NUM_EXAMPLES else ""
        return f"records left out, by file: {named}{more}: {self.lacking}" if named else ""

    def check_bad(self, most: float, where: str = "") -> None:
        """Raise PipelineError if the fraction of bad records is larger than `most`."""
        if self.bad > most * self.read:
            raise PipelineError(f"{self.complaint()} (allowed: {flag('--max-bad-fraction')} {most:g}{where})")

    def complaint(self) -> str:
        """Return one line that says what is wrong with the bad records."""
        sources = {reason: source for source, reason in reversed(self.bad_examples)}
        examples = "; ".join(f"{source}: {reason}" for reason, source in sources.items())
        is_encoding = any(reason.startswith(INVALID) for _, reason in self.bad_examples)
        mend = f": {name_encoding()}" if is_encoding else ""
        return f"{self.bad:,} of {self.read:,} records are bad, e.g. {examples}{mend}"


def recoding(encodings: Mapping[str, int], recoded: Sequence[Sequence[str]]) -> list[str]:
    """Return lines for the user about the files that are not UTF-8: their number, and the names of the first ones."""
    if not encodings:
        return []
    numbers = ", ".join(f"{number:,} {encoding}" for encoding, number in sorted(encodings.items()))
    files = ", ".join(f"{name} ({encoding})" for name, encoding in recoded)
    more = ", ..." if sum(encodings.values()) > len(recoded) else ""
    return [f"not UTF-8, but as found by their bytes: {numbers}: {files}{more}"]


def json_line(record: Mapping[str, Any]) -> bytes:
    """Return a record as a line of JSON."""
    return json.dumps(record).encode() + b"\n"


class Tally:
    """Counter of a unit's records, which also collects the bad and the excluded ones as JSON lines."""

    def __init__(self, reasons: tuple[str, ...], max_bad_fraction: float) -> None:
        self.counts = Counts(filtered=dict.fromkeys(reasons, 0))
        self.max_bad_fraction = max_bad_fraction
        self.rejected, self.excluded = bytearray(), bytearray()

    def readable(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield the records that hold something to read; count the others as filtered, for their reason."""
        recoded = ""
        for record in records:
            if record.encoding and record.name != recoded:  # a file is read whole, in one unit
                recoded = record.name
                self.counts.recode(record.name, record.encoding)
            if record.skipped:
                self.counts.read += 1
                self.counts.filtered[record.skipped] = self.counts.filtered.get(record.skipped, 0) + 1
            else:
                yield record

    def made(self, records: Iterable[Record], make: Callable[[Record], Made | None]) -> Iterator[Made]:
        """Yield the result of `make` for each record, unless it is None.

        Count every record as read; also count it as bad if `make` raises RecordError.
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
        """Count a bad record and write it down.

        Raises:
            PipelineError: the unit has many bad records, and more bad than good ones.
        """
        counts, reason = self.counts, str(problem)
        counts.bad += 1
        if len(counts.bad_examples) < NUM_EXAMPLES:
            counts.bad_examples.append([record.source, reason])
        safe = record.raw[:HEAD_BYTES].decode("utf-8", "backslashreplace").encode()[:HEAD_BYTES]
        head = safe.decode("utf-8", "ignore").rstrip("\r\n")
        self.rejected += json_line({"source": record.name, "offset": record.offset, "reason": reason, "head": head})
        if counts.bad >= EARLY_STOP and 2 * counts.bad > counts.read and self.max_bad_fraction < 0.5:
            raise PipelineError(counts.complaint())

    def exclude(self, source: str, id: int, text: str) -> None:
        """Count an example that holds an excluded text, and write down its source, its id and the text."""
        self.counts.filtered["excluded"] += 1
        self.excluded += json_line({"source": source, "id": id, "text": text})
