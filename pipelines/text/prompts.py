"""Prompts before the texts of a row: named prompts of the model whose tokenizer is used, or texts from the user.

    --tokenizer MODEL ──> the model's prompts ──┐
    --prompt-name NAMES ────────────────────────┼──> a prompt for each column ──> prompt + text -> token ids
    --prompt TEXT ──────────────────────────────┘

A prompt is tokenized together with its text, so that the ids are those that the model sees later. It affects nothing
else: example ids, deduplication and --exclude use the text alone.
"""

import json

from clearspan.common.encoder.prompts import Prompts
from clearspan.common.model_folder import INFERENCE, MEND, EncoderError
from clearspan.pipelines.errors import PipelineError
from clearspan.shards import storage

COLUMNS = ("tokens", "positive", "negative")


def model_prompts(folder: str) -> Prompts:
    """Return the prompts in a model's folder, on this machine or on an object store; none if it is not such a folder.

    Raises:
        PipelineError: the settings of the model cannot be read.
    """
    names = storage.file_sizes(folder)
    if not {"modules.json", INFERENCE} <= names.keys():
        return Prompts()
    path = storage.join(folder, INFERENCE)
    try:
        settings = json.loads(storage.read_bytes(path))
        if not isinstance(settings, dict):
            raise ValueError(f"a {type(settings).__name__}, not an object")
        return Prompts.of(settings, path)
    except EncoderError as error:
        raise PipelineError(f"{error}: {MEND}") from None
    except (ValueError, RecursionError) as error:
        raise PipelineError(f"{path}: cannot be read as JSON ({error}): {MEND}") from None


def of_columns(prompts: tuple[str, ...]) -> dict[str, str]:
    """Return the prompt of each column: the prompts in order, and the last one for all columns after it."""
    given = (*prompts, *[prompts[-1]] * len(COLUMNS)) if prompts else ("",) * len(COLUMNS)
    return dict(zip(COLUMNS, given, strict=False))
