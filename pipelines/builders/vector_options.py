"""Texts of help, and checks, of the options of commands that embed texts with a model."""

import re
from pathlib import Path

from clearspan.common.compute import AUTO
from clearspan.common.model_folder import EncoderError
from clearspan.common.model_forms import NO_FOLDER, model_value_error

DEVICE = re.compile(r"auto|(cpu|cuda)((?<=cuda):\d+)?")
PROMPT = "name of the model's prompt before each {0}; none: no prompt (default: as encode_{1} chooses)"
MODEL = "local folder of a sentence-transformers or Hugging Face model"
BATCH = "maximum number of tokens of a batch (default: 1024 on a CPU, 65536 on a GPU, 16384 if it has less than 36 GiB)"


def check_device(device: str) -> str:
    """Return the type of a device: auto, cpu or cuda. For example, the type of cuda:1 is cuda.

    Args:
        device: the name of the device, as the user writes it.

    Raises:
        ValueError: the name is neither auto nor cpu nor cuda nor cuda with a number.
    """
    if not (match := DEVICE.fullmatch(device)):
        raise ValueError(f"`device` {device}: choose auto, cpu, cuda, or one GPU as cuda:1")
    return match[1] or AUTO


def check_folder(folder: str) -> None:
    """Raise EncoderError unless the path is an existing folder. The model in it is not read."""
    if problem := model_value_error(folder):
        raise EncoderError(f"`model` {folder!r}: {problem}")
    if not Path(folder).is_dir():
        raise EncoderError(f"`model` {folder}: {NO_FOLDER}")
