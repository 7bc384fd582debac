"""Folders that tell when they were changed: a manifest in each holds size and sha256 of every file, and its own hash.

    files -> seal: manifest.json, written last -> check, before they are used: the manifest's content, or DamageError

A checkpoint, what an export needs besides the weights, and an exported model are such folders.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shards.sealed import build, seal, unseal
from shards.storage import publish_bytes

NAME = "manifest.json"
FORMAT = "clearspan-folder"
VERSION = 1
MAX_BYTES = 1 << 22


class DamageError(ValueError):
    """A folder is not as it was sealed. The message names the file."""


@dataclass(frozen=True)
class FileInfo:
    """A file as it was written."""

    bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> "FileInfo":
        with path.open("rb") as stream:
            return cls(path.stat().st_size, hashlib.file_digest(stream, "sha256").hexdigest())


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
    publish_bytes(seal(record, indent=1), str(folder / NAME))


def read_manifest(folder: Path, kind: str) -> tuple[dict[str, Any], dict[str, FileInfo]]:
    """(content, files) of a folder's manifest.

    Raises:
        DamageError: there is none, it was changed, or it is another kind's.
    """
    path = folder / NAME
    try:
        with path.open("rb") as stream:
            record = unseal(stream.read(MAX_BYTES))
        found = [record.pop(key, None) for key in ("format", "version", "kind")]
        if found != [FORMAT, VERSION, kind]:
            raise ValueError(f"{json.dumps(found)[:80]}, not {json.dumps([FORMAT, VERSION, kind])}")
        return record, {name: build(FileInfo, info) for name, info in dict(record.pop("files", {})).items()}
    except FileNotFoundError:
        raise DamageError(f"{path}: missing") from None
    except PermissionError:
        raise
    except (OSError, ValueError, TypeError) as error:
        raise DamageError(f"{path}: damaged ({error})") from None


def check_file(path: Path, info: FileInfo) -> None:
    """Raises DamageError where a file is not as it was written."""
    try:
        size = path.stat().st_size
        if size != info.bytes:
            raise DamageError(f"{path}: damaged ({size:,} bytes where {info.bytes:,} were written)")
        if FileInfo.of(path) != info:
            raise DamageError(f"{path}: damaged (its sha256 is not that of what was written)")
    except FileNotFoundError:
        raise DamageError(f"{path}: missing") from None
    except PermissionError:
        raise
    except OSError as error:
        raise DamageError(f"{path}: cannot be read ({error})") from None


def check_folder(folder: Path, kind: str) -> tuple[dict[str, Any], dict[str, FileInfo]]:
    """`read_manifest` of a folder whose files are all as they were written.

    Raises:
        DamageError: they are not.
    """
    content, files = read_manifest(folder, kind)
    for name, info in files.items():
        check_file(folder / name, info)
    return content, files
