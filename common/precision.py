"""Compute precision of a transformer: whether a device multiplies bfloat16 in hardware, and what `auto` chooses there.

    device                 -> Bfloat16(hardware, reason, cost)
    what the user asks for -> Choice(bf16, line to print), the same on the same machine every time

A CPU is judged by what torch says of it, not by a list of names: torch must give bfloat16 products to oneDNN, and the
CPU must have instructions for them.
"""

from typing import Literal, NamedTuple

import torch

UNITS = ("amx_bf16", "avx512_bf16", "bf16")
"""Instructions that multiply bfloat16, as torch names them; the last one is Arm's."""
FAR_SLOWER, SLOWER = "about 15 to 30 times slower than fp32", "about 5 times slower than fp32"
"""Cost of emulated bfloat16 without oneDNN, and with its kernels for AVX-512."""


class Bfloat16(NamedTuple):
    """A device's support of bfloat16. `cost` says how slow products are without hardware; "" with it, or if unknown."""

    hardware: bool
    reason: str
    cost: str = ""


class Choice(NamedTuple):
    """A precision: whether to compute in bfloat16, and the line that tells the user so; "" if there is nothing to say.

    Attributes:
        slow: whether the device emulates the bfloat16 that was asked for.
    """

    bf16: bool
    line: str
    slow: bool = False

    @property
    def name(self) -> Literal["fp32", "bf16"]:
        return "bf16" if self.bf16 else "fp32"


def bfloat16(device: torch.device | str) -> Bfloat16:
    """Return whether a device multiplies bfloat16 in hardware, and why."""
    device = torch.device(device)
    if device.type == "cuda":
        if (device.index or 0) >= torch.cuda.device_count():  # it may be that of workers elsewhere
            return Bfloat16(False, f"this machine has no {device} to ask")
        name = torch.cuda.get_device_name(device)
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return Bfloat16(True, f"{name} multiplies bfloat16")
        return Bfloat16(False, f"{name} has no bfloat16", "slower than fp32")
    if device.type != "cpu":
        return Bfloat16(False, f"whether {device.type} multiplies bfloat16 is unknown", "perhaps slower than fp32")
    if not _onednn_takes_bfloat16():
        return Bfloat16(False, "torch has no fast bfloat16 products on this CPU", FAR_SLOWER)
    if not (units := [unit for unit in UNITS if torch.cpu.get_capabilities().get(unit)]):
        return Bfloat16(False, "this CPU has no instructions that multiply bfloat16", SLOWER)
    return Bfloat16(True, f"this CPU has {' and '.join(units)}")


def choose(asked: bool | str, device: torch.device | str, key: str, off: str) -> Choice:
    """Return the precision for what the user asked: fp32, bf16 or auto, or as a recipe has it, false, true or auto.

    Args:
        key: the option's name, for the line, e.g. `training.bf16`.
        off: what sets the option to fp32, e.g. `training.bf16=false`.
    """
    if asked in (False, "fp32"):
        return Choice(False, "")
    support = bfloat16(device)
    if asked == "auto":
        return Choice(support.hardware, f"{key} auto: {'bf16' if support.hardware else 'fp32'}: {support.reason}")
    if not support.cost:
        return Choice(True, "")
    return Choice(True, f"{key}: {support.reason}, so bf16 is {support.cost}: set {off} for fp32", slow=True)


def _onednn_takes_bfloat16() -> bool:
    """Return whether torch gives bfloat16 products to oneDNN here; False if this torch does not say so."""
    try:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):
        return False
