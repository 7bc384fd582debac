"""File access for paths that may be remote: local paths through the operating system, `scheme://` paths through Beam.

Files are published completely or not at all: a local file is renamed from a temporary name (`common.files`), and an
object is uploaded to its final key by one PUT.

The clients of object stores read their settings from the environment (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID,
GOOGLE_APPLICATION_CREDENTIALS, STORAGE_EMULATOR_HOST, ...); `use_options` sets Beam's options instead. Every failure of
an object store is raised as an OSError that names the path.

Beam's filesystems are used rather than fsspec's, because s3fs needs aiobotocore, which pins botocore to a range of
three patch releases, older than the boto3 that the rest of the environment uses.
"""

import contextlib
import functools
import glob
import hashlib
import io
import itertools
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO, TypeVar, cast

from clearspan.common.files import COPY_BYTES, atomic_write, move
from clearspan.common.files import remove_files as remove_local_files
from clearspan.shards import finding
from clearspan.shards.finding import Status

Item = TypeVar("Item")
Result = TypeVar("Result")
READERS = 16
"""Number of concurrent requests to an object store."""
AHEAD = 1000
"""Number of files whose results are in memory at a time, at most, so that memory does not
grow with the number of files.
"""
_ANY_FOLDERS = re.compile(r"(?<=/)(\*\*/)+(?!$)")
"""The part of a glob that stands for any number of folders."""


class StoreError(OSError):
    """A request to an object store failed. The message names the path."""


def is_remote(path: str) -> bool:
    """Return whether a path is on an object store."""
    return "://" in path


def _beam() -> Any:
    """Return Beam's filesystem registry. Beam is imported here and not at the top, because the import takes 2 s."""
    from apache_beam.io.filesystems import FileSystems

    if FileSystems._pipeline_options is None:  # without options, Beam's file system for s3:// fails
        from apache_beam.options.pipeline_options import PipelineOptions

        FileSystems.set_options(PipelineOptions([]))
    _share_sessions()
    return FileSystems


@functools.cache
def _share_sessions() -> None:
    """Make Beam reuse one boto3 session per thread instead of creating one for every call on s3:// (0.1 s each)."""
    from apache_beam.io.aws.clients.s3 import boto3_client

    if boto3_client.boto3 is None:
        return
    make = boto3_client.boto3.session.Session
    thread = threading.local()

    def session() -> Any:
        if not hasattr(thread, "session"):
            thread.session = make()
        return thread.session

    boto3_client.boto3 = SimpleNamespace(session=SimpleNamespace(Session=session))


def use_options(arguments: Sequence[str]) -> None:
    """Configure Beam's filesystems in this process with Beam's options, e.g. --s3_endpoint_url."""
    from apache_beam.options.pipeline_options import PipelineOptions

    _beam().set_options(PipelineOptions(list(arguments)))


def unknown_options(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return (the arguments that are not options of Beam, the names of all options of Beam, e.g. --runner)."""
    from apache_beam.options.pipeline_options import PipelineOptions

    options = PipelineOptions(list(arguments))
    known = options.get_all_options().keys()
    unknown = options.get_all_options(retain_unknown_options=True).keys() - known
    words = [word for word in arguments if word[2:].split("=")[0].replace("-", "_") in unknown]
    return words, [f"--{name}" for name in known]


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Turn a store client's exception into FileNotFoundError (no such object) or StoreError, which name the path."""
    try:
        yield
    except (StoreError, FileNotFoundError):
        raise
    except Exception as error:
        if getattr(error, "code", None) == 404:
            raise FileNotFoundError(f"{path}: no such object, or no such bucket") from None
        raise StoreError(f"{path}: {type(error).__name__}: {error}") from error


class _Object(io.RawIOBase):
    """Stream that reads an object of an object store."""

    def __init__(self, path: str, stream: Any) -> None:
        self.path = path
        self.stream = stream

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
        """Read `size` bytes at `offset` with one request, bypassing Beam's read buffers of 16 MiB."""
        stream = getattr(self.stream, "raw", self.stream)
        with _naming(self.path):
            position = stream.tell()
            chunk_bytes = getattr(stream, "_chunk_size", None)
            try:
                if chunk_bytes:
                    stream._chunk_size = size
                stream.seek(offset)
                return bytes(stream.read(size))
            finally:
                stream.seek(position)
                if chunk_bytes:
                    stream._chunk_size = chunk_bytes

    def close(self) -> None:
        if not self.closed:
            self.stream.close()
        super().close()


def join(folder: str, *names: str) -> str:
    """Return the path of a file under a folder."""
    return "/".join([folder.rstrip("/"), *names]) if is_remote(folder) else str(Path(folder, *names))


def exists(path: str) -> bool:
    """Return whether there is a local file or folder at this path, or an object if the path is on an object store."""
    if is_remote(path):
        with _naming(path):
            return bool(_beam().exists(path))
    return Path(path).exists()


def open_input(path: str) -> BinaryIO:
    """Open a file for reading and seeking. Its bytes are not decompressed, even if its name ends in .gz."""
    if is_remote(path):
        from apache_beam.io.filesystem import CompressionTypes

        with _naming(path):
            stream = _beam().open(path, compression_type=CompressionTypes.UNCOMPRESSED)
        return cast(BinaryIO, io.BufferedReader(_Object(path, stream), COPY_BYTES))
    return Path(path).open("rb", buffering=COPY_BYTES)


def read_at(stream: BinaryIO, offset: int, size: int) -> bytes:
    """Read `size` bytes at `offset` from a stream of `open_input`, without moving the stream's position.

    On an object store, this requests only these bytes and not a whole buffer.
    """
    raw = getattr(stream, "raw", None)
    return raw.read_at(offset, size) if isinstance(raw, _Object) else os.pread(stream.fileno(), size, offset)


def status(path: str) -> Status:
    """Return the metadata of a file or object, such as its size and the time at which it was last written.

    If the file is written again, the metadata change.

    Raises:
        FileNotFoundError: there is no such file.
    """
    if is_remote(path):
        with _naming(path):
            (match,) = _beam().match([glob.escape(path)])
            if not match.metadata_list:
                raise FileNotFoundError(f"{path}: no such object")
            return _status_of(match.metadata_list[0])
    return Status.of(Path(path).stat())


def _status_of(entry: Any) -> Status:
    """Return the metadata of an object from its entry in one of Beam's listings."""
    return Status(int(entry.size_in_bytes), round(entry.last_updated_in_seconds * 1e9), 0, 0)


def size(path: str) -> int:
    """Return the size of a file in bytes."""
    return status(path).bytes


def checksum(path: str) -> str:
    """Return the checksum that an object store reports for an object: the ETag on s3://, the CRC-32C on gs://."""
    with _naming(path):
        return str(_beam().checksum(path))


def find(pattern: str, left_out: set[str] | None = None) -> dict[str, Status]:
    """Return the files of a path, a folder or a glob: path -> status, sorted.

    A folder stands for all files under it; `**` in a glob matches any number of folders. Files and folders with hidden
    names, such as `.git` or `Thumbs.db`, are skipped. Names that begin with an underscore, such as Spark's `_SUCCESS`,
    are left out unless the pattern contains them (`finding.is_auxiliary`). If the pattern begins with the path of an
    existing file or folder, brackets in this path are not wildcards. Local links are followed, and a file with several
    names is listed once.

    Args:
        left_out: set to which the paths of the files that are left out are added; None if they are not needed.

    Raises:
        FileNotFoundError: no file matches, a link is broken, or a match is neither a file nor a folder.
    """
    auxiliary = set[str]()
    if is_remote(pattern):
        everything = "**" if pattern.endswith("/") else ""
        readings = [glob.escape(pattern) + everything, pattern.replace("[", "[[]"), pattern]
        with _naming(pattern):
            entries: list[Any] = next(filter(None, map(_matched, dict.fromkeys(readings))), [])
        statuses = {entry.path: _status_of(entry) for entry in entries}
        # Some consoles create an object that ends in "/" for a folder.
        paths = [path for path in statuses if not path.endswith("/") and not finding.is_below_hidden(path, pattern)]
        auxiliary = {path for path in paths if finding.is_below_auxiliary(path, pattern)}
        files = {path: statuses[path] for path in sorted(paths) if path not in auxiliary}
    else:
        files = finding.once(finding.matches(pattern, auxiliary))
    if left_out is not None:
        left_out |= auxiliary
    if not files and auxiliary:
        raise FileNotFoundError(
            f"{pattern}: only files below names that begin with _, e.g. {min(auxiliary)}, which are read only where a "
            "path or pattern names them"
        )
    if not files:
        raise FileNotFoundError(f"{pattern}: no files in it" if is_folder(pattern) else f"{pattern}: no such file")
    return files


def _matched(pattern: str) -> list[Any]:
    """Return Beam's entries of the objects that a glob matches. `**/` matches no folder too, other than for Beam."""
    from apache_beam.io.filesystem import FileSystem

    broad = _ANY_FOLDERS.sub("**", pattern)
    narrow = FileSystem.translate_pattern(_ANY_FOLDERS.sub("**/", pattern)).replace("/.*/", "/(?:.*/)?")
    entries = _beam().match([broad])[0].metadata_list
    return entries if broad == pattern else [entry for entry in entries if re.match(narrow, entry.path)]


def is_folder(pattern: str) -> bool:
    """Return whether a local path is a folder; on an object store, whether the path ends in a slash."""
    return pattern.endswith("/") if is_remote(pattern) else Path(pattern).is_dir()


def each(place: str, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield `work(item)` for each item, in order. If the files are on an object store, 16 calls run at the same time.

    A request to an object store takes tens of milliseconds, so that calls one after the other would be slow.

    Args:
        place: path of a file that `work` reads, or of its folder, which shows whether the files are on an object store.
    """
    if not is_remote(place):
        yield from map(work, items)
        return
    remaining = iter(items)
    with ThreadPoolExecutor(READERS) as pool:
        while part := list(itertools.islice(remaining, AHEAD)):
            yield from pool.map(work, part)


def read_bytes(path: str) -> bytes:
    """Return the content of a file."""
    with open_input(path) as stream:
        return stream.read()


def sha256(path: str) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with open_input(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]


def file_sizes(folder: str) -> dict[str, int]:
    """Return the files directly in a folder: name -> size in bytes, sorted; empty if there is no such folder."""
    if is_remote(folder):
        with _naming(folder):
            (match,) = _beam().match([join(glob.escape(folder), "*")])
        sizes = {entry.path.rsplit("/", 1)[1]: entry.size_in_bytes for entry in match.metadata_list}
    elif Path(folder).is_dir():
        sizes = {entry.name: entry.stat().st_size for entry in os.scandir(folder) if entry.is_file()}
    else:
        sizes = {}
    return dict(sorted(sizes.items()))


def list_files(folder: str) -> list[str]:
    """Return the names of the files directly in a folder, sorted; empty if there is no such folder."""
    return list(file_sizes(folder))


def _delete(path: str) -> None:
    """Delete an object. The path is escaped for gs:// only, because there Beam reads it as a glob pattern."""
    _beam().delete([glob.escape(path) if path.startswith("gs://") else path])


def remove(path: str) -> None:
    """Remove a file, if there is one."""
    if is_remote(path):
        if exists(path):
            with _naming(path):
                _delete(path)
    else:
        Path(path).unlink(missing_ok=True)


def remove_files(folder: str, names: Iterable[str]) -> None:
    """Remove files in a folder and, if it is local, the subfolders that become empty.

    Args:
        names: the paths of the files, relative to the folder, in the order in which to remove them.
    """
    if is_remote(folder):
        for name in names:
            remove(join(folder, name))
    else:
        remove_local_files(folder, names)


@contextlib.contextmanager
def _upload(path: str) -> Iterator[BinaryIO]:
    """Context manager that opens an object for writing. The object appears when the stream is closed.

    After an error in the context, Beam closes the stream too, and an incomplete object appears; it is then deleted.
    """
    from apache_beam.io.filesystem import CompressionTypes

    plain = CompressionTypes.UNCOMPRESSED  # Beam would compress a file named .zst or .gz
    with _naming(path):
        try:
            with _beam().create(path, mime_type="application/octet-stream", compression_type=plain) as stream:
                yield stream
                # Beam sends no part of an empty file, and S3 refuses an upload without one.
                if path.startswith("s3://") and not stream.tell():
                    stream.raw._uploader._write_to_s3(b"")
        except BaseException:
            with contextlib.suppress(Exception):
                _delete(path)
            raise


def publish_bytes(data: bytes, path: str) -> None:
    """Write a file, completely or not at all."""
    with _upload(path) if is_remote(path) else atomic_write(path) as stream:
        stream.write(data)


def publish_if_changed(data: bytes, path: str) -> None:
    """Write a file. If it already has this content, do nothing, so that its modification time does not change."""
    if not exists(path) or read_bytes(path) != data:
        publish_bytes(data, path)


def tree(folder: str) -> list[str]:
    """Return the relative paths of all files under a folder, sorted. Local links are listed but not followed."""
    if is_remote(folder):
        with _naming(folder):
            (match,) = _beam().match([f"{glob.escape(folder.rstrip('/'))}/**"])
        start = len(folder.rstrip("/")) + 1
        return sorted(entry.path[start:] for entry in match.metadata_list if not entry.path.endswith("/"))
    names = []
    for parent, folders, files in os.walk(folder):
        links = [name for name in folders if Path(parent, name).is_symlink()]
        names += [Path(parent, name).relative_to(folder).as_posix() for name in (*files, *links)]
    return sorted(names)


def publish_file(local: Path, path: str) -> None:
    """Publish a finished local file, completely or not at all.

    If `path` is local, the file is moved there, and `path` must be on the same disk; if it is on an object store, the
    file is copied in one PUT.
    """
    if is_remote(path):
        with local.open("rb") as source, _upload(path) as stream:
            shutil.copyfileobj(source, stream, COPY_BYTES)
    else:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        move(local, Path(path))


def download(path: str, local: Path) -> None:
    """Copy a file to a local path, completely or not at all."""
    with open_input(path) as source, atomic_write(local) as stream:
        shutil.copyfileobj(source, stream, COPY_BYTES)
