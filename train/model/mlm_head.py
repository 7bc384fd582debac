"""The masked-LM head of an exported encoder, saved in a file that only a later masked-LM training loads.

    model.safetensors                   the encoder
    mlm_head.safetensors                the head, without weights that it shares with the encoder
    model.safetensors.index.mlm.json    names both files, which `from_pretrained(variant="mlm")` then loads

If the encoder's own file held the head, every other program would report unexpected weights when it loads the encoder.
"""

import json
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file

VARIANT = "mlm"
ENCODER, HEAD, INDEX = "model.safetensors", "mlm_head.safetensors", f"model.safetensors.index.{VARIANT}.json"


def save_mlm_head(encoder: Any, folder: Path) -> None:
    """Write the masked-LM head of a `TrainableEncoder` into the model folder that holds the encoder's weights.

    Do nothing if the encoder has no such head.
    """
    names = encoder.mlm_head_parameters()
    if not names:
        return
    head = {name: weight.detach().contiguous() for name, weight in encoder.model.named_parameters() if name in names}
    save_file(head, folder / HEAD, {"format": "pt"})
    with safe_open(folder / ENCODER, "pt") as weights:
        files = {**dict.fromkeys(weights.keys(), ENCODER), **dict.fromkeys(sorted(head), HEAD)}
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": files}, indent=2) + "\n")


def variant(folder: Path) -> str | None:
    """Return the `variant` argument of `from_pretrained` that also loads the masked-LM head of a folder.

    Return None if the folder has no separate file with a head.
    """
    return VARIANT if (folder / INDEX).is_file() else None
