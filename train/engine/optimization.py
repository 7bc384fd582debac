"""Optimizers, one for each turn of a step, and DeepSpeed's configuration.

A turn is a weight update by some of the objectives. With `optimization: sum`, a step is one turn of all objectives.
With `alternate` (NonLing-CSE, Alg. 1), a step has several turns on the shared weights, and each turn has a separate
optimizer: separate moments, learning rate and schedule, and only the parameters that the turn's objectives train.
DeepSpeed sees a single optimizer, which delegates to the optimizer of the current turn.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from clearspan.common import plugins
from clearspan.train.config.keys import naming
from clearspan.train.config.optimizer import LAYERS, OptimizerConfig
from clearspan.train.config.options import ALL, Recipe, RecipeError


def deepspeed_config(recipe: Recipe, ranks: int) -> dict[str, Any]:
    """Return DeepSpeed's configuration: weights, gradients and optimizer in fp32, and bf16 only by torch's autocast.

    DeepSpeed clips gradients, except at ZeRO stage 0. There the training loop does this, so that it can log their norm.
    `engine.backward` divides each loss by the number of micro-batches in a step. Gradients are averaged over ranks only
    after the last micro-batch.

    Args:
        recipe: the recipe of the run, in which `training.bf16` is true or false.
        ranks: the number of ranks.
    """
    stage, micro_batches = recipe.training.zero_stage, recipe.training.gradient_accumulation_steps
    examples = sum(data.batch_size for data in recipe.data.values())
    return {
        "train_micro_batch_size_per_gpu": examples // (ranks * micro_batches),
        "gradient_accumulation_steps": micro_batches,
        "gradient_clipping": recipe.optimizer.max_grad_norm if stage else 0.0,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        "torch_autocast": {
            "enabled": recipe.training.bf16 is True,
            "dtype": "bfloat16",
            "lower_precision_safe_modules": [],  # otherwise ZeRO reduces the gradients of linear layers in bf16
        },
        "steps_per_print": 1 << 60,
    }


def optimizer_groups(
    parameters: list[nn.Parameter], config: OptimizerConfig, parts: Mapping[nn.Parameter, str]
) -> list[dict[str, Any]]:
    """Return the parameter groups with which an optimizer is created: matrices get weight decay, vectors do not.

    If the options of embeddings or heads are set (`optimizer.embeddings`, `optimizer.heads`), these parts have separate
    groups, after those of the layers. Empty groups are left out.

    Args:
        parameters: the parameters that the optimizer trains.
        config: the options of the optimizer.
        parts: parameter -> the part of the model that it belongs to: `embeddings`, `heads` or `layers`. A parameter
            that is missing here belongs to `layers`.
    """
    own, groups = config.parts(), []
    for name, (rate, decay) in own.items():
        members = [p for p in parameters if (parts.get(p) if parts.get(p) in own else LAYERS) == name]
        matrices, vectors = [p for p in members if p.ndim >= 2], [p for p in members if p.ndim < 2]
        groups += [{"params": matrices, "weight_decay": decay, "lr": rate}] if matrices else []
        groups += [{"params": vectors, "weight_decay": 0.0, "lr": rate}] if vectors else []
    return groups


def build_optimizer(
    parameters: list[nn.Parameter],
    config: OptimizerConfig,
    parts: Mapping[nn.Parameter, str] | None = None,
    key: str = "optimizer",
) -> torch.optim.Optimizer:
    """Return torch's fused AdamW, or the user's optimizer if `config.type` names one.

    torch's AdamW is faster than DeepSpeed's, on a CPU too.

    Args:
        parameters: the parameters that the optimizer trains.
        config: the options of the optimizer.
        parts: parameter -> the part of the model that it belongs to: `embeddings`, `heads` or `layers`. If it is None,
            all belong to `layers`.
        key: the section of the recipe that holds `config`, for messages.

    Raises:
        RecipeError: the user's optimizer cannot be created.
    """
    groups = optimizer_groups(parameters, config, parts or {})
    if not config.is_own:
        betas = (config.betas[0], config.betas[1])
        return torch.optim.AdamW(groups, lr=config.learning_rate, betas=betas, eps=config.eps, fused=True)
    with naming(f"{key}.type"):
        named = plugins.load_function(config.type, "an optimizer")
        optimizer = plugins.call(
            config.type,
            lambda: named(groups, lr=config.learning_rate, **config.options),
            "with the parameters, lr and the options",
        )
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise RecipeError(f"{key}.type: {config.type}: returned no torch.optim.Optimizer, but {type(optimizer)}")
    return optimizer


class AlternatingOptimizer(torch.optim.Optimizer):
    """A separate optimizer for each turn, behind the interface of a single optimizer.

    In the context `during(turn)`, `step`, `param_groups` and `state` are those of that turn's optimizer; elsewhere,
    those of the first turn's optimizer. An error that the user's own optimizer raises becomes a PluginError that names
    this optimizer.

    Args:
        parameters: name of a turn -> the parameters that it trains; turns may share parameters.
        configs: name of a turn -> the options of its optimizer.
        parts: parameter -> the part of the model that it belongs to: `embeddings`, `heads` or `layers`.

    Attributes:
        turns: name of a turn -> its optimizer.
        peaks: name of a turn -> the highest learning rate of each of its parameter groups.
        members: name of a turn -> for each of its parameter groups, the parameters. ZeRO later replaces the parameters
            in `param_groups` by one flat tensor per group.
    """

    def __init__(
        self,
        parameters: Mapping[str, list[nn.Parameter]],
        configs: Mapping[str, OptimizerConfig],
        parts: Mapping[nn.Parameter, str],
    ) -> None:
        self._configs = configs
        self._keys = {turn: "optimizer" if turn == ALL else f"turns.{turn}" for turn in parameters}
        self.turns = {
            turn: build_optimizer(reached, configs[turn], parts, self._keys[turn])
            for turn, reached in parameters.items()
        }
        self.peaks = {turn: [group["lr"] for group in each.param_groups] for turn, each in self.turns.items()}
        self.members = {
            turn: [list(group["params"]) for group in each.param_groups] for turn, each in self.turns.items()
        }
        self._turn = next(iter(self.turns))
        distinct = {id(parameter): parameter for reached in parameters.values() for parameter in reached}
        super().__init__(list(distinct.values()), {})

    @contextmanager
    def during(self, turn: str) -> Iterator[torch.optim.Optimizer]:
        """Return a context in which this object acts as the optimizer of a turn; the context yields that optimizer."""
        before, self._turn = self._turn, turn
        try:
            yield self.turns[turn]
        finally:
            self._turn = before

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self.turns[self._turn].param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        """Ignore the groups that torch's constructor sets: the optimizer of each turn has its own groups."""

    @property
    def state(self) -> defaultdict[Tensor, Any]:
        return self.turns[self._turn].state

    @state.setter
    def state(self, state: defaultdict[Tensor, Any]) -> None:
        """Ignore the state that torch's constructor sets: the optimizer of each turn has its own state."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Ignore the group: the parameters that a turn trains are fixed from the start."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of the parameters of all turns, so that one turn's gradients do not affect another turn.

        Args:
            set_to_none: True to set gradients to None, False to set them to 0.
        """
        for turn, optimizer in self.turns.items():
            self._call(turn, partial(optimizer.zero_grad, set_to_none), "to clear the gradients")

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        self._call(self._turn, self.turns[self._turn].step, "to update the weights")

    def state_dict(self) -> dict[str, Any]:
        return {turn: self._call(turn, each.state_dict, "to save its state") for turn, each in self.turns.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for turn, optimizer in self.turns.items():
            self._call(turn, partial(optimizer.load_state_dict, state_dict[turn]), "to load its state")

    def _call(self, turn: str, method: Callable[[], Any], purpose: str) -> Any:
        """Call a method of a turn's optimizer; return its result.

        Args:
            turn: the name of the turn.
            method: the method, with its arguments bound.
            purpose: the purpose of the call, for the message, e.g. "to update the weights".

        Raises:
            PluginError: the optimizer is the user's own, and raises an error other than torch.OutOfMemoryError.
        """
        config = self._configs[turn]
        if not config.is_own:
            return method()
        try:
            return plugins.call(config.type, method, purpose, (torch.OutOfMemoryError,))
        except plugins.PluginError as error:  # not `naming`: of its RecipeErrors, only those of rank 0 are reported
            raise plugins.PluginError(f"{self._keys[turn]}.type: {error}") from None
