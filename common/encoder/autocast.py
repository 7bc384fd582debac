"""Keep a function in fp32 under autocast."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def in_fp32(function: Function) -> Function:
    """Decorate a function so that autocast does not apply to it."""
    wrapped: Function = torch.autocast("cuda", enabled=False)(torch.autocast("cpu", enabled=False)(function))
    return wrapped
