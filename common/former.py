"""Options, option values and recipe keys that were removed or changed their meaning, with advice on what to write.

A word is an option (`--name`), an option and its value (`--name value`), or a recipe key. In the first version after
the change, a word that was removed or changed its meaning is an error, whose message ends with this advice. The command
line, keyword arguments in Python and the recipe reader look a word up here before they report it as unknown.
"""

FORMER = {
    "--pooling cls": (
        "write pooler for [CLS] through the model's head (the meaning of cls until 0.1), or cls-before-head for [CLS] "
        "of the last layer (the meaning of cls from 0.2 on, as in model.pooling)"
    ),
}
"""The removed word -> advice, which ends the error message."""
RECORDED_POOLINGS = {"cls": "pooler"}
"""Name of a pooling in a dataset of vectors that a version before 0.1 made -> the name of the same pooling today.

Remove this table when `cls` gets its new meaning, because `cls` in the record of a dataset would then be ambiguous.
"""


def advice(word: str) -> str:
    """Return the advice at the end of the error message about a word, such as `: write x instead`.

    Args:
        word: an option (`--name`), an option with its value (`--name value`), or a recipe key.

    Returns:
        The advice if the word was removed or changed its meaning; otherwise "".
    """
    return f": {FORMER[word]}" if word in FORMER else ""
