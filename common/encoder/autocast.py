"""Turn autocast off in a function, so that operations on fp32 tensors run in fp32."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def in_fp32(function: Function) -> Function:
    """Decorate a function so that autocast, on CUDA or a CPU, does not apply to it.

    Its arguments are not converted: each operation runs in the dtype of its inputs.
    """
    wrapped: Function = torch.autocast("cuda", enabled=False)(torch.autocast("cpu", enabled=False)(function))
    return wrapped
