"""Search for local files by path, folder or glob: each file once, however many links lead to it.

A file is identified by its device and inode, not by its name: of several names the first that is no link is listed.
(Some network file systems have no inode numbers: there every name counts as a file.) A folder is entered once, so
cycles of links end. Only hidden names are skipped (`is_hidden`), as in globs: a broken link, a device or socket, and an
unreadable folder are errors. A part of a pattern that exists as it is written is a name, and no pattern.
"""

import fnmatch
import glob
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

LITTER = ("__macosx", "thumbs.db", "desktop.ini")
"""Files and folders that macOS and Windows leave beside data, in lower case."""


def is_hidden(name: str) -> bool:
    """Return whether folders, globs and tars skip a file or folder of this name: its first character is a dot
    (`.DS_Store`, `._name`), or a file manager left it.
    """
    return name.startswith(".") or name.lower() in LITTER


def is_below_hidden(path: str, pattern: str = "") -> bool:
    """Return whether a part of a path is hidden, apart from those that the pattern names and `.` and `..`."""
    if "/." not in path and not path.startswith(".") and not any(name in path.lower() for name in LITTER):
        return False  # almost all paths
    named = [".", "..", *pattern.split("/")]
    hidden = [part for part in path.split("/") if is_hidden(part) and part not in named]
    dotted = [name for name in named if name.startswith(".")]
    return any(not any(fnmatch.fnmatchcase(part, name) for name in dotted) for part in hidden)


def once(paths: Iterable[str], others: dict[str, str] | None = None) -> dict[str, int]:
    """Return the distinct files among these paths: path -> size in bytes, sorted.

    Args:
        others: receives each name that is not listed, with the listed name of the same file.

    Raises:
        OSError: a path is a broken link, or neither a file nor a folder; the message names it.
    """
    files: dict[tuple[object, int], tuple[str, int]] = {}
    for path in sorted(set(paths)):
        try:
            status = os.stat(path)  # noqa: PTH116 (for millions of files)
        except FileNotFoundError:
            raise FileNotFoundError(f"{path}: a broken link: remove it, or restore its target") from None
        if stat.S_ISDIR(status.st_mode):
            continue
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(f"{path}: neither a file nor a folder: name the files without it")
        inode = (status.st_dev, status.st_ino) if status.st_ino else (path, 0)
        before = files.get(inode)
        if before is None or (Path(before[0]).is_symlink() and not Path(path).is_symlink()):
            files[inode] = (path, status.st_size)
        if before is not None and others is not None:
            listed = files[inode][0]
            others[before[0] if listed == path else path] = listed
    return dict(sorted(files.values()))


def empty_folder(pattern: str) -> str | None:
    """Return a folder that matches a pattern, or one below it, that holds nothing but hidden names; None if none
    does.
    """
    for top in [pattern] if Path(pattern).is_dir() else glob.glob(pattern, recursive=True):  # noqa: PTH207 (a `**` too)
        for parent, folders, files in os.walk(top):
            folders[:] = [name for name in folders if not is_hidden(name)]
            if not folders and all(map(is_hidden, files)):
                return parent
    return None


def matches(pattern: str) -> Iterator[str]:
    """Yield the paths that match a pattern, perhaps repeatedly, and all paths under a folder that matches."""
    if Path(pattern).is_dir():
        yield from _below(pattern, "*")
    elif os.path.lexists(pattern):
        yield pattern
    else:
        yield from _matches([part for part in pattern.split("/") if part], "/" if pattern.startswith("/") else "")


def _matches(parts: Sequence[str], above: str) -> Iterator[str]:
    """Yield the paths in the folder `above`, which ends in a slash, that match the parts of a pattern."""
    first, rest = parts[0], parts[1:]
    if first == "**":
        if Path(above or ".").is_dir():
            yield from _below(above or ".", "/".join(rest) or "*")
    elif not glob.has_magic(first) or os.path.lexists(above + first):
        if rest:
            yield from _matches(rest, f"{above}{first}/")
        elif Path(above + first).is_dir():
            yield from _below(above + first, "*")
        elif os.path.lexists(above + first):
            yield above + first
    elif Path(above or ".").is_dir():
        for entry in _entries(above or "."):
            if fnmatch.fnmatchcase(entry.name, first) and (first.startswith(".") or not is_hidden(entry.name)):
                if not rest and entry.is_dir():
                    yield from _below(above + entry.name, "*")
                elif not rest or _is_lost(entry):
                    yield above + entry.name
                elif entry.is_dir():
                    yield from _matches(rest, f"{above}{entry.name}/")


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _is_lost(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a broken link, whose target may be a folder of files that would be missed."""
    return entry.is_symlink() and not Path(entry.path).exists()


def _below(top: str, rest: str) -> Iterator[str]:
    """Yield the matches of `rest` in a folder and all folders under it, linked folders last."""
    entered: set[tuple[object, int]] = set()
    waiting, links = [top], list[str]()
    while waiting or links:
        folder = waiting.pop() if waiting else links.pop()
        status = Path(folder).stat()
        inode = (status.st_dev, status.st_ino) if status.st_ino else (os.path.realpath(folder), 0)
        if inode in entered:
            continue
        entered.add(inode)
        below = [entry for entry in _entries(folder) if not is_hidden(entry.name)]
        for entry in below:
            if entry.is_dir():
                (links if entry.is_symlink() else waiting).append(entry.path)
        if rest == "*":
            yield from (entry.path for entry in below if not entry.is_dir())
        else:
            yield from (entry.path for entry in below if _is_lost(entry))
            yield from _matches(rest.split("/"), f"{folder.rstrip('/')}/")
