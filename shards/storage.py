"""The one seam to files: local paths through the operating system, `scheme://` paths through Beam's filesystems.

Publishing is all or nothing: locally a temporary name in the same folder, fsync, rename; on an object store one PUT to
the final key. Nothing here interprets what the files hold.
"""

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

COPY_BYTES = 1 << 20
TEMPORARY = ".part-"
"""Marks the temporary name of a file being published; such a name is never read."""


def is_remote(path: str) -> bool:
    return "://" in path


def _beam() -> Any:
    """Beam's filesystem registry, imported only where a path needs it (the import takes seconds)."""
    from apache_beam.io.filesystems import FileSystems

    return FileSystems


def join(folder: str, *names: str) -> str:
    return "/".join([folder.rstrip("/"), *names]) if is_remote(folder) else str(Path(folder, *names))


def exists(path: str) -> bool:
    return bool(_beam().exists(path)) if is_remote(path) else Path(path).exists()


def open_input(path: str) -> BinaryIO:
    """Opens for reading, as raw bytes: no decompression by file name."""
    if is_remote(path):
        from apache_beam.io.filesystem import CompressionTypes

        return _beam().open(path, compression_type=CompressionTypes.UNCOMPRESSED)
    return Path(path).open("rb")


def read_bytes(path: str) -> bytes:
    with open_input(path) as stream:
        return stream.read()


def file_sizes(folder: str) -> dict[str, int]:
    """Bytes of the files directly in a folder, by name, sorted; a folder that is not there has none."""
    if is_remote(folder):
        (match,) = _beam().match([join(folder, "*")])
        sizes = {entry.path.rsplit("/", 1)[1]: entry.size_in_bytes for entry in match.metadata_list}
    elif Path(folder).is_dir():
        sizes = {entry.name: entry.stat().st_size for entry in os.scandir(folder) if entry.is_file()}
    else:
        sizes = {}
    return dict(sorted(sizes.items()))


def list_files(folder: str) -> list[str]:
    """Names of the files directly in a folder, sorted; a folder that is not there has none."""
    return list(file_sizes(folder))


def remove(path: str) -> None:
    """Removes a file; one that is not there is no error."""
    if is_remote(path):
        if exists(path):
            _beam().delete([path])
    else:
        Path(path).unlink(missing_ok=True)


def remove_temporaries(folder: str) -> None:
    """Removes what killed processes left half published in a local folder; object stores keep no such thing."""
    if not is_remote(folder) and Path(folder).is_dir():
        for entry in Path(folder).glob(f"{TEMPORARY}*"):
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink(missing_ok=True)


@contextlib.contextmanager
def _atomic(path: str) -> Iterator[BinaryIO]:
    """A local file that appears under its name whole, and on disk, or not at all."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{TEMPORARY}{uuid.uuid4().hex}-{target.name}")
    try:
        with temporary.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(target)
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        temporary.unlink(missing_ok=True)


def publish_bytes(data: bytes, path: str) -> None:
    """Writes a small file whole or not at all."""
    if is_remote(path):
        with _beam().create(path, mime_type="application/octet-stream") as stream:
            stream.write(data)
    else:
        with _atomic(path) as stream:
            stream.write(data)


def publish_file(local: Path, path: str) -> None:
    """Copies a finished local file to its final name, whole or not at all."""
    with local.open("rb") as source:
        if is_remote(path):
            with _beam().create(path, mime_type="application/x-tar") as stream:
                shutil.copyfileobj(source, stream, COPY_BYTES)
        else:
            with _atomic(path) as stream:
                shutil.copyfileobj(source, stream, COPY_BYTES)


def download(path: str, local: Path) -> None:
    """Copies a file to a local name, whole or not at all."""
    with open_input(path) as source, _atomic(str(local)) as stream:
        shutil.copyfileobj(source, stream, COPY_BYTES)
