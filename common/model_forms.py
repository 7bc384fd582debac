"""Forms of `--model` that one command takes in addition to a folder, and the advice of all other commands.

static:DIR   `clearspan adapt`: a static encoder that is made of the encoder in DIR
hybrid:DIR   `clearspan eval`: the model in DIR beside BM25
"""

from pathlib import Path

STATIC, HYBRID = "static:", "hybrid:"
ELSEWHERE = {
    STATIC: "`clearspan adapt` takes static:DIR: make the static encoder with `clearspan distill --model DIR --output "
    "NEW`, and name NEW",
    HYBRID: "`clearspan eval` takes hybrid:DIR: name DIR alone, and `clearspan search` ranks beside BM25 with --hybrid",
}
"""The advice of a command that does not take the form."""


def misnamed(spec: str, taken: str = "") -> str | None:
    """Return what is wrong with a model's form, and what to write instead; None if nothing is.

    Args:
        taken: the form that the command takes. An existing file or folder of that name takes precedence.
    """
    form = next((each for each in ELSEWHERE if spec.startswith(each)), "")
    inner = spec.removeprefix(form).strip()
    if not inner:
        return f"names no folder: write {form if form == taken else ''}DIR, the folder of a model"
    if Path(spec).exists() or not form:
        return None
    if form != taken:
        return ELSEWHERE[form]
    return f"write {form} once: {form}DIR" if inner.startswith(form) else misnamed(inner)
