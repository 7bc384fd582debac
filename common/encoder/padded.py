"""Run a transformers model on a packed batch by padding it, for an architecture that cannot run packed.

    Packed -> groups of sequences of similar length -> the model's own forward on ids and mask -> states (T, h)

T is the number of tokens in the batch, h the width of the states. The states have the order of the packed batch, so
that a caller need not know whether they were padded. The groups are those of sentence-transformers' models that cannot
run packed (`common.encoder.batching`): padding is at most an eighth of a sequence.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearspan.common.encoder.batching import batches_by_length
from clearspan.common.encoder.packing import Packed


def states(base: Any, packed: Packed, together: bool = False) -> Tensor:
    """Return the last layer's hidden states, of width h, of the T tokens in a packed batch, (T, h).

    Args:
        base: a transformers base model, with an attention implementation of transformers.
        packed: the batch; the host must know the lengths of its sequences.
        together: whether all sequences are padded to the longest, as one group; for a check of the padding.
    """
    assert packed.lengths is not None
    lengths = np.array(packed.lengths, np.int64)
    starts = np.cumsum(lengths) - lengths
    options = {"use_cache": False} if getattr(base.config, "use_cache", False) else {}  # no decoding, so no KV cache
    pad = base.config.pad_token_id if isinstance(base.config.pad_token_id, int) else 0
    parts, rows = [], []
    for group in [list(range(len(lengths)))] if together else groups(packed.lengths):
        width = np.arange(lengths[group].max())
        is_token = width < lengths[group, None]
        index = np.where(is_token, starts[group, None] + width, 0)
        mask = torch.from_numpy(is_token).to(packed.ids.device)
        ids = packed.ids[torch.from_numpy(index).to(packed.ids.device)].masked_fill(~mask, pad)
        hidden = base(input_ids=ids, attention_mask=mask.long(), **options).last_hidden_state
        inside = torch.from_numpy(np.flatnonzero(is_token)).to(packed.ids.device)
        parts.append(hidden.flatten(0, 1)[inside])
        rows.append(index[is_token])
    order = np.concatenate(rows)
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    joined: Tensor = torch.cat(parts)[torch.from_numpy(back).to(packed.ids.device)]
    return joined


def groups(lengths: list[int]) -> list[list[int]]:
    """Divide the sequences of a batch into groups that are padded to the longest of each; return their indices.

    Sequences without tokens are in no group. A group has at most as many tokens, padding included, as the whole batch
    has without padding, unless it is a single sequence.

    Args:
        lengths: the number of tokens of each sequence.
    """
    used = [row for row, length in enumerate(lengths) if length]
    divided = batches_by_length([lengths[row] for row in used], sum(lengths))
    return [[used[row] for row in rows] for rows in divided]


def rows_with_padding(lengths: list[int]) -> int:
    """Return the number of tokens, padding included, that `states` computes for sequences of these lengths."""
    return sum(len(group) * max(lengths[row] for row in group) for group in groups(lengths))
