"""Rewrite the settings of an exported folder, so that sentence-transformers from 3.0 on and other tools can read it.

    modules.json               sentence_transformers.models.Pooling, not the longer path of sentence-transformers 6
    sentence_bert_config.json  max_seq_length, do_lower_case
    1_Pooling/config.json      word_embedding_dimension, pooling_mode_mean_tokens
    2_Dense/config.json        in_features, out_features, bias, activation_function
    config.json                rope_theta, in addition to rope_parameters
    tokenizer_config.json      PreTrainedTokenizerFast, not TokenizersBackend

The table lists the names that this module writes; all versions can read them. sentence-transformers 6 and transformers
5 save newer names. Earlier versions and text-embeddings-inference reject these, except for `rope_parameters`:
transformers 4 ignores it, and would silently compute rotary positions with the architecture's default base.
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
"""The package in which every version of sentence-transformers finds its modules."""
NEW_DEFAULTS = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}
"""Keys of a Dense module that earlier versions reject, with their default values. A key is removed if it has this
value.
"""
LOCAL_THETA = {"modernbert": ("global_rope_theta", "local_rope_theta")}
"""The keys under which transformers 4 states the rotary base of global and of local attention layers, by model type."""
Json = dict[str, Any]


def make_portable(folder: Path, encoder: Any, tokenizer: Any) -> None:
    """Rewrite the settings of a folder in which sentence-transformers 6 has saved an encoder and its tokenizer.

    Args:
        folder: the model folder.
        encoder: the saved encoder, a `TrainableEncoder`.
        tokenizer: the saved tokenizer of transformers.
    """
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
    """Rewrite the settings of a transformer and of its tokenizer in the folder of the module `Transformer`.

    Args:
        encoder: the saved encoder, a `TrainableEncoder`.
        tokenizer: the saved tokenizer of transformers.
    """
    lengths = {"max_seq_length": encoder.max_tokens, "do_lower_case": encoder.inference.lower_case}
    _edit(folder / LENGTHS, lambda settings: lengths | _selected(settings, "model_args"))
    _edit(folder / "config.json", lambda config: _with_rope(_without_code(config)))
    arguments = inspect.signature(type(encoder.base).forward).parameters
    inputs = [name for name in tokenizer.model_input_names if name in arguments]
    _edit(folder / "tokenizer_config.json", lambda settings: _tokenizer(_without_code(settings), inputs))


def _edit(path: Path, change: Callable[[Any], Any]) -> None:
    """Replace the content of a JSON file with what `change` returns for it."""
    content = change(json.loads(path.read_text(encoding="utf-8")))
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _selected(settings: Json, *keys: str) -> Json:
    return {key: settings[key] for key in keys if key in settings}


def _without_code(settings: Json) -> Json:
    """Return settings without `auto_map`, which names Python files of the given model that are not exported."""
    return {key: value for key, value in settings.items() if key != "auto_map"}


def _entry(entry: Json, module: Module) -> Json:
    """Return an entry of modules.json with a class name and a path that older sentence-transformers can load.

    Args:
        entry: the entry as saved.
        module: the module that the entry describes.
    """
    # Versions 3.2 to 3.4 load the module in the folder itself as a transformer, unless its path is not empty.
    path = entry["path"] or ("." if module.kind == "StaticEmbedding" else "")
    return entry | {"type": f"{PUBLIC}.{module.kind}", "path": path}


def _tokenizer(settings: Json, input_names: list[str]) -> Json:
    """Return the settings of a tokenizer under the names that transformers 4 uses.

    Args:
        settings: the content of tokenizer_config.json, which is changed.
        input_names: the names of the inputs that the model takes, e.g. input_ids. They are added to the settings, so
            that transformers 4 passes no others: BERT's tokenizer also makes token types, which DistilBERT rejects.
    """
    if isinstance(settings.get("extra_special_tokens"), list):
        settings["additional_special_tokens"] = settings.pop("extra_special_tokens")
    if settings.get("tokenizer_class") == "TokenizersBackend":
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    return settings | {"model_input_names": input_names}


def _pooling(settings: Json) -> Json:
    modes = {key: mode == settings["pooling_mode"] for mode, key in EXPORTED.items()}
    return {
        "word_embedding_dimension": settings["embedding_dimension"],
        **modes,
        **_selected(settings, "include_prompt"),
    }


def _dense(settings: Json) -> Json:
    return {key: value for key, value in settings.items() if NEW_DEFAULTS.get(key) != value}


def _without_version(settings: Json) -> Json:
    """Return settings without the version of sentence-transformers, so that an older version does not warn."""
    versions = {name: version for name, version in settings["__version__"].items() if name != "sentence_transformers"}
    return settings | {"__version__": versions}


def _with_rope(config: Json) -> Json:
    """Return a transformer's configuration that also states the rotary positions under the keys of transformers 4."""
    rope = config.get("rope_parameters") or {}
    if "rope_theta" in rope:
        scaling = {key: value for key, value in rope.items() if key not in ("rope_theta", "partial_rotary_factor")}
        scaled = {"rope_scaling": scaling} if rope.get("rope_type", "default") != "default" else {}
        return config | scaled | _selected(rope, "rope_theta", "partial_rotary_factor")
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
    """Return the n for which only layers 0, n, 2n, ... attend to the whole sequence; 0 if there is no such n.

    Args:
        layer_types: for each layer, `full_attention` if it attends to the whole sequence, or `sliding_attention`.
    """
    every = next((i for i, kind in enumerate(layer_types) if i and kind == "full_attention"), len(layer_types))
    regular = ["sliding_attention" if i % every else "full_attention" for i in range(len(layer_types))]
    return every if layer_types == regular else 0
