"""Fingerprint of a model: a hash of everything that affects its embeddings.

It is the key of cached embeddings, and the hash by which a dataset of vectors names its model.

If an irrelevant file is hashed, a change of the file only costs a recomputation. If a relevant file were left out, a
change of it would give wrong scores. So all files of a folder are hashed, except files that are known to be irrelevant.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from clearspan.common.files import sha256
from clearspan.common.hub import is_cached, is_fetched
from clearspan.common.model_folder import read_modules

LIBRARIES = ("sentence-transformers", "tokenizers", "torch", "transformers")
TOKENIZATION = "2"
"""Version of the tokenization, increased when the ids of a text change (`common.fast_tokenizer`, `special_tokens`)."""
OTHERS = (".md", ".png", ".jpg", ".h5", ".msgpack", ".ot", ".onnx", ".tflite")
"""Suffixes of files that are not hashed: model cards, images, weights for other frameworks."""


def model_files(folder: Path) -> dict[str, str]:
    """Return the SHA-256, in hexadecimal, of each file that affects a model's embeddings, keyed by path in the folder.

    These are the files directly in the folder and all files in the folders of its sentence-transformers modules, but no
    hidden files and no files with a suffix in OTHERS, such as model cards and images. In the hub's cache, where another
    program may have fetched more of a model, only files that `common.hub` fetches count.

    Raises:
        EncoderError: the folder's list of modules, `modules.json`, cannot be read.
    """
    paths = {path for path in folder.iterdir() if path.is_file()}
    for module in read_modules(folder):
        if module.folder.resolve() != folder.resolve():
            paths |= {path for path in module.folder.rglob("*") if path.is_file()}
    relevant = sorted(path for path in paths if path.suffix.lower() not in OTHERS and not path.name.startswith("."))
    if is_cached(folder):
        relevant = [path for path in relevant if is_fetched(path.name)]
    return {str(path.relative_to(folder)): sha256(path) for path in relevant}


def model_sha256(folder: Path) -> str:
    """Return one SHA-256, in hexadecimal, over all files of a model folder that affect the model's embeddings.

    Raises:
        EncoderError: the folder's list of modules, `modules.json`, cannot be read.
    """
    return digest(files=model_files(folder))


def folder_fingerprint(folder: Path, settings: Mapping[str, str], libraries: Sequence[str] = LIBRARIES) -> str:
    """Return one SHA-256, in hexadecimal, over a model folder's files, some settings and the versions of libraries.

    The batch size is not included, although it affects the last digit of an embedding.

    Args:
        settings: settings that affect the embeddings and are not in the folder.
        libraries: names of the packages that compute the embeddings.

    Raises:
        EncoderError: the folder's list of modules, `modules.json`, cannot be read.
    """
    versions = {name: version(name) for name in libraries} | {"tokenization": TOKENIZATION}
    return digest(files=model_files(folder), settings=dict(settings), versions=versions)


def digest(**values: object) -> str:
    """Return one SHA-256, in hexadecimal, over named values that JSON can represent; their order has no effect."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode("ascii")).hexdigest()
