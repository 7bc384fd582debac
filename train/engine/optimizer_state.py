"""The optimizer's state as one rank without ZeRO has it, the form in checkpoints whatever the ranks and the stage.

    stage 0      a moment is one tensor a parameter, on every rank                     <- checkpoint
    stage 1, 2   one flat tensor a parameter group, of which each rank holds a part    <- gathered, shared out again

DeepSpeed gives every rank an equally long part of each group; the last parts end with padding. Its weights in fp32 are
copies of the model's, which are fp32 too.
"""

from typing import Any

import torch
import torch.nn.functional as F

from clearspan.train.collectives import gather_labels, world

State = dict[str, Any]
"""AdamW's `state_dict`, by turn (`train.engine.optimization`)."""


def whole_state(engine: Any) -> State:
    """Return the whole state on rank 0; every rank calls it."""
    if not engine.zero_optimization():
        return dict(engine.optimizer.state_dict())
    ((turn, flat),) = engine.optimizer.optimizer.state_dict().items()  # with ZeRO there is one turn
    state: dict[int, dict[str, torch.Tensor]] = {}
    groups, number = [], 0
    for options, members in zip(flat["param_groups"], engine.optimizer.round_robin_bit16_groups, strict=True):
        numbers = list(range(number, number := number + len(members)))
        groups.append({**options, "params": numbers})
        state |= {number: {} for number in numbers if flat["state"]}
        for name, value in flat["state"].get(options["params"][0], {}).items():
            parts = [value] * len(members)  # the number of steps
            if value.dim():
                sizes = [member.numel() for member in members]
                joined = gather_labels(value)[: sum(sizes)]
                parts = list(torch.split(joined.cpu(), sizes)) if world()[0] == 0 else []
            for index, part, member in zip(numbers, parts, members, strict=False):
                state[index][name] = part.view_as(member) if value.dim() else part.clone()
    return {turn: {"state": state, "param_groups": groups}}


def load_state(engine: Any, saved: State) -> None:
    """Load a whole state; the model's weights have been loaded before."""
    optimizer = engine.optimizer
    if not engine.zero_optimization():
        optimizer.load_state_dict(saved)
        return
    optimizer.refresh_fp32_params()
    rank, ranks = world()
    ((turn, whole),) = saved.items()
    flat = optimizer.optimizer.state_dict()[turn]
    parts = zip(optimizer.round_robin_bit16_groups, optimizer.single_partition_of_fp32_groups, strict=True)
    for number, (options, (members, own)) in enumerate(zip(whole["param_groups"], parts, strict=True)):
        moments = [whole["state"].get(parameter, {}) for parameter in options["params"]]
        state = dict(next(filter(None, moments), {}))
        for name in [name for name, value in state.items() if value.dim()]:
            values = [each.get(name, torch.zeros_like(member)) for each, member in zip(moments, members, strict=True)]
            joined = torch.cat([value.flatten().cpu() for value in values])
            state[name] = F.pad(joined, (0, ranks * own.numel() - len(joined))).chunk(ranks)[rank].clone()
        if state:
            flat["state"][number] = state
    optimizer.optimizer.load_state_dict({turn: flat})
