"""Load the model that `--model` names: a folder, a file of word vectors, or a Python function."""

from pathlib import Path

from clearspan.common import plugins
from clearspan.common.encoder import folder
from clearspan.common.encoder.sentence_encoder import Encoder
from clearspan.common.model_folder import EncoderError
from clearspan.eval.models.lexical import encoder_of, is_baseline

WORD_VECTORS = "clearspan.plugins.word_vectors:load"
"""The part that reads files of word vectors."""


def load(spec: str, pooling: str | None = None, precision: str = "fp32", device: str = "cpu") -> Encoder:
    """Load a model.

    Args:
        spec: a folder, a file of word vectors, or `module:function`. An existing file or folder takes precedence.
        pooling: pooling of a plain Hugging Face folder, one of `common.encoder.sentence_encoder.POOLINGS`; None: mean.
        precision: fp32 or bf16, the precision of a folder's transformer; ignored for word vectors and functions.

    Raises:
        EncoderError: the spec names no usable model, or a baseline or a hybrid, which have no embeddings.
    """
    path = Path(spec)
    if is_baseline(spec) or encoder_of(spec) is not None:
        kind = "a baseline that compares words" if is_baseline(spec) else "a model beside BM25 that ranks documents"
        raise EncoderError(f"{spec}: {kind} and embeds no text; evaluate it with --model {spec}")
    if path.is_dir():
        return folder.load(path, pooling, device, precision)
    if pooling:
        kind = "a file of word vectors" if path.is_file() else "no folder"
        raise EncoderError(f"{spec}: is {kind}, and --pooling applies to plain Hugging Face folders only")
    if path.is_file():
        open_vectors = plugins.load_function(WORD_VECTORS, "a function of the path of a file of word vectors")
        encoder: Encoder = open_vectors(path)
        return encoder
    from clearspan.eval.models import function

    return function.load(spec)


def default_name(spec: str) -> str:
    """Return the default name of a model in results.

    A folder has its own name, or its parent's if it is called `model`, as in a run folder; a file of word vectors has
    its name without the extension; a function or a baseline has its spec; a hybrid `hybrid-` before its model's name.
    """
    path = Path(spec)
    if path.is_file():
        return path.stem if path.suffix.lower() in (".txt", ".vec", ".bin", ".json") else path.name
    if (encoder := encoder_of(spec)) is not None:
        return f"hybrid-{default_name(encoder)}"
    if is_baseline(spec) or (":" in spec and not path.exists()):
        return spec
    path = path.resolve()
    return path.parent.name if path.name == "model" and path.parent.name else path.name
