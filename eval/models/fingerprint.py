"""A name for whatever decides an embedding, so that one kept on disk is only read again where it would come out again.

What is hashed and does not matter costs an embedding made anew; what matters and is not hashed would give wrong scores.
So of a folder every file counts but those that are known to be for something else.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from clearspan.common.files import sha256

LIBRARIES = ("sentence-transformers", "tokenizers", "torch", "transformers")
OTHERS = (".md", ".png", ".jpg", ".h5", ".msgpack", ".ot", ".onnx", ".tflite")
"""Endings of what lies beside a model: its card and pictures, its weights for other frameworks."""


def folder_fingerprint(folder: Path, modules: Sequence[Path], settings: Mapping[str, str]) -> str:
    """SHA-256, in hexadecimal, of a model folder's files by name, of settings, and of the libraries' versions.

    The files are those right in the folder and all in the folders of its modules. Not in it: how many texts make a
    batch, which moves the last digit of an embedding.
    """
    paths = {path for path in folder.iterdir() if path.is_file()}
    for module in modules:
        if module.resolve() != folder.resolve():
            paths |= {path for path in module.rglob("*") if path.is_file()}
    kept = sorted(path for path in paths if path.suffix.lower() not in OTHERS and not path.name.startswith("."))
    files = {str(path.relative_to(folder)): sha256(path) for path in kept}
    return digest(files=files, settings=dict(settings), versions={name: version(name) for name in LIBRARIES})


def digest(**what: object) -> str:
    """SHA-256 of what JSON can hold, the same whatever the order of its keys."""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode("ascii")).hexdigest()
