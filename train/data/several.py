"""Rows with several texts of one sort: columns such as negative, negative_1, ...; a step draws some of them."""

from collections.abc import Sequence

import numpy as np

from clearspan.common.ragged import Ragged
from clearspan.shards import keyed


def drawn(columns: Sequence[Ragged], keys: np.ndarray, count: int) -> list[Ragged]:
    """Return `count` columns of n texts, each row's drawn without replacement from the texts that it has.

    A row with fewer texts has empty lists in the last columns. The columns themselves are returned if there are no more
    of them than `count`.

    Args:
        columns: one or more, n lists each; an empty list is no text.
        keys: (n,) int64, the randomness keys of the rows (`Setting.keys`).
    """
    if len(columns) <= count:
        return list(columns)
    is_absent = np.stack([column.lengths == 0 for column in columns])
    draws = keyed.draw(keys, np.arange(1, len(columns) + 1)[:, None])
    order = np.argsort(np.where(is_absent, np.iinfo(np.int64).max, draws), axis=0, kind="stable")
    together = Ragged.concatenate(columns)
    rows = np.arange(len(keys))
    return [together.take(place * len(keys) + rows) for place in order[:count]]
