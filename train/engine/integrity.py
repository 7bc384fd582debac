"""Folders that tell when they were changed: a manifest in each holds size and sha256 of every file, and its own hash.

    files -> seal: manifest.json, written last -> check, before they are used: the manifest's content, or DamageError

A checkpoint, what an export needs besides the weights, and an exported model are such folders.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from clearspan.common.files import write_bytes
from clearspan.shards.sealed import FileInfo, build, seal, unseal

NAME = "manifest.json"
FORMAT = "clearspan-folder"
VERSION = 1
MAX_BYTES = 1 << 22
ANY = re.compile(r".*", re.DOTALL)


class DamageError(ValueError):
    """A folder is not as it was sealed. The message names the file."""


class AddedError(DamageError):
    """A folder holds a file that was not there when it was sealed."""


def files_in(folder: Path) -> list[str]:
    """Every file under a folder but its manifest, by its path in there; hidden ones apart. Links count as files."""
    names = [path.relative_to(folder) for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    return sorted(
        name.as_posix() for name in names if name != Path(NAME) and not any(part.startswith(".") for part in name.parts)
    )


def seal_folder(
    folder: Path, kind: str, files: Mapping[str, FileInfo] | None = None, content: Mapping[str, Any] | None = None
) -> None:
    """Writes the manifest of a folder whose files are there, as they were described or as they are."""
    described = files or {name: FileInfo.of(folder / name) for name in files_in(folder)}
    record = {
        "format": FORMAT,
        "version": VERSION,
        "kind": kind,
        **(content or {}),
        "files": {name: asdict(described[name]) for name in sorted(described)},
    }
    write_bytes(folder / NAME, seal(record, indent=1))


def read_manifest(folder: Path, kind: str) -> tuple[dict[str, Any], dict[str, FileInfo]]:
    """(content, files) of a folder's manifest.

    Raises:
        DamageError: there is none, it was changed, it is another kind's, or it lists files outside the folder.
    """
    path = folder / NAME
    try:
        with path.open("rb") as stream:
            record = unseal(stream.read(MAX_BYTES))
        found = [record.pop(key, None) for key in ("format", "version", "kind")]
        if found != [FORMAT, VERSION, kind]:
            raise ValueError(f"{json.dumps(found)[:80]}, not {json.dumps([FORMAT, VERSION, kind])}")
        files = dict(record.pop("files", {}))
        if outside := [name for name in files if Path(name).is_absolute() or ".." in Path(name).parts]:
            raise ValueError(f"it lists {json.dumps(outside[0])[:80]}, which is outside the folder")
        return record, {name: build(FileInfo, info) for name, info in files.items()}
    except FileNotFoundError:
        raise DamageError(f"{path}: missing") from None
    except PermissionError:
        raise
    except (OSError, ValueError, TypeError) as error:
        raise DamageError(f"{path}: damaged ({error})") from None


def _check_file(path: Path, info: FileInfo) -> None:
    """Raises DamageError where a file is not as it was written."""
    try:
        if difference := info.difference(path):
            raise DamageError(f"{path}: damaged ({difference})")
    except FileNotFoundError:
        raise DamageError(f"{path}: missing") from None
    except PermissionError:
        raise
    except OSError as error:
        raise DamageError(f"{path}: cannot be read ({error})") from None


def check_folder(
    folder: Path, kind: str, loaded: re.Pattern[str] = ANY, whole: bool = True
) -> tuple[dict[str, Any], dict[str, FileInfo]]:
    """`read_manifest` of a folder whose files are all as they were written, and that holds no others.

    `loaded` are the names that who loads the folder would take; others do not count. One that is not `whole` may lack
    files.

    Raises:
        DamageError: they are not.
        AddedError: it holds one more.
    """
    content, files = read_manifest(folder, kind)
    found = files_in(folder)
    for name in found:
        if name not in files and loaded.fullmatch(name):
            raise AddedError(f"{folder / name}: not part of it")
    for name in files if whole else files.keys() & set(found):
        _check_file(folder / name, files[name])
    return content, files
