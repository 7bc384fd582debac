"""ZeRO's parts of an optimizer's state, cut anew for a run that goes on with other ranks, or another stage.

    a group's weights, or moments, end to end   | rank 0 | rank 1 | rank 2 ..|  ->  | rank 0     | rank 1 .....|
    without ZeRO (stage 0)                      | parameter | parameter ...  |  <-> | one rank's part .........|

DeepSpeed (stages 1 and 2) gives every rank as long a part of each parameter group, the end of the last ones being
padding. It loads a rank's own part alone, and refuses other ranks than those that saved. Its universal checkpoint would
take a second command and a second copy on the disk; here a rank reads what it needs of the parts as they are. Both
stages save the same; moments are AdamW's at every stage.
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
                if key in states[0]  # none is, before the first step
            }
        }
    return {
        **{name: value for name, value in parts[0].items() if name != PARAM_SLICE_MAPPINGS},
        BASE_OPTIMIZER_STATE: optimizer,
        SINGLE_PARTITION_OF_FP32_GROUPS: weights,
        GROUP_PADDINGS: [length - own.numel() for own, length in zip(weights, lengths, strict=True)],
        PARTITION_COUNT: [ranks] * len(lengths),
    }


def taken_apart(parts: Sequence[Mapping[str, Any]], groups: Sequence[Sequence[Tensor]]) -> dict[str, Any]:
    """What AdamW would have saved of a state that ranks saved with ZeRO, had it not been shared out.

    Args:
        parts: as of `recut`.
        groups: the parameters of each group.
    """
    optimizer = {}
    for turn, saved in parts[0][BASE_OPTIMIZER_STATE].items():
        states = [part[BASE_OPTIMIZER_STATE][turn]["state"] for part in parts]
        number, moments, described = 0, {}, []
        for options, group in zip(saved["param_groups"], groups, strict=True):
            key, first, start = options["params"][0], number, 0
            for parameter in group:
                stop = start + parameter.numel()
                if key in states[0]:
                    pieces = {name: [state[key][name] for state in states] for name in states[0][key]}
                    moments[number] = {
                        name: between(of, start, stop).view_as(parameter) if of[0].dim() else of[0].clone()
                        for name, of in pieces.items()  # each parameter counts its steps in a tensor of its own
                    }
                number, start = number + 1, stop
            described.append({**options, "params": list(range(first, number))})
        optimizer[turn] = {"state": moments, "param_groups": described}
    return optimizer


def put_together(
    optimizer: Mapping[str, Any], groups: Sequence[Sequence[Tensor]], like: Mapping[str, Any]
) -> dict[str, Any]:
    """What a rank alone would have saved with ZeRO of a state that AdamW saved: the one part for `recut`.

    Args:
        optimizer: what was saved. groups: the parameters of each group, with the weights of then.
        like: what DeepSpeed's optimizer says of itself now.
    """
    base = {}
    for turn, saved in optimizer.items():
        described = like[BASE_OPTIMIZER_STATE][turn]["param_groups"]
        states = {}
        for options, now, group in zip(saved["param_groups"], described, groups, strict=True):
            known = [saved["state"].get(number, {}) for number in options["params"]]
            if has := next(filter(None, known), None):
                states[now["params"][0]] = {
                    name: end_to_end([one.get(name, torch.zeros_like(p)) for one, p in zip(known, group, strict=True)])
                    if value.dim()
                    else value
                    for name, value in has.items()
                }
        base[turn] = {"state": states, "param_groups": described}
    return {
        **like,
        BASE_OPTIMIZER_STATE: base,
        SINGLE_PARTITION_OF_FP32_GROUPS: [end_to_end(group) for group in groups],
    }


def end_to_end(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors as a 1-d one, on the host."""
    return torch.cat([tensor.detach().flatten().cpu() for tensor in tensors])


def between(pieces: Sequence[Tensor], start: int, stop: int) -> Tensor:
    """Elements start .. stop of what 1-d tensors are end to end, copied; no others are read."""
    found, offset = [pieces[0][:0]], 0
    for piece in pieces:
        first, last = max(start - offset, 0), min(stop - offset, len(piece))
        if first < last:
            found.append(piece[first:last])
        offset += len(piece)
    return torch.cat(found)
