"""Classes of labeled examples: their names, from a file beside the shards, and their numbers of examples."""

import json
from collections.abc import Mapping, Sequence

from clearspan.shards.manifest import FILES_FOLDER, Manifest, ManifestError
from clearspan.shards.reader import read_resource

NAME = "classes.json"
PATH = f"{FILES_FOLDER}/{NAME}"
SHOWN = 5
"""Number of class names that a line of the summary lists."""


def names(folder: str, manifest: Manifest) -> list[str]:
    """Return the class names, indexed by class number; empty for a dataset without classes.

    Raises:
        ShardError: the table of classes is missing or damaged.
        ManifestError: the table is not a list of distinct names, or the shards have a class without a name.
    """
    if PATH not in manifest.resources:
        return []
    data = read_resource(folder, PATH, manifest.resources[PATH])
    try:
        table = json.loads(data)
    except ValueError:
        table = None
    if not isinstance(table, list) or not all(isinstance(name, str) for name in table) or len({*table}) < len(table):
        raise ManifestError(f"{folder}/{PATH}: not a list of distinct names: run the pipeline again")
    numbers = manifest.classes
    if numbers and not 0 <= min(numbers) <= max(numbers) < len(table):
        actual = f"{min(numbers)} to {max(numbers)}"
        raise ManifestError(f"{folder}/{PATH}: names {len(table):,} classes, but the shards have classes {actual}")
    return table


def summary(class_names: Sequence[str], counts: Mapping[int, int]) -> list[str]:
    """Return lines on the number of classes and their sizes, and on those with one example or none."""
    sizes = [counts.get(number, 0) for number in range(len(class_names))]
    if not sizes:
        return []
    least, most = min(sizes), max(sizes)
    of_size = f"{least:,} to {most:,} examples" if least < most else f"{most:,} examples each"
    lines = [f"classes {len(class_names):,}, of {of_size}"]
    for size, words in ((0, "without an example"), (1, "with a single example")):
        if few := [name for name, count in zip(class_names, sizes, strict=True) if count == size]:
            lines.append(f"{len(few):,} {words}: {', '.join(few[:SHOWN])}{', ...' if len(few) > SHOWN else ''}")
    return lines
