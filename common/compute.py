"""Device and precision of a model that embeds: the options `--device` and `--precision` of every such command.

    auto -> cuda if torch finds a GPU, else cpu          auto -> bf16 if the device multiplies it, else fp32

The resolved values are recorded with the result. torch is imported when a value is resolved, since help needs none. A
machine without torch, which only starts a job for others, resolves to cpu and fp32.
"""

import importlib.util
from typing import Annotated, NamedTuple

from clearspan.common.options import Flag

AUTO = "auto"
PRECISIONS = ("fp32", "bf16", AUTO)
"""Values of `--precision`."""


class Compute(NamedTuple):
    """A device and a precision, fp32 or bf16.

    Attributes:
        line: why `auto` chose the precision, or that bf16 is slow here; "" if there is nothing to say.
    """

    device: str
    precision: str
    line: str = ""

    def __str__(self) -> str:
        return f"computed on {self.device} in {self.precision}"


Device = Annotated[str, Flag("cpu, cuda, cuda:1, ...; auto: cuda if there is a GPU, else cpu", "DEVICE")]
Precision = Annotated[
    str,
    Flag(
        "precision of the transformer; auto: bf16 if the device multiplies it, else fp32",
        choices=PRECISIONS,
    ),
]


def resolve_device(asked: str) -> str:
    """Return the device for what the user asked: of `auto`, cuda if torch finds a GPU, else cpu."""
    if asked != AUTO:
        return asked
    if importlib.util.find_spec("torch") is None:
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def resolve(device: str, precision: str, key: str = "--precision") -> Compute:
    """Return the device and the precision for what the user asked.

    Args:
        key: the option that sets the precision, for the line.

    Raises:
        ValueError: there is no such precision.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"{key} {precision!r}: choose {', '.join(PRECISIONS)}")
    device, has_torch = resolve_device(device), importlib.util.find_spec("torch") is not None
    if precision == AUTO and not has_torch:
        return Compute(device, "fp32", f"{key} auto: fp32: torch is not installed here")
    if precision == "fp32" or not has_torch:
        return Compute(device, precision)
    from clearspan.common.precision import choose

    choice = choose(precision, device, key, f"{key} fp32")
    return Compute(device, choice.name, choice.line)
