"""Prompts before the texts of a row: named prompts of the model whose tokenizer is used, or texts from the user.

    --tokenizer MODEL ──> the model's prompts ──┐
    --prompt-name NAMES ────────────────────────┼──> a prompt for each column ──> prompt + text -> token ids
    --prompt TEXT ──────────────────────────────┘

A prompt is tokenized together with its text, so that the ids are the same as when the model is used. A prompt affects
nothing else: example ids, deduplication and --exclude use only the text.
"""

import json

from clearspan.common.encoder.prompts import Prompts
from clearspan.common.errors import PipelineError
from clearspan.common.model_folder import INFERENCE, MEND, EncoderError
from clearspan.shards import storage

COLUMNS = ("tokens", "positive", "negative")


def model_prompts(folder: str) -> Prompts:
    """Return the prompts of the sentence-transformers model in a folder; no prompts if the folder holds no such model.

    Args:
        folder: a local folder, or one on an object store.

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
        return Prompts.from_settings(settings, path)
    except EncoderError as error:
        raise PipelineError(f"{error}: {MEND}") from None
    except (ValueError, RecursionError) as error:
        raise PipelineError(f"{path}: cannot be read as JSON ({error}): {MEND}") from None


def of_columns(prompts: tuple[str, ...]) -> dict[str, str]:
    """Return column -> prompt, for the columns that hold a row's texts: tokens, positive and negative.

    Args:
        prompts: the prompts of the first columns, in order. If there are fewer prompts than columns, the last prompt is
            also for the remaining columns. If there are none, each column has the prompt "".
    """
    given = (*prompts, *[prompts[-1]] * len(COLUMNS)) if prompts else ("",) * len(COLUMNS)
    return dict(zip(COLUMNS, given, strict=False))
