"""Load a model folder: a static model without torch, any other model with sentence-transformers."""

from pathlib import Path

from clearspan.common.compute import AUTO
from clearspan.common.encoder import static
from clearspan.common.encoder.sentence_encoder import FolderEncoder


def load_folder(
    folder: Path,
    pooling: str | None = None,
    device: str = "cpu",
    precision: str = "fp32",
) -> FolderEncoder:
    """Load a local folder of sentence-transformers, or a plain Hugging Face folder.

    A static model on a CPU is loaded by `common.encoder.static`, always in fp32; any other model is loaded by
    `common.encoder.library`.

    Args:
        pooling: the pooling for a plain Hugging Face folder, such as `cls` (all names are in
            `pooling_names.OF_PLAIN_FOLDER`); None for mean. It must be None for a sentence-transformers folder, which
            defines its own pooling.
        device: the device to load the model on, as torch names it.
        precision: fp32 or bf16, the precision of the transformer.

    Raises:
        EncoderError: the folder is missing, incomplete or invalid.
    """
    if device == "cpu" and not pooling and static.is_static_folder(folder):
        return static.load_static(folder)
    from clearspan.common.encoder import library  # imports torch, which takes seconds

    return library.load_with_library(folder, pooling, device, precision)


def device_of(folder: Path, device: str) -> str:
    """Return "cpu" if `device` is `auto` and the folder holds a static model; otherwise return `device` unchanged.

    For a static model, copies to a GPU would take longer than the computation.

    Args:
        device: a value of `--device`: `auto`, or a device as torch names it.
    """
    return "cpu" if device == AUTO and static.is_static_folder(folder) else device
