"""Claim of an output folder: a file in the folder describes the run that writes there, so that no run overwrites the
output of another run.

    state of the folder                              what a run does
    missing or empty                                 starts
    holds the file with this run's description       continues: this run began or finished earlier
    holds the file of a run that wrote no output     removes that run's files, then starts
    holds the file of a run that wrote output        raises ClaimError, which names the differences
    holds only other files                           raises ClaimError, which names one of them

The content of the file is a JSON object. Files whose names begin with a dot are ignored. A run calls `claim` before it
changes anything in the folder.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from clearspan.common.flags import flag
from clearspan.shards import storage

MOST_SHOWN = 6
"""Number of differences that an error names, at most."""


class ClaimError(OSError):
    """The output folder belongs to another run, or holds other files. The message says which, and what to do."""


def claim(
    folder: str,
    name: str,
    content: bytes,
    files_to_remove: Callable[[str, bytes], Sequence[str]] = lambda folder, old: (),
) -> None:
    """Check that this run may write to a folder; remove the files of an earlier run that wrote no output.

    Args:
        name, content: name and content of the file that describes this run; the caller then writes the file.
        files_to_remove: function of the folder and of the content of another run's file. If that run wrote no output,
            it returns the names of that run's files in the order in which to remove them; otherwise an empty sequence.

    Raises:
        ClaimError: the folder holds another run's output, or other files.
    """
    path = storage.join(folder, name)
    if not storage.exists(path):
        others = [other for other in storage.tree(folder) if not other.startswith(".") and "/." not in other]
        if others:
            raise ClaimError(f"{folder}: holds other files ({others[0]}): choose a new or empty {flag('--output')}")
        return
    old = storage.read_bytes(path)
    if old == content:
        return
    if names := files_to_remove(folder, old):
        for other in names:
            storage.remove(storage.join(folder, *other.split("/")))
        return
    remedy = f"choose another {flag('--output')}, or delete {folder}"
    try:
        record = dict(json.loads(old))
        current = json.loads(content)
        lines = [line.removeprefix("fingerprint.") for line in differences(record, current)]
    except (ValueError, TypeError, RecursionError):
        raise ClaimError(f"{folder}: its {name} is not readable: {remedy}") from None
    if record.keys().isdisjoint(current):
        raise ClaimError(f"{folder}: holds other files ({name}): choose a new or empty {flag('--output')}")
    raise ClaimError(
        f"{folder} was begun with other inputs or options ({'; '.join(lines[:MOST_SHOWN]) or name}): {remedy}"
    )


def differences(old: Any, new: Any, prefix: str = "") -> list[str]:
    """Return the differences between two nested records, each as "field: OLD there, NEW now".

    If two lists differ, only their first pair of unequal items is compared. The result names an item by its field
    `name`, or by its index if it has no such field.

    Args:
        prefix: the path of the two records within larger records; "" at the top.
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
