"""Verification of a whole dataset: read all shards again and compare them with every figure of the manifest.

A manifest can be wrong although its own sha256 is right, since anyone who edits it can compute a new hash. Loading a
manifest checks types, names, and whether its figures agree with each other (`shards.manifest`). Verification also
measures every figure of every shard (`shards.contents`). It compares token ids with the vocabulary size, the vocabulary
size with the tokenizer, and class numbers with the list of class names.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from clearspan.common.progress import ProgressBar
from clearspan.common.token_ids import vocab_size
from clearspan.common.typed import checked
from clearspan.shards import classes, storage, vectors
from clearspan.shards.contents import Contents
from clearspan.shards.manifest import FILES_FOLDER, NAME, ManifestError, ShardInfo
from clearspan.shards.reader import Dataset, ShardError
from clearspan.shards.schema import VECTOR, token_columns


@checked
def verify(folder: str | Path, quiet: bool = True) -> list[str]:
    """Read a whole dataset and return its problems, one line each; an empty list if there is none.

    Args:
        quiet: if true, no progress bar is shown.

    Raises:
        ManifestError: the folder has no readable manifest, or its figures contradict each other.
    """
    dataset = Dataset(folder)
    checks: list[Callable[[], object]] = [partial(_check_tokenizer, dataset)] if dataset.manifest.tokenizer else []
    checks += [partial(dataset.read_file, name) for name in dataset.files]
    checks += [partial(_check_classes, dataset)]
    checks += [partial(_check_shard, dataset, shard) for shard in dataset.shards]
    problems = []
    for check in ProgressBar(len(checks), f"reading {len(dataset.shards):,} shards", quiet, unit="file").over(checks):
        try:
            check()
        except (ShardError, ManifestError) as error:
            problems.append(str(error))
    return [*dict.fromkeys(problems), *_unnamed(dataset)]


def _check_tokenizer(dataset: Dataset) -> None:
    """Raise ShardError if the tokenizer's files, or its vocabulary size, if readable, differ from the manifest."""
    from tokenizers import Tokenizer

    path = dataset.local_tokenizer() / "tokenizer.json"
    try:
        vocabulary = Tokenizer.from_file(str(path)).get_vocab(with_added_tokens=True)
    except Exception:  # a file of another version of `tokenizers`, which raises no more specific type
        return
    try:
        size = vocab_size(vocabulary)
    except ValueError as error:
        raise ShardError(f"{path}: {error}") from None
    if size != dataset.vocab_size:
        raise ShardError(f"{path}: has {size:,} token ids where the manifest says {dataset.vocab_size:,}")


def _check_classes(dataset: Dataset) -> None:
    """Raise ManifestError or ShardError if the file of class names is damaged or does not fit the manifest."""
    names = classes.names(dataset.folder, dataset.manifest)
    taken = dataset.manifest.fingerprint.get("options", {}).get("taken")
    if names and isinstance(taken, dict) and taken.get("classes", len(names)) != len(names):
        stated = f"where the manifest says {taken['classes']}"
        raise ManifestError(f"{dataset.folder}/{classes.PATH}: names {len(names):,} classes {stated}")


def _check_shard(dataset: Dataset, shard: ShardInfo) -> None:
    """Raise ShardError if a shard differs from the manifest, holds an unknown token id, or holds NaN or infinity."""
    for batch in dataset.batches(shard, Contents):
        if VECTOR in batch.schema.names and not np.isfinite(vectors.decoded(batch)).all():
            raise ShardError(f"{shard.name}: holds a vector with a NaN or an infinity")
        for column in token_columns(batch.schema):
            ids = batch.column(column).flatten().to_numpy()
            if len(ids) and ids.max() >= dataset.vocab_size:
                raise ShardError(f"{shard.name}: token id {ids.max()} is outside the vocabulary")


def _unnamed(dataset: Dataset) -> Iterator[str]:
    """Yield a message on each tar or resource file in the dataset's folder that the manifest does not list."""
    named = {shard.name for shard in dataset.shards}
    for name in storage.list_files(dataset.folder):
        if name.endswith(".tar") and name not in named:
            yield f"{name}: a tar that {NAME} does not name: not part of the dataset; delete it"
    for name in storage.list_files(storage.join(dataset.folder, FILES_FOLDER)):
        if name not in dataset.files and not name.startswith("."):
            yield f"{FILES_FOLDER}/{name}: a file that {NAME} does not name: not part of the dataset; delete it"
