"""Linear layers that use oneDNN for fp32 on x86 CPUs, where torch would use MKL.

MKL is slow on AMD CPUs (`benchmarks.encode`), and torch has no public switch. So this module calls the private function
of torch that `torch.compile` uses, if the function exists and takes the expected arguments. Weights are shared with the
model and keep their layout.
"""

import platform

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PRIVATE = "_linear_pointwise"


def _is_available() -> bool:
    """Return whether `Linear` can use oneDNN: an x86 CPU, and torch's private function with the arguments it passes."""
    call = getattr(torch.ops.mkldnn, PRIVATE, None)
    if call is None or platform.machine() not in ("x86_64", "AMD64") or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    expected = ["X", "W", "B", "attr", "scalars", "algorithm"]
    return [argument.name for argument in call.default._schema.arguments] == expected


ONEDNN = _is_available()


class Linear(nn.Linear):
    """A linear layer that shares the weights of another layer.

    In fp32 on a CPU, it calls oneDNN through a private function of torch; otherwise it computes as torch's layer does.

    Args:
        linear: the other layer.
    """

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
    """Replace every linear layer of a model with the `Linear` of this module, if oneDNN can be used."""
    if not ONEDNN:
        return
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, Linear(child))
