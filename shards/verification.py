"""Verification: a whole dataset read again, and all that its manifest derives from the shards compared with them.

A manifest can be wrong although its own sha256 is right: whoever edits one can seal it anew. So every figure of a shard
is measured (`shards.contents`), token ids are compared with the vocabulary, and classes with the table of their names.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from clearspan.shards import classes, storage
from clearspan.shards.contents import Contents
from clearspan.shards.manifest import FILES_FOLDER, NAME, ManifestError, ShardInfo
from clearspan.shards.reader import Dataset, ShardError
from clearspan.shards.schema import token_columns


def verify(folder: str | Path) -> list[str]:
    """Read a whole dataset again; return what is wrong with it, one line each (none: it is as published).

    Raises:
        ManifestError: the folder has no readable manifest.
    """
    dataset = Dataset(folder)
    checks: list[Callable[[], object]] = [dataset.local_tokenizer] if dataset.manifest.tokenizer else []
    checks += [partial(dataset.read_file, name) for name in dataset.files]
    checks += [partial(_check_classes, dataset)]
    checks += [partial(_check_shard, dataset, shard) for shard in dataset.shards]
    problems = []
    for check in checks:
        try:
            check()
        except (ShardError, ManifestError) as error:
            problems.append(str(error))
    return [*dict.fromkeys(problems), *_unnamed(dataset)]


def _check_classes(dataset: Dataset) -> None:
    """Raise ManifestError where the table of classes does not have as many names as the options say."""
    names = classes.names(dataset.folder, dataset.manifest)
    taken = dataset.manifest.fingerprint.get("options", {}).get("taken", {}).get("classes", len(names))
    if taken != len(names):
        raise ManifestError(f"{dataset.folder}/{classes.PATH}: names {len(names):,} classes of {taken:,}")


def _check_shard(dataset: Dataset, shard: ShardInfo) -> None:
    """Raise ShardError where a shard is not what the manifest says, or a token id is outside the vocabulary."""
    for batch in dataset.batches(shard, Contents):
        for column in token_columns(batch.schema):
            ids = batch.column(column).flatten().to_numpy()
            if len(ids) and ids.max() >= dataset.vocab_size:
                raise ShardError(f"{shard.name}: token id {ids.max()} is outside the vocabulary")


def _unnamed(dataset: Dataset) -> Iterator[str]:
    """Yield a line for each file that could be taken for the dataset's although its manifest does not name it."""
    named = {shard.name for shard in dataset.shards}
    for name in storage.list_files(dataset.folder):
        if name.endswith(".tar") and name not in named:
            yield f"{name}: a tar that {NAME} does not name: no part of the dataset; delete it"
    for name in storage.list_files(storage.join(dataset.folder, FILES_FOLDER)):
        if name not in dataset.files and not name.startswith("."):
            yield f"{FILES_FOLDER}/{name}: a file that {NAME} does not name: no part of the dataset; delete it"
