"""LoRA by peft: frozen linear layers, each with a trained low-rank addition (Hu et al. 2021, arXiv 2106.09685, Eq. 3).

    encoder -> attach -> x W^T + (alpha / rank) x A^T B^T, of which A and B are trained
    merged: a context in which the layers are plain again, with W + (alpha / rank) B A, for the export

B starts at 0, so that an encoder with a new adapter has the states of the encoder without it. `save` writes the adapter
as peft loads it. peft is an extra, so it is imported only when an adapter is made.
"""

import contextlib
import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from clearspan.common.encoder.dropout import replace_dropout
from clearspan.common.errors import PipelineError, check_extra
from clearspan.common.model_folder import EncoderError
from clearspan.common.terminal import MAX_SAID, one_line

NAME = "default"
"""peft's name of the only adapter."""
WEIGHTS = "adapter_model.safetensors"
ALL_LINEAR = "all-linear"
"""The name in `targets` of all linear layers of a model."""
PREFIX = "base_model.model."
"""peft's prefix of the names of an adapter's weights."""


class Adapter:
    """The LoRA layers of a model.

    Args:
        options: `rank`, `alpha`, `dropout` and `targets`, as the recipe's section `model.lora` states them.
        config: peft's configuration.
        layers: (the parent module, the name of the layer in it, peft's layer) for each layer with an addition.
    """

    def __init__(self, options: Mapping[str, Any], config: Any, layers: list[tuple[nn.Module, str, Any]]) -> None:
        self.options, self.config, self.layers = dict(options), config, layers

    @contextlib.contextmanager
    def merged(self) -> Iterator[None]:
        """Return a context in which the model has plain linear layers, with the adapter added to their weights."""
        try:
            for parent, name, layer in self.layers:
                plain = copy.copy(layer.get_base_layer())
                plain._parameters = dict(plain._parameters)
                weight = plain.weight.detach() + layer.get_delta_weight(NAME).detach().to(plain.weight.dtype)
                plain._parameters["weight"] = nn.Parameter(weight, requires_grad=False)
                setattr(parent, name, plain)
            yield
        finally:
            for parent, name, layer in self.layers:
                setattr(parent, name, layer)

    def save(self, base: nn.Module, folder: Path, model: str) -> None:
        """Write the adapter to a folder, as `PeftModel.from_pretrained` loads it.

        Args:
            base: the base model that the adapter is in.
            folder: the folder; it is created.
            model: the path of the model that the adapter was trained on, for `base_model_name_or_path`.
        """
        folder.mkdir(parents=True, exist_ok=True)
        weights = {
            PREFIX + name.replace(f".{NAME}.", "."): weight.detach().contiguous().clone()
            for name, weight in base.named_parameters()
            if is_adapter(name)
        }
        save_file(weights, folder / WEIGHTS, {"format": "pt"})
        config = copy.copy(self.config)
        config.base_model_name_or_path, config.inference_mode = model, True
        config.save_pretrained(str(folder))


def is_adapter(name: str) -> bool:
    """Return whether a parameter belongs to an adapter, by its name."""
    return ".lora_A." in name or ".lora_B." in name


def attach(base: nn.Module, options: Mapping[str, Any], model_type: str) -> Adapter:
    """Add an adapter to the linear layers of a model, in place, and freeze everything else in it.

    Args:
        base: the base model.
        options: `rank`, `alpha`, `dropout` and `targets`, as the recipe's section `model.lora` states them.
        model_type: the architecture's name in transformers, for peft's default targets and for messages.

    Raises:
        EncoderError: peft is missing, no layer has a target's name, or a target is no linear layer.
    """
    try:
        check_extra("lora", "peft", feature="model.train lora")
    except PipelineError as error:
        raise EncoderError(str(error)) from None
    import peft
    from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as BY_ARCHITECTURE
    from transformers.pytorch_utils import Conv1D

    targets: Any = list(options["targets"]) or BY_ARCHITECTURE.get(model_type, ALL_LINEAR)
    config = peft.LoraConfig(
        r=options["rank"],
        lora_alpha=options["alpha"],
        lora_dropout=options["dropout"],
        target_modules=ALL_LINEAR if targets == [ALL_LINEAR] else targets,
        exclude_modules=r"(.*\.)?pooler\..*" if getattr(base, "pooler", None) is not None else None,  # exports lack it
        task_type=peft.TaskType.FEATURE_EXTRACTION,
    )
    try:
        peft.inject_adapter_in_model(config, base, NAME)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise EncoderError(f"targets {targets}: {one_line(error, MAX_SAID)}") from None
    adapted = [f".{name}" for name, layer in base.named_modules() if isinstance(layer, peft.tuners.lora.LoraLayer)]
    for target in options["targets"]:
        if target != ALL_LINEAR and not any(name.endswith(f".{target}") for name in adapted):
            raise EncoderError(f"targets {targets}: no layer is called {target!r}")
    layers = []
    for parent in list(base.modules()):
        for name, layer in parent.named_children():
            if not isinstance(layer, peft.tuners.lora.LoraLayer):
                continue
            if not isinstance(layer.get_base_layer(), nn.Linear | Conv1D):
                raise EncoderError(f"targets {targets}: {name} is no linear layer: name others")
            layer.cast_input_dtype_enabled = False  # autocast casts
            layers.append((parent, name, layer))
    for name, parameter in base.named_parameters():
        parameter.requires_grad_(is_adapter(name))
    replace_dropout(base)
    return Adapter(options, config, layers)


def without_frozen(module: nn.Module, frozen: set[str]) -> dict[str, Tensor]:
    """Return the state of a module without the tensors of some names."""
    return {name: tensor for name, tensor in module.state_dict().items() if name not in frozen}


def load_without_frozen(module: nn.Module, states: Mapping[str, Tensor], frozen: set[str]) -> None:
    """Load a state that `without_frozen` returned.

    Raises:
        RuntimeError: a tensor is missing, surplus or of another shape.
    """
    with torch.no_grad():
        missing, surplus = module.load_state_dict(dict(states), strict=False)
    if wrong := sorted({*missing} - frozen | {*surplus}):
        raise RuntimeError(f"the weights differ in {wrong[0]} and {len(wrong) - 1} others")
