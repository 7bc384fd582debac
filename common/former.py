"""Options, values and keys that were removed or changed their meaning: refused for one version, with the new word.

A user writes them as an option (`--name`), as an option and its value (`--name value`), or as a recipe key. The parser
of command lines, the options of Python and the reader of recipes look here before they report an unknown word.
"""

FORMER = {
    "--pooling cls": (
        "write pooler for [CLS] through the model's head, which cls meant until 0.1, or cls-before-head for [CLS] of "
        "the last layer, which cls will mean from 0.2 on, as model.pooling does"
    ),
}
"""What the user wrote -> advice, the end of the error line."""
RECORDED_POOLINGS = {"cls": "pooler"}
"""Name of a pooling, in the record of vectors that a version before 0.1 made -> the name of that pooling today. Remove
this table when `cls` gets its new meaning: in a record, `cls` would then be ambiguous.
"""


def advice(word: str) -> str:
    """Return the end of the error line about a removed option, value or key; "" for any other word."""
    return f": {FORMER[word]}" if word in FORMER else ""
