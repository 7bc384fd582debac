"""A Python function as an encoder: `module:function`, of a list of n texts, that gives an array (n, dim).

It is called with texts of like length at once. What it gives is checked each time: an encoder under development goes
wrong in the middle of a task, not on the first text. Nothing of it is kept on disk, for what it does cannot be known.
"""

import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from clearspan.common.model_folder import EncoderError
from clearspan.common.terminal import MOST_SAID, one_line
from clearspan.eval.models.embed import batches_by_length

TRIAL = ["a text", "another text to try it on"]
_CHARACTERS = 4  # of a token, about: how long a text is, without the function's tokenizer


class FunctionEncoder:
    """Texts to embeddings. Attributes: `name`, `module:function`; `dim`, as found on two texts; `folder`, None."""

    folder = None
    fingerprint = None

    def __init__(self, name: str, function: Callable[[list[str]], Any]) -> None:
        self.name, self._function = name, function
        self.dim = 0
        self.dim = self._call(TRIAL).shape[1]

    def encode(self, texts: Sequence[str], batch_tokens: int = 16384, progress: bool = False) -> NDArray[np.float32]:
        """Embeddings in the order of the texts: (len(texts), dim) float32.

        Raises:
            EncoderError: the function raises, or gives something else than an array (n, dim) of real numbers.
        """
        out = np.empty((len(texts), self.dim), np.float32)
        lengths = [1 + len(text) // _CHARACTERS for text in texts]
        with tqdm(total=len(texts), unit="text", desc="encode", disable=None if progress else True) as bar:
            for rows in batches_by_length(lengths, batch_tokens):
                out[rows] = self._call([texts[row] for row in rows])
                bar.update(len(rows))
        return out

    def _call(self, texts: list[str]) -> NDArray[np.float32]:
        number = len(texts)
        try:
            found = self._function(list(texts))
        except (Exception, SystemExit) as error:  # another's code, which raises what it likes
            raise EncoderError(f"{self.name}: raised {_what(error)} on {number} texts") from None
        wanted = f"expected an array ({number}, {self.dim or 'dim'}) of real numbers for {number} texts"
        try:
            array = _array(found)
        except Exception:  # of rows of different lengths, say
            raise EncoderError(f"{self.name}: gave a {type(found).__name__} that is no array: {wanted}") from None
        if array.dtype.kind not in "fiu":
            raise EncoderError(f"{self.name}: gave a {type(found).__name__} of {array.dtype}: {wanted}")
        if array.ndim != 2 or len(array) != number or not array.shape[1] or self.dim not in (0, array.shape[1]):
            raise EncoderError(f"{self.name}: gave an array of shape {array.shape}: {wanted}")
        with np.errstate(over="ignore"):  # an infinity is counted where embeddings are
            return array.astype(np.float32)


def load(spec: str) -> FunctionEncoder:
    """The function that `module:function` names; the module is looked for where Python looks, and in this folder.

    Raises:
        EncoderError: there is no such function, or on two short texts it does not do what an encoder does.
    """
    module_name, _, path = spec.partition(":")
    if not path or not all(part.isidentifier() for part in [*module_name.split("."), *path.split(".")]):
        raise EncoderError(f"{spec}: no such folder or file, nor a Python function as module:function")
    here = str(Path.cwd())
    if not {"", here} & set(sys.path):  # `python -m` looks here, an installed command does not
        sys.path.append(here)
    try:
        found = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # of the module's own code
        raise EncoderError(f"{spec}: the module {module_name} cannot be imported ({_what(error)})") from None
    for name in path.split("."):
        if not hasattr(found, name):
            raise EncoderError(f"{spec}: {found.__name__} has no {name!r}")
        found = getattr(found, name)
    if not callable(found):
        raise EncoderError(f"{spec}: is a {type(found).__name__}, not a function of a list of texts")
    return FunctionEncoder(spec, found)


def _array(found: Any) -> NDArray[Any]:
    import torch

    if isinstance(found, (list, tuple)) and found and all(isinstance(row, torch.Tensor) for row in found):
        found = torch.stack(list(found))
    if isinstance(found, torch.Tensor):
        found = found.detach().cpu()
        # numpy has no bfloat16.
        return (found.float() if found.is_floating_point() else found).numpy()
    return np.asarray(found)


def _what(error: BaseException) -> str:
    return f"{type(error).__name__}: {one_line(error, MOST_SAID)}"
