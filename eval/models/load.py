"""Load the model that `--model` names: a folder, a file of word vectors, or a Python function.

A Python function, named as `module:function`, maps a list of n texts to an array (n, dim). Each call gets texts of
similar length. Every result is checked, because a function under development may fail in the middle of a task. Its
embeddings are not cached on disk, because nothing identifies the version of the function.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearspan.common import plugins
from clearspan.common.compute import AUTO, resolve
from clearspan.common.encoder import folder
from clearspan.common.encoder.batching import batches_by_length
from clearspan.common.encoder.sentence_encoder import Encoder
from clearspan.common.hub import model_folder
from clearspan.common.model_folder import EncoderError, model_name
from clearspan.common.model_forms import model_value_error
from clearspan.common.progress import ProgressBar
from clearspan.common.terminal import UsageError, warn
from clearspan.common.typed import checked
from clearspan.eval.models.hybrid import hybrid_folder
from clearspan.eval.models.lexical import is_baseline

WORD_VECTORS = "clearspan.plugins.word_vectors:load_word_vectors"
"""The plug-in that loads a file of word vectors, as `module:function`."""
TRIAL = ["a text", "another text to try it on"]
_CHARACTERS = 4  # per token, roughly: the function's tokenizer is unknown


class FunctionEncoder(Encoder):
    """An encoder that calls a Python function.

    The constructor calls the function on two texts, to check it and to learn the dimension of its embeddings.

    Args:
        name: the name of the function, `module:function`.
        function: maps a list of n texts to an array (n, dim) of real numbers.

    Raises:
        EncoderError: the function raises an exception, or does not return such an array for the two texts.
    """

    fingerprint = None

    def __init__(self, name: str, function: Callable[[list[str]], Any]) -> None:
        self.name = name
        self._function = function
        self.dim = 0
        self.dim = self._call(TRIAL).shape[1]

    def encode_list(self, texts: list[str], batch_tokens: int, progress: bool) -> NDArray[np.float32]:
        """Return the embeddings of the texts, (len(texts), dim) float32.

        Args:
            batch_tokens: the most tokens in one call of the function, estimated from the lengths of the texts.
            progress: whether to show a progress bar.

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
    """Load a model that embeds texts.

    Args:
        spec: a folder, a file of word vectors, or, as `module:function`, a Python function that maps a list of n texts
            to an array (n, dim). If a file or folder of this name exists, it is loaded.
        pooling: the pooling for a plain Hugging Face folder, which does not define one: `mean`, `pooler` ([CLS] through
            the model's own head), `cls` ([CLS] of the last layer) or `first-last` (the mean over the tokens
            of the first and the last layer). None for the mean.
        precision: the precision of a folder's transformer, `fp32` or `bf16`; ignored for word vectors and functions.
        device: the torch device of a folder's model; ignored for word vectors and functions.

    Raises:
        EncoderError: `spec` names no usable model; or it names a baseline or a model combined with BM25, neither of
            which has embeddings; or `pooling` is given for a model that is not a plain Hugging Face folder.
    """
    path = Path(spec)
    if is_baseline(spec) or hybrid_folder(spec) is not None:
        kind = "a baseline that compares words" if is_baseline(spec) else "a model with BM25 that ranks documents"
        raise EncoderError(f"{spec}: {kind} and embeds no text; evaluate it with `model` {spec}")
    if problem := model_value_error(spec):
        raise EncoderError(f"{spec!r}: {problem}")
    if path.is_dir():
        return folder.load_folder(path, pooling, device, precision)
    if pooling:
        kind = "a file of word vectors" if path.is_file() else "no folder"
        raise EncoderError(f"{spec}: is {kind}, and `pooling` applies to plain Hugging Face folders only")
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


@checked
def load_model(
    model: str | Path, *, pooling: str | None = None, precision: str = "fp32", device: str | None = "auto"
) -> Encoder:
    """Load a model that embeds texts: `load_model(folder).encode(["A sentence."])` is an array (1, dim) float32.

    As in sentence-transformers, `encode_query` and `encode_document` put the model's prompts for queries and documents
    before the texts, and `encode` its default prompt; the argument `prompt_name` selects a different prompt.

    Args:
        model: a model folder, `hf:ORG/NAME[@REVISION]` for a model of the Hugging Face hub, which is fetched, a file of
            word vectors, or, as `module:function`, a Python function that maps a list of n texts to an array (n, dim).
        pooling: the pooling of a Hugging Face folder that does not define one: mean, cls, pooler or
            first-last; None for mean.
        precision: the precision of a transformer: fp32, bf16, or auto, which is bf16 if the device is fast in it, and
            otherwise fp32.
        device: such as `cpu` or `cuda:1`. With `auto` or None, a static model runs on the CPU, and any other model on
            the GPU if there is one.

    Raises:
        EncoderError: there is no usable model.
        UsageError: there is no such precision.
    """
    model = model_folder(str(model))
    try:
        compute = resolve(folder.device_of(Path(model), device or AUTO), precision)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if compute.message:
        warn(compute.message)
    return load_encoder(model, pooling, compute.precision, compute.device)


def default_name(spec: str) -> str:
    """Return the name of a model in results if the user gives it none.

    The name depends on the model that `spec`, a value of `--model`, refers to:

    folder          the name of the folder. If this is `model` or `run`, the name of the nearest parent folder that is
                    called otherwise. If the folder is in huggingface_hub's cache, the name of the model
    word vectors    the name of the file, without the extension .txt, .vec, .bin or .json
    function        `spec` itself
    baseline        `spec` itself
    hybrid          `hybrid-`, followed by the name of the model that is combined with BM25
    """
    path = Path(spec)
    if path.is_file():
        return path.stem if path.suffix.lower() in (".txt", ".vec", ".bin", ".json") else path.name
    if (encoder := hybrid_folder(spec)) is not None:
        return f"hybrid-{default_name(encoder)}"
    if is_baseline(spec) or (":" in spec and not path.exists()):
        return spec
    return model_name(path)
