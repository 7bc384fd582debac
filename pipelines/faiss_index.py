"""Approximate search of a dataset of vectors by faiss (extra `faiss`): an inverted index, built once.

    dataset -> a sample -> centroids -> vectors by nearest centroid -> the cache/HASH.faiss -> a query's lists

The index is named by the manifest's hash, so that of another dataset is never used. HASH.json beside it holds its size
and sha256, which each search compares: a damaged index is built again. Building it holds all vectors in memory as
float32; a search maps the file. Scores are those of the exact search, but a near vector is missed if its list
is not read. Vectors too few for lists are searched exactly.
"""

import dataclasses
import hashlib
import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np

from clearspan.common.files import cache_folder, move, temporary_name, write_bytes
from clearspan.common.progress import Bar
from clearspan.common.terminal import one_line
from clearspan.pipelines.errors import PipelineError, check_extra
from clearspan.pipelines.nearest import Hit, contents
from clearspan.shards import vectors
from clearspan.shards.reader import Dataset
from clearspan.shards.sealed import FileInfo, build, seal, unseal

VERSION = 1
"""Version of how an index is built, increased whenever that changes."""
SAMPLED = 64
"""Number of sampled vectors for each list; faiss advises 39 to 256."""
LEAST_LISTS = 8
PART_READ = 16
"""A query reads one of this many lists, and at least LEAST_LISTS."""


def search(dataset: Dataset, similarity: str, queries: np.ndarray, top: int, quiet: bool = False) -> list[list[Hit]]:
    """Return about the `top` nearest vectors of a dataset to each query (n, dim), best first.

    Args:
        similarity: cosine or dot.

    Raises:
        PipelineError: faiss is not installed, or has no index for this similarity.
    """
    check_extra("faiss", "faiss", what="--index faiss")
    import faiss

    if similarity not in ("cosine", "dot"):
        raise PipelineError(f"--index faiss: the model compares by {similarity} distance: leave out --index")
    is_cosine = similarity == "cosine"
    name = hashlib.sha256(f"{VERSION} {similarity}".encode() + dataset.manifest.to_json()).hexdigest()
    path = cache_folder() / f"{name}.faiss"
    if difference := _difference(path):
        if path.exists():
            print(f"{path}: {difference}: building the index again", file=sys.stderr)
        _build(faiss, dataset, is_cosine, path, quiet)
    index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)
    scores, rows = index.search(_prepared(faiss, queries, is_cosine), min(top, dataset.num_examples))
    known = _contents(dataset, sorted(set(rows[rows >= 0].tolist())))
    return [
        [Hit(score, *known[row]) for score, row in zip(*of_query, strict=True) if row >= 0]
        for of_query in zip(scores.tolist(), rows.tolist(), strict=True)
    ]


def _difference(path: Path) -> str:
    """Describe how an index differs from what was written; empty if it does not."""
    try:
        return build(FileInfo, unseal(_seal(path).read_bytes()).get("index")).difference(path, "its record")
    except FileNotFoundError:
        return "not there, or without its record"
    except ValueError as error:
        return f"its record is damaged ({error})"


def _seal(path: Path) -> Path:
    """Return the path of the record of an index."""
    return path.with_suffix(".json")


def _prepared(faiss: Any, rows: np.ndarray, is_cosine: bool) -> np.ndarray:
    """Return a copy of vectors (n, dim), for the cosine of unit length."""
    rows = np.array(rows, np.float32, order="C")
    if is_cosine:
        faiss.normalize_L2(rows)
    return rows


def _build(faiss: Any, dataset: Dataset, is_cosine: bool, path: Path, quiet: bool) -> None:
    """Write the index of a dataset to a file."""
    lists = min(4 * int(dataset.num_examples**0.5), dataset.num_examples // SAMPLED)
    step = max(1, dataset.num_examples // (SAMPLED * max(lists, 1)))
    sample = _prepared(faiss, np.concatenate([vectors.decoded(batch)[::step] for batch in dataset]), is_cosine)
    index = faiss.IndexFlatIP(sample.shape[1])
    if lists >= LEAST_LISTS:
        index = faiss.IndexIVFFlat(index, sample.shape[1], lists, faiss.METRIC_INNER_PRODUCT)
        index.train(sample)
        index.nprobe = max(LEAST_LISTS, lists // PART_READ)
    work = f"indexing {dataset.num_examples:,} vectors"
    with Bar(dataset.num_examples, work, quiet, desc="index", unit="vector") as bar:
        for batch in dataset:
            index.add(_prepared(faiss, vectors.decoded(batch), is_cosine))
            bar.update(batch.num_rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(temporary_name(path.name))
    try:
        faiss.write_index(index, str(temporary))
        record = seal({"index": dataclasses.asdict(FileInfo.of(temporary))})
        _seal(path).unlink(missing_ok=True)
        move(temporary, path)
        write_bytes(_seal(path), record)
    except RuntimeError as error:
        raise PipelineError(f"{path}: the index cannot be written (is the disk full?): {one_line(error)}") from None
    finally:
        temporary.unlink(missing_ok=True)


def _contents(dataset: Dataset, rows: list[int]) -> dict[int, tuple[int, str, str | None]]:
    """Return the id, source and text of rows, given by their ascending numbers in the dataset."""
    known, ends = {}, list(itertools.accumulate(shard.examples for shard in dataset.shards))
    for shard, end in zip(dataset.shards, ends, strict=True):
        first = end - shard.examples
        wanted = [row for row in rows if first <= row < end]
        for batch in dataset.batches(shard) if wanted else ():
            for row in wanted:
                if first <= row < first + batch.num_rows:
                    known[row] = contents(batch, row - first)
            first += batch.num_rows
    return known
