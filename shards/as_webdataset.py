"""The examples of a dataset as a `webdataset` pipeline, for your own training loop.

    manifest -> shards -> split by node, by worker -> verified file -> tar members -> samples -> one dict per example

webdataset's word sample means the files of a tar that have the same key: here one file that holds a record batch, or
one file for each column of an example. All stages come from webdataset except two of this project: one compares the
bytes of a shard with the manifest before the shard is opened (`Dataset.fetch`), the other decodes samples with the
dataset's layout, which runs no code from the data. A damaged shard or sample raises an error; no stage skips a sample.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import webdataset as wds
from PIL import UnidentifiedImageError
from webdataset.autodecode import IMAGE_EXTENSIONS, ImageHandler

from clearspan.common.ragged import Ragged
from clearspan.common.typed import checked
from clearspan.shards import vectors
from clearspan.shards.layouts import EXTENSION, Samples, unpack
from clearspan.shards.reader import Dataset, ShardError
from clearspan.shards.schema import KINDS, token_columns

Sample = dict[str, Any]
KEY, URL = "__key__", "__url__"


@checked
def webdataset_pipeline(
    dataset: Dataset | str | Path, shuffle: int = 0, seed: int = 0, images: str = "pil"
) -> wds.DataPipeline:
    """Return a `webdataset.DataPipeline` that yields each example of a dataset as a dict.

    The dict has the columns of its kind: token ids as an array (n,), a vector as float32 (dim,), the frames of a clip
    as float16 (frames, 128), an image as the argument `images` says, and all other values as plain Python values. It
    also has `__key__`, which is unique in the dataset, and `__url__`, the path of the example's shard. Append further
    stages with `.compose(...)`, then pass the pipeline to a `torch.utils.data.DataLoader` or a `webdataset.WebLoader`.

    The shards are split among all DataLoader workers of all ranks, so that each example is yielded by only one worker.
    If there are fewer shards than workers, some workers get none; a dataset that is made with a smaller `--unit-bytes`
    has more shards.

    Args:
        dataset: a `Dataset`, or its folder, local or on an object store.
        shuffle: number of examples in the buffer from which the next example is drawn at random; if it is positive, the
            order of the shards is shuffled too. 0: the order of the dataset.
        seed: seed of the shuffling. The order changes from epoch to epoch only while the pipeline or the DataLoader's
            workers stay alive (`persistent_workers`).
        images: the image type that webdataset decodes to: `pil`, `rgb8` (uint8, (height, width, 3)), `torchrgb`, ...

    Raises:
        ManifestError: the folder has no readable manifest.
        ShardError: the dataset has no example. The pipeline also raises it while it reads, if a shard is missing or
            damaged or if a sample cannot be decoded.
        ValueError: `images` is not a type that webdataset knows.
    """
    dataset = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
    names = [shard.name for shard in dataset.shards]
    if not names:
        raise ShardError(f"{dataset.folder}: holds no example: run the pipeline on more data")
    decode = _samples if isinstance(dataset.kind.layout, Samples) else _rows
    return wds.DataPipeline(
        wds.SimpleShardList(names),
        wds.detshuffle(len(names), len(names), seed) if shuffle else None,
        wds.split_by_node,
        wds.split_by_worker,
        functools.partial(_verified, dataset),
        wds.tarfile_to_samples(),
        functools.partial(_decoded, decode, dataset.kind.name, ImageHandler(images)),
        wds.detshuffle(shuffle, shuffle, seed) if shuffle else None,
    )


def _verified(dataset: Dataset, shards: Iterable[Sample]) -> Iterator[Sample]:
    """Compare each shard, named under "url", with the manifest; then yield {"url": path of a local file}."""
    by_name = {shard.name: shard for shard in dataset.shards}
    for shard in shards:
        # An absolute path: webdataset would take a folder called `pipe:...` for a command.
        yield {"url": str(dataset.fetch(by_name[shard["url"]]).absolute())}


def _decoded(
    decode: Callable[[Sample, str, ImageHandler], Iterator[Sample]],
    kind: str,
    images: ImageHandler,
    samples: Iterable[Sample],
) -> Iterator[Sample]:
    for sample in samples:
        try:
            yield from decode(sample, kind, images)
        except (KeyError, OSError, SyntaxError, ValueError) as error:  # Pillow raises OSError and SyntaxError
            problem = f"it lacks its .{error.args[0]}" if isinstance(error, KeyError) else error
            problem = "not an image that Pillow reads" if isinstance(error, UnidentifiedImageError) else problem
            raise ShardError(f"{sample[URL]}: sample {sample[KEY]}: {problem}") from None


def _rows(sample: Sample, kind: str, _: ImageHandler) -> Iterator[Sample]:
    """Yield a dict for each row of the record batch ("arrow.zst") in a sample; the decoder of images is not used."""
    batch = unpack(sample[EXTENSION], EXTENSION, KINDS[kind].check)
    names = [name for name in batch.schema.names if name != "scale"]  # the scale is applied when vectors are decoded
    columns = {name: _values(batch, name) for name in names}
    for row, values in enumerate(zip(*columns.values(), strict=True)):
        yield {KEY: f"{sample[KEY]}-{row:05d}", URL: sample[URL], **dict(zip(columns, values, strict=True))}


def _values(batch: pa.RecordBatch, name: str) -> Iterable[Any]:
    if name == "vector":
        return iter(vectors.decoded(batch))
    if name in token_columns(batch.schema):
        return map(np.copy, Ragged.from_arrow(batch.column(name)))  # torch warns of an array that cannot be written
    values: list[Any] = batch.column(name).to_pylist()
    return values


def _samples(sample: Sample, kind: str, images: ImageHandler) -> Iterator[Sample]:
    """Yield one dict: the example that a webdataset sample holds as a file for each column."""
    layout = KINDS[kind].layout
    assert isinstance(layout, Samples)
    columns = list(zip(layout.names, layout.forms, strict=True))
    row: Sample = {KEY: sample[KEY], URL: sample[URL], "id": int(sample[KEY].rpartition("-")[2], 16)}
    row |= {name: form.from_bytes(sample[form.extension]) for name, form in columns}
    for name, form in columns:
        if isinstance(row[name], np.ndarray):
            row[name] = row[name].copy()  # torch warns of an array that cannot be written
        elif form.extension in IMAGE_EXTENSIONS:
            row[name] = images(form.extension, row[name])
    yield row
