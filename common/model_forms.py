"""Forms of `--model`, other than a folder, that only one command accepts, and the messages of all other commands.

static:DIR   `clearspan adapt`: a static encoder that is distilled from the encoder in DIR
hybrid:DIR   `clearspan eval`: the model in DIR combined with BM25
"""

from pathlib import Path

from clearspan.common.flags import flag

STATIC, HYBRID = "static:", "hybrid:"


def _elsewhere(form: str) -> str:
    """Return the message of a command that does not accept a form."""
    if form == STATIC:
        return (
            "`clearspan adapt` takes static:DIR: make the static encoder with `clearspan distill --model DIR --output "
            "NEW`, and name NEW"
        )
    return (
        "`clearspan eval` takes hybrid:DIR: name DIR alone, and `clearspan search` ranks beside BM25 with "
        f"{flag('--hybrid')}"
    )


def misnamed(spec: str, taken: str = "") -> str | None:
    """Return an error message for a `--model` value that this command does not accept; None if it accepts the value.

    A form is a value with a prefix, such as `static:DIR`. If a file or folder of this name exists, it is a path.

    Args:
        taken: the form that the command accepts; "" for none.
    """
    form = next((form for form in (STATIC, HYBRID) if spec.startswith(form)), "")
    inner = spec.removeprefix(form).strip()
    if not inner:
        return f"names no folder: write {form if form == taken else ''}DIR, the folder of a model"
    if Path(spec).exists() or not form:
        return None
    if form != taken:
        return _elsewhere(form)
    return f"write {form} once: {form}DIR" if inner.startswith(form) else misnamed(inner)
