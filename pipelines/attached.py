"""Columns of numbers attached to a batch of examples: decisions need them, and the unit detaches them before it writes.

kind: examples, their sketches, the hashes of their texts ──> one batch ──> unit: examples | numbers ──> decisions
"""

import numpy as np
import pyarrow as pa

HASHES = "text_hashes"
"""Column of the hashes of each of an example's texts (`common.same_text.digests`), (n, 2 * texts) uint64."""
GROUPS = "group_hashes"
"""Column of the hash of each example's group (`kinds.groups`), (n, 1) uint64."""


def attach(batch: pa.RecordBatch, column: str, numbers: np.ndarray) -> pa.RecordBatch:
    """Return a batch with a column of numbers for each example, (n, width), for `detach`."""
    lists = pa.FixedSizeListArray.from_arrays(pa.array(numbers.reshape(-1)), numbers.shape[1])
    return batch.append_column(column, lists)


def detach(batch: pa.RecordBatch, column: str) -> tuple[pa.RecordBatch, np.ndarray | None]:
    """Return a batch without a column, and its numbers, (n, width); None if the kind attached none."""
    if column not in batch.schema.names:
        return batch, None
    lists = batch.column(column)
    numbers = lists.flatten().to_numpy().reshape(-1, lists.type.list_size)
    return batch.drop_columns([column]), numbers
