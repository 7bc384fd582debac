"""Load pretrained transformers from local folders, and refuse incomplete models.

    config.json, weights ──> load_model ──> model, names of newly initialized weights

transformers itself initializes missing weights at random and drops weights for which the model has no place. Here both
are errors, except for the weights of heads. The evaluator and the trainer load their models with this module.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForTextEncoding,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.models.auto import modeling_auto

from clearspan.common.model_folder import MEND, EncoderError, abbreviated, check_config


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Turn off transformers' progress bars and warnings, e.g. about heads that are left out, in the `with` block."""
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


def model_class(config: PreTrainedConfig) -> Any:
    """Return the auto class of transformers that loads an encoder of this configuration.

    An architecture with a masked-LM head is loaded with this head. T5 and its relatives are loaded without their
    decoder. For any other architecture, such as a decoder, the base model is loaded, which has no head.
    """
    if type(config) in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING:
        return AutoModelForMaskedLM
    if type(config) in modeling_auto.MODEL_FOR_TEXT_ENCODING_MAPPING:
        return AutoModelForTextEncoding
    return AutoModel


def load_model(
    folder: Path, chosen: Any = None, uses_pooler: bool = False, **options: Any
) -> tuple[PreTrainedModel, list[str]]:
    """Load a model from a local folder, in fp32 and evaluation mode.

    Weights are read from safetensors, or from pickle files with `weights_only`; code in the folder is never run. Only
    weights of heads, such as the masked-LM head, and of the `pooler` may be missing; they are newly initialized.

    Args:
        chosen: an auto class of transformers, or the model's own class; None for the class from `model_class`.
        uses_pooler: whether the base model's `pooler` is used, so that its weights must not be missing.
        options: further arguments of `from_pretrained`.

    Returns:
        The model, and the names of the newly initialized weights; the pooler's are not among them.

    Raises:
        EncoderError: config.json cannot be read or has a model type that transformers does not know; the folder holds
            an adapter rather than a model; the weights do not match config.json; or a weight is not finite.
    """
    check_config(folder)
    options.setdefault("config", AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False))
    with quiet_transformers():
        model, info = (chosen or model_class(options["config"])).from_pretrained(
            folder,
            local_files_only=True,
            trust_remote_code=False,
            dtype=torch.float32,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # _check_weights names them
            **options,
        )
    new = _check_weights(folder, model, info, uses_pooler)
    check_values(folder, model)
    return model, new


def _check_weights(folder: Path, model: PreTrainedModel, info: dict[str, Any], uses_pooler: bool) -> list[str]:
    """Check that the base model's weights were in the folder; return the names of the newly initialized weights.

    The weights of heads may be missing. transformers has initialized these weights; this function sets their biases to
    0, since transformers leaves some biases uninitialized.

    Args:
        folder: the model's folder, which error messages name.
        model: the model that was loaded from the folder.
        info: the dict that `from_pretrained` returned because of `output_loading_info`.
        uses_pooler: whether the weights of the base model's `pooler` are checked, too. The pooler's weights are never
            among the names that are returned.

    Raises:
        EncoderError: a weight of the base model is missing; the folder holds a weight for which the base model has no
            place; or a weight of the base model or of a head does not have the shape that config.json asks for.
    """
    prefix, base = f"{model.base_model_prefix}.", model.base_model
    parts = {name.split(".")[0] for name in base.state_dict()} - (set() if uses_pooler else {"pooler"})

    def of_base(name: str) -> bool:
        return name.removeprefix(prefix).split(".")[0] in parts

    if shapes := sorted(info["mismatched_keys"]):
        name, stored, expected = shapes[0]
        more = f", and {len(shapes) - 1:,} more differ" if len(shapes) > 1 else ""
        raise EncoderError(
            f"{folder}: {name} has shape {list(stored)} where its config.json asks for {list(expected)}{more}: {MEND}"
        )
    missing = [name for name in info["missing_keys"] if (model is base or name.startswith(prefix)) and of_base(name)]
    if missing:
        only_head = all(name.removeprefix(prefix).startswith("pooler.") for name in missing)
        mend = f"{MEND}, or do without this head (`pooling` cls)" if only_head else MEND
        raise EncoderError(f"{folder}: lacks {len(missing):,} of its weights: {abbreviated(sorted(missing))}: {mend}")
    # Older versions of transformers saved the buffer of position ids with the weights.
    surplus = [name for name in info["unexpected_keys"] if of_base(name) and not name.endswith(".position_ids")]
    if surplus:
        raise EncoderError(
            f"{folder}: its config.json has no place for {len(surplus):,} of its weights: "
            f"{abbreviated(sorted(surplus))}: {MEND}"
        )
    new = sorted(name for name in info["missing_keys"] if not name.removeprefix(prefix).startswith("pooler."))
    for name in new:
        if name.endswith("bias"):  # transformers leaves the biases of some heads uninitialized
            nn.init.zeros_(model.get_parameter(name))
    return new


def check_values(folder: Path, model: nn.Module) -> None:
    """Raise EncoderError if a weight of the model is not finite."""
    for name, weight in model.named_parameters():
        # A finite sum implies finite values, and takes a tenth of the time.
        if not weight.sum().isfinite() and not weight.isfinite().all():
            raise EncoderError(f"{folder}: {name} holds a NaN or an infinity: {MEND}")


def first_position(model: PreTrainedModel) -> int:
    """Return the position id of the first token: padding id + 1 for RoBERTa, MPNet and their relatives, otherwise 0."""
    embeddings = getattr(model.base_model, "embeddings", None)
    if hasattr(embeddings, "create_position_ids_from_input_ids"):
        return int(model.config.pad_token_id) + 1
    padding, table = (getattr(embeddings, name, None) for name in ("padding_idx", "position_embeddings"))
    return padding + 1 if isinstance(padding, int) and isinstance(table, nn.Embedding) else 0


def max_tokens(model: PreTrainedModel) -> int | None:
    """Return the largest number of tokens in a sequence for which a model has positions; None if there is no limit."""
    positions = getattr(model.config, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions <= 0:  # XLNet's configuration holds -1
        return None
    return positions - first_position(model)
