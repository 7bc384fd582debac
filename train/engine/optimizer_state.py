"""The optimizer's state in checkpoints: as a single rank without ZeRO would hold it, whatever the run's ZeRO stage.

    stage 0      a moment is one tensor per parameter, on every rank: the form of checkpoints
    stage 1, 2   a moment is one flat tensor per parameter group, and each rank holds a part of it;
                 `whole_state` gathers the parts, `load_state` partitions the tensors again

AdamW's moments are the running means of the gradients and of their squares. Only DeepSpeed knows how parameters lie in
the flat tensors, and its public functions gather and partition fp32 weights only. Moments have the same layout.
Therefore a moment is copied over the weights, gathered or partitioned in their place, and then the weights are
restored. DeepSpeed has functions for moments (`safe_get_full_optimizer_state`, `safe_set_full_optimizer_state`), but
they cannot be used: DeepSpeed 0.19 sets them up in the first step, after the first parameter group, when other groups
have no moments yet; and a run that resumes has made no step.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from deepspeed.utils import safe_get_full_fp32_param, safe_set_full_fp32_param

from clearspan.train.collectives import world

State = dict[str, Any]
"""AdamW's `state_dict`, by turn (`train.engine.optimization`)."""


def whole_state(engine: Any) -> State:
    """Gather the optimizer's state on rank 0, in the form of checkpoints; every rank must call this function."""
    if not engine.zero_optimization():
        return dict(engine.optimizer.state_dict())
    optimizer = engine.optimizer.optimizer
    ((turn, flat),) = optimizer.state_dict().items()  # with ZeRO there is one turn
    state: dict[int, dict[str, torch.Tensor]] = {}
    groups, number = [], 0
    for group, members, part in _groups(flat, optimizer, turn):
        numbers = list(range(number, number := number + len(members)))
        groups.append({**group, "params": numbers})
        state |= {number: {} for number in numbers if flat["state"]}
        for name, value in flat["state"].get(group["params"][0], {}).items():
            is_moment = value.dim() > 0  # else the number of steps
            wholes = _gathered(value, members, part) if is_moment else [value.clone() for _ in members]
            for index, whole in zip(numbers, wholes, strict=False):
                state[index][name] = whole
    return {turn: {"state": state, "param_groups": groups}}


def load_state(engine: Any, saved: State) -> None:
    """Load a state that `whole_state` returned. The model's weights must be loaded before.

    With ZeRO, this function copies the model's weights to ZeRO's partitioned fp32 weights, too.
    """
    if not engine.zero_optimization():
        engine.optimizer.load_state_dict(saved)
        return
    optimizer = engine.optimizer.optimizer
    ((turn, whole),) = saved.items()
    flat = optimizer.state_dict()[turn]
    for number, (group, members, part) in enumerate(_groups(whole, optimizer, turn)):
        for member in members:
            safe_set_full_fp32_param(member, member.detach())
        moments = [whole["state"].get(parameter, {}) for parameter in group["params"]]
        state = dict(next(filter(None, moments), {}))
        for name in [name for name, value in state.items() if value.dim()]:
            with _restored(part):
                part.zero_()  # so that padding, and parameters without a state, are 0
                for member, values in zip(members, moments, strict=True):
                    if name in values:
                        safe_set_full_fp32_param(member, values[name])
                state[name] = part.clone()
        if state:
            flat["state"][number] = state
    optimizer.load_state_dict({turn: flat})


def _groups(state: State, optimizer: Any, turn: str) -> Iterator[tuple[dict[str, Any], list[Any], torch.Tensor]]:
    """Yield, for each parameter group: (its entry in the state, its parameters, this rank's part of its flat weights).

    Args:
        state: the state of one turn, with an entry `param_groups`.
        optimizer: the `AlternatingOptimizer`.
        turn: the turn.
    """
    parts = [group["params"][0].detach() for group in optimizer.param_groups]
    return zip(state["param_groups"], optimizer.members[turn], parts, strict=True)


def _gathered(moment: torch.Tensor, members: list[Any], part: torch.Tensor) -> list[torch.Tensor]:
    """Return the whole moment of each parameter on rank 0; [] on other ranks.

    Args:
        moment: this rank's part of the flat moment of a parameter group.
        members: the parameters of the group.
        part: this rank's part of the group's flat weights; it is overwritten for a while, and restored.
    """
    wholes = []
    with _restored(part):
        part.copy_(moment)
        for member in members:
            whole = safe_get_full_fp32_param(member)  # every rank takes part
            if world()[0] == 0:
                wholes.append(whole.cpu())
    return wholes


@contextlib.contextmanager
def _restored(part: torch.Tensor) -> Iterator[None]:
    """Restore `part`, this rank's part of the flat weights, at the end of this context."""
    weights = part.clone()
    try:
        yield
    finally:
        part.copy_(weights)
