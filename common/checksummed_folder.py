"""Checksummed folders: a manifest records the size and sha256 of every file, and its own hash, to detect changes.

    files of a folder -> write_manifest -> manifest.json, written last
    manifest.json and files -> check_folder, before use -> content of the manifest, or FolderChangedError

Checkpoints and exported models are such folders. A user may have changed such a folder on purpose. So before it is
made again, the changed folder is renamed (`set_aside`).
"""

import contextlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from clearspan.common.checksummed import FileInfo, dump_checksummed, load_checksummed
from clearspan.common.files import write_bytes

NAME = "manifest.json"
FORMAT = "clearspan-folder"
VERSION = 1
MAX_BYTES = 1 << 22


class FolderChangedError(ValueError):
    """A folder differs from its manifest. The message names the file that has changed, is missing or is new."""


def files_in(folder: Path) -> list[str]:
    """Return the sorted relative paths of all files and links under a folder, except its manifest and hidden files.

    A file is hidden if its name, or the name of a folder in its relative path, begins with a dot.
    """
    names = [path.relative_to(folder) for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    return sorted(
        name.as_posix() for name in names if name != Path(NAME) and not any(part.startswith(".") for part in name.parts)
    )


def write_manifest(folder: Path, kind: str, content: Mapping[str, Any] | None = None) -> None:
    """Write `manifest.json`, which holds the size and SHA-256 of every file in a folder, and its own SHA-256.

    A file is left out if its name, or the name of a folder in its relative path, begins with a dot.

    Args:
        kind: the kind of folder, e.g. a checkpoint; `check_folder` raises an error if another kind is expected.
        content: further fields of the manifest, which `check_folder` returns; None for no further fields.
    """
    record = {
        "format": FORMAT,
        "version": VERSION,
        "kind": kind,
        **(content or {}),
        "files": {name: asdict(FileInfo.of(folder / name)) for name in files_in(folder)},
    }
    write_bytes(folder / NAME, dump_checksummed(record, indent=1))


def read_manifest(folder: Path, kind: str) -> tuple[dict[str, Any], dict[str, FileInfo]]:
    """Read the manifest of a folder.

    Args:
        kind: the expected kind of folder, such as a checkpoint.

    Returns:
        (the further fields that `write_manifest` put into the manifest, relative path -> size and hash of each file).

    Raises:
        FolderChangedError: the manifest is missing or damaged, is of another kind, or lists files outside the folder.
    """
    path = folder / NAME
    with _damage_of(path):
        with path.open("rb") as stream:
            record = load_checksummed(stream.read(MAX_BYTES))
        header = [record.pop(key, None) for key in ("format", "version", "kind")]
        if header != [FORMAT, VERSION, kind]:
            raise ValueError(f"{json.dumps(header)[:80]}, not {json.dumps([FORMAT, VERSION, kind])}")
        files = dict(record.pop("files", {}))
        if outside := [name for name in files if Path(name).is_absolute() or ".." in Path(name).parts]:
            raise ValueError(f"it lists {json.dumps(outside[0])[:80]}, which is outside the folder")
        return record, {name: FileInfo(**info) for name, info in files.items()}


@contextlib.contextmanager
def _damage_of(path: Path) -> Iterator[None]:
    """Turn an error in reading a file, except PermissionError, which shows no change, into a FolderChangedError."""
    try:
        yield
    except FileNotFoundError:
        raise FolderChangedError(f"{path}: missing") from None
    except PermissionError:
        raise
    except (OSError, ValueError, TypeError) as error:
        raise FolderChangedError(f"{path}: damaged ({error})") from None


def check_folder(
    folder: Path,
    kind: str,
    refuse_missing: bool = True,
    refuse_unlisted: bool = True,
    unchecked_suffixes: Sequence[str] = (),
) -> dict[str, Any]:
    """Compare the files in a folder with its manifest; return the further fields that `write_manifest` put into it.

    A file is ignored if its name, or the name of a folder in its relative path, begins with a dot.

    Args:
        kind: the expected kind of folder, such as a checkpoint.
        refuse_missing: True if a missing file is an error; False to ignore it.
        refuse_unlisted: True if a file that the manifest does not list is an error; False to ignore it.
        unchecked_suffixes: endings of file names, in lower case, such as `.md`; files with these are not checked.

    Raises:
        FolderChangedError: the manifest is missing, damaged or of another kind; a file has changed; a file is missing
            and `refuse_missing` is true; or a file is not listed and `refuse_unlisted` is true.
        PermissionError: a file may not be read.
    """
    content, listed = read_manifest(folder, kind)
    files = {name: info for name, info in listed.items() if not name.lower().endswith(tuple(unchecked_suffixes))}
    present = [name for name in files_in(folder) if not name.lower().endswith(tuple(unchecked_suffixes))]
    if refuse_unlisted and (added := [name for name in present if name not in files]):
        raise FolderChangedError(f"{folder / added[0]}: is not a file of this folder")
    for name in files if refuse_missing else files.keys() & set(present):
        with _damage_of(folder / name):
            if difference := files[name].difference(FileInfo.of(folder / name)):
                raise ValueError(difference)
    return content


def set_aside(folder: Path, ending: str = "damaged") -> Path:
    """Rename a folder to NAME.damaged, or to NAME.damaged-2, -3, ... if that exists; return the new path.

    Args:
        ending: the word to write in place of "damaged".

    Raises:
        OSError: the folder cannot be renamed.
    """
    for number in itertools.count(1):
        aside = folder.with_name(f"{folder.name}.{ending}{f'-{number}' if number > 1 else ''}")
        if not aside.exists():
            return folder.rename(aside)
    raise AssertionError
