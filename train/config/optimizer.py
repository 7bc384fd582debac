"""Options of the optimizer and of its learning-rate schedule (`train.config.schedules`).

optimizer: {learning_rate: 5e-5, schedule: linear, warmup_steps: 100}
optimizer: {type: my_module:Lion, options: {betas: [0.9, 0.99]}}     an optimizer of the user's own
"""

import dataclasses
import math
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Len, Lt

from clearspan.common import plugins

ADAMW = "adamw"
"""The built-in type of optimizer."""
PARTS = ("embeddings", "heads")
"""The parts of a model that may have options of their own."""
LAYERS = "layers"
"""The rest of a model."""
Positive = Annotated[float, Gt(0), Lt(math.inf)]
"""The type of an option that is a finite number above 0."""
NotNegative = Annotated[float, Ge(0), Lt(math.inf)]
"""The type of an option that is a finite number of 0 or more."""
Finite = Annotated[float, Gt(-math.inf), Lt(math.inf)]
"""The type of an option that is any finite number."""


@dataclasses.dataclass
class PartConfig:
    """Options of one part of the model, which replace the optimizer's options. The schedule is the same.

    Args:
        learning_rate: the peak of the schedule for this part. null: the optimizer's `learning_rate`.
        weight_decay: decoupled weight decay of this part. null: the optimizer's `weight_decay`.
    """

    learning_rate: Positive | None = None
    weight_decay: NotNegative | None = None


@dataclasses.dataclass
class OptimizerConfig:
    """The optimizer, AdamW with bias correction unless `type` names another one, and its learning-rate schedule.

    Args:
        type: adamw; or `module:name`, an optimizer of your own (an installed package, or a file in the working folder):
            a subclass of torch.optim.Optimizer, or a function that returns one. Its arguments are the parameter groups
            (each has its own `lr` and `weight_decay`), `lr`, and the entries of `options`; it does not get `betas` and
            `eps`. ZeRO, which partitions AdamW's state, needs adamw.
        options: the keyword arguments of an optimizer of your own.
        learning_rate: the peak of the schedule.
        betas: the decay rates of the running means of the gradient and of its square.
        eps: the term added to the denominator.
        weight_decay: decoupled weight decay; none for biases and normalization weights.
        max_grad_norm: the norm to which a longer gradient is scaled down. 0: no clipping.
        schedule: slanted_triangular: a short linear rise, a long linear fall (Howard & Ruder 2018, Eq. 3); linear: a
            linear warm-up and decay to 0; cosine: a linear warm-up and cosine decay to 0; constant.
        cut_fraction: slanted_triangular only: the fraction of the steps in which the rate rises, unless `warmup_steps`
            gives their number.
        ratio: slanted_triangular only: the peak divided by the lowest rate.
        warmup_steps: the number of steps in which the rate rises. 0: it starts at the peak, or, for slanted_triangular,
            `cut_fraction` decides.
        embeddings: options that differ for the table of token embeddings, to which a masked-LM head's decoder may be
            tied. The embeddings of positions and types, and the normalization after them, belong to the rest.
        heads: options that differ for everything outside the encoder's base model: layers after the pooling, the
            masked-LM head, heads of objectives, patch embeddings.
    """

    type: str = ADAMW
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    learning_rate: Positive = 5e-5
    betas: Annotated[list[Annotated[float, Ge(0), Lt(1)]], Len(2, 2)] = dataclasses.field(
        default_factory=lambda: [0.9, 0.999]
    )
    eps: Positive = 1e-6
    weight_decay: NotNegative = 0.1
    max_grad_norm: NotNegative = 1.0
    schedule: Literal["slanted_triangular", "linear", "cosine", "constant"] = "slanted_triangular"
    cut_fraction: Annotated[float, Gt(0), Lt(1)] = 0.1
    ratio: Annotated[float, Ge(1), Lt(math.inf)] = 32.0
    warmup_steps: Annotated[int, Ge(0)] = 0
    embeddings: PartConfig = dataclasses.field(default_factory=PartConfig)
    heads: PartConfig = dataclasses.field(default_factory=PartConfig)

    @property
    def is_own(self) -> bool:
        """Return whether the optimizer is the user's own."""
        return self.type != ADAMW

    def check(self) -> None:
        """Raise ValueError for options that cannot work together; the message begins with the option's name."""
        if self.type == ADAMW and self.options:
            raise ValueError(
                f"options {', '.join(self.options)}: only an optimizer of your own takes them; for adamw, set betas "
                "and eps"
            )
        if set_here := [name for name in ("lr", "weight_decay") if name in self.options]:
            key = "learning_rate" if set_here[0] == "lr" else set_here[0]
            raise ValueError(f"options {set_here[0]}: every optimizer takes it from {key}: set {key}")
        if self.is_own:
            try:
                plugins.load_function(self.type, "an optimizer")
            except plugins.PluginError as error:
                raise ValueError(f"type {error}") from None

    def parts(self) -> dict[str, tuple[float, float]]:
        """Return the peak learning rate and the weight decay of each part of the model.

        Returns:
            Name of a part -> (learning rate, weight decay). `embeddings` and `heads` are there if one of their options
            is set. `layers`, which is always there, stands for all weights that belong to no other part.
        """
        rest = self.learning_rate, self.weight_decay
        parts = {LAYERS: rest}
        for name in PARTS:
            own: PartConfig = getattr(self, name)
            if own != PartConfig():
                values = zip((own.learning_rate, own.weight_decay), rest, strict=True)
                rate, decay = (default if value is None else value for value, default in values)
                parts[name] = rate, decay
        return parts
