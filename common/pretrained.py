"""Folders that say they hold a model: read within bounds, and taken whole or refused, in one line.

    config.json, weights ──> load_model ──> the model, and the names of what its folder did not hold

transformers starts with whatever it finds: what is missing it draws, what is left over it drops. The evaluator begins
here with what it scores, and the trainer with what it goes on from: checked in one place, where both may import it.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedModel
from transformers.modeling_utils import load_state_dict

from clearspan.common.model_folder import MEND, EncoderError, read_json, some


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """No loading bars and no report of heads left out on purpose."""
    log = transformers.utils.logging
    verbosity, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(verbosity)
        if bars:
            log.enable_progress_bar()


def check_config(folder: Path) -> dict[str, Any]:
    """The configuration of a folder's model, which transformers knows without code of the folder's own.

    Raises:
        EncoderError: it cannot be read, is of an unknown type, or of an adapter.
    """
    if (folder / "adapter_config.json").is_file():
        raise EncoderError(f"{folder}: an adapter's weights are not supported: merge them into the model's")
    config: dict[str, Any] = read_json(folder / "config.json")
    kind = config.get("model_type")
    if kind is not None and (not isinstance(kind, str) or kind not in CONFIG_MAPPING):
        raise EncoderError(
            f"{folder / 'config.json'}: model_type {kind!r} is unknown to transformers {transformers.__version__}, and "
            "code that comes with a model is never run"
        )
    return config


def load_model(
    folder: Path, model_class: Any, uses_pooler: bool = False, **options: Any
) -> tuple[PreTrainedModel, list[str]]:
    """(model, names of new weights): a local folder's, in fp32 and evaluation mode.

    Weights are safetensors or read with `weights_only`; code of the folder is never run. Only weights outside the base
    model can be new, freshly drawn: those of a masked-LM head that the folder does not have.

    Args:
        model_class: an auto class of transformers, or a model's own.
        uses_pooler: whether the base model's `pooler`, often absent and seldom used, must be whole too.
        options: what `from_pretrained` takes besides.

    Raises:
        EncoderError: the folder's weights are not those that its configuration asks for, or not finite.
    """
    check_config(folder)
    options.setdefault("config", AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False))
    with quiet_transformers():
        model, found = model_class.from_pretrained(
            folder,
            local_files_only=True,
            trust_remote_code=False,
            dtype=torch.float32,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # which are named below
            **options,
        )
    new = _check_weights(folder, model, found, uses_pooler)
    check_values(folder, model)
    return model, new


def _check_weights(folder: Path, model: PreTrainedModel, found: dict[str, Any], uses_pooler: bool) -> list[str]:
    """The weights outside the base model that are new."""
    prefix, base = f"{model.base_model_prefix}.", model.base_model
    parts = {name.split(".")[0] for name in base.state_dict()} - (set() if uses_pooler else {"pooler"})

    def of_base(name: str) -> bool:
        return name.removeprefix(prefix).split(".")[0] in parts

    if shapes := sorted(found["mismatched_keys"]):
        name, there, wanted = shapes[0]
        more = f", and {len(shapes) - 1:,} more differ" if len(shapes) > 1 else ""
        raise EncoderError(
            f"{folder}: {name} has shape {list(there)} where its config.json asks for {list(wanted)}{more}: {MEND}"
        )
    inside = [name for name in found["missing_keys"] if (model is base or name.startswith(prefix)) and of_base(name)]
    if inside:
        head = all(name.removeprefix(prefix).startswith("pooler.") for name in inside)
        mend = f"{MEND}, or do without this head (--pooling cls-before-head)" if head else MEND
        raise EncoderError(f"{folder}: lacks {len(inside):,} of its weights: {some(sorted(inside))}: {mend}")
    # Positions that count up were saved as if they were weights, and are not any more.
    left = [name for name in found["unexpected_keys"] if of_base(name) and not name.endswith(".position_ids")]
    if left:
        raise EncoderError(
            f"{folder}: its config.json has no place for {len(left):,} of its weights: {some(sorted(left))}: {MEND}"
        )
    new = sorted(name for name in found["missing_keys"] if not name.removeprefix(prefix).startswith("pooler."))
    for name in new:
        if name.endswith("bias"):  # transformers leaves those of some heads as they lie in memory
            nn.init.zeros_(model.get_parameter(name))
    return new


def check_values(folder: Path, model: nn.Module) -> None:
    """Refuse weights that are integers in the folder's files, or not finite in the model.

    Libraries cast integers, such as those of a quantized model without its scales, to floats without a word.

    Args:
        model: what was loaded from the files right in the folder.

    Raises:
        EncoderError: names the first weight.
    """
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    weights = {name.removeprefix(prefix) for name, _ in model.named_parameters()}
    files = sorted(folder.glob("model*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    for path in files:
        for name, tensor in load_state_dict(path, map_location="meta").items():
            if not tensor.is_floating_point() and name.removeprefix(prefix) in weights:
                kind = str(tensor.dtype).removeprefix("torch.")
                raise EncoderError(
                    f"{path}: {name} holds {kind}, not floating-point weights: save the model in float32, float16 or "
                    "bfloat16"
                )
    for name, weight in model.named_parameters():
        # A sum is finite only if all is, and takes a tenth of the time.
        if not weight.sum().isfinite() and not weight.isfinite().all():
            raise EncoderError(f"{folder}: {name} holds a NaN or an infinity: {MEND}")


def first_position(model: PreTrainedModel) -> int:
    """Where a model's position ids start: RoBERTa and its kin count from the padding id + 1."""
    embeddings = getattr(model.base_model, "embeddings", None)
    if hasattr(embeddings, "create_position_ids_from_input_ids"):
        return int(model.config.pad_token_id) + 1
    return 0
