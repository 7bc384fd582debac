"""Draw some of the positives or negatives of rows that have several, in columns such as negative, negative_1, ..."""

from collections.abc import Sequence

import numpy as np

from clearspan.common.ragged import Ragged
from clearspan.shards import keyed


def drawn(columns: Sequence[Ragged], keys: np.ndarray, count: int) -> list[Ragged]:
    """Draw up to `count` of the texts of each row, without replacement, and return them as `count` columns.

    A row that has fewer than `count` texts gets empty lists in the last columns. If there are at most `count` columns,
    they are returned unchanged.

    Args:
        columns: one or more columns of n token lists each: one text for each of n rows. An empty list means that the
            row lacks this text.
        keys: the random key of each row, from which its texts are drawn, (n,) int64.
        count: the maximum number of columns to return.
    """
    if len(columns) <= count:
        return list(columns)
    is_absent = np.stack([column.lengths == 0 for column in columns])
    draws = keyed.draw(keys, np.arange(1, len(columns) + 1)[:, None])
    order = np.argsort(np.where(is_absent, np.iinfo(np.int64).max, draws), axis=0, kind="stable")
    together = Ragged.concatenate(columns)
    rows = np.arange(len(keys))
    return [together.take(place * len(keys) + rows) for place in order[:count]]
