"""Embed the token ids of texts in packed batches that suit the device.

    T token ids of N texts -> one or more `Packed` -> a function that embeds a batch -> (N, dim), in the given order

A GPU gets all texts as one batch, in the given order. A CPU gets small batches, sorted by length: the states of a small
batch stay in a core's cache, and texts of equal length share a call of attention. The number of tokens in a batch is
rounded up to one of a few numbers, since oneDNN compiles a kernel for each new size of a matrix.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearspan.common.encoder.batching import batches_in_order
from clearspan.common.encoder.packing import Packed, pack

CPU_TOKENS = 2048
"""Most tokens of a forward pass on a CPU, unless one text has more."""
FEW_ROWS, MANY_ROWS = 16, 64
"""On a CPU, the number of rows of a forward pass is a multiple of FEW_ROWS; above 8 * MANY_ROWS, of MANY_ROWS."""


def embed_ids(
    ids: Tensor,
    lengths: NDArray[np.integer[Any]],
    dim: int,
    embed: Callable[[Packed], Tensor],
    max_tokens: int | None = None,
) -> Tensor:
    """Return the embeddings of n texts, (n, dim) fp32 on the device, in the given order.

    Args:
        ids: the token ids of all texts, special tokens included, one text after the other, (sum of lengths,), on the
            device.
        lengths: the number of ids of each text, (n,), on the host; a text may have none.
        dim: the width of the embeddings.
        embed: function from a batch to its embeddings, (number of sequences, dim). The last sequences of a batch may be
            fillers, which only round up the number of tokens; their embeddings are not used.
        max_tokens: the length of the longest sequence that the model accepts; None if there is no limit.
    """
    if ids.device.type != "cpu":
        ids = ids.long() if len(ids) else ids.new_zeros(1).long()
        return embed(pack(ids, _filled(lengths, len(ids), max_tokens)))[: len(lengths)]
    order = np.argsort(lengths, kind="stable")
    ends = np.cumsum(lengths, dtype=np.int64)
    out = torch.empty((len(lengths), dim))
    for batch in batches_in_order(lengths[order], CPU_TOKENS):
        rows = order[batch]
        sizes = lengths[rows].astype(np.int64)
        used = int(sizes.sum())
        at = np.repeat(ends[rows] - np.cumsum(sizes), sizes) + np.arange(used)
        multiple = MANY_ROWS if used > 8 * MANY_ROWS else FEW_ROWS
        taken = torch.zeros(max(-(-used // multiple), 1) * multiple, dtype=torch.int64)
        taken[:used] = ids[torch.from_numpy(at)]
        out[torch.from_numpy(rows)] = embed(pack(taken, _filled(sizes, len(taken), max_tokens)))[: len(rows)]
    return out


def _filled(lengths: NDArray[np.integer[Any]], rows: int, max_tokens: int | None) -> NDArray[np.integer[Any]]:
    """Return `lengths`, followed by the lengths of filler sequences if their sum is less than `rows`.

    There is one filler, unless it would be longer than `max_tokens`.

    Args:
        lengths: the number of tokens of each sequence in a batch.
        rows: the number of tokens that the batch has with the filler.
    """
    filler = rows - int(lengths.sum())
    most = max_tokens or rows
    whole, rest = divmod(filler, most)
    return np.append(lengths, [most] * whole + [rest] * (rest > 0)).astype(lengths.dtype)
