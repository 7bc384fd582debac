"""Functions for the model that makes the vectors of a dataset: compute the hash of its files, and load it."""

from pathlib import Path

from clearspan.common.compute import AUTO, resolve_device
from clearspan.common.encoder import static
from clearspan.common.encoder.fingerprint import model_sha256
from clearspan.common.encoder.folder import load_folder
from clearspan.common.encoder.sentence_encoder import FolderEncoder
from clearspan.common.errors import PipelineError, check_extra
from clearspan.common.hub import reference
from clearspan.common.model_folder import EncoderError
from clearspan.common.model_forms import check_folder
from clearspan.common.terminal import one_line


def model_hash(folder: str) -> str:
    """Return the hash of all files of a model folder that affect its embeddings.

    Raises:
        EncoderError: there is no such folder, or its list of modules cannot be read.
    """
    check_folder(folder)
    return model_sha256(Path(folder))


def load_model(folder: str, sha256: str, pooling: str | None, device: str, precision: str) -> FolderEncoder:
    """Load the model in a folder, after checking that the hash of its files is `sha256`.

    Args:
        pooling: the pooling to use; None for the pooling of the model.
        device: the device of the model, such as "cuda" or "cpu".
        precision: the precision of the transformer, fp32 or bf16.

    Raises:
        PipelineError: the model cannot be loaded, or has a different hash; the message says why.
    """
    try:
        if model_hash(folder) != sha256:
            raise PipelineError(
                f"`model` {reference(folder)}: not the model that made these vectors: its files are different or have "
                "changed"
            )
        if device != "cpu" or not static.is_static_folder(Path(folder)):
            check_extra("embed", "torch", "sentence_transformers", feature="embedding")
        if device != "cpu" and resolve_device(AUTO) == "cpu":
            raise PipelineError(f"`device` {device}: this machine has no GPU: compute on the CPU with `device` cpu")
        return load_folder(Path(folder), pooling, device, precision)
    except EncoderError as error:
        raise PipelineError(one_line(error)) from None
