"""Search for local files by path, folder or glob: each file once, however many links lead to it.

A file is identified by its device and inode. A file with several names is listed under the first name that is not a
link. (Some network file systems have no inode numbers: there every name counts as a file.) A folder is entered once, so
cycles of links end. Only hidden names are skipped (`is_hidden`), as in globs: a broken link, a device or socket, and an
unreadable folder are errors. The longest beginning of a pattern that exists on disk is taken literally, so brackets in
the name of a folder are no wildcards.
"""

import fnmatch
import glob
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

LITTER = ("__macosx", "thumbs.db", "desktop.ini")
"""Files and folders that macOS and Windows leave beside data, in lower case."""


class Status(NamedTuple):
    """Metadata of a file, known without reading it: size, modification time, inode.

    Attributes:
        modified: modification time in nanoseconds, at the file system's resolution.
        inode: 0 on an object store.
        changed: time in nanoseconds of the last change of content, name or permissions, which no program can set.
            0 on an object store.
    """

    bytes: int
    modified: int
    inode: int
    changed: int

    @property
    def written(self) -> tuple[int, int, int]:
        """Return (size, modification time, inode), which neither a new hard link nor a change of file mode alters."""
        return self.bytes, self.modified, self.inode

    @classmethod
    def of(cls, status: os.stat_result) -> "Status":
        """Return the status of a local file."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns)


def is_hidden(name: str) -> bool:
    """Return whether folders, globs and tars skip a file or folder of this name: its first character is a dot
    (`.DS_Store`, `._name`), or a file manager left it.
    """
    return name.startswith(".") or name.lower() in LITTER


def is_below_hidden(path: str, pattern: str = "") -> bool:
    """Return whether a part of a path is hidden. `.`, `..`, and parts that the pattern names do not count as hidden."""
    if "/." not in path and not path.startswith(".") and not any(name in path.lower() for name in LITTER):
        return False  # almost all paths
    named = [".", "..", *pattern.split("/")]
    hidden = [part for part in path.split("/") if is_hidden(part) and part not in named]
    dotted = [name for name in named if name.startswith(".")]
    return any(not any(fnmatch.fnmatchcase(part, name) for name in dotted) for part in hidden)


def once(paths: Iterable[str]) -> dict[str, Status]:
    """Return the distinct files among these paths: path -> status, sorted.

    Raises:
        OSError: a path is a broken link, or neither a file nor a folder; the message names it.
    """
    files: dict[tuple[object, int], tuple[str, Status]] = {}
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
        if before is None or _is_linked(path) < _is_linked(before[0]):
            files[inode] = (path, Status.of(status))
    return dict(sorted(files.values()))


def _is_linked(path: str) -> tuple[bool, bool]:
    """Return whether a path is a link, and whether it leads through one."""
    return Path(path).is_symlink(), os.path.realpath(path) != path


def matches(pattern: str) -> Iterator[str]:
    """Yield the paths that match a pattern, and all paths under a folder that matches. A path may be yielded twice."""
    named = pattern
    while named and not os.path.lexists(named):
        named = os.path.dirname(named)  # noqa: PTH120 (a string with its slashes)
    head, deep, rest = pattern[len(named) :].partition("**")
    paths = glob.glob(glob.escape(named) + head)  # noqa: PTH207 (keeps strings as they are)
    if not paths and not head:
        paths = [named]
    for path in paths:
        if is_below_hidden(path, pattern):
            continue
        if not Path(path).is_dir():
            yield path
            continue
        for folder, files in _walk(path):
            if not rest.strip("/"):
                yield from files
            elif deep:
                yield from matches(f"{folder.rstrip('/')}/{rest.lstrip('/')}")


def _walk(top: str) -> Iterator[tuple[str, list[str]]]:
    """Yield a folder and all folders under it, each with the paths of its files, without hidden names. Links to folders
    are followed, but no folder is entered twice.
    """
    entered = set()
    for folder, below, files in os.walk(top, followlinks=True, onerror=_raise):
        if (real := os.path.realpath(folder)) in entered:
            below.clear()
            continue
        entered.add(real)
        below[:] = sorted(name for name in below if not is_hidden(name))
        yield folder, [f"{folder.rstrip('/')}/{name}" for name in files if not is_hidden(name)]


def _raise(error: OSError) -> None:
    raise error
