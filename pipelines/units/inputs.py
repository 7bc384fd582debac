"""Find the input files of a run, i.e. the files to which paths, folders and globs refer, and their common folder.

A file is found once, even if several paths or globs refer to it.
"""

import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from clearspan.common.errors import PipelineError
from clearspan.common.progress import counted
from clearspan.shards import finding, storage
from clearspan.shards.finding import Status

NAMED = 3
"""Number of files that an error message names."""


def find(
    patterns: Sequence[str], listed_paths: Sequence[str] = (), left_out: set[str] | None = None
) -> tuple[str, dict[str, Status]]:
    """Return the common folder of the input files, and a sorted dict: path relative to this folder -> status.

    The status of a file is its size and the times of its last changes (`Status`).

    Args:
        patterns: paths, folders and globs.
        listed_paths: the paths of further files, which the user's lists of files contain.
        left_out: set to which the paths of files with auxiliary names are added, which are not read
            (`finding.is_auxiliary`); None if they are not needed.

    Raises:
        PipelineError: a path or glob matches no file, a file name has characters that cannot be printed, or the files
            are neither all on this machine nor all in one bucket of an object store.
    """
    found: dict[str, Status] = {}
    auxiliary = set[str]()
    for pattern in (*patterns, *listed_paths):
        try:
            files = storage.find(pattern, auxiliary)
        except FileNotFoundError as error:
            raise PipelineError(f"`input` {error}") from None
        names = {path: path if storage.is_remote(path) else absolute(path) for path in files}
        found.update((name, files[path]) for path, name in names.items())
    if len(patterns) + bool(listed_paths) > 1 and not any(map(storage.is_remote, found)):
        found = finding.once(found)
    if odd := next((name for name in found if not name.isprintable()), None):
        raise PipelineError(f"{odd!r}: a file name that is not printable text cannot be a source: rename it")
    if left_out is not None:
        left_out |= {path if storage.is_remote(path) else absolute(path) for path in auxiliary} - found.keys()
    root = _common_folder(list(found))
    start = len(root.rstrip("/")) + 1
    by_name = {path[start:]: status for path, status in found.items()}
    return root, dict(sorted(by_name.items(), key=lambda entry: entry[0].split("/")))


def check_known(root: str, unknown_files: Mapping[str, str], known_types: str, are_skipped: bool) -> None:
    """Raise PipelineError if there are files of unknown type, unless the user has chosen to skip them.

    Args:
        root: the common folder of the inputs, for the message.
        unknown_files: name of a file of unknown type -> a text that says what the file is and what to do with it; "" if
            nothing is known about the file.
        known_types: the types that are read, for the message.
        are_skipped: whether files of unknown type are skipped; if true, nothing is raised.
    """
    if unknown_files and not are_skipped:
        names = sorted(unknown_files, key=lambda name: (not unknown_files[name], name))
        of_type = f"; {names[0]} is {unknown_files[names[0]]}" if unknown_files[names[0]] else ""
        raise PipelineError(
            f"{root}: {counted(len(names), 'file')} of unknown type, e.g. {', '.join(names[:NAMED])}: expected "
            f"{known_types}: leave them out of `input`, as `skip_unknown` does where there are "
            f"others{of_type}"
        )


def absolute(path: str) -> str:
    """Return the absolute form of a path.

    Symbolic links are not resolved, except in a path with `..`: after a link, `..` is the parent of the folder that the
    link points to.
    """
    if ".." in path and ".." in Path(path).parts:
        path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))  # noqa: PTH118, PTH119, PTH120
    return os.path.abspath(path)  # noqa: PTH100 (for millions of strings)


def _common_folder(paths: Sequence[str]) -> str:
    if not any(map(storage.is_remote, paths)):
        return os.path.commonpath({os.path.dirname(path) for path in paths})  # noqa: PTH120 (strings throughout)
    # "gs://bucket/a/b" -> ["gs:", "", "bucket", "a"]
    folders = {tuple(path.split("/")[:-1]) for path in paths}
    if len({folder[:3] for folder in folders}) > 1:
        raise PipelineError("`input`: files of one run must all be on this machine, or all in one bucket")
    shared = itertools.takewhile(lambda names: len(set(names)) == 1, zip(*folders, strict=False))
    return "/".join(names[0] for names in shared)
