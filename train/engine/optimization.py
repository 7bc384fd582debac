"""AdamW, one for each turn of a step.

With `optimization: sum` there is one turn, of all objectives. With `alternate` (NonLing-CSE, Alg. 1) every turn has an
AdamW of its own over the shared weights: its own moments, learning rate and schedule, and only the parameters that its
objectives reach. DeepSpeed sees one optimizer, which does the turn's part of everything; what it is told is here too.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from clearspan.train.options import Recipe
from clearspan.train.schedules import OptimizerConfig


def deepspeed_config(recipe: Recipe, ranks: int) -> dict[str, Any]:
    """fp32 weights, gradients and AdamW; bf16 by torch's autocast. Stage 0 clips in the loop, to log the norm.

    `engine.backward` divides each loss by the accumulation steps, and gradients meet at the last of them only.
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
            "enabled": recipe.training.bf16,
            "dtype": "bfloat16",
            "lower_precision_safe_modules": [],  # else ZeRO sends the gradients of linear layers in bf16
        },
        "steps_per_print": 1 << 60,
    }


def optimizer_groups(parameters: list[nn.Parameter], weight_decay: float) -> list[dict[str, Any]]:
    """Matrices decay; biases and normalisation (vectors) do not."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    return [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]


def adamw(parameters: list[nn.Parameter], config: OptimizerConfig) -> torch.optim.AdamW:
    """torch's AdamW, fused, which is faster on a CPU too; DeepSpeed's own would be compiled first."""
    return torch.optim.AdamW(
        optimizer_groups(parameters, config.weight_decay),
        lr=config.learning_rate,
        betas=(config.betas[0], config.betas[1]),
        eps=config.eps,
        fused=True,
    )


class AlternatingAdamW(torch.optim.Optimizer):
    """An AdamW a turn. What it shows and does is that of the turn in `during`; outside of one, of the first turn.

    Args:
        parameters: those that each turn reaches; turns may share some.
        configs: each turn's options.
    """

    def __init__(self, parameters: Mapping[str, list[nn.Parameter]], configs: Mapping[str, OptimizerConfig]) -> None:
        self.turns = {turn: adamw(own, configs[turn]) for turn, own in parameters.items()}
        self._turn = next(iter(self.turns))
        every = {id(parameter): parameter for own in parameters.values() for parameter in own}
        super().__init__(list(every.values()), {})

    @contextmanager
    def during(self, turn: str) -> Iterator[torch.optim.AdamW]:
        """A turn's AdamW, which steps within."""
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
        """torch's own constructor sets them; each turn has its groups already."""

    @property
    def state(self) -> defaultdict[Tensor, Any]:
        return self.turns[self._turn].state

    @state.setter
    def state(self, state: defaultdict[Tensor, Any]) -> None:
        """torch's own constructor sets this too; each turn has its own."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Takes none: which parameters a turn reaches is known from the start."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients of all turns: one's is none of the next one's."""
        for optimizer in self.turns.values():
            optimizer.zero_grad(set_to_none)

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        self.turns[self._turn].step()

    def state_dict(self) -> dict[str, Any]:
        return {turn: optimizer.state_dict() for turn, optimizer in self.turns.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for turn, optimizer in self.turns.items():
            optimizer.load_state_dict(state_dict[turn])
