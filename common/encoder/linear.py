"""Products of fp32 matrices on x86 by oneDNN, which also runs torch's products in bf16.

On AMD CPUs, torch's default library, MKL, leaves much of their speed unused (`benchmarks.encode`). torch has no public
switch, so this calls the function that `torch.compile` uses, if it exists and takes the expected arguments. Weights are
shared with the model and keep their layout.
"""

import platform

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PRIVATE = "_linear_pointwise"


def _is_available() -> bool:
    """Return whether torch has the function with the arguments that are passed here."""
    call = getattr(torch.ops.mkldnn, PRIVATE, None)
    if call is None or platform.machine() not in ("x86_64", "AMD64") or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    expected = ["X", "W", "B", "attr", "scalars", "algorithm"]
    return [argument.name for argument in call.default._schema.arguments] == expected


ONEDNN = _is_available()


class Linear(nn.Linear):
    """A linear layer that shares the weights of another layer: fp32 on a CPU by oneDNN, everything else by torch."""

    def __init__(self, linear: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype == torch.float32 == self.weight.dtype and x.device.type == "cpu" and x.numel():
            out: Tensor = getattr(torch.ops.mkldnn, PRIVATE)(x, self.weight, self.bias, "none", [], "")
            return out
        return F.linear(x, self.weight, self.bias)


def replace_linear(model: nn.Module) -> None:
    """Replace every linear layer of a model with the `Linear` of this module, if torch has oneDNN's function."""
    if not ONEDNN:
        return
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, Linear(child))
