"""Load a model folder with what it needs: a static model without torch, any other one with sentence-transformers."""

from pathlib import Path

from clearspan.common.compute import AUTO
from clearspan.common.encoder import static
from clearspan.common.encoder.sentence_encoder import FolderEncoder


def load(
    folder: Path,
    pooling: str | None = None,
    device: str = "cpu",
    precision: str = "fp32",
) -> FolderEncoder:
    """Load a local folder of sentence-transformers, or a plain Hugging Face folder.

    A static model on a CPU is loaded by `static`, where `precision` has no meaning; `library` loads any other one.

    Args:
        pooling, device, precision: as in `library.load`.

    Raises:
        EncoderError: the folder is missing, incomplete or invalid.
    """
    if device == "cpu" and not pooling and static.reads(folder):
        return static.load(folder)
    from clearspan.common.encoder import library  # imports torch, which takes seconds

    return library.load(folder, pooling, device, precision)


def device_of(folder: Path, device: str) -> str:
    """Return the device for a model: the CPU for a static one and `auto`, since copies to a GPU would take longer."""
    return "cpu" if device == AUTO and static.reads(folder) else device
