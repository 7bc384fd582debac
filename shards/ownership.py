"""Ownership of an output folder: a file in the folder describes the run that writes there.

So no run overwrites the output of another run.

    state of the folder                              what a run does
    missing or empty                                 starts
    holds the file with this run's description       continues: this run began or finished earlier
    holds the file of a run that wrote no output     removes that run's files, then starts
    holds the file of a run that wrote output        raises OwnershipError, which names the differences
    holds only other files                           raises OwnershipError, which names one of them

The content of the file is a JSON object. Files whose names begin with a dot are ignored. A run calls `check_ownership`
before it changes anything in the folder.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from clearspan.shards import storage

MAX_SHOWN = 6
"""Number of differences that an error names, at most."""


class OwnershipError(OSError):
    """The output folder belongs to another run, or holds other files. The message says which, and what to do."""


def check_ownership(
    folder: str,
    name: str,
    content: bytes,
    files_to_remove: Callable[[str, bytes], Sequence[str]] = lambda folder, old: (),
) -> None:
    """Check that this run may write to a folder. If an earlier run wrote no output there, remove that run's files.

    Args:
        name: name of the file that describes the run to which the folder belongs.
        content: content of this file for this run, a JSON object. The caller writes the file after this call.
        files_to_remove: function that is called with the folder and the content of the file, if another run wrote it.
            If that run wrote no output, the function returns the paths of all files of that run, relative to the folder
            and in the order in which to remove them; otherwise it returns an empty sequence. By default, no file is
            removed.

    Raises:
        OwnershipError: the folder holds another run's output, or other files.
    """
    path = storage.join(folder, name)
    if not storage.exists(path):
        others = [other for other in storage.tree(folder) if not other.startswith(".") and "/." not in other]
        if others:
            raise OwnershipError(f"{folder}: holds other files ({others[0]}): choose a new or empty `output`")
        return
    old = storage.read_bytes(path)
    if old == content:
        return
    if names := files_to_remove(folder, old):
        storage.remove_files(folder, names)
        return
    remedy = f"choose another `output`, or delete {folder}"
    try:
        record = dict(json.loads(old))
        current = json.loads(content)
        lines = [line.removeprefix("fingerprint.") for line in differences(record, current)]
    except (ValueError, TypeError, RecursionError):
        raise OwnershipError(f"{folder}: its {name} is not readable: {remedy}") from None
    if record.keys().isdisjoint(current):
        raise OwnershipError(f"{folder}: holds other files ({name}): choose a new or empty `output`")
    raise OwnershipError(
        f"{folder} was begun with other inputs or options ({'; '.join(lines[:MAX_SHOWN]) or name}): {remedy}"
    )


def differences(old: Any, new: Any, prefix: str = "") -> list[str]:
    """Return the differences between two nested JSON values, each as "FIELD: OLD there, NEW now".

    FIELD is the path of a field, e.g. `options.seed`; OLD and NEW are its values in `old` and in `new`, shortened if
    they are long. If two lists differ, only their first pair of unequal items is compared, or the whole lists if one is
    the beginning of the other. An item's place in the path is its field `name`, or its index if it has no such field.

    Args:
        prefix: the beginning of every FIELD: the path of `old` and `new` in the larger JSON values that hold them; ""
            if there are none.
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
