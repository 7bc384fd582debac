"""FlashAttention 3 for torch's variable-length attention, on the GPUs that it is made for (H100, H200).

torch's own kernels are FlashAttention 2. `torch.nn.attention.activate_flash_attention_impl` replaces them in the whole
process by those of the package flash_attn_3, which have no dropout: attention with dropout would then raise.
"""

import importlib.util

import torch

from clearspan.common.terminal import MOST_SAID, one_line

NAME, MODULE = "FA3", "flash_attn_interface"
"""The name that torch gives to the kernels, and the module of the package flash_attn_3."""
HOPPER = 9
"""Major compute capability of H100 and H200."""


def activate(device: torch.device, dropout: float) -> str:
    """Use FlashAttention 3 in this process if it can be used; return the line to print, "" if nothing changes.

    Args:
        dropout: the highest rate of dropout of attention weights in this process.
    """
    choose = getattr(torch.nn.attention, "activate_flash_attention_impl", None)  # torch 2.11
    if dropout or choose is None or device.type != "cuda" or importlib.util.find_spec(MODULE) is None:
        return ""
    if torch.cuda.get_device_capability(device)[0] != HOPPER:
        return ""
    try:
        choose(NAME)
    except (ImportError, OSError, RuntimeError, AttributeError, ValueError) as error:  # built for another torch
        reason = one_line(error, MOST_SAID)
        return f"flash_attn_3 cannot be used ({reason}): attention takes torch's own kernels; install it for this torch"
    return "attention without dropout: by FlashAttention 3"
