"""Classes of labeled examples: class names, from a file beside the shards, and the number of examples of each class."""

import json
from collections.abc import Mapping, Sequence

from clearspan.common.checksummed import has_type
from clearspan.shards.manifest import FILES_FOLDER, Manifest, ManifestError
from clearspan.shards.reader import read_resource

NAME = "classes.json"
PATH = f"{FILES_FOLDER}/{NAME}"


def names(folder: str, manifest: Manifest) -> list[str]:
    """Return the class names, indexed by class number; an empty list for a dataset without classes.

    Raises:
        ShardError: the file of class names is missing, or its hash differs from the manifest.
        ManifestError: the file is not a list of class names, or the shards hold a class number without a name.
    """
    if PATH not in manifest.resources:
        return []
    content = read_resource(folder, PATH, manifest.resources[PATH])
    try:
        table: list[str] = json.loads(content)
    except (ValueError, RecursionError):
        table = []
    if not has_type(table, list[str]) or not table:
        raise ManifestError(f"{folder}/{PATH}: is not a list of names of classes: run the pipeline again")
    numbers = manifest.classes
    if numbers and not 0 <= min(numbers) <= max(numbers) < len(table):
        actual = f"{min(numbers)} to {max(numbers)}"
        raise ManifestError(f"{folder}/{PATH}: names {len(table):,} classes, but the shards have classes {actual}")
    return table


def summary(class_names: Sequence[str], counts: Mapping[int, int]) -> list[str]:
    """Return a line with the number of classes and their sizes, in a list that is empty if there are no classes.

    E.g. "classes 10, of 90 to 120 examples": the smallest class has 90 examples, and the largest 120.

    Args:
        counts: number of examples by class number.
    """
    sizes = [counts.get(number, 0) for number in range(len(class_names))]
    if not sizes:
        return []
    least, most = min(sizes), max(sizes)
    of_size = f"{least:,} to {most:,} examples" if least < most else f"{most:,} examples each"
    return [f"classes {len(class_names):,}, of {of_size}"]
