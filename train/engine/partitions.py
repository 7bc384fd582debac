"""Conversion of optimizer states between ZeRO partitions, for a run that resumes on other ranks or at another stage.

    ZeRO (stages 1, 2): one flat tensor a parameter group | rank 0 | rank 1 | rank 2 ..|  -repartition->  | rank 0 | ..|
    stage 0:            one tensor a parameter            | parameter | parameter ...  |  <-to_adamw, from_adamw->

DeepSpeed gives every rank an equally long part of each parameter group; the last parts end with padding. It loads a
rank's own part only, and refuses another number of ranks than saved. Its universal checkpoint would take a second
command and a second copy on the disk; here a rank reads the slices that it needs from the parts as they were saved.
Stages 1 and 2 save the same format; the moments are AdamW's at every stage.
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

Part = Mapping[str, Any]
"""The state of DeepSpeed's optimizer that one rank saved. `parts` are those of all ranks, by rank."""


def repartition(parts: Sequence[Part], rank: int, ranks: int, lengths: Sequence[int]) -> dict[str, Any]:
    """Return the part that rank `rank` of `ranks` would have saved, from the parts of any number of ranks.

    Args:
        lengths: the elements that a rank holds of each parameter group now, including padding.
    """
    weights = []  # saved without padding
    for group, length in enumerate(lengths):
        pieces = [part[SINGLE_PARTITION_OF_FP32_GROUPS][group] for part in parts]
        size = sum(piece.numel() for piece in pieces)
        weights.append(slice_of(pieces, min(rank * length, size), min((rank + 1) * length, size)))

    def moment(pieces: Sequence[Tensor], group: int) -> Tensor:
        """Return this rank's slice of a moment, which is saved with padding; the number of steps is a scalar."""
        if not pieces[0].dim():
            return pieces[0]
        start, length = rank * lengths[group], weights[group].numel()
        return pad(slice_of(pieces, start, start + length), (0, lengths[group] - length))

    optimizer = {}
    for turn, saved in parts[0][BASE_OPTIMIZER_STATE].items():
        state = {}
        for group, options in enumerate(saved["param_groups"]):
            (key,) = options["params"]
            if moments := _moments(parts, turn, key):
                state[key] = {name: moment(pieces, group) for name, pieces in moments.items()}
        optimizer[turn] = {**saved, "state": state}
    return {
        **{name: value for name, value in parts[0].items() if name != PARAM_SLICE_MAPPINGS},
        BASE_OPTIMIZER_STATE: optimizer,
        SINGLE_PARTITION_OF_FP32_GROUPS: weights,
        GROUP_PADDINGS: [length - part.numel() for part, length in zip(weights, lengths, strict=True)],
        PARTITION_COUNT: [ranks] * len(lengths),
    }


def to_adamw(parts: Sequence[Part], groups: Sequence[Sequence[Tensor]]) -> dict[str, Any]:
    """Return the state that AdamW would have saved at stage 0, from the parts of any number of ranks.

    Args:
        groups: the parameters of each group.
    """
    optimizer = {}
    for turn, saved in parts[0][BASE_OPTIMIZER_STATE].items():
        state: dict[int, dict[str, Tensor]] = {}
        described, number = [], 0
        for options, group in zip(saved["param_groups"], groups, strict=True):
            (key,) = options["params"]
            described.append({**options, "params": list(range(number, number + len(group)))})
            moments, start = _moments(parts, turn, key), 0
            for parameter in group:
                stop = start + parameter.numel()
                if moments:  # every parameter counts its steps in a tensor of its own
                    state[number] = {
                        name: slice_of(pieces, start, stop).view_as(parameter) if pieces[0].dim() else pieces[0].clone()
                        for name, pieces in moments.items()
                    }
                number, start = number + 1, stop
        optimizer[turn] = {"state": state, "param_groups": described}
    return optimizer


def from_adamw(
    optimizer: Mapping[str, Any], groups: Sequence[Sequence[Tensor]], current: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the part that a single rank would have saved with ZeRO, from a state that AdamW saved at stage 0.

    Args:
        optimizer: the saved state, by turn.
        groups: the parameters of each group, which hold the saved weights by now.
        current: the state of DeepSpeed's optimizer now, for all that is not saved at stage 0.
    """
    base = {}
    for turn, saved in optimizer.items():
        described = current[BASE_OPTIMIZER_STATE][turn]["param_groups"]
        state = {}
        for options, flat, group in zip(saved["param_groups"], described, groups, strict=True):
            moments = [saved["state"].get(number, {}) for number in options["params"]]
            if example := next(filter(None, moments), None):
                state[flat["params"][0]] = {
                    name: flatten([each.get(name, torch.zeros_like(p)) for each, p in zip(moments, group, strict=True)])
                    if value.dim()
                    else value
                    for name, value in example.items()
                }
        base[turn] = {"state": state, "param_groups": described}
    return {
        **current,
        BASE_OPTIMIZER_STATE: base,
        SINGLE_PARTITION_OF_FP32_GROUPS: [flatten(group) for group in groups],
    }


def _moments(parts: Sequence[Part], turn: str, key: int) -> dict[str, list[Tensor]]:
    """Return AdamW's moments of a parameter group, by name, in the pieces of all ranks; empty before the first step."""
    states = [part[BASE_OPTIMIZER_STATE][turn]["state"].get(key, {}) for part in parts]
    return {name: [state[name] for state in states] for name in states[0]}


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """Return the tensors' elements as one 1-d tensor on the host."""
    return torch.cat([tensor.detach().flatten().cpu() for tensor in tensors])


def slice_of(pieces: Sequence[Tensor], start: int, stop: int) -> Tensor:
    """Return a copy of elements start .. stop of the concatenated 1-d pieces; read no other elements."""
    parts, offset = [pieces[0][:0]], 0
    for piece in pieces:
        first, last = max(start - offset, 0), min(stop - offset, len(piece))
        if first < last:
            parts.append(piece[first:last])
        offset += len(piece)
    return torch.cat(parts)
