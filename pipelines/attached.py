"""Temporary columns of a batch of examples, which hold hashes for the search for duplicates.

A kind of dataset (`pipelines.builders`) attaches the columns to the batches that it makes. The processing of the work
unit (`pipelines.units.unit`) removes them before it writes the batch to a shard.
"""

import numpy as np
import pyarrow as pa

HASHES = "text_hashes"
"""Column with the hashes of an example's texts, two per text (`common.same_text.digests`), (n, 2 * texts) uint64."""
GROUPS = "group_hashes"
"""Column with the hash of each example's group (`kinds.groups`), (n, 1) uint64."""


def attach(batch: pa.RecordBatch, column: str, numbers: np.ndarray) -> pa.RecordBatch:
    """Return a batch of n rows with a further column, which holds `numbers`, (n, width), as lists of fixed size.

    Args:
        column: name of the new column.
    """
    lists = pa.FixedSizeListArray.from_arrays(pa.array(numbers.reshape(-1)), numbers.shape[1])
    return batch.append_column(column, lists)


def detach(batch: pa.RecordBatch, column: str) -> tuple[pa.RecordBatch, np.ndarray | None]:
    """Remove a column that `attach` added; return the batch of n rows and the numbers that the column held.

    The numbers are an array (n, width); None if the batch has no such column.

    Args:
        column: name of the column.
    """
    if column not in batch.schema.names:
        return batch, None
    lists = batch.column(column)
    numbers = lists.flatten().to_numpy().reshape(-1, lists.type.list_size)
    return batch.drop_columns([column]), numbers
