"""The files of a model folder that are not weights: checked before a library reads them.

Libraries accept settings of the wrong type, and tokenizers that belong to another model, without a warning. Trainer,
evaluator and pipelines check a folder here first. `common.pretrained` loads and checks the weights.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from clearspan.common.terminal import MOST_SAID, one_line

MEND = "copy the complete folder from its source again"
VOCABULARIES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "sentencepiece.bpe.model",
    "spiece.model",
    "tokenizer.model",
)
TOKENIZER_SETTINGS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
SPARE = 1024
"""Difference between the numbers of tokens and embeddings that is always accepted.

Embedding tables are padded to a multiple of 64, 128 or more; some tokenizers list added tokens that no text yields.
"""
LIMITS = [
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
]
"""Names that sentence-transformers has used for the file of length limits; the first file that exists counts."""
INFERENCE = "config_sentence_transformers.json"
"""sentence-transformers' file of prompts and of the similarity."""
Expected = tuple[str, Callable[[Any], bool]]
POSITIVE: Expected = ("a positive number", lambda value: type(value) is int and value > 0)
BOOLEAN: Expected = ("true or false", lambda value: type(value) is bool)
SETTINGS: Mapping[str, Expected] = {
    "max_seq_length": POSITIVE,
    "do_lower_case": BOOLEAN,
    "truncate_dim": POSITIVE,
    "model_type": ("SentenceTransformer", lambda value: value == "SentenceTransformer"),
    # The library silently uses Tanh in place of an activation that it may not import.
    "activation_function": ("one of torch's", lambda value: isinstance(value, str) and value.startswith("torch.")),
}
"""Settings that affect every embedding, and that the library may misread: what each must be. `pooling_mode_...` must be
`BOOLEAN`.
"""


class EncoderError(ValueError):
    """Error for a folder, file, function or setting that yields no usable encoder; says why and what to do."""


def read_json(path: Path, shape: type = dict) -> Any:
    """Return the content of a JSON file of settings.

    Raises:
        EncoderError: the file cannot be read, or its top-level value is not a `shape`.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EncoderError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise EncoderError(f"{path}: cannot be read as JSON ({error})") from None
    if not isinstance(content, shape):
        raise EncoderError(f"{path}: holds a {type(content).__name__}, expected a {shape.__name__}")
    return content


def some(names: list[str]) -> str:
    """Return the first three names of a list, and the number of the others."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")


class Module(NamedTuple):
    """One entry of sentence-transformers' `modules.json`: the module's name, the name of its class, and its folder."""

    name: str
    kind: str
    folder: Path


def read_modules(folder: Path) -> list[Module]:
    """Return the modules of a sentence-transformers folder; an empty list for a plain Hugging Face folder.

    Raises:
        EncoderError: sentence-transformers does not write such a list, or the list names code outside the library.
    """
    path, keys = folder / "modules.json", ("name", "type", "path")
    if not path.is_file():
        return []
    modules = read_json(path, list)
    if not modules or not all(isinstance(module, dict) and module.keys() >= {*keys} for module in modules):
        raise EncoderError(f"{path}: expected a list of modules, each with name, type and path")
    if not all(isinstance(module[key], str) for module in modules for key in keys):
        raise EncoderError(f"{path}: a module's name, type and path must be strings")
    for module in modules:
        if not module["type"].startswith("sentence_transformers."):
            raise EncoderError(
                f"{path}: the module {module['type']!r} is not part of sentence-transformers: other code is never run"
            )
    return [Module(entry["name"], entry["type"].rsplit(".", 1)[-1], folder / entry["path"]) for entry in modules]


def read_settings(path: Path) -> dict[str, Any]:
    """Return the settings in a file of a sentence-transformers folder; none without the file.

    Raises:
        EncoderError: the file cannot be read, or a setting has a wrong type; the message names both.
    """
    settings: dict[str, Any] = read_json(path) if path.is_file() else {}
    for key, value in settings.items():
        expected = BOOLEAN if key.startswith("pooling_mode_") else SETTINGS.get(key)
        if expected and value is not None and not expected[1](value):
            raise EncoderError(f"{path}: {key} must be {expected[0]}, not {value!r}")
    return settings


def read_inference(folder: Path) -> dict[str, Any]:
    """Return the settings of `INFERENCE`.

    Raises:
        EncoderError: one of them is invalid.
    """
    settings = read_settings(folder / INFERENCE)
    prompts, name = settings.get("prompts") or {}, settings.get("default_prompt_name")
    texts = [key for key, prompt in prompts.items() if isinstance(prompt, str)] if isinstance(prompts, dict) else []
    if name is not None and name not in texts:
        raise EncoderError(f"{folder / INFERENCE}: default_prompt_name {name!r} is no text among its prompts")
    return settings


def check_modules(folder: Path, modules: list[Module]) -> None:
    """Check every setting of a sentence-transformers folder that the library itself does not check.

    Raises:
        EncoderError: the message names the file and the setting.
    """
    read_inference(folder)
    for module in modules:
        if module.kind in ("Router", "Asym"):
            raise EncoderError(
                f"{folder}: the module {module.kind} is not supported: a text's route through it is unknown"
            )
        if module.kind == "Transformer":
            check_transformer(module.folder)
            continue
        path = module.folder / "config.json"
        settings = read_settings(path)
        if module.kind == "StaticEmbedding":
            check_tokenizer_files(module.folder)
        modes = [value for key, value in settings.items() if key.startswith("pooling_mode_")]
        if modes and not any(modes):
            raise EncoderError(f"{path}: no pooling is chosen: set one pooling_mode_... to true")


def check_transformer(folder: Path) -> None:
    """Check a transformer's configuration, its length limits and its tokenizer files.

    Raises:
        EncoderError: the folder holds no model, or a setting is invalid; the message names the file.
    """
    if not (folder / "config.json").is_file():
        raise EncoderError(f"{folder}: no config.json here, so this is no model folder; give the folder that holds it")
    embeddings = check_config(folder).get("vocab_size")
    check_tokenizer_files(folder)
    read_settings(next((path for name in LIMITS if (path := folder / name).is_file()), folder / LIMITS[0]))
    if (folder / "tokenizer.json").is_file():
        _check_ids(folder / "tokenizer.json", embeddings if isinstance(embeddings, int) else 0)


def check_config(folder: Path) -> dict[str, Any]:
    """Return the configuration of a folder's model, whose type must be built into transformers.

    Raises:
        EncoderError: the configuration cannot be read, its type is unknown, or the folder holds an adapter.
    """
    import transformers  # takes seconds

    if (folder / "adapter_config.json").is_file():
        raise EncoderError(f"{folder}: an adapter's weights are not supported: merge them into the base model")
    config: dict[str, Any] = read_json(folder / "config.json")
    model_type = config.get("model_type")
    if model_type is not None and (not isinstance(model_type, str) or model_type not in transformers.CONFIG_MAPPING):
        raise EncoderError(
            f"{folder / 'config.json'}: model_type {model_type!r} is unknown to transformers "
            f"{transformers.__version__}, and code that comes with a model is never run"
        )
    return config


def _check_ids(path: Path, embeddings: int) -> None:
    """Bound a tokenizer's ids: transformers allocates an entry for each id up to the largest in the file."""
    try:
        vocabulary = Tokenizer.from_file(str(path)).get_vocab(with_added_tokens=True)
    except Exception as error:  # tokenizers raises plain Exception
        raise EncoderError(f"{path}: cannot be read as a tokenizer ({one_line(error, MOST_SAID)})") from None
    token, largest = max(vocabulary.items(), key=lambda item: item[1], default=("", 0))
    if largest >= embeddings + 2 * len(vocabulary):
        raise EncoderError(
            f"{path}: {token[:40]!r} has id {largest:,} in a vocabulary of {len(vocabulary):,}, for a model of "
            f"{embeddings:,} embeddings: correct the id"
        )


def check_tokenizer_files(folder: Path) -> list[str]:
    """Return the names of the files that hold a tokenizer's tokens.

    Without such a file, transformers would create an empty tokenizer.

    Raises:
        EncoderError: the folder has no such file, or a file of the tokenizer's settings is malformed.
    """
    present = [name for name in VOCABULARIES if (folder / name).is_file()]
    if not present:
        raise EncoderError(f"{folder}: no tokenizer here; it has none of {', '.join(VOCABULARIES)}")
    for name in TOKENIZER_SETTINGS:
        if (folder / name).is_file():
            read_json(folder / name)
    return present


def check_tokenizer(folder: Path, vocabulary: Mapping[str, int], num_embeddings: int) -> None:
    """Refuse a tokenizer that does not belong to the model beside it.

    The numbers of embeddings and tokens may differ. More than twice as many embeddings as tokens, or fewer embeddings
    than tokens, both beyond `SPARE`, are refused. Another model's tokenizer of similar size is not detected.

    Args:
        vocabulary: token -> id of the tokenizer that was loaded from the folder, added tokens included.
        num_embeddings: rows of the model's input embeddings.

    Raises:
        EncoderError: the message names both numbers.
    """
    num_tokens = len(vocabulary)
    if num_embeddings > 2 * num_tokens + SPARE or num_tokens > num_embeddings + SPARE:
        raise EncoderError(
            f"{folder}: its tokenizer has {num_tokens:,} tokens, and its model {num_embeddings:,} embeddings: they "
            f"do not belong together: {MEND}"
        )
