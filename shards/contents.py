"""Figures of a shard's contents: the counts and statistics that the manifest records for each shard.

    batches -> Contents -> ShardInfo (the writer)
    shard -> batches -> Totals -> compared with its ShardInfo (every reader)
    shard -> batches -> Contents -> compared with its ShardInfo (`verify`, and a pipeline that reads back what it wrote)

The writer and the readers measure with the same code, so a figure that is added here is both written to the manifest
and compared with the manifest. A reader that streams shards measures only the totals, because they detect a truncated
shard at almost no cost. Measuring all figures adds about half of the time that reading takes.
"""

import dataclasses
from typing import Any

import pyarrow as pa

from clearspan.shards import lengths, moments
from clearspan.shards.lengths import Histograms
from clearspan.shards.schema import Schema, add_up, count_classes, tokens_by_column


@dataclasses.dataclass
class Totals:
    """Counts over the batches added so far. Each attribute has the name of the `ShardInfo` field that records it."""

    batches: int = 0
    examples: int = 0
    tokens: int = 0
    column_tokens: dict[str, int] = dataclasses.field(default_factory=dict)

    def add(self, batch: pa.RecordBatch, kind: Schema) -> None:
        """Add the counts of one batch."""
        self.batches += 1
        self.examples += batch.num_rows
        self.column_tokens = add_up(self.column_tokens, tokens_by_column(batch))
        self.tokens = sum(self.column_tokens.values())

    def difference(self, declared: object) -> str:
        """Describe the differences from a ShardInfo, `declared`, with one phrase for each field; "" if none differs."""
        lines = []
        for name, value in vars(self).items():
            stated = getattr(declared, name)
            if stated != value and isinstance(value, int):
                lines.append(f"{name} = {value:,} where the manifest says {stated:,}")
            elif stated != value:
                lines.append(f"{name} that differ from the manifest's")
        return "; ".join(lines)


@dataclasses.dataclass
class Contents(Totals):
    """All figures of the batches added so far: the totals, and the figures that take a pass over every example.

    Attributes:
        lengths: histogram of example lengths for each column of lists (`shards.lengths`).
        classes: number of examples by class number.
        moments: sums from which the mean and standard deviation follow (`shards.moments`).
    """

    lengths: Histograms = dataclasses.field(default_factory=dict)
    classes: dict[str, int] = dataclasses.field(default_factory=dict)
    moments: dict[str, int] = dataclasses.field(default_factory=dict)

    def add(self, batch: pa.RecordBatch, kind: Schema) -> None:
        """Add the counts of one batch, its lengths, its classes and, for a kind with statistics, its moments."""
        super().add(batch, kind)
        self.lengths = lengths.add([self.lengths, lengths.measure(batch)])
        self.classes = add_up(self.classes, count_classes(batch))
        if kind.statistics:
            self.moments = add_up(self.moments, moments.measure(batch.column(kind.statistics)))

    @property
    def figures(self) -> dict[str, Any]:
        """The figures by name; `classes` is sorted by class number."""
        classes = dict(sorted(self.classes.items(), key=lambda item: int(item[0])))
        return {**vars(self), "classes": classes}
