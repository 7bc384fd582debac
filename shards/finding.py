"""Search for local files by path, folder or glob. Each file is listed once, however many links lead to it.

A file is identified by its device and inode. If several paths lead to it, it is listed under only one of them,
preferably one that contains no link. On network file systems without inode numbers, every path counts as a file of its
own. A folder is entered only once, so that a cycle of links ends. Hidden names are skipped, as in globs (`is_hidden`).
Names that begin with an underscore are left out, as in Spark and Arrow, because engines write unfinished and auxiliary
files under such names (`is_auxiliary`). Nothing else is skipped: a broken link, a device, a socket or an unreadable
folder raises an error. The longest leading part of a pattern that exists on disk is taken literally, so that brackets
in a folder's name are not wildcards.
"""

import fnmatch
import glob
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from clearspan.common.progress import counted

LITTER = ("__macosx", "thumbs.db", "desktop.ini")
"""Names of files and folders that macOS and Windows leave beside data, in lower case."""


class Status(NamedTuple):
    """Metadata of a file, obtained without reading the file.

    Attributes:
        bytes: size in bytes.
        modified: modification time in nanoseconds, at the file system's resolution.
        inode: inode number; 0 on an object store.
        changed: time of the last change of content, name or permissions, in nanoseconds, which no program can set; 0 on
            an object store.
    """

    bytes: int
    modified: int
    inode: int
    changed: int

    @property
    def written(self) -> tuple[int, int, int]:
        """Return (size, modification time, inode), which neither a new hard link nor new permissions change."""
        return self.bytes, self.modified, self.inode

    @classmethod
    def of(cls, status: os.stat_result) -> "Status":
        """Return the status of a local file from the result of `os.stat`."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns)


def is_hidden(name: str) -> bool:
    """Return whether files and folders of this name are skipped when folders, globs and tars are searched.

    They are skipped if the name begins with a dot (`.DS_Store`, `._name`), or if macOS or Windows leaves files of this
    name beside data (`__MACOSX`, `Thumbs.db`, `desktop.ini`).
    """
    return name.startswith(".") or name.lower() in LITTER


def is_below_hidden(path: str, pattern: str = "") -> bool:
    """Return whether a path is skipped because a folder in it, or the file itself, has a hidden name (`is_hidden`).

    `.` and `..` are not hidden. Neither is a name that the user's pattern contains, or that matches a part of the
    pattern that begins with a dot, such as `.conf*`.

    Args:
        pattern: the path or glob that the user gave; "" if there is none.
    """
    if "/." not in path and not path.startswith(".") and not any(name in path.lower() for name in LITTER):
        return False  # almost all paths
    return any(is_hidden(part) for part in _unnamed(path, pattern, "."))


def is_auxiliary(name: str) -> bool:
    """Return whether an engine such as Spark writes files under this name that are not data, such as `_SUCCESS`.

    Such a name begins with an underscore, as `_temporary` and `_metadata` do. A folder of one value of a column, such
    as `_year=2020`, holds data.
    """
    return name.startswith("_") and "=" not in name


def is_below_auxiliary(path: str, pattern: str) -> bool:
    """Return whether a path is left out because a folder in it, or the file itself, has an auxiliary name
    (`is_auxiliary`).

    A name is not left out if the user's pattern contains it, or if it matches a part of the pattern that begins with an
    underscore, such as `_posts*`.

    Args:
        pattern: the path or glob that the user gave.
    """
    if "/_" not in path and not path.startswith("_"):
        return False  # almost all paths
    return any(is_auxiliary(part) for part in _unnamed(path, pattern, "_"))


def _unnamed(path: str, pattern: str, begin: str) -> Iterator[str]:
    """Yield the names in a path that the user's pattern does not contain.

    A part of the pattern that begins with the character `begin` contains all names that match it.
    """
    named = [".", "..", *pattern.split("/")]
    globs = [name for name in named if name.startswith(begin)]
    for part in path.split("/"):
        if part not in named and not any(fnmatch.fnmatchcase(part, name) for name in globs):
            yield part


def once(paths: Iterable[str]) -> dict[str, Status]:
    """Return the files among these paths: path -> status, sorted by path. Folders are left out.

    If several paths lead to the same file, only one of them is returned, preferably one that contains no link.

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
        if before is None or _link_rank(path) < _link_rank(before[0]):
            files[inode] = (path, Status.of(status))
    return dict(sorted(files.values()))


def _link_rank(path: str) -> tuple[bool, bool]:
    """Return a sort key by which paths without a link come first: (is a link itself, differs from its real path)."""
    return Path(path).is_symlink(), os.path.realpath(path) != path


def matches(pattern: str, left_out: set[str]) -> Iterator[str]:
    """Yield the paths that match a pattern and are no folders, and all files under the folders that match.

    A path may be yielded twice. If nothing matches, nothing is yielded. Hidden names are skipped (`is_hidden`), and
    auxiliary names are left out (`is_auxiliary`), unless the pattern contains them.

    Args:
        left_out: set to which the paths that are left out are added.

    Raises:
        OSError: a folder cannot be read.
    """
    return _matches(pattern, left_out, set(), False)


def _matches(pattern: str, left_out: set[str], seen: set[str], is_left_out: bool) -> Iterator[str]:
    """Yield the paths that match a pattern and are no folders, and all files under the folders that match.

    Args:
        left_out: set to which the paths that are left out are added.
        seen: the real paths of the folders that were entered, to which this call adds its own.
        is_left_out: whether the paths of this call are left out, so that it enters no folder that is in `seen`. A link
            in a folder that is left out may lead back to one around it.
    """
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
        if is_below_auxiliary(path, pattern):
            left_out.update(_matches(path + deep + rest, left_out, seen, True))
            continue
        if not Path(path).is_dir():
            yield path
            continue
        for folder, files, auxiliary in _walk(path, seen if is_left_out else set()):
            seen.add(os.path.realpath(folder))
            if not rest.strip("/"):
                yield from (file for file in files if file not in auxiliary)
                left_out.update(auxiliary.intersection(files))
            elif deep:
                yield from _matches(f"{folder.rstrip('/')}/{rest.lstrip('/')}", left_out, seen, is_left_out)
            for below in auxiliary.difference(files):
                left_out.update(_matches(below + deep + rest, left_out, seen, True))


def left_out_lines(paths: Sequence[str]) -> list[str]:
    """Return a list with one line for the user about the files that `matches` left out; [] if there are none."""
    if not paths:
        return []
    return [
        f"{counted(len(paths), 'file')} left out, since names that begin with _ are no data unless a pattern names "
        f"them, e.g. {paths[0]}"
    ]


def _walk(top: str, entered: set[str]) -> Iterator[tuple[str, list[str], set[str]]]:
    """Yield (folder, paths of the files in the folder, paths in the folder that are left out) for `top` and all folders
    under it.

    Hidden names are skipped. Folders with auxiliary names are not entered. Links to folders are followed, but no folder
    is entered twice.

    Args:
        entered: the real paths of folders that are not entered, to which those that are entered are added.
    """
    for folder, below, files in os.walk(top, followlinks=True, onerror=_raise):
        if (real := os.path.realpath(folder)) in entered:
            below.clear()
            continue
        entered.add(real)
        place = folder.rstrip("/")
        auxiliary = {f"{place}/{name}" for name in (*below, *files) if is_auxiliary(name) and not is_hidden(name)}
        below[:] = sorted(name for name in below if not is_hidden(name) and not is_auxiliary(name))
        yield folder, [f"{place}/{name}" for name in files if not is_hidden(name)], auxiliary


def _raise(error: OSError) -> None:
    raise error
