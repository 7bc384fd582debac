"""Local files by path, folder or glob: each once, whatever links lead to it.

A file is known by its place on the disk, not by its name: of several names the first that is no link stays. A folder is
entered once, so links that lead in circles end. Nothing is passed over but hidden names, as globs do: a link that leads
nowhere, what is neither file nor folder, and a folder that cannot be read are errors.
"""

import glob
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path


def once(paths: Iterable[str]) -> dict[str, int]:
    """Bytes of the files among these paths, by path, sorted, under one name each.

    Raises:
        OSError: one of them leads nowhere, or is neither a file nor a folder; it names the path.
    """
    found: dict[tuple[int, int], tuple[str, int]] = {}
    for path in sorted(set(paths)):
        try:
            status = Path(path).stat()
        except FileNotFoundError:
            raise FileNotFoundError(f"{path}: a link to what is not there: remove it, or bring that back") from None
        if stat.S_ISDIR(status.st_mode):
            continue
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(f"{path}: neither a file nor a folder: name the files without it")
        place = (status.st_dev, status.st_ino)
        if place not in found or (Path(found[place][0]).is_symlink() and not Path(path).is_symlink()):
            found[place] = (path, status.st_size)
    return dict(sorted(found.values()))


def matches(pattern: str) -> Iterator[str]:
    """The paths that a pattern names, some of them perhaps more than once; of a folder, all under it."""
    if Path(pattern).is_dir():
        yield from _below(pattern, "*")
    elif os.path.lexists(pattern):
        yield pattern
    elif "**" in (parts := pattern.split("/")):
        first = parts.index("**")
        above = "/".join(parts[:first]) or ("/" if pattern.startswith("/") else ".")
        for folder in filter(os.path.isdir, glob.iglob(above)):  # noqa: PTH207 (strings throughout)
            yield from _below(folder, "/".join(parts[first + 1 :]) or "*")
    else:
        yield from glob.iglob(pattern)  # noqa: PTH207


def _below(top: str, rest: str) -> Iterator[str]:
    """What `rest` names in a folder and in every one under it: those that are links come last."""
    entered: set[tuple[int, int]] = set()
    waiting, links = [top], list[str]()
    while waiting or links:
        folder = waiting.pop() if waiting else links.pop()
        status = Path(folder).stat()
        if (status.st_dev, status.st_ino) in entered:
            continue
        entered.add((status.st_dev, status.st_ino))
        with os.scandir(folder) as entries:
            below = sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda e: e.name)
        for entry in below:
            if entry.is_dir():
                (links if entry.is_symlink() else waiting).append(entry.path)
        if rest == "*":
            yield from (entry.path for entry in below if not entry.is_dir())
        else:
            yield from matches(f"{glob.escape(folder.rstrip('/'))}/{rest}")
