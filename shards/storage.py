"""The one seam to files: local paths through the operating system, `scheme://` paths through Beam's filesystems.

Publishing is all or nothing: locally a temporary name in the same folder, fsync, rename; on an object store one PUT to
the final key. Nothing here interprets what the files hold.

Object stores are reached with what their own clients read from the environment (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID,
GOOGLE_APPLICATION_CREDENTIALS, STORAGE_EMULATOR_HOST, ...); `use_options` gives them Beam's options instead. Whatever
fails there is an OSError that names the path.
"""

import contextlib
import functools
import glob
import hashlib
import io
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO, cast

from clearspan.common import files
from clearspan.common.files import COPY_BYTES
from clearspan.shards import finding


class StoreError(OSError):
    """An object store did not do what was asked. The message names the path."""


def is_remote(path: str) -> bool:
    return "://" in path


def _beam() -> Any:
    """Beam's filesystem registry, imported only where a path needs it (the import takes seconds)."""
    from apache_beam.io.filesystems import FileSystems

    if FileSystems._pipeline_options is None:  # s3:// wants some
        from apache_beam.options.pipeline_options import PipelineOptions

        FileSystems.set_options(PipelineOptions([]))
    _share_sessions()
    return FileSystems


@functools.cache
def _share_sessions() -> None:
    """Gives Beam one boto3 session a thread. It would make one for every call on s3://, at 0.1 s each."""
    from apache_beam.io.aws.clients.s3 import boto3_client

    if boto3_client.boto3 is None:
        return
    make, kept = boto3_client.boto3.session.Session, threading.local()

    def session() -> Any:
        if not hasattr(kept, "session"):
            kept.session = make()
        return kept.session

    boto3_client.boto3 = SimpleNamespace(session=SimpleNamespace(Session=session))


def use_options(arguments: Sequence[str]) -> None:
    """Sets up Beam's filesystems in this process with Beam's options, e.g. --s3_endpoint_url."""
    from apache_beam.options.pipeline_options import PipelineOptions

    _beam().set_options(PipelineOptions(list(arguments)))


def unknown_options(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the arguments that are options which Beam does not have, and the options that it has, e.g. --runner."""
    from apache_beam.options.pipeline_options import PipelineOptions

    options = PipelineOptions(list(arguments))
    known = options.get_all_options().keys()
    unknown = options.get_all_options(retain_unknown_options=True).keys() - known
    words = [word for word in arguments if word[2:].split("=")[0].replace("-", "_") in unknown]
    return words, [f"--{name}" for name in known]


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Turns what an object store's client raises into an OSError that names the path."""
    try:
        yield
    except (StoreError, FileNotFoundError):
        raise
    except Exception as error:
        if getattr(error, "code", None) == 404:
            raise FileNotFoundError(f"{path}: no such object, or no such bucket") from None
        raise StoreError(f"{path}: {type(error).__name__}: {error}") from error


class _Object(io.RawIOBase):
    """An object being read."""

    def __init__(self, path: str, stream: Any) -> None:
        self.path, self.stream = path, stream

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _naming(self.path):
            data = self.stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        with _naming(self.path):
            self.stream.seek(offset, whence)
            return int(self.stream.tell())

    def tell(self) -> int:
        return int(self.stream.tell())

    def read_at(self, offset: int, size: int) -> bytes:
        """A request of this range alone, beneath the buffers of 16 MiB that Beam reads through."""
        stream = getattr(self.stream, "raw", self.stream)
        with _naming(self.path):
            place, least = stream.tell(), getattr(stream, "_chunk_size", None)
            try:
                if least:
                    stream._chunk_size = size
                stream.seek(offset)
                return bytes(stream.read(size))
            finally:
                stream.seek(place)
                if least:
                    stream._chunk_size = least

    def close(self) -> None:
        if not self.closed:
            self.stream.close()
        super().close()


def join(folder: str, *names: str) -> str:
    return "/".join([folder.rstrip("/"), *names]) if is_remote(folder) else str(Path(folder, *names))


def exists(path: str) -> bool:
    if is_remote(path):
        with _naming(path):
            return bool(_beam().exists(path))
    return Path(path).exists()


def open_input(path: str) -> BinaryIO:
    """Opens for reading and seeking, as raw bytes: no decompression by file name."""
    if is_remote(path):
        from apache_beam.io.filesystem import CompressionTypes

        with _naming(path):
            stream = _beam().open(path, compression_type=CompressionTypes.UNCOMPRESSED)
        return cast(BinaryIO, io.BufferedReader(_Object(path, stream), COPY_BYTES))
    return Path(path).open("rb", buffering=COPY_BYTES)


def read_at(stream: BinaryIO, offset: int, size: int) -> bytes:
    """Bytes from a place of a file that `open_input` opened; few more are fetched, and the stream stays where it is."""
    raw = getattr(stream, "raw", None)
    return raw.read_at(offset, size) if isinstance(raw, _Object) else os.pread(stream.fileno(), size, offset)


def size(path: str) -> int:
    """Bytes of a file."""
    if is_remote(path):
        with _naming(path):
            (match,) = _beam().match([path])
            if not match.metadata_list:
                raise FileNotFoundError(f"{path}: no such object")
            return int(match.metadata_list[0].size_in_bytes)
    return Path(path).stat().st_size


def find(pattern: str, others: dict[str, str] | None = None) -> dict[str, int]:
    """Bytes of the files that a path, a folder or a glob names, by path, sorted; `**` is any number of folders.

    A folder stands for all files under it. Local links are followed (`shards.finding`); `others` receives the names
    that gave way to another of the same file.

    Raises:
        FileNotFoundError: there is none, or a link leads nowhere.
    """
    if is_remote(pattern):
        below = f"{glob.escape(pattern)}**" if pattern.endswith("/") else pattern
        with _naming(pattern):
            (match,) = _beam().match([below])
        sizes = {entry.path: int(entry.size_in_bytes) for entry in match.metadata_list}
        # An object that ends in "/" stands for a folder in some consoles.
        found = {path: sizes[path] for path in sorted(sizes) if not path.endswith("/")}
    else:
        found = finding.once(finding.matches(pattern), others)
    if not found:
        raise FileNotFoundError(f"{pattern}: no files in it" if is_folder(pattern) else f"{pattern}: no such file")
    return found


def is_folder(pattern: str) -> bool:
    """Whether a path is a folder's; on an object store one that ends in a slash."""
    return pattern.endswith("/") if is_remote(pattern) else Path(pattern).is_dir()


def read_bytes(path: str) -> bytes:
    with open_input(path) as stream:
        return stream.read()


def sha256(path: str) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with open_input(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]


def file_sizes(folder: str) -> dict[str, int]:
    """Bytes of the files directly in a folder, by name, sorted; a folder that is not there has none."""
    if is_remote(folder):
        with _naming(folder):
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
            with _naming(path):
                _beam().delete([path])
    else:
        Path(path).unlink(missing_ok=True)


@contextlib.contextmanager
def _upload(path: str) -> Iterator[BinaryIO]:
    """An object that appears when it is closed. Beam's writers close on failure too: what that leaves is removed."""
    from apache_beam.io.filesystem import CompressionTypes

    plain = CompressionTypes.UNCOMPRESSED  # Beam would compress what is named .zst or .gz
    with _naming(path):
        try:
            with _beam().create(path, mime_type="application/octet-stream", compression_type=plain) as stream:
                yield stream
        except BaseException:
            with contextlib.suppress(Exception):
                _beam().delete([path])
            raise


def publish_bytes(data: bytes, path: str) -> None:
    """Write a file; it is there complete or not at all."""
    with _upload(path) if is_remote(path) else files.atomic_write(path) as stream:
        stream.write(data)


def keep(data: bytes, path: str) -> None:
    """Publishes a file, unless it is there already as it should be: what is finished is not touched."""
    if not exists(path) or read_bytes(path) != data:
        publish_bytes(data, path)


def tree(folder: str) -> list[str]:
    """Names of all files under a folder, relative to it, sorted; a local link counts as a file, and is not followed."""
    if is_remote(folder):
        with _naming(folder):
            (match,) = _beam().match([f"{glob.escape(folder.rstrip('/'))}/**"])
        start = len(folder.rstrip("/")) + 1
        return sorted(entry.path[start:] for entry in match.metadata_list if not entry.path.endswith("/"))
    names = []
    for place, folders, others in os.walk(folder):
        links = [name for name in folders if Path(place, name).is_symlink()]
        names += [Path(place, name).relative_to(folder).as_posix() for name in (*others, *links)]
    return sorted(names)


def publish_file(local: Path, path: str) -> None:
    """Gives a finished local file its final name, whole or not at all: on a disk, which must be the same, the file is
    moved; an object store gets a copy, in one PUT.
    """
    if is_remote(path):
        with local.open("rb") as source, _upload(path) as stream:
            shutil.copyfileobj(source, stream, COPY_BYTES)
    else:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        files.move(local, Path(path))


def download(path: str, local: Path) -> None:
    """Copies a file to a local name, whole or not at all."""
    with open_input(path) as source, files.atomic_write(local) as stream:
        shutil.copyfileobj(source, stream, COPY_BYTES)
