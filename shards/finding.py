"""Local files by path, folder or glob: each once, whatever links lead to it.

A file is known by its place on the disk, not by its name: of several names the first that is no link stays. (Some
network file systems number no places: there each name is a file.) A folder is entered once, so links that lead in
circles end. Nothing is passed over but hidden names, as globs do: a link that leads nowhere, what is neither file nor
folder, and a folder that cannot be read are errors.
"""

import fnmatch
import glob
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path


def once(paths: Iterable[str], others: dict[str, str] | None = None) -> dict[str, int]:
    """Bytes of the files among these paths, by path, sorted, under one name each; `others` receives each other name
    with the one that it gave way to.

    Raises:
        OSError: one of them leads nowhere, or is neither a file nor a folder; it names the path.
    """
    found: dict[tuple[object, int], tuple[str, int]] = {}
    for path in sorted(set(paths)):
        try:
            status = os.stat(path)  # noqa: PTH116 (of a million of files)
        except FileNotFoundError:
            raise FileNotFoundError(f"{path}: a link to what is not there: remove it, or bring that back") from None
        if stat.S_ISDIR(status.st_mode):
            continue
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(f"{path}: neither a file nor a folder: name the files without it")
        place = (status.st_dev, status.st_ino) if status.st_ino else (path, 0)
        before = found.get(place)
        if before is None or (Path(before[0]).is_symlink() and not Path(path).is_symlink()):
            found[place] = (path, status.st_size)
        if before is not None and others is not None:
            stays = found[place][0]
            others[before[0] if stays == path else path] = stays
    return dict(sorted(found.values()))


def empty_folder(pattern: str) -> str | None:
    """A folder that a pattern names, or one below such, in which nothing is but hidden names; None: there is none."""
    for top in [pattern] if Path(pattern).is_dir() else glob.glob(pattern, recursive=True):  # noqa: PTH207 (a `**` too)
        for place, folders, files in os.walk(top):
            folders[:] = [name for name in folders if not name.startswith(".")]
            if not folders and not any(not name.startswith(".") for name in files):
                return place
    return None


def matches(pattern: str) -> Iterator[str]:
    """The paths that a pattern names, some of them perhaps more than once; of a folder that it names, all under it."""
    if Path(pattern).is_dir():
        yield from _below(pattern, "*")
    elif os.path.lexists(pattern):
        yield pattern
    else:
        yield from _matches([part for part in pattern.split("/") if part], "/" if pattern.startswith("/") else "")


def _matches(parts: Sequence[str], above: str) -> Iterator[str]:
    """What the parts of a pattern name in a folder, which ends in a slash."""
    first, rest = parts[0], parts[1:]
    if first == "**":
        if Path(above or ".").is_dir():
            yield from _below(above or ".", "/".join(rest) or "*")
    elif not glob.has_magic(first):
        if rest:
            yield from _matches(rest, f"{above}{first}/")
        elif Path(above + first).is_dir():
            yield from _below(above + first, "*")
        elif os.path.lexists(above + first):
            yield above + first
    elif Path(above or ".").is_dir():
        for entry in _entries(above or "."):
            if fnmatch.fnmatchcase(entry.name, first) and (first.startswith(".") or not entry.name.startswith(".")):
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
    """Whether it is a link that leads nowhere: perhaps to a folder whose files are missed."""
    return entry.is_symlink() and not Path(entry.path).exists()


def _below(top: str, rest: str) -> Iterator[str]:
    """What `rest` names in a folder and in every one under it: those that are links come last."""
    entered: set[tuple[object, int]] = set()
    waiting, links = [top], list[str]()
    while waiting or links:
        folder = waiting.pop() if waiting else links.pop()
        status = Path(folder).stat()
        place = (status.st_dev, status.st_ino) if status.st_ino else (os.path.realpath(folder), 0)
        if place in entered:
            continue
        entered.add(place)
        below = [entry for entry in _entries(folder) if not entry.name.startswith(".")]
        for entry in below:
            if entry.is_dir():
                (links if entry.is_symlink() else waiting).append(entry.path)
        if rest == "*":
            yield from (entry.path for entry in below if not entry.is_dir())
        else:
            yield from (entry.path for entry in below if _is_lost(entry))
            yield from _matches(rest.split("/"), f"{folder.rstrip('/')}/")
