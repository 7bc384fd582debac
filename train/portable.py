"""The settings of an exported folder, as every sentence-transformers since 3.0 and the tools beside it read them.

    modules.json               sentence_transformers.models.Pooling, for .sentence_transformer.modules.pooling.Pooling
    sentence_bert_config.json  max_seq_length, do_lower_case
    1_Pooling/config.json      word_embedding_dimension, pooling_mode_mean_tokens
    2_Dense/config.json        in_features, out_features, bias, activation_function
    config.json                rope_theta beside rope_parameters
    tokenizer_config.json      PreTrainedTokenizerFast for TokenizersBackend

Version 6 writes other names, at which earlier versions and text-embeddings-inference stop; it reads these too. The same
holds for transformers 5 and 4, which ignores `rope_parameters`, and would silently use the angles that are the default
of the architecture.
"""

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clearspan.common.encoder.pooling_names import EXPORTED
from clearspan.common.model_folder import INFERENCE, Module, read_modules

MODULES, LENGTHS = "modules.json", "sentence_bert_config.json"
PUBLIC = "sentence_transformers.models"
"""The package in which every version finds its modules."""
NEW_DEFAULTS = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}
"""Keys of a Dense module that earlier versions do not take, with the only values that they know."""
LOCAL_THETA = {"modernbert": ("global_rope_theta", "local_rope_theta")}
"""Keys of transformers 4 for the angles of global and local layers, by the type of the model."""
Json = dict[str, Any]


def make_portable(folder: Path, encoder: Any, tokenizer: Any) -> None:
    """Rewrite the settings of a folder in which sentence-transformers 6 has saved an encoder and its tokenizer."""
    modules = read_modules(folder)
    _edit(folder / MODULES, lambda entries: [_entry(*pair) for pair in zip(entries, modules, strict=True)])
    for module in modules:
        if module.kind == "Transformer":
            _edit_transformer(module.folder, encoder, tokenizer)
        elif module.kind == "Pooling":
            _edit(module.folder / "config.json", _pooling)
        elif module.kind == "Dense":
            _edit(module.folder / "config.json", _dense)
    is_unit = [module.kind for module in modules] == ["StaticEmbedding", "Normalize"]
    normalize = {"normalize": True} if is_unit else {}  # for model2vec, which reads no modules
    _edit(folder / INFERENCE, lambda settings: _without_version(settings) | normalize)


def _edit_transformer(folder: Path, encoder: Any, tokenizer: Any) -> None:
    """Rewrite the settings of a transformer and of its tokenizer."""
    lengths = {"max_seq_length": encoder.max_tokens, "do_lower_case": encoder.inference.lower_case}
    _edit(folder / LENGTHS, lambda settings: lengths | _of(settings, "model_args"))
    _edit(folder / "config.json", lambda config: _with_rope(_of_library(config)))
    arguments = inspect.signature(type(encoder.base).forward).parameters
    inputs = [name for name in tokenizer.model_input_names if name in arguments]
    _edit(folder / "tokenizer_config.json", lambda settings: _tokenizer(_of_library(settings), inputs))


def _edit(path: Path, change: Callable[[Any], Any]) -> None:
    """Replace the content of a JSON file with what `change` returns for it."""
    content = change(json.loads(path.read_text(encoding="utf-8")))
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _of(settings: Json, *keys: str) -> Json:
    return {key: settings[key] for key in keys if key in settings}


def _of_library(settings: Json) -> Json:
    """Return settings without the code of the folder that training began with: it was never run, and is not copied."""
    return {key: value for key, value in settings.items() if key != "auto_map"}


def _entry(entry: Json, module: Module) -> Json:
    """Return an entry of modules.json."""
    # Versions 3.2 to 3.4 load the module in the folder itself as a transformer, unless its path is not empty.
    path = entry["path"] or ("." if module.kind == "StaticEmbedding" else "")
    return entry | {"type": f"{PUBLIC}.{module.kind}", "path": path}


def _tokenizer(settings: Json, input_names: list[str]) -> Json:
    """Return the settings of a tokenizer with the class and the list of special tokens as transformers 4 names them.

    Args:
        input_names: what the model takes: earlier versions give DistilBERT the token types that BERT's tokenizer makes.
    """
    if isinstance(settings.get("extra_special_tokens"), list):
        settings["additional_special_tokens"] = settings.pop("extra_special_tokens")
    if settings.get("tokenizer_class") == "TokenizersBackend":
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    return settings | {"model_input_names": input_names}


def _pooling(settings: Json) -> Json:
    modes = {key: mode == settings["pooling_mode"] for mode, key in EXPORTED.items()}
    return {"word_embedding_dimension": settings["embedding_dimension"], **modes, **_of(settings, "include_prompt")}


def _dense(settings: Json) -> Json:
    return {key: value for key, value in settings.items() if NEW_DEFAULTS.get(key) != value}


def _without_version(settings: Json) -> Json:
    """Return settings without the library's version: an earlier version would warn that it may misread the folder."""
    versions = {name: version for name, version in settings["__version__"].items() if name != "sentence_transformers"}
    return settings | {"__version__": versions}


def _with_rope(config: Json) -> Json:
    """Return a transformer's configuration with the angles of its rotary positions as transformers 4 names them."""
    rope = config.get("rope_parameters") or {}
    if "rope_theta" in rope:
        scaling = {key: value for key, value in rope.items() if key not in ("rope_theta", "partial_rotary_factor")}
        scaled = {"rope_scaling": scaling} if rope.get("rope_type", "default") != "default" else {}
        return config | scaled | _of(rope, "rope_theta", "partial_rotary_factor")
    layers = ("full_attention", "sliding_attention")
    if not all(isinstance(rope.get(layer), dict) for layer in layers):
        return config
    keys = LOCAL_THETA.get(config["model_type"], ("rope_theta", "rope_local_base_freq"))
    thetas = {key: rope[layer]["rope_theta"] for key, layer in zip(keys, layers, strict=True)}
    every = _global_every(config.get("layer_types") or [])
    return (
        config
        | thetas
        | ({"global_attn_every_n_layers": every} if config["model_type"] == "modernbert" and every else {})
    )


def _global_every(layer_types: list[str]) -> int:
    """Return n if the first of each n layers attends to the whole sequence, and no other; 0: there is no such n."""
    every = next((i for i, kind in enumerate(layer_types) if i and kind == "full_attention"), len(layer_types))
    regular = ["sliding_attention" if i % every else "full_attention" for i in range(len(layer_types))]
    return every if layer_types == regular else 0
