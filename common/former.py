"""Options, option values and recipe keys that were removed or changed their meaning, with advice on what to write.

A word is an option (`--name`), an option and its value (`--name value`), or a recipe key. In the first version after
the change, a word that was removed or changed its meaning is an error, whose message ends with this advice. The command
line, keyword arguments in Python and the recipe reader look a word up here before they report it as unknown.
"""

FORMER = {
    "--pooling cls-before-head": "write cls, which is the first token's state everywhere, as in model.pooling",
}
"""The removed word -> advice, which ends the error message."""


def advice(word: str) -> str:
    """Return the advice at the end of the error message about a word, such as `: write x instead`.

    Args:
        word: an option (`--name`), an option with its value (`--name value`), or a recipe key.

    Returns:
        The advice if the word was removed or changed its meaning; otherwise "".
    """
    return f": {FORMER[word]}" if word in FORMER else ""
