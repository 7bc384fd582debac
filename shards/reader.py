"""Verified reader of datasets, which compares every shard with the manifest (size, sha256, counts).

    manifest -> local shard, or copy of a remote shard in the cache -> hash -> tar -> layout -> record batches

A truncated tar can be read as a shorter valid tar, so only the manifest's figures prove that a shard is complete. The
shards of a dataset on an object store are downloaded one by one into the cache (`common.files.cache_folder`), where the
name of each file is the shard's hash. A damaged copy is downloaded again (`common.verified_cache`).
"""

import hashlib
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from clearspan.common.checksummed import FileInfo, HashingFile
from clearspan.common.files import cache_folder, path_in_errors, write_bytes
from clearspan.common.typed import checked
from clearspan.common.verified_cache import has_sha256
from clearspan.shards import storage, ustar
from clearspan.shards.contents import Contents, Totals
from clearspan.shards.layouts import MemberError
from clearspan.shards.manifest import FILES_FOLDER, TOKENIZER_FOLDER, Manifest, ShardInfo, TokenizerInfo
from clearspan.shards.schema import KINDS, Schema

Members = Callable[[Path], Iterator[tuple[str, bytes]]]
BUFFER_BYTES = 1 << 18
"""Size of the blocks in which a shard is read back and hashed."""


class ShardError(ValueError):
    """A shard or resource differs from the manifest. The message names the file and says what to do."""


def check_bytes(path: Path, shard: ShardInfo) -> None:
    """Raise ShardError if the size or hash of a local shard differs from its entry in the manifest."""
    if difference := FileInfo(shard.bytes, shard.sha256).difference(FileInfo.of(path)):
        raise ShardError(f"{shard.name}: {difference}")


def tar_members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of the files of a local shard.

    Raises:
        tarfile.ReadError: the tar is damaged, or was not written by `shards.writer`.
    """
    with path.open("rb", BUFFER_BYTES) as stream:
        yield from ustar.members(stream)


def read_batches(
    path: Path, shard: ShardInfo, members: Members = tar_members, measured: type[Totals] = Totals
) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of a local shard, in order.

    Args:
        shard: the shard's entry in the manifest.
        members: function that yields (name, content) of each file of a tar.
        measured: class that selects the figures to compare with the manifest: `Totals` for the numbers of batches,
            examples and tokens, `Contents` for all figures.

    Raises:
        ShardError: a member is not a batch of examples, or (after the last batch) a figure differs from the manifest.
    """
    contents = measured()
    try:
        for batch in shard.kind.layout.batches(members(path), shard.kind.check):
            contents.add(batch, shard.kind)
            yield batch
    except tarfile.TarError as error:
        raise ShardError(f"{shard.name}: not a readable tar ({error})") from None
    except MemberError as error:
        raise ShardError(f"{shard.name}/{error}") from None
    if difference := contents.difference(shard):
        raise ShardError(f"{shard.name}: holds {difference}")


def read_back(path: Path, shard: ShardInfo) -> None:
    """Check a local shard that was just written: hash every byte and decode every member, in one pass.

    Args:
        shard: the shard's entry in the manifest.

    Raises:
        ShardError: the shard differs from its entry in the manifest.
    """
    with path_in_errors(path), path.open("rb", BUFFER_BYTES) as stream:
        file = HashingFile(stream)
        for _ in read_batches(path, shard, lambda _: ustar.members(file), Contents):
            pass
    if difference := FileInfo(shard.bytes, shard.sha256).difference(file.info):
        raise ShardError(f"{shard.name}: {difference}")


def read_resource(folder: str, path: str, sha256: str) -> bytes:
    """Return the content of a resource: a file beside the shards, such as a file of the tokenizer.

    Args:
        path: path of the resource in the dataset's folder.
        sha256: the resource's hash in the manifest.

    Raises:
        ShardError: the file is missing, or has another hash.
    """
    full_path = storage.join(folder, *path.split("/"))
    remedy = "put it back, or run the pipeline again"
    if not storage.exists(full_path):
        raise ShardError(f"{full_path}: the manifest names this file, but it is missing: {remedy}")
    data = storage.read_bytes(full_path)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ShardError(f"{full_path}: its sha256 is not the manifest's: the file is damaged; {remedy}")
    return data


class Dataset:
    """A finished dataset, in a local folder or on an object store; iterating yields its record batches.

    Args:
        folder: path or URL of the dataset's folder.

    Raises:
        ManifestError: the folder has no readable manifest.
        ShardError: (while reading) a shard is missing or differs from the manifest.
    """

    @checked
    def __init__(self, folder: str | Path) -> None:
        self.folder = str(folder)
        self.manifest = Manifest.load(self.folder)

    @property
    def shards(self) -> list[ShardInfo]:
        """The manifest's entries of the shards."""
        return self.manifest.shards

    @property
    def num_examples(self) -> int:
        """The number of examples in all shards."""
        return self.manifest.totals["examples"]

    @property
    def kind(self) -> Schema:
        """The kind of the dataset's examples."""
        return KINDS[self.manifest.kind]

    @property
    def tokenizer(self) -> TokenizerInfo:
        """The tokenizer that made the token ids; raises ShardError for a dataset without token ids."""
        if self.manifest.tokenizer is None:
            raise ShardError(f"{self.folder}: {self.manifest.kind} have no tokenizer: name a dataset of token ids")
        return self.manifest.tokenizer

    @property
    def vocab_size(self) -> int:
        """The number of token ids of the tokenizer; every id is less than this number.

        Raises:
            ShardError: the dataset has no token ids.
        """
        return self.tokenizer.vocab_size

    @property
    def tokenizer_folder(self) -> str:
        """The path or URL of the folder with a copy of the tokenizer that made the token ids.

        If the dataset has no token ids, there is no such folder.
        """
        return storage.join(self.folder, TOKENIZER_FOLDER)

    def local_tokenizer(self) -> Path:
        """Return the tokenizer's folder as a local path, downloading it from an object store into the cache.

        Raises:
            ShardError: the dataset has no token ids; or a file of the tokenizer is missing or differs from the
                manifest; or the folder holds a file that the manifest does not list, which a tokenizer's loader might
                read.
        """
        files = self.tokenizer.files
        local = Path(self.tokenizer_folder)
        if is_remote := storage.is_remote(self.folder):
            local = cache_folder() / hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()
        for name, sha256 in files.items():
            if not is_remote:
                read_resource(str(local), name, sha256)
            elif not has_sha256(local / name, sha256):
                write_bytes(local / name, read_resource(self.tokenizer_folder, name, sha256))
        for name in storage.list_files(str(local)):
            if name not in files and not name.startswith("."):
                raise ShardError(f"{local / name}: the manifest names no such file of the tokenizer: remove it")
        return local

    @property
    def files(self) -> dict[str, str]:
        """The hashes of all resources except the tokenizer, such as synonyms or class names: file name -> sha256."""
        return dict(self.manifest.fingerprint.get("options", {}).get("files", {}))

    def read_file(self, name: str) -> bytes:
        """Return the content of a resource that `files` lists.

        Raises:
            KeyError: `files` has no such name.
            ShardError: the file is missing or differs from the manifest.
        """
        return read_resource(self.folder, f"{FILES_FOLDER}/{name}", self.files[name])

    def fetch(self, shard: ShardInfo) -> Path:
        """Return the local path of a shard whose size and hash match the manifest, downloading the shard if needed.

        Raises:
            ShardError: the shard is missing or damaged.
        """
        source = storage.join(self.folder, shard.name)
        if storage.is_remote(self.folder):
            local = cache_folder() / f"{shard.sha256}.tar"
            if has_sha256(local, shard.sha256):
                return local
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
        """Yield the record batches of a shard in order, after comparing its hash with the manifest.

        Args:
            shard: the shard's entry in the manifest.
            measured: class that selects the figures to compare with the manifest: `Totals` for the numbers of batches,
                examples and tokens, `Contents` for all figures.

        Raises:
            ShardError: the shard is missing or damaged, a member is not a batch, or (after the last batch) a figure
                differs from the manifest.
        """
        yield from read_batches(self.fetch(shard), shard, measured=measured)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield every batch of every shard, in the manifest's order."""
        for shard in self.shards:
            yield from self.batches(shard)
