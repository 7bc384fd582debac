"""Which kind of model a `--model` names: a folder, a file of word vectors, or a Python function."""

from pathlib import Path

from clearspan.common.model_folder import EncoderError
from clearspan.eval.models.sentence_encoder import Encoder


def load(spec: str, pooling: str | None = None, dtype: str = "fp32", device: str = "cpu") -> Encoder:
    """The model that `spec` names.

    Args:
        spec: a folder; a file of word vectors; or `module:function`. What is there as a file or folder is that.
        pooling: of a plain Hugging Face folder, one of `eval.models.sentence_encoder.POOLINGS`; None: mean.
        dtype: fp32 or bf16, in which a folder's transformer runs; word vectors and functions are what they are.

    Raises:
        EncoderError: there is no usable model of that name.
    """

    path = Path(spec)
    if path.is_dir():
        from clearspan.eval.models import library  # and torch, which takes seconds

        return library.load(path, pooling, device, dtype)
    if pooling:
        kind = "a file of word vectors" if path.is_file() else "no folder"
        raise EncoderError(f"{spec}: is {kind}, and a pooling is of a plain Hugging Face folder")
    if path.is_file():
        from clearspan.eval.models import vectors

        return vectors.load(path)
    from clearspan.eval.models import function

    return function.load(spec)


def default_name(spec: str) -> str:
    """How results call a model.

    A folder by its name, or where that is `model`, as in a run's, by the folder's above it; a file of word vectors
    without its ending; a function as it was given.
    """
    path = Path(spec)
    if path.is_file():
        return path.stem if path.suffix.lower() in (".txt", ".vec", ".bin", ".json") else path.name
    if ":" in spec and not path.exists():
        return spec
    path = path.resolve()
    return path.parent.name if path.name == "model" and path.parent.name else path.name
