"""ZeRO's parts of an optimizer's state, cut anew for a run that goes on with another number of ranks.

    a group's weights, or moments, end to end   | rank 0 | rank 1 | rank 2 ..|  ->  | rank 0     | rank 1 .....|

DeepSpeed (stages 1 and 2) gives every rank as long a part of each parameter group, the end of the last ones being
padding. It loads a rank's own part alone, and refuses other ranks than those that saved. Its universal checkpoint would
take a second command and a second copy on the disk; here a rank reads what it needs of the parts as they are.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from deepspeed.checkpoint.constants import (
    BASE_OPTIMIZER_STATE,
    GROUP_PADDINGS,
    PARAM_SLICE_MAPPINGS,
    PARTITION_COUNT,
    SINGLE_PARTITION_OF_FP32_GROUPS,
)
from torch import Tensor
from torch.nn.functional import pad


def recut(parts: Sequence[Mapping[str, Any]], rank: int, ranks: int, lengths: Sequence[int]) -> dict[str, Any]:
    """What rank `rank` of `ranks` would have saved of a state that others saved.

    Args:
        parts: what each rank that saved has of DeepSpeed's optimizer, by rank.
        lengths: how much of each parameter group a rank has now, padding included.
    """
    weights = []  # saved without padding
    for group, length in enumerate(lengths):
        pieces = [part[SINGLE_PARTITION_OF_FP32_GROUPS][group] for part in parts]
        end = sum(piece.numel() for piece in pieces)
        weights.append(between(pieces, min(rank * length, end), min((rank + 1) * length, end)))

    def moment(pieces: Sequence[Tensor], group: int) -> Tensor:
        """A rank's part of one of AdamW's moments, saved with padding; of its number of steps, that of all."""
        if not pieces[0].dim():
            return pieces[0]
        start, length = rank * lengths[group], weights[group].numel()
        return pad(between(pieces, start, start + length), (0, lengths[group] - length))

    optimizer = {}
    for turn, saved in parts[0][BASE_OPTIMIZER_STATE].items():
        states = [part[BASE_OPTIMIZER_STATE][turn]["state"] for part in parts]
        keys = [options["params"][0] for options in saved["param_groups"]]  # a group's weights are one parameter
        optimizer[turn] = saved | {
            "state": {
                key: {name: moment([state[key][name] for state in states], group) for name in states[0][key]}
                for group, key in enumerate(keys)
            }
        }
    return {
        **{name: value for name, value in parts[0].items() if name != PARAM_SLICE_MAPPINGS},
        BASE_OPTIMIZER_STATE: optimizer,
        SINGLE_PARTITION_OF_FP32_GROUPS: weights,
        GROUP_PADDINGS: [length - own.numel() for own, length in zip(weights, lengths, strict=True)],
        PARTITION_COUNT: [ranks] * len(lengths),
    }


def between(pieces: Sequence[Tensor], start: int, stop: int) -> Tensor:
    """Elements start .. stop of what 1-d tensors are end to end, copied; no others are read."""
    found, offset = [pieces[0][:0]], 0
    for piece in pieces:
        first, last = max(start - offset, 0), min(stop - offset, len(piece))
        if first < last:
            found.append(piece[first:last])
        offset += len(piece)
    return torch.cat(found)
