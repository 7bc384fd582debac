"""Export of a dataset to Parquet, for programs that do not read tar shards: pandas, DuckDB, datasets, LanceDB.

    documents-00003-001.tar -> verified record batches -> OUT/documents-00003-001.parquet, one row group per batch

A Parquet file has the columns of the dataset's kind, and is written completely or not at all. Only one batch at a time
is in memory.
"""

from pathlib import Path

import pyarrow.parquet as pq

from clearspan.common.files import atomic_write
from clearspan.common.progress import ProgressBar
from clearspan.shards.reader import Dataset, ShardError


def export(folder: str, output: Path, quiet: bool = False) -> None:
    """Write each shard of a dataset as a Parquet file.

    Args:
        output: local folder, new or empty.
        quiet: show no progress bar.

    Raises:
        ManifestError: `folder` has no readable manifest.
        ShardError: a shard is missing or damaged, or `output` is a file or a folder that is not empty.
    """
    dataset = Dataset(folder)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ShardError(f"{output}: is not empty: choose a new or empty folder")
    shards = dataset.shards
    for shard in ProgressBar(len(shards), f"writing {len(shards):,} files", quiet, unit="shard").over(shards):
        batches = dataset.batches(shard)
        first = next(batches)
        # No dictionary encoding, which would only take time, because ids, vectors and texts hardly repeat.
        with (
            atomic_write(output / f"{shard.name.removesuffix('.tar')}.parquet") as stream,
            pq.ParquetWriter(stream, first.schema, compression="zstd", use_dictionary=False) as writer,
        ):
            for batch in (first, *batches):
                writer.write_batch(batch)
