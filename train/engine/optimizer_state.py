"""The optimizer's state in checkpoints: as a single rank without ZeRO would hold it, whatever the run's ZeRO stage.

    stage 0      a moment is one tensor per parameter, on every rank, as in a checkpoint
    stage 1, 2   a moment is one flat tensor per parameter group, and each rank holds a part of it;
                 `whole_state` gathers the parts, `load_state` partitions the tensors again

AdamW's moments are the running means of the gradients and of their squares. Only DeepSpeed knows how parameters lie in
the flat tensors, and its public functions gather and partition fp32 weights only. Moments have the same layout as these
weights. Therefore a moment is copied over the weights, gathered or partitioned in their place, and then the weights are
restored.

DeepSpeed also has functions for moments (`safe_get_full_optimizer_state`, `safe_set_full_optimizer_state`), but they
cannot be used. DeepSpeed 0.19 prepares them for all parameter groups in the first step, right after it has updated the
first group. The other groups have no moments then. Besides, a run that resumes must load its moments before it makes a
step.
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
    """Return the optimizer's state for a checkpoint, with one tensor per parameter and moment, also if ZeRO is used.

    Every rank must call this function. With ZeRO, only the result on rank 0 is complete.

    Args:
        engine: DeepSpeed's engine, whose optimizer is an `AlternatingOptimizer`.

    Returns:
        Name of a turn -> the `state_dict` of its optimizer.
    """
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
    """Load a state that `whole_state` returned into the engine's optimizer, on every rank.

    The engine's weights must be loaded before: with ZeRO, this function also copies them to ZeRO's partitioned fp32
    weights.
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
    """Yield, for each parameter group of a turn, its saved options, its parameters and this rank's part of its weights.

    ZeRO must be in use.

    Args:
        state: the `state_dict` of the turn's optimizer.
        optimizer: the `AlternatingOptimizer`.
        turn: the name of the turn.

    Yields:
        (the group's element of `state["param_groups"]`; the group's parameters; this rank's part of the flat tensor of
        their fp32 weights).
    """
    parts = [group["params"][0].detach() for group in optimizer.param_groups]
    return zip(state["param_groups"], optimizer.members[turn], parts, strict=True)


def _gathered(moment: torch.Tensor, members: list[Any], part: torch.Tensor) -> list[torch.Tensor]:
    """Gather a moment of the parameters of a group; every rank must call this function.

    Args:
        moment: this rank's part of the flat tensor of the group's moment.
        members: the parameters of the group.
        part: this rank's part of the flat tensor of the group's fp32 weights. It is overwritten during the call, and
            restored at the end.

    Returns:
        On rank 0, the moment of each parameter, on the CPU; [] on other ranks.
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
    """Return a context. At its end, the tensor `part` gets back the values that it had at the beginning."""
    weights = part.clone()
    try:
        yield
    finally:
        part.copy_(weights)
