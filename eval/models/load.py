"""Which kind of model a `--model` names: a folder, a file of word vectors, or a Python function."""

from pathlib import Path

from eval.models.encoder import Encoder


def load(spec: str, pooling: str | None = None, dtype: str = "fp32", device: str = "cpu") -> Encoder:
    """The model that `spec` names.

    Args:
        spec: a folder; a file of word vectors; or `module:function`.
        pooling: of a plain Hugging Face folder: mean, cls, first-last or cls-before-head; None: mean.
        dtype: fp32 or bf16, in which a folder's model runs.

    Raises:
        EncoderError: there is no usable model of that name.
    """
    from eval.models import library

    return library.load(Path(spec), pooling, device)


def default_name(spec: str) -> str:
    """How results call a model: its folder's name, or where that is `model`, as in a run's, the folder above it."""
    path = Path(spec).resolve()
    return path.parent.name if path.name == "model" and path.parent.name else path.name
