"""The masked-LM head of an exported encoder: a later masked LM continues with it, and nothing else loads it.

    model.safetensors                   the encoder
    mlm_head.safetensors                the head, without weights that it shares with the encoder
    model.safetensors.index.mlm.json    names both files: the variant `mlm` of transformers

In the encoder's own file the head would be reported as unexpected weights wherever the encoder is loaded.
"""

import json
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file

VARIANT = "mlm"
ENCODER, HEAD, INDEX = "model.safetensors", "mlm_head.safetensors", f"model.safetensors.index.{VARIANT}.json"


def save_mlm_head(encoder: Any, folder: Path) -> None:
    """Write an encoder's masked-LM head, if it has one, beside the encoder's weights in a folder."""
    names = encoder.mlm_head_parameters()
    if not names:
        return
    head = {name: weight.detach().contiguous() for name, weight in encoder.model.named_parameters() if name in names}
    save_file(head, folder / HEAD, {"format": "pt"})
    with safe_open(folder / ENCODER, "pt") as weights:
        files = {**dict.fromkeys(weights.keys(), ENCODER), **dict.fromkeys(sorted(head), HEAD)}
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": files}, indent=2) + "\n")


def variant(folder: Path) -> str | None:
    """Return the argument `variant` of `from_pretrained` that loads a folder's weights with a masked-LM head.

    None if the folder has no weights with such a head.
    """
    return VARIANT if (folder / INDEX).is_file() else None
