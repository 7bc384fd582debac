"""The classes of a dataset's examples: their names, beside the shards, and how many examples each has."""

import json
from collections.abc import Mapping, Sequence

from clearspan.common import terminal
from clearspan.shards.manifest import FILES_FOLDER, Manifest, ManifestError
from clearspan.shards.reader import read_resource

NAME = "classes.json"
PATH = f"{FILES_FOLDER}/{NAME}"
SHOWN = 5


def names(folder: str, manifest: Manifest) -> list[str]:
    """The name of each class, at the place of its number; empty for a dataset without classes.

    Raises:
        ShardError: the table is missing or damaged.
        ManifestError: it is not a list of distinct names, or the shards have a class without one.
    """
    if PATH not in manifest.resources:
        return []
    data = read_resource(folder, PATH, manifest.resources[PATH])
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found) or len({*found}) < len(found):
        raise ManifestError(f"{folder}/{PATH}: not a list of names, each once: run the pipeline again")
    numbers = manifest.classes
    if numbers and not 0 <= min(numbers) <= max(numbers) < len(found):
        held = f"{min(numbers)} to {max(numbers)}"
        raise ManifestError(f"{folder}/{PATH}: names {len(found):,} classes, and the shards have classes {held}")
    return found


def summary(of: Sequence[str], counts: Mapping[int, int]) -> list[str]:
    """How many classes there are and how large, and which have one example or none."""
    sizes = [counts.get(number, 0) for number in range(len(of))]
    if not sizes:
        return []
    least, most = min(sizes), max(sizes)
    of_size = f"{least:,} to {most:,} examples" if least < most else f"{most:,} examples each"
    lines = [f"classes {len(of):,}, of {of_size}"]
    for size, said in ((0, "without an example"), (1, "with a single example")):
        if few := [name for name, count in zip(of, sizes, strict=True) if count == size]:
            lines.append(f"{len(few):,} {said}: {', '.join(few[:SHOWN])}{', ...' if len(few) > SHOWN else ''}")
    return lines


def table(of: Sequence[str], counts: Mapping[int, int]) -> str:
    """Each class with its number and its examples."""
    rows = [(f"{number}", name, f"{counts.get(number, 0):,}") for number, name in enumerate(of)]
    return terminal.table(("label", "class", "examples"), rows, right=(0, 2))
