"""Prefixes of `--model` that only one command accepts, and the error messages of all other commands.

    static:DIR   `clearspan adapt`: a static encoder that is distilled from the encoder in DIR
    hybrid:DIR   `clearspan eval`: the model in DIR combined with BM25

Every command takes `hf:ORG/NAME[@REVISION]` for DIR (`common.hub`), which is a folder when it is checked here.
Any other value, such as the folder of a model, is checked when the model is loaded.
"""

from pathlib import Path

from clearspan.common.model_folder import EncoderError

STATIC, HYBRID = "static:", "hybrid:"
NO_FOLDER = "no such folder: name a local folder with a model, or hf:ORG/NAME to fetch one from the Hugging Face hub"
"""Error message for a folder that does not exist."""


def _elsewhere(form: str) -> str:
    """Return the error message of a command that does not accept the prefix `form`, STATIC or HYBRID."""
    if form == STATIC:
        return (
            "`clearspan adapt` takes static:DIR: make the static encoder with `clearspan distill --model DIR --output "
            "NEW`, and name NEW"
        )
    return "`clearspan eval` takes hybrid:DIR: name DIR alone; `clearspan search --hybrid` ranks with BM25 as well"


def model_value_error(spec: str, accepted_form: str = "") -> str | None:
    """Return an error message if a `--model` value has a prefix that this command does not accept; otherwise None.

    It is also an error if the value is empty, consists only of a prefix, or has two prefixes. The path of an existing
    file or folder is no error, even if it begins with a prefix.

    Args:
        spec: the value of `--model`.
        accepted_form: the prefix that the command accepts, STATIC or HYBRID; "" if it accepts none.
    """
    form = next((form for form in (STATIC, HYBRID) if spec.startswith(form)), "")
    inner = spec.removeprefix(form).strip()
    if not inner:
        return f"names no folder: write {form if form == accepted_form else ''}DIR, the folder of a model"
    if Path(spec).exists() or not form:
        return None
    if form != accepted_form:
        return _elsewhere(form)
    return f"write {form} once: {form}DIR" if inner.startswith(form) else model_value_error(inner)


def check_folder(folder: str) -> None:
    """Raise EncoderError unless the path is an existing folder. The model in it is not read."""
    if problem := model_value_error(folder):
        raise EncoderError(f"`model` {folder!r}: {problem}")
    if not Path(folder).is_dir():
        raise EncoderError(f"`model` {folder}: {NO_FOLDER}")
