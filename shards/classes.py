"""The classes of a dataset's examples: their names, beside the shards, and how many examples each has."""

import json
from collections.abc import Mapping, Sequence

from shards import terminal
from shards.manifest import FILES_FOLDER, Manifest, ManifestError
from shards.reader import read_resource

NAME = "classes.json"
PATH = f"{FILES_FOLDER}/{NAME}"
SHOWN = 5


def names(folder: str, manifest: Manifest) -> list[str]:
    """The name of each class, at the place of its number; empty for a dataset without classes.

    Raises:
        ShardError: the table is missing or damaged.
        ManifestError: it names other classes than the shards have.
    """
    if PATH not in manifest.resources:
        return []
    found = json.loads(read_resource(folder, PATH, manifest.resources[PATH]))
    if not isinstance(found, list) or max(manifest.classes, default=-1) >= len(found):
        raise ManifestError(f"{folder}/{PATH}: does not name the {max(manifest.classes, default=-1) + 1:,} classes")
    return [str(name) for name in found]


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
