"""Claim of an output folder: a file in it says what made it, so that no run continues or overwrites another's work.

    the folder is missing or empty      free
    it holds this file                  this run's own, begun or finished
    it holds the file of a run that came to nothing, and nothing else      emptied, and free
    it holds the file with another content, or other files without it      ClaimError, which says what differs

The content is a JSON object. Names that begin with a dot are ignored. A run writes to a folder, and removes from it,
only after its claim.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from clearspan.shards import storage

MOST_SHOWN = 6
"""Most differences that an error names."""


class ClaimError(OSError):
    """The output folder holds something else. The message says what, and what to do."""


def claim(
    folder: str, name: str, content: bytes, fruitless: Callable[[str, bytes], Sequence[str]] = lambda folder, old: ()
) -> None:
    """Make sure that a folder may be written to by the run that the file `name` with this content describes.

    Args:
        fruitless: function of the folder and another run's content of the file. If that run came to nothing, it returns
            all of its files, in the order in which they are removed; else none.

    Raises:
        ClaimError: it holds another run's output, or files of other origin.
    """
    path = storage.join(folder, name)
    if not storage.exists(path):
        others = [other for other in storage.tree(folder) if not other.startswith(".") and "/." not in other]
        if others:
            raise ClaimError(f"{folder}: holds other files ({others[0]}): choose a new or empty --output")
        return
    old = storage.read_bytes(path)
    if old == content:
        return
    if names := fruitless(folder, old):
        for other in names:
            storage.remove(storage.join(folder, *other.split("/")))
        return
    remedy = f"choose another --output, or delete {folder}"
    try:
        record, current = dict(json.loads(old)), json.loads(content)
        lines = [line.removeprefix("fingerprint.") for line in differences(record, current)]
    except (ValueError, TypeError, RecursionError):
        raise ClaimError(f"{folder}: its {name} is not readable: {remedy}") from None
    if record.keys().isdisjoint(current):
        raise ClaimError(f"{folder}: holds other files ({name}): choose a new or empty --output")
    raise ClaimError(
        f"{folder} was begun with other inputs or options ({'; '.join(lines[:MOST_SHOWN]) or name}): {remedy}"
    )


def differences(old: Any, new: Any, prefix: str = "") -> list[str]:
    """Return the differences of two nested records, each as "field: old there, new now"; of lists only the first.

    An item of a list is called by its `name`, if it has one, else by its number.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [*old, *(key for key in new if key not in old)]
        nested = (differences(old.get(key), new.get(key), f"{prefix}.{key}" if prefix else key) for key in keys)
        return [line for lines in nested for line in lines]
    if isinstance(old, list) and isinstance(new, list):
        for number, (first, second) in enumerate(zip(old, new, strict=False)):
            if first != second:
                name = first.get("name", number) if isinstance(first, dict) else number
                if isinstance(first, dict) and isinstance(second, dict) and second.get("name", number) != name:
                    return [f"{prefix}: {name} there, {second['name']} now"]
                return differences(first, second, f"{prefix}[{name}]")
    return [] if old == new else [f"{prefix}: {_short(old)} there, {_short(new)} now"]


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 24 else f"{text[:16]}..."
