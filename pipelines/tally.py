"""What became of every record of a work unit: kept, filtered for a reason, or bad and written down.

    read = kept + sum(filtered) + bad

for a unit and, summed, for the dataset.
"""

import dataclasses
import io
import json
from collections.abc import Mapping
from typing import Any

import zstandard

from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.records import HEAD_BYTES, Record

EARLY_STOP = 1000
"""A unit with so many bad records, and more bad than good ones, stops the run at once."""
NUM_EXAMPLES = 3


class RecordError(ValueError):
    """A record that is not what the kind of dataset needs. The message is the reason."""


class MissingFieldError(RecordError):
    """A record without the field that is read. `mend` tells how to name another."""

    def __init__(self, reason: str, fields: list[str], mend: str) -> None:
        super().__init__(reason)
        self.fields, self.mend = fields, mend


@dataclasses.dataclass
class Counts:
    """What is counted of a unit or of many; `longest` measures what was looked at, `sums` adds up what else the kind
    counts (before duplicates are dropped), both in its own terms.
    """

    read: int = 0
    kept: int = 0
    filtered: dict[str, int] = dataclasses.field(default_factory=dict)
    bad: int = 0
    longest: dict[str, int] = dataclasses.field(default_factory=dict)
    sums: dict[str, int] = dataclasses.field(default_factory=dict)
    bad_examples: list[list[str]] = dataclasses.field(default_factory=list)
    lacking: int = 0
    fields: list[str] = dataclasses.field(default_factory=list)
    mend: str = ""

    def measure(self, name: str, size: int) -> None:
        """Takes note of a record's size."""
        self.longest[name] = max(size, self.longest.get(name, 0))

    def count(self, name: str, number: int) -> None:
        """Adds to a sum."""
        self.sums[name] = self.sums.get(name, 0) + number

    def add(self, other: "Counts") -> None:
        """Adds a later unit's counts."""
        for name in ("read", "kept", "bad", "lacking"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for reason, number in other.filtered.items():
            self.filtered[reason] = self.filtered.get(reason, 0) + number
        for name, size in other.longest.items():
            self.measure(name, size)
        for name, number in other.sums.items():
            self.count(name, number)
        self.bad_examples = [*self.bad_examples, *other.bad_examples][:NUM_EXAMPLES]
        self.fields = list(dict.fromkeys([*self.fields, *other.fields]))
        self.mend = self.mend or other.mend

    def complaint(self) -> str:
        """What was wrong with the bad records, in one line."""
        if self.lacking == self.read:
            return f"{self.bad_examples[0][1]} in any record: there are {', '.join(self.fields) or 'none'}: {self.mend}"
        examples = "; ".join(f"{source}: {reason}" for source, reason in self.bad_examples)
        return f"{self.bad:,} of {self.read:,} records are bad, e.g. {examples}"


class _Lines:
    """Lines of JSON on their way into one zstd frame."""

    def __init__(self) -> None:
        self._data = io.BytesIO()
        self._frame = zstandard.ZstdCompressor().stream_writer(self._data, closefd=False)
        self._is_empty = True

    def write(self, record: Mapping[str, Any]) -> None:
        self._frame.write(json.dumps(record).encode() + b"\n")
        self._is_empty = False

    def close(self) -> bytes:
        """The frame; nothing where there is no line."""
        self._frame.close()
        return b"" if self._is_empty else self._data.getvalue()


class Tally:
    """Counts a unit's records and collects the bad ones and the excluded ones, compressed."""

    def __init__(self, reasons: tuple[str, ...], max_bad_fraction: float) -> None:
        self.counts = Counts(filtered=dict.fromkeys(reasons, 0))
        self.max_bad_fraction = max_bad_fraction
        self._rejected, self._excluded = _Lines(), _Lines()

    def reject(self, record: Record, problem: RecordError) -> None:
        """Counts a bad record and writes it down.

        Raises:
            PipelineError: most of what the unit holds is bad.
        """
        counts, reason = self.counts, str(problem)
        counts.bad += 1
        if len(counts.bad_examples) < NUM_EXAMPLES:
            counts.bad_examples.append([record.source, reason])
        if isinstance(problem, MissingFieldError):
            counts.lacking += 1
            counts.fields = list(dict.fromkeys([*counts.fields, *problem.fields]))[:20]
            counts.mend = problem.mend
        safe = record.raw[:HEAD_BYTES].decode("utf-8", "backslashreplace").encode()[:HEAD_BYTES]
        head = safe.decode("utf-8", "ignore").rstrip("\r\n")
        self._rejected.write({"source": record.name, "offset": record.offset, "reason": reason, "head": head})
        if counts.bad >= EARLY_STOP and 2 * counts.bad > counts.read and self.max_bad_fraction < 0.5:
            raise PipelineError(counts.complaint())

    def rejected(self) -> bytes:
        """The bad records as lines of JSON in one zstd frame; empty if there were none."""
        return self._rejected.close()

    def exclude(self, source: str, id: int, text: str) -> None:
        """Counts an example that holds an excluded text, and writes it down: where it is from, its id, and the text."""
        self.counts.filtered["excluded"] += 1
        self._excluded.write({"source": source, "id": id, "text": text})

    def excluded(self) -> bytes:
        """The examples that held excluded texts as lines of JSON in one zstd frame; empty if there were none."""
        return self._excluded.close()
