"""What a sentence-transformers folder asks of its model: pooling, normalising, length limit, lower-casing, prompt.

Each decides every embedding, so a setting of another type, or one that is not followed here, is an error and never a
default.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

MOST_BYTES = 1 << 24
"""Of one JSON file of settings."""
MOST_SAID = 300
"""Characters of a library's message, which may be pages, at the end of one of ours."""
SETTINGS = [
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
]
"""The names that sentence-transformers has had for one file; the first that is there counts."""


class EncoderError(ValueError):
    """A folder or configuration that gives no usable encoder. The message says why and what to do."""


@dataclasses.dataclass
class Settings:
    """How a folder's model makes embeddings: `limit` in tokens (None: the model's), `prefix` before every text."""

    weights: Path
    pooling: str = "mean"
    normalize: bool = False
    limit: int | None = None
    lower: bool = False
    prefix: str = ""


def read_settings(folder: Path) -> Settings:
    """The settings of a sentence-transformers folder; those of a plain HF folder are the defaults.

    Raises:
        EncoderError: a file is not what sentence-transformers writes, or asks for what is not supported.
    """
    settings = Settings(folder)
    if (folder / "modules.json").is_file():
        _read_modules(folder, settings)
        _read_limits(settings)
        settings.prefix = _default_prompt(folder / "config_sentence_transformers.json")
    return settings


def read_json(path: Path, shape: type = dict) -> Any:
    """The content of a JSON file of settings.

    Raises:
        EncoderError: it cannot be read, or holds something else than a `shape`.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise EncoderError(f"{path}: more than {MOST_BYTES:,} bytes, which is no file of settings")
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EncoderError(f"{path}: cannot be read ({error.strerror})") from None
    except RecursionError:
        raise EncoderError(f"{path}: cannot be read as JSON (nested too deep)") from None
    except EncoderError:
        raise
    except ValueError as error:
        raise EncoderError(f"{path}: cannot be read as JSON ({error})") from None
    if not isinstance(content, shape):
        raise EncoderError(f"{path}: holds a {type(content).__name__}, expected a {shape.__name__}")
    return content


def some(names: list[str]) -> str:
    """The first names of a list, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")


def _read_modules(folder: Path, settings: Settings) -> None:
    path = folder / "modules.json"
    modules = read_json(path, list)
    if not modules or not all(isinstance(m, dict) and {"type", "path"} <= m.keys() for m in modules):
        raise EncoderError(f"{path}: expected a list of modules, each with type and path")
    if not all(isinstance(module[key], str) for module in modules for key in ("type", "path")):
        raise EncoderError(f"{path}: a module's type and path must be strings")
    for module in modules:
        name = module["type"].rsplit(".", 1)[-1]
        if not module["type"].startswith("sentence_transformers."):
            raise EncoderError(f"{path}: the module {module['type']!r} is code of the folder's own, which is never run")
        if name == "Transformer":
            settings.weights = folder / module["path"]
        elif name == "Pooling":
            settings.pooling = _pooling(folder / module["path"] / "config.json")
        elif name == "Normalize":
            settings.normalize = True
        else:
            raise EncoderError(f"{folder}: the module {name} is not supported, only pooling and normalising")


def _pooling(path: Path) -> str:
    settings = read_json(path)
    named = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    on = [key for key, value in settings.items() if key.startswith("pooling_mode_") and value is True]
    chosen = [settings["pooling_mode"]] if "pooling_mode" in settings else [named.get(key, key) for key in on]
    if chosen not in (["mean"], ["cls"]):
        found = "+".join(map(str, chosen)) or "none"
        raise EncoderError(f"{path}: pooling {found} is not supported, only mean and cls")
    if settings.get("include_prompt") is False:
        raise EncoderError(f"{path}: pooling without the prompt is not supported")
    return str(chosen[0])


def _read_limits(settings: Settings) -> None:
    path = next((path for name in SETTINGS if (path := settings.weights / name).is_file()), None)
    found = read_json(path) if path else {}
    limit, lower = found.get("max_seq_length"), found.get("do_lower_case")
    if limit is not None and (type(limit) is not int or limit < 1):
        raise EncoderError(f"{path}: max_seq_length must be a number of tokens above 0, found {limit!r}")
    if lower is not None and type(lower) is not bool:
        raise EncoderError(f"{path}: do_lower_case must be true or false, found {lower!r}")
    settings.limit, settings.lower = limit, bool(lower)


def _default_prompt(path: Path) -> str:
    found = read_json(path) if path.is_file() else {}
    prompts, name = found.get("prompts") or {}, found.get("default_prompt_name")
    if name is None:
        return ""
    if not isinstance(prompts, dict) or not isinstance(name, str) or name not in prompts:
        raise EncoderError(f"{path}: default_prompt_name {name!r} is not among its prompts")
    prompt = prompts[name]
    if not isinstance(prompt, str) or any("\ud800" <= character <= "\udfff" for character in prompt):
        raise EncoderError(f"{path}: the prompt {name!r} must be a text, found {prompt!r}")
    return prompt
