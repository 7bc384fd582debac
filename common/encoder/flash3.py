"""FlashAttention 3 for torch's variable-length attention, on H100 and H200, the GPUs that it is made for.

torch's own kernels are FlashAttention 2. `torch.nn.attention.activate_flash_attention_impl` replaces them, in the whole
process, by the kernels of the package flash_attn_3. These have no dropout, so attention with dropout would raise an
error afterwards.
"""

import importlib.util

import torch

from clearspan.common.terminal import MAX_SAID, one_line

NAME, MODULE = "FA3", "flash_attn_interface"
"""The name that torch gives to the kernels, and the module of the package flash_attn_3."""
HOPPER = 9
"""Major compute capability of H100 and H200."""


def activate(device: torch.device, dropout: float) -> str:
    """Switch this process to FlashAttention 3 if the GPU, torch and the installed packages support it.

    Args:
        dropout: the highest dropout rate of attention weights in this process; if it is above 0, nothing changes.

    Returns:
        A message for the user that FlashAttention 3 is used, or that it is installed and cannot be used; "" in all
        other cases.
    """
    choose = getattr(torch.nn.attention, "activate_flash_attention_impl", None)  # torch 2.11
    if dropout or choose is None or device.type != "cuda" or importlib.util.find_spec(MODULE) is None:
        return ""
    if torch.cuda.get_device_capability(device)[0] != HOPPER:
        return ""
    try:
        choose(NAME)
    except (ImportError, OSError, RuntimeError, AttributeError, ValueError) as error:  # built for another torch
        reason = one_line(error, MAX_SAID)
        return f"flash_attn_3 cannot be used ({reason}): attention takes torch's own kernels; install it for this torch"
    return "attention without dropout: by FlashAttention 3"
