"""Device and precision of a transformer: the options `--device` and `--precision`, and the values that `auto` becomes.

    --device auto       cuda if torch finds a GPU, else cpu
    --precision auto    bf16 if the device multiplies bfloat16 in hardware, else fp32

A CPU counts as such a device if it has instructions for bfloat16, and if torch uses them by way of oneDNN. The values
that `auto` became are recorded with the result. torch is imported only when `auto` or bf16 is resolved, so that
`--help` is quick. On a machine without torch, which can only start jobs on other machines, `auto` becomes cpu and fp32.
"""

import importlib.util
import re
from typing import Annotated, NamedTuple

from clearspan.common.options import Flag

AUTO = "auto"
DEVICE = re.compile(r"auto|(cpu|cuda)((?<=cuda):\d+)?")
PRECISIONS = ("fp32", "bf16", AUTO)
"""Values of `--precision`."""
UNITS = ("amx_bf16", "avx512_bf16", "bf16")
"""torch's names of the CPU instructions that multiply bfloat16; `bf16` is the name of Arm's."""
SLOWER = "5 to 30 times slower than fp32"
"""Cost of emulated bfloat16 on a CPU: least with oneDNN's kernels for AVX-512, most without oneDNN."""
BATCH_TOKENS, LARGE_BATCH_TOKENS = 16384, 65536
"""Default numbers of tokens of a batch: the larger one on GPUs with LARGE_GPU_BYTES of memory, where it leaves the host
more time for the next batch.
"""
CPU_TOKENS = 1024
"""Default of --batch-tokens on a CPU: the hidden states of a batch should fit into the caches."""
LARGE_GPU_BYTES = 36 << 30
"""Memory of the smallest GPU that gets batches of LARGE_BATCH_TOKENS."""


class Compute(NamedTuple):
    """The device and the precision that a transformer runs with.

    Attributes:
        device: the device, as torch names it.
        precision: fp32 or bf16.
        message: a message for the user, which says why `auto` became this precision, or warns that bf16 is slow on this
            device; "" if there is no message.
        slow: whether the user chose bf16 on a device where it is, or may be, slower than fp32.
    """

    device: str
    precision: str
    message: str = ""
    slow: bool = False

    def __str__(self) -> str:
        return f"computed on {self.device} in {self.precision}"


Device = Annotated[str, Flag("DEVICE")]
Precision = Annotated[str, Flag(choices=PRECISIONS)]


def check_device(device: str) -> str:
    """Return the type of a device: auto, cpu or cuda. For example, the type of cuda:1 is cuda.

    Args:
        device: the name of the device, as the user writes it.

    Raises:
        ValueError: the name is neither auto nor cpu nor cuda nor cuda with a number.
    """
    if not (match := DEVICE.fullmatch(device)):
        raise ValueError(f"`device` {device}: choose auto, cpu, cuda, or one GPU as cuda:1")
    return match[1] or AUTO


def resolve_device(device: str) -> str:
    """Return the device for a value of `--device`: cuda or cpu for `auto`, and any other value unchanged."""
    if device != AUTO:
        return device
    if importlib.util.find_spec("torch") is None:
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def resolve(device: str, precision: str, key: str = "`precision`", fp32_setting: str = "`precision` fp32") -> Compute:
    """Return the device and precision for the values of `--device` and `--precision`.

    Args:
        device: a value of `--device`: `auto`, or a device as torch names it.
        precision: a value of `--precision`: fp32, bf16 or auto.
        key: the option or recipe key that sets the precision, for messages.
        fp32_setting: the option or recipe setting that a message tells the user to write for fp32.

    Raises:
        ValueError: the precision is not one of PRECISIONS.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"{key} {precision!r}: choose {', '.join(PRECISIONS)}")
    device, has_torch = resolve_device(device), importlib.util.find_spec("torch") is not None
    if precision == AUTO and not has_torch:
        return Compute(device, "fp32", f"{key} auto: fp32: torch is not installed here")
    if precision == "fp32" or not has_torch:
        return Compute(device, precision)
    support = bfloat16(device)
    if precision == AUTO:
        chosen = "bf16" if support.hardware else "fp32"
        return Compute(device, chosen, f"{key} auto: {chosen}: {support.reason}")
    if not support.cost:
        return Compute(device, "bf16")
    return Compute(
        device,
        "bf16",
        f"{key}: {support.reason}, so bf16 is {support.cost}: set {fp32_setting} for fp32",
        slow=True,
    )


def batch_tokens_on(*devices: str) -> int:
    """Return the default number of tokens of a batch: the larger one if all devices are GPUs with much memory.

    Args:
        devices: devices as torch names them, such as `cuda:1`; a GPU that this machine lacks counts as a small one.
    """
    import torch

    found = [torch.device(name) for name in devices]
    if any(device.type != "cuda" or (device.index or 0) >= torch.cuda.device_count() for device in found):
        return BATCH_TOKENS
    least = min(torch.cuda.get_device_properties(device.index or 0).total_memory for device in found)
    return LARGE_BATCH_TOKENS if least >= LARGE_GPU_BYTES else BATCH_TOKENS


def batch_tokens_of(device: str) -> int:
    """Return the default of `--batch-tokens` for a device as torch names it: more on GPUs that all have much memory."""
    return CPU_TOKENS if check_device(device) == "cpu" else batch_tokens_on(*gpus(device))


def gpus(device: str) -> list[str]:
    """Return the devices on which to hold the model: all GPUs of this machine ("cuda:0", ...) if `device` is "cuda",
    otherwise only `device`.
    """
    if device != "cuda":
        return [device]
    import torch

    return [f"cuda:{number}" for number in range(torch.cuda.device_count())] or [device]


class Bfloat16(NamedTuple):
    """The support of a device for bfloat16.

    Attributes:
        hardware: whether the device is known to multiply bfloat16 in hardware.
        reason: a clause that says why `hardware` is true or false, for a message.
        cost: the speed of bf16, such as `slower than fp32`, for a message; "" if bf16 is not slower, or if this machine
            does not have the device.
    """

    hardware: bool
    reason: str
    cost: str = ""


def bfloat16(name: str) -> Bfloat16:
    """Return the support of a device for bfloat16; `name` is the device as torch names it, such as `cuda:1`."""
    import torch

    device = torch.device(name)
    if device.type == "cuda":
        if (device.index or 0) >= torch.cuda.device_count():  # the GPU of workers elsewhere, perhaps
            return Bfloat16(False, f"this machine has no {device} to ask")
        model = torch.cuda.get_device_name(device)
        with torch.cuda.device(device):  # whether it is the one in use or not
            is_supported = torch.cuda.is_bf16_supported(including_emulation=False)
        if is_supported:
            return Bfloat16(True, f"{model} multiplies bfloat16")
        return Bfloat16(False, f"{model} has no bfloat16", "slower than fp32")
    if device.type != "cpu":
        return Bfloat16(False, f"whether {device.type} multiplies bfloat16 is unknown", "perhaps slower than fp32")
    units = [unit for unit in UNITS if torch.cpu.get_capabilities().get(unit)]
    has_onednn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if not (units and has_onednn and torch.ops.mkldnn._is_mkldnn_bf16_supported()):
        return Bfloat16(False, "torch has no fast bfloat16 products on this CPU", SLOWER)
    return Bfloat16(True, f"this CPU has {' and '.join(units)}")
