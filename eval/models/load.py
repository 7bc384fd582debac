"""Load the model that `--model` names: a folder, a file of word vectors, or a Python function.

A function, `module:function`, maps a list of n texts to an array (n, dim). Each call gets texts of similar length.
Every result is checked, since a function under development may fail in the middle of a task. Its embeddings are not
cached on disk, since nothing identifies the function's version.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearspan.common import plugins
from clearspan.common.encoder import folder
from clearspan.common.encoder.batching import batches_by_length
from clearspan.common.encoder.sentence_encoder import Encoder
from clearspan.common.model_folder import EncoderError, model_name
from clearspan.common.model_forms import misnamed
from clearspan.common.progress import ProgressBar
from clearspan.eval.models.hybrid import encoder_of
from clearspan.eval.models.lexical import is_baseline

WORD_VECTORS = "clearspan.plugins.word_vectors:load_word_vectors"
"""The plug-in that reads files of word vectors."""
TRIAL = ["a text", "another text to try it on"]
_CHARACTERS = 4  # per token, roughly: the function's tokenizer is unknown


class FunctionEncoder(Encoder):
    """An encoder that calls a Python function.

    Args:
        name: the function's spec, `module:function`.
        function: maps a list of n texts to an array (n, dim); `dim` is measured on two texts.

    Raises:
        EncoderError: the function fails on the two texts.
    """

    fingerprint = None

    def __init__(self, name: str, function: Callable[[list[str]], Any]) -> None:
        self.name = name
        self._function = function
        self.dim = 0
        self.dim = self._call(TRIAL).shape[1]

    def encode_list(self, texts: list[str], batch_tokens: int, progress: bool) -> NDArray[np.float32]:
        """Return the embeddings of texts.

        Raises:
            EncoderError: the function raises an exception, or does not return an array (n, dim) of real numbers.
        """
        out = np.empty((len(texts), self.dim), np.float32)
        lengths = [1 + len(text) // _CHARACTERS for text in texts]
        with ProgressBar(sum(lengths), f"embedding {len(texts):,} texts", not progress, unit=" tokens") as bar:
            for rows in batches_by_length(lengths, batch_tokens):
                out[rows] = self._call([texts[row] for row in rows])
                bar.update(sum(lengths[row] for row in rows))
        return out

    def _call(self, texts: list[str]) -> NDArray[np.float32]:
        num_texts = len(texts)
        try:
            result = self._function(list(texts))
        except (Exception, SystemExit) as error:  # the user's code may raise anything
            raise EncoderError(f"{self.name}: raised {plugins.cause(error)} on {num_texts} texts") from None
        try:
            array = _array(result)
        except Exception:  # e.g. rows of different lengths
            array = np.empty(0, object)
        is_matrix = array.ndim == 2 and len(array) == num_texts and array.shape[1] > 0
        if array.dtype.kind not in "fiu" or not is_matrix or self.dim not in (0, array.shape[1]):
            raise EncoderError(
                f"{self.name}: returned a {type(result).__name__} of {array.dtype} {array.shape}: expected an array "
                f"({num_texts}, {self.dim or 'dim'}) of real numbers for {num_texts} texts"
            )
        with np.errstate(over="ignore"):  # Embedder counts infinities
            return array.astype(np.float32)


def _array(rows: Any) -> NDArray[Any]:
    import torch

    if isinstance(rows, (list, tuple)) and rows and all(isinstance(row, torch.Tensor) for row in rows):
        rows = torch.stack(list(rows))
    if isinstance(rows, torch.Tensor):
        rows = rows.detach().cpu()
        rows = (rows.float() if rows.is_floating_point() else rows).numpy()  # numpy has no bfloat16
    return np.asarray(rows)


def load_encoder(spec: str, pooling: str | None = None, precision: str = "fp32", device: str = "cpu") -> Encoder:
    """Load a model.

    Args:
        spec: a folder, a file of word vectors, or `module:function`. An existing file or folder takes precedence.
        pooling: the pooling of a plain Hugging Face folder, one of `OF_PLAIN_FOLDER` of `common.encoder.pooling_names`;
            None: mean.
        precision: fp32 or bf16, the precision of a folder's transformer; ignored for word vectors and functions.

    Raises:
        EncoderError: the spec names no usable model, or a baseline or a hybrid, which have no embeddings.
    """
    path = Path(spec)
    if is_baseline(spec) or encoder_of(spec) is not None:
        kind = "a baseline that compares words" if is_baseline(spec) else "a model beside BM25 that ranks documents"
        raise EncoderError(f"{spec}: {kind} and embeds no text; evaluate it with --model {spec}")
    if problem := misnamed(spec):
        raise EncoderError(f"{spec!r}: {problem}")
    if path.is_dir():
        return folder.load_folder(path, pooling, device, precision)
    if pooling:
        kind = "a file of word vectors" if path.is_file() else "no folder"
        raise EncoderError(f"{spec}: is {kind}, and --pooling applies to plain Hugging Face folders only")
    if path.is_file():
        open_vectors = plugins.load_function(WORD_VECTORS, "a function of the path of a file of word vectors")
        encoder: Encoder = open_vectors(path)
        return encoder
    if not plugins.is_spec(spec):
        raise EncoderError(f"{spec}: no such folder or file, nor a Python function as module:function")
    try:
        return FunctionEncoder(spec, plugins.load_function(spec, "a function of a list of texts"))
    except plugins.PluginError as error:
        raise EncoderError(str(error)) from None


def default_name(spec: str) -> str:
    """Return the default name of a model in results.

    A folder has the name of `common.model_folder.model_name`; a file of word vectors has its name without the
    extension; a function or a baseline has its spec; the name of a hybrid is `hybrid-` and its model's name.
    """
    path = Path(spec)
    if path.is_file():
        return path.stem if path.suffix.lower() in (".txt", ".vec", ".bin", ".json") else path.name
    if (encoder := encoder_of(spec)) is not None:
        return f"hybrid-{default_name(encoder)}"
    if is_baseline(spec) or (":" in spec and not path.exists()):
        return spec
    return model_name(path)
