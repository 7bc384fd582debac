"""Reads a dataset: every shard is checked against the manifest (size, sha256, counts) before its examples are used.

    manifest -> shard: local in place, remote into the cache -> hash -> webdataset -> layout -> record batches

A truncated tar can read as a shorter, valid one, so only the manifest's figures say that a shard is whole. A dataset
on an object store is downloaded shard by shard into CLEARSPAN_CACHE (default ~/.cache/clearspan), named by content.
"""

import hashlib
import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from clearspan.common.files import path_in_errors
from clearspan.common.files import sha256 as local_sha256
from clearspan.shards import storage, ustar
from clearspan.shards.contents import Contents, Totals
from clearspan.shards.layouts import MemberError
from clearspan.shards.manifest import FILES_FOLDER, TOKENIZER_FOLDER, Manifest, ShardInfo, TokenizerInfo
from clearspan.shards.schema import KINDS, Kind
from clearspan.shards.sealed import FileInfo, HashingFile

Members = Callable[[Path], Iterator[tuple[str, bytes]]]
BUFFER_BYTES = 1 << 18
"""So much is read and hashed at a time where a shard is read back."""


class ShardError(ValueError):
    """A shard is not what the manifest says. The message names the shard and the mend."""


def cache_folder() -> Path:
    return Path(os.environ.get("CLEARSPAN_CACHE", Path.home() / ".cache" / "clearspan"))


def check_bytes(path: Path, shard: ShardInfo) -> None:
    """Raises ShardError where a local shard's size or hash is not what its entry in the manifest says."""
    if difference := FileInfo(shard.bytes, shard.sha256).difference(path):
        raise ShardError(f"{shard.name}: {difference}")


def webdataset_members(path: Path) -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of a tar's regular files, as webdataset reads them. Imported here, since it imports torch."""
    from webdataset.tariterators import tar_file_iterator

    with path.open("rb") as stream:
        for member in tar_file_iterator(stream):
            yield member["fname"], member["data"]


def tar_members(path: Path) -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of a tar's regular files without webdataset: a pipeline's workers, which check what they wrote,
    need no torch.
    """
    with tarfile.open(path, "r:") as tar:
        for member in tar:
            if stream := tar.extractfile(member):
                yield member.name, stream.read()


def read_batches(
    path: Path, shard: ShardInfo, members: Members = tar_members, measured: type[Totals] = Totals
) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of a local shard, in order.

    Args:
        members: lists a tar's files.
        measured: the figures to compare with the manifest's.

    Raises:
        ShardError: a member is no batch of examples, or (after the last) a figure is not the manifest's.
    """
    contents = measured()
    try:
        for batch in shard.kind.layout.batches(members(path), shard.kind.check):
            contents.add(batch)
            yield batch
    except tarfile.TarError as error:
        raise ShardError(f"{shard.name}: not a readable tar ({error})") from None
    except MemberError as error:
        raise ShardError(f"{shard.name}/{error}") from None
    if difference := contents.difference(shard):
        raise ShardError(f"{shard.name}: holds {difference}")


def read_back(path: Path, shard: ShardInfo) -> None:
    """Reads a shard that was just written, once: every byte is hashed and every member decoded on the way.

    Raises:
        ShardError: it is not what its writer says.
    """
    with path_in_errors(path), path.open("rb", BUFFER_BYTES) as stream:
        file = HashingFile(stream)
        for _ in read_batches(path, shard, lambda _: ustar.members(file), Contents):
            pass
    if difference := FileInfo(shard.bytes, shard.sha256).difference_from(file.info):
        raise ShardError(f"{shard.name}: {difference}")


def read_resource(folder: str, path: str, sha256: str) -> bytes:
    """The content of a file beside the shards, by its path in the dataset's folder.

    Raises:
        ShardError: it is missing, or not the one with that hash.
    """
    whole, mend = storage.join(folder, *path.split("/")), "put it back, or run the pipeline again"
    if not storage.exists(whole):
        raise ShardError(f"{whole}: the manifest names this file, but it is missing: {mend}")
    data = storage.read_bytes(whole)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ShardError(f"{whole}: its sha256 is not the manifest's: the file is damaged; {mend}")
    return data


class Dataset:
    """A published dataset folder, local or on an object store.

    Raises:
        ManifestError: the folder has no readable manifest.
        ShardError: (on reading) a shard is missing, or differs from the manifest.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = str(folder)
        self.manifest = Manifest.load(self.folder)

    @property
    def shards(self) -> list[ShardInfo]:
        return self.manifest.shards

    @property
    def num_examples(self) -> int:
        return self.manifest.totals["examples"]

    @property
    def kind(self) -> Kind:
        """What its examples are."""
        return KINDS[self.manifest.kind]

    @property
    def tokenizer(self) -> TokenizerInfo:
        """What made the ids. Raises ShardError for a dataset without token ids."""
        if self.manifest.tokenizer is None:
            raise ShardError(f"{self.folder}: {self.manifest.kind} have no tokenizer: name a dataset of token ids")
        return self.manifest.tokenizer

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.vocab_size

    @property
    def tokenizer_folder(self) -> str:
        """The folder in which the pipeline left a copy of the tokenizer that made the ids."""
        return storage.join(self.folder, TOKENIZER_FOLDER)

    def local_tokenizer(self) -> Path:
        """The tokenizer's folder as a local path; from an object store it is downloaded into the cache first.

        Raises:
            ShardError: one of its files is not the one of the manifest, or the manifest does not name it: a loader
                would take both for the tokenizer that made the ids.
        """
        files = self.tokenizer.files
        local = Path(self.tokenizer_folder)
        if storage.is_remote(self.folder):
            local = cache_folder() / hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()
            for name in files:
                if not (local / name).exists():
                    storage.download(storage.join(self.tokenizer_folder, name), local / name)
        for name, expected in files.items():
            if not (local / name).is_file() or local_sha256(local / name) != expected:
                if storage.is_remote(self.folder):
                    (local / name).unlink(missing_ok=True)
                raise ShardError(
                    f"{local / name}: missing, or not of the tokenizer that made the ids: run the pipeline again"
                )
        for name in storage.list_files(str(local)):
            if name not in files and not name.startswith("."):
                raise ShardError(f"{local / name}: the manifest names no such file of the tokenizer: remove it")
        return local

    @property
    def files(self) -> dict[str, str]:
        """The resources beside the tokenizer, such as the synonyms of views: name -> sha256."""
        folder = f"{FILES_FOLDER}/"
        resources = self.manifest.resources.items()
        return {path.removeprefix(folder): sha256 for path, sha256 in resources if path.startswith(folder)}

    def read_file(self, name: str) -> bytes:
        """The content of one of `files`.

        Raises:
            ShardError: it is missing, or not the one of the manifest.
        """
        return read_resource(self.folder, f"{FILES_FOLDER}/{name}", self.files[name])

    def fetch(self, shard: ShardInfo) -> Path:
        """A local path whose bytes are those of the manifest, downloading if needed."""
        source = storage.join(self.folder, shard.name)
        if storage.is_remote(self.folder):
            local = cache_folder() / f"{shard.sha256}.tar"
            if not local.exists():
                storage.download(source, local)
        else:
            local = Path(source)
            if not local.exists():
                raise ShardError(f"{source}: the manifest names this shard, but it is missing: run the pipeline again")
        try:
            check_bytes(local, shard)
        except ShardError as error:
            if storage.is_remote(self.folder):
                local.unlink()
            raise ShardError(
                f"{self.folder}: {error}: the shard is damaged; delete it and run the pipeline again"
            ) from None
        return local

    def batches(self, shard: ShardInfo, measured: type[Totals] = Totals) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of one shard in order, checked against the manifest by hash and `measured` figures.

        Raises:
            ShardError: the shard, or a member of it, is not what the manifest says.
        """
        yield from read_batches(self.fetch(shard), shard, webdataset_members, measured)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Every batch of every shard, in the manifest's order."""
        for shard in self.shards:
            yield from self.batches(shard)
