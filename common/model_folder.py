"""Check the files of a model folder that are not weights, before transformers or sentence-transformers reads them.

These libraries do not warn if, for example, a folder holds the tokenizer of another model. So trainer, evaluator and
pipelines first check a folder here. `common.pretrained` loads and checks the weights.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from clearspan.common.terminal import MAX_SAID, one_line
from clearspan.common.token_ids import vocab_size

MEND = "copy the complete folder from its source again"
VOCABULARIES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "sentencepiece.bpe.model",
    "spiece.model",
    "tokenizer.model",
)
UNTELLING = ("model", "run")
"""Folder names that do not identify the model in them."""
SPARE = 1024
"""Difference between the number of tokens and the number of embeddings that is always accepted.

Embedding tables are padded to a multiple of 64, 128 or more; some tokenizers list added tokens that no text yields.
"""
INFERENCE = "config_sentence_transformers.json"
"""sentence-transformers' file with the prompts, the similarity function and the truncated dimension."""


class EncoderError(ValueError):
    """No usable encoder can be made from a folder, file, function or setting. The message says why and what to do."""


@contextlib.contextmanager
def refusing(problem: str) -> Iterator[None]:
    """Turn any exception of the `with` block into an EncoderError, unless it is one already.

    Args:
        problem: the beginning of the error message; the message of the exception follows.
    """
    try:
        yield
    except EncoderError:
        raise
    except Exception as error:
        raise EncoderError(f"{problem} ({one_line(error, MAX_SAID)})") from None


def model_name(folder: str | Path) -> str:
    """Return the name of the model in a folder, for reports and messages.

    The model has the name of the folder, with two exceptions. If the folder is called `model` or `run`, as training and
    `clearspan adapt` call it, the model has the name of the nearest parent folder that is called otherwise. If the
    folder is in huggingface_hub's cache, at models--ORGANIZATION--NAME/snapshots/HASH, the model has the name NAME.
    """
    path = Path(os.path.normpath(Path(folder).absolute()))  # a link has the name that the user gave it
    if path.parent.name == "snapshots":
        return path.parent.parent.name.rpartition("--")[2] or path.name
    while path.name in UNTELLING and path.parent.name:
        path = path.parent
    return path.name


def read_json(path: Path, expected: type = dict) -> Any:
    """Return the content of a JSON file of settings.

    Args:
        expected: the Python type that the top-level value must have.

    Raises:
        EncoderError: the file cannot be read or is not JSON, or its top-level value is of another type.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EncoderError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise EncoderError(f"{path}: cannot be read as JSON ({error})") from None
    if not isinstance(content, expected):
        raise EncoderError(f"{path}: holds a {type(content).__name__}, expected a {expected.__name__}")
    return content


def abbreviated(names: list[str]) -> str:
    """Join names for a message: the first three, and the number of the others, e.g. `a, b, c and 5 more`."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")


class Module(NamedTuple):
    """One entry of sentence-transformers' `modules.json`.

    Attributes:
        name: the module's name, by which sentence-transformers finds it in the loaded model.
        kind: the name of the module's class, such as `Pooling`.
        folder: the folder of the module's files.
    """

    name: str
    kind: str
    folder: Path


def read_modules(folder: Path) -> list[Module]:
    """Return the modules of a sentence-transformers folder; an empty list for a plain Hugging Face folder.

    Raises:
        EncoderError: `modules.json` cannot be read, is malformed, or names a class outside sentence-transformers or a
            path outside the folder.
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
        if Path(module["path"]).is_absolute() or ".." in Path(module["path"]).parts:
            raise EncoderError(f"{path}: the module's path {module['path']!r} leaves the folder of the model")
    return [Module(entry["name"], entry["type"].rsplit(".", 1)[-1], folder / entry["path"]) for entry in modules]


def read_inference(folder: Path) -> dict[str, Any]:
    """Return the settings in `config_sentence_transformers.json`; an empty dict if there is no such file.

    Raises:
        EncoderError: the file cannot be read; `model_type` is not SentenceTransformer; `default_prompt_name` names no
            prompt of the model; or `truncate_dim` is invalid.
    """
    path = folder / INFERENCE
    settings: dict[str, Any] = read_json(path) if path.is_file() else {}
    if (model_type := settings.get("model_type") or "SentenceTransformer") != "SentenceTransformer":
        raise EncoderError(f"{path}: model_type must be SentenceTransformer, not {model_type!r}")
    prompts, name = settings.get("prompts") or {}, settings.get("default_prompt_name")
    texts = [key for key, prompt in prompts.items() if isinstance(prompt, str)] if isinstance(prompts, dict) else []
    if name is not None and name not in texts:
        raise EncoderError(f"{path}: default_prompt_name {name!r} is not the name of one of its prompts")
    dim = settings.get("truncate_dim")
    if dim is not None and (type(dim) is not int or dim < 1):  # the library would cut dimensions from the end
        raise EncoderError(f"{path}: truncate_dim must be a positive integer, not {dim!r}")
    return settings


def check_modules(folder: Path, modules: list[Module]) -> None:
    """Check the settings of a model's folder that sentence-transformers itself does not check.

    Args:
        modules: the modules of the folder, from `read_modules`.

    Raises:
        EncoderError: a setting is invalid, a module is not supported, or a tokenizer is missing or unusable. The
            message names the file or folder.
    """
    read_inference(folder)
    for module in modules:
        path = module.folder / "config.json"
        if module.kind in ("Router", "Asym"):
            raise EncoderError(
                f"{folder}: the module {module.kind} is not supported: it has a route for each kind of text"
            )
        if module.kind == "Transformer":
            check_transformer(module.folder)
        elif module.kind == "StaticEmbedding":
            check_tokenizer_files(module.folder)
        elif path.is_file() and not str(read_json(path).get("activation_function", "torch.")).startswith("torch."):
            # The library silently uses Tanh in place of an activation that it may not import.
            raise EncoderError(f"{path}: activation_function must be one of torch's")


def check_transformer(folder: Path) -> None:
    """Check a transformer's configuration, its length limits and its tokenizer files.

    Raises:
        EncoderError: the folder holds no model, a setting is invalid, or the tokenizer is missing or unusable. The
            message names the file or folder.
    """
    if not (folder / "config.json").is_file():
        raise EncoderError(f"{folder}: no config.json here, so this is no model folder; give the folder that holds it")
    check_config(folder)
    check_tokenizer_files(folder)
    for path in folder.glob("sentence_*_config.json"):  # length limits; the library ignores malformed ones
        read_json(path)
    if (path := folder / "tokenizer.json").is_file():
        with refusing(f"{path}: no usable tokenizer"):
            # transformers allocates an entry for each id up to the largest in the file.
            vocab_size(Tokenizer.from_file(str(path)).get_vocab(with_added_tokens=True))


def check_config(folder: Path) -> dict[str, Any]:
    """Return the content of a model folder's config.json, after checking that transformers knows the model type.

    Raises:
        EncoderError: config.json cannot be read, its `model_type` is unknown to transformers, or the folder holds an
            adapter rather than a model.
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


def check_tokenizer_files(folder: Path) -> list[str]:
    """Return the names of the files in a folder that hold a tokenizer's tokens, such as tokenizer.json.

    Without such a file, transformers would create an empty tokenizer.

    Raises:
        EncoderError: the folder has no such file.
    """
    present = [name for name in VOCABULARIES if (folder / name).is_file()]
    if not present:
        raise EncoderError(f"{folder}: no tokenizer here; it has none of {', '.join(VOCABULARIES)}")
    return present


def check_largest(name: str, largest_id: int, num_embeddings: int) -> None:
    """Raise EncoderError if the largest id that a tokenizer gave has no embedding in the model.

    Args:
        name: the model's name, for the message.
        largest_id: the largest id that the tokenizer gave.
        num_embeddings: the number of token embeddings of the model.
    """
    if largest_id >= num_embeddings:
        raise EncoderError(
            f"{name}: its tokenizer gives id {largest_id:,}, but its model has {num_embeddings:,} embeddings: they do "
            "not belong together"
        )


def check_tokenizer(folder: Path, vocabulary: Mapping[str, int], num_embeddings: int) -> None:
    """Raise EncoderError if a tokenizer's number of tokens does not fit the model in the same folder.

    With n embeddings and t tokens, t must be at most n + SPARE, and n at most 2 t + SPARE, where SPARE is 1,024. The
    tokenizer of another model is not detected if its number of tokens is within these limits.

    Args:
        folder: the folder of the tokenizer, for the message.
        vocabulary: token -> id, for all tokens of the loaded tokenizer, added tokens included.
        num_embeddings: the number of rows of the model's input embeddings.
    """
    num_tokens = len({*vocabulary.values()})  # a special token that is read as text has two names
    if num_embeddings > 2 * num_tokens + SPARE or num_tokens > num_embeddings + SPARE:
        raise EncoderError(
            f"{folder}: its tokenizer has {num_tokens:,} tokens, and its model {num_embeddings:,} embeddings: they "
            f"do not belong together: {MEND}"
        )
