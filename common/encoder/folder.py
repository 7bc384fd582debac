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

    A static model on a CPU is loaded by `static`, which ignores `precision`; `library` loads any other model.

    Args:
        pooling, device, precision: see `load_with_library`.

    Raises:
        EncoderError: the folder is missing, incomplete or invalid.
    """
    if device == "cpu" and not pooling and static.reads(folder):
        return static.load_static(folder)
    from clearspan.common.encoder import library  # imports torch, which takes seconds

    return library.load_with_library(folder, pooling, device, precision)


def device_of(folder: Path, device: str) -> str:
    """Return `device`, or the CPU for a static model on `auto`, since copies to a GPU would take longer."""
    return "cpu" if device == AUTO and static.reads(folder) else device
