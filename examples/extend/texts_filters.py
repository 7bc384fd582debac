"""Filters of texts: a function, and a class with a version and reasons of its own. Apply them with

    clearspan documents --quality texts_filters:long_enough,texts_filters:Shouting ...

in the folder of this file. The manifest counts `long_enough_short` and `Shouting_loud`, and names both versions: an
edit of this file is another version of `long_enough`; `Shouting` says itself when it changes.
"""

LEAST = 2000
"""Fewest characters of a document."""


def long_enough(document):
    return len(document.text) >= LEAST or (False, "short")


class Shouting:
    """Remove lines in capitals; drop a document of which nothing is left."""

    version = 3
    reasons = ("loud",)

    def __call__(self, document):
        lines = document.text.split("\n")
        kept = [line for line in lines if not line.isupper()]
        document.text = "\n".join(kept)
        document.removed["capitals"] += len(lines) - len(kept)
        return bool(kept) or (False, "loud")
