"""The input files that paths and globs name: each once, below their common folder."""

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

from clearspan.pipelines.errors import PipelineError
from clearspan.shards import finding, storage


def find(
    patterns: Sequence[str], listed: Sequence[str] = (), others: dict[str, str] | None = None
) -> tuple[str, dict[str, int]]:
    """The files that paths and globs name, and those of a list, each once, sorted: their common folder, and by name
    under it their bytes. `others` receives the paths of local files that are there by another path.

    Raises:
        PipelineError: a path or glob names no file, or they are not all on this machine or in one bucket.
    """
    found: dict[str, int] = {}
    twice: dict[str, str] = {}
    for pattern in (*patterns, *listed):
        try:
            files = storage.find(pattern, twice)
        except FileNotFoundError as error:
            raise PipelineError(f"--input {error}") from None
        found.update((path if storage.is_remote(path) else absolute(path), size) for path, size in files.items())
    if len(patterns) + bool(listed) > 1 and not any(map(storage.is_remote, found)):
        found = finding.once(found, twice)
    if others is not None:
        others.update((absolute(name), absolute(stays)) for name, stays in twice.items())
    root = _common_folder(list(found))
    start = len(root.rstrip("/")) + 1
    return root, dict(sorted(((path[start:], size) for path, size in found.items()), key=_by_folder))


def absolute(path: str) -> str:
    """The path from the root, a link under the name the user gave it; `..` may lead out of one, and is resolved."""
    if ".." in path and ".." in Path(path).parts:
        path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))  # noqa: PTH118, PTH119, PTH120
    return os.path.abspath(path)  # noqa: PTH100 (a million of strings)


def _by_folder(entry: tuple[str, int]) -> list[str]:
    return entry[0].split("/")


def _common_folder(paths: Sequence[str]) -> str:
    if not any(map(storage.is_remote, paths)):
        return os.path.commonpath({os.path.dirname(path) for path in paths})  # noqa: PTH120 (strings throughout)
    # "gs://bucket/a/b" -> ["gs:", "", "bucket", "a"]
    folders = {tuple(path.split("/")[:-1]) for path in paths}
    if len({folder[:3] for folder in folders}) > 1:
        raise PipelineError("--input: files of one run must all be on this machine, or all in one bucket")
    shared = itertools.takewhile(lambda names: len(set(names)) == 1, zip(*folders, strict=False))
    return "/".join(names[0] for names in shared)
