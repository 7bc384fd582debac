"""Classes of labeled examples: their names, from a file beside the shards, and their numbers of examples."""

import json
from collections.abc import Mapping, Sequence

from clearspan.common.sealed import has_type
from clearspan.shards.manifest import FILES_FOLDER, Manifest, ManifestError
from clearspan.shards.reader import read_resource

NAME = "classes.json"
PATH = f"{FILES_FOLDER}/{NAME}"


def names(folder: str, manifest: Manifest) -> list[str]:
    """Return the class names, indexed by class number; empty for a dataset without classes.

    Raises:
        ShardError: the table of classes is missing or damaged.
        ManifestError: the file is not a table of classes, or the shards have a class without a name.
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
    """Return a list of one line: the number of classes and of examples in each; empty for a dataset without classes."""
    sizes = [counts.get(number, 0) for number in range(len(class_names))]
    if not sizes:
        return []
    least, most = min(sizes), max(sizes)
    of_size = f"{least:,} to {most:,} examples" if least < most else f"{most:,} examples each"
    return [f"classes {len(class_names):,}, of {of_size}"]
