"""Figures of a shard's contents: the counts and statistics that the manifest records for each shard.

    batches -> Contents -> ShardInfo (the writer)
    shard -> batches -> Totals -> compared with its ShardInfo (a reader that streams shards)
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
    """Counts of the record batches added so far. They have the same names as in a shard's manifest entry (`ShardInfo`).

    Attributes:
        batches: number of record batches.
        examples: number of rows.
        tokens: number of token ids in all columns together.
        column_tokens: number of token ids in each column of token ids, by column name.
    """

    batches: int = 0
    examples: int = 0
    tokens: int = 0
    column_tokens: dict[str, int] = dataclasses.field(default_factory=dict)

    def add(self, batch: pa.RecordBatch, kind: Schema) -> None:
        """Add the rows and tokens of one batch to the counts.

        Args:
            kind: the kind of dataset, which only the subclass `Contents` uses.
        """
        self.batches += 1
        self.examples += batch.num_rows
        self.column_tokens = add_up(self.column_tokens, tokens_by_column(batch))
        self.tokens = sum(self.column_tokens.values())

    def difference(self, declared: object) -> str:
        """Return a text with a phrase for each attribute that differs from the manifest; "" if none differs.

        Args:
            declared: the shard's entry in the manifest, a `ShardInfo`.
        """
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
        lengths: for each column of lists, a histogram of the lengths of its lists: the lower edge of a bin, as a string
            -> number of examples.
        classes: number of examples by class number (as a string); empty for a kind without classes.
        moments: number, sum and sum of squares of all values in the kind's `statistics` column (`shards.moments`);
            empty for a kind without such a column.
    """

    lengths: Histograms = dataclasses.field(default_factory=dict)
    classes: dict[str, int] = dataclasses.field(default_factory=dict)
    moments: dict[str, int] = dataclasses.field(default_factory=dict)

    def add(self, batch: pa.RecordBatch, kind: Schema) -> None:
        """Add the figures of one batch to the attributes.

        Args:
            kind: the kind of dataset; `kind.statistics` names the column whose values are added to `moments`, "" for
                none.
        """
        super().add(batch, kind)
        self.lengths = lengths.add([self.lengths, lengths.measure(batch)])
        self.classes = add_up(self.classes, count_classes(batch))
        if kind.statistics:
            self.moments = add_up(self.moments, moments.measure(batch.column(kind.statistics)))

    @property
    def figures(self) -> dict[str, Any]:
        """All attributes by name, for a `ShardInfo`; `classes` is sorted by class number."""
        classes = dict(sorted(self.classes.items(), key=lambda item: int(item[0])))
        return {**vars(self), "classes": classes}
