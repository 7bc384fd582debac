"""Rows with several positives or negatives, in columns such as negative, negative_1, ...; a step draws some of them."""

from collections.abc import Sequence

import numpy as np

from clearspan.common.ragged import Ragged
from clearspan.shards import keyed


def drawn(columns: Sequence[Ragged], keys: np.ndarray, count: int) -> list[Ragged]:
    """Return `count` columns of n texts. The texts of a row are drawn without replacement from the texts that it has.

    A row with fewer texts has empty lists in the last columns. If there are no more than `count` columns, they are
    returned unchanged.

    Args:
        columns: one or more columns of n token lists each; an empty list means that the row lacks this text.
        keys: the random keys of the rows, (n,) int64 (`Setting.keys`).
    """
    if len(columns) <= count:
        return list(columns)
    is_absent = np.stack([column.lengths == 0 for column in columns])
    draws = keyed.draw(keys, np.arange(1, len(columns) + 1)[:, None])
    order = np.argsort(np.where(is_absent, np.iinfo(np.int64).max, draws), axis=0, kind="stable")
    together = Ragged.concatenate(columns)
    rows = np.arange(len(keys))
    return [together.take(place * len(keys) + rows) for place in order[:count]]
