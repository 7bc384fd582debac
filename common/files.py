"""Local files: atomic writes, temporary names, content hashes, a lock on a folder, the cache.

    temporary name in the same folder -> write -> fsync -> rename -> fsync of the folder

A file appears under its name complete or not at all, even after a power failure. A killed process leaves only files
with temporary names, which are never read and which `remove_temporaries` deletes.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

COPY_BYTES = 1 << 20
TEMPORARY = ".clearspan-part-"
"""Prefix of the name of a file or folder that is being written."""
_TEMPORARY_NAME = re.compile(rf"{re.escape(TEMPORARY)}[0-9a-f]{{32}}-.+", re.DOTALL)
"""Pattern of names from `temporary_name`; only files and folders with such a name are deleted."""


def cache_folder() -> Path:
    """Return the cache folder: $CLEARSPAN_CACHE, else $XDG_CACHE_HOME/clearspan, else ~/.cache/clearspan.

    The cache holds only files that can be downloaded or computed again.

    Raises:
        OSError: neither environment variable is set, and the user has no home folder.
    """
    if folder := os.environ.get("CLEARSPAN_CACHE"):
        return Path(folder)
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        raise OSError("no home folder for the cache: set CLEARSPAN_CACHE to a folder") from None
    return Path(home) / "clearspan"


def file_in_way(folder: str | Path) -> Path | None:
    """Return the file that keeps a folder from being created; None if there is none.

    Such a file lies at the path of the folder, or at the path of one of its parent folders. It may be a broken link.
    """
    paths = (Path(folder), *Path(folder).parents)
    return next((path for path in paths if os.path.lexists(path) and not path.is_dir()), None)


def is_foreign(path: Path, is_ours: Callable[[Path], bool]) -> bool:
    """Return whether something else than a file of ours is at a path, such as a folder or a broken link.

    Args:
        is_ours: tells by a file's content whether we have written it.
    """
    return os.path.lexists(path) and not (path.is_file() and is_ours(path))


class InUseError(OSError):
    """Another process is writing to a folder, which the message names."""


def sha256(path: str | Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with path_in_errors(path), Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def path_in_errors(path: str | Path, written_as: Path | None = None) -> Iterator[None]:
    """Add `path` to an OSError that is raised in the `with` block and names no path ("No space left on device").

    Args:
        path: the path of the file that the block reads or writes.
        written_as: the temporary path at which the block writes the file; in an OSError, it is replaced by `path`.
            None if there is no temporary file.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or (error.filename is not None and str(error.filename) != str(written_as)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


def temporary_name(name: str = "") -> str:
    """Return a new temporary name for a file or folder.

    Args:
        name: the name that the file or folder will get when it is complete; "" if it will not be renamed.
    """
    return f"{TEMPORARY}{uuid.uuid4().hex}-{name}"


def temporary_folder(parent: Path | None = None) -> tempfile.TemporaryDirectory[str]:
    """Create a temporary folder, which the `with` statement deletes at its end.

    Args:
        parent: the folder to create it in; None for the system's folder for temporary files.
    """
    return tempfile.TemporaryDirectory(prefix=temporary_name(), dir=parent)


def remove_temporaries(folder: str | Path, older_than_s: float = 0) -> None:
    """Delete the temporary files and folders that killed processes left in a folder; a missing folder is no error.

    Args:
        older_than_s: keep files and folders that changed within this many seconds, since another process may still be
            writing them; 0 to delete all.
    """
    if not Path(folder).is_dir():
        return
    for path in Path(folder).iterdir():
        if not _TEMPORARY_NAME.fullmatch(path.name) or path.is_symlink():
            continue
        with contextlib.suppress(FileNotFoundError):  # its process has just renamed it
            if older_than_s and time.time() - path.stat().st_mtime < older_than_s:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            elif path.is_file():
                path.unlink()


def remove_files(folder: str | Path, names: Iterable[str]) -> None:
    """Remove files in a folder, and the subfolders that become empty; nothing else is removed.

    A missing file is no error. A link is removed, and not the file that it leads to.

    Args:
        names: the paths of the files, relative to the folder, in the order in which to remove them.
    """
    subfolders: set[Path] = set()
    for name in names:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            Path(folder, name).unlink()
        subfolders.update(Path(name).parents[:-1])
    for subfolder in sorted(subfolders, key=lambda path: -len(path.parts)):
        with contextlib.suppress(OSError):  # it is missing, or holds files of somebody
            Path(folder, subfolder).rmdir()


@contextlib.contextmanager
def atomic_write(path: str | Path) -> Iterator[BinaryIO]:
    """Open a temporary file for writing; at the end of the `with` block it replaces `path`, unless the block raises.

    The folder of `path` is created if it is missing.

    Raises:
        OSError: the file cannot be written; the message names `path`.
    """
    target = Path(path)
    temporary = target.with_name(temporary_name(target.name))
    with path_in_errors(target, written_as=temporary):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as stream:
                yield stream
            move(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file atomically: after a failure, the path still holds the earlier file, or no file.

    The folder of `path` is created if it is missing.

    Raises:
        OSError: the file cannot be written; the message names `path`.
    """
    with atomic_write(path) as stream:
        stream.write(content)


def write_text(path: str | Path, text: str) -> None:
    """Write a UTF-8 file atomically, and create its folder if it is missing.

    A lone surrogate, which UTF-8 cannot encode, is written as an escape such as `\\ud800`.

    Raises:
        OSError: the file cannot be written; the message names `path`.
    """
    write_bytes(path, text.encode("utf-8", errors="backslashreplace"))


def move(source: Path, target: Path) -> None:
    """Flush a file's content to disk, rename the file atomically, and flush the new name to disk.

    Args:
        target: the new path, on the same file system.

    Raises:
        OSError: the file cannot be renamed; the message names `target`.
    """
    with path_in_errors(target, written_as=source):
        sync(source)
        source.replace(target)
        sync(target.parent)


def sync(path: Path) -> None:
    """Flush a file's content, or a folder's list of names, to disk (`fsync`)."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


@contextlib.contextmanager
def locked(folder: str | Path, shared: bool = False) -> Iterator[None]:
    """Create an output folder, and lock it for this process until the end of the `with` block or of the process.

    Some network file systems have no locks. There the folder is not locked, and a message on stderr says so.

    Args:
        folder: the folder.
        shared: whether other processes may hold the lock too, if theirs is shared as well.

    Raises:
        InUseError: another process holds the lock.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    number = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(number, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUseError(
                f"{folder}: another run is writing to this folder: wait for that run, or stop it"
            ) from None
        except OSError as error:
            reason = f"its file system has no locks ({error.strerror})"
            print(f"{folder}: {reason}: start no second run in this folder", file=sys.stderr)
        yield
    finally:
        os.close(number)
