"""Export of a dataset to Parquet, for programs that do not read tar shards: pandas, DuckDB, datasets, LanceDB.

    documents-00003-001.tar -> verified record batches -> OUT/documents-00003-001.parquet, a row group a batch

The columns are those of the kind. Memory holds one batch. A file is written whole or not at all and names its shard's
sha256 in its metadata, so a repeated export writes only what is missing.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from clearspan.common.files import atomic_write, remove_temporaries
from clearspan.common.progress import Bar
from clearspan.shards.manifest import ShardInfo
from clearspan.shards.reader import Dataset, ShardError

SHARD = b"clearspan.shard_sha256"
"""Key of a Parquet file's metadata: the hash of the shard that it holds."""


def export(folder: str, output: Path, quiet: bool = False) -> int:
    """Write each shard of a dataset as a Parquet file; return the number of files that were written.

    Args:
        output: local folder, new, empty or that of an earlier export of this dataset.

    Raises:
        ShardError: a shard is damaged, or the folder holds something else.
    """
    dataset = Dataset(folder)
    targets = {output / f"{shard.name.removesuffix('.tar')}.parquet": shard for shard in dataset.shards}
    if output.exists() and not output.is_dir():
        raise ShardError(f"{output}: is a file: choose a new or empty folder")
    remove_temporaries(output)
    found = output.iterdir() if output.exists() else ()
    others = sorted(path.name for path in found if not path.name.startswith(".") and path not in targets)
    if others:
        raise ShardError(f"{output}: holds other files ({others[0]}): choose a new or empty folder")
    missing = [path for path, shard in targets.items() if not _holds(path, shard)]
    for path in Bar(len(missing), f"writing {len(missing):,} files", quiet, desc="export", unit="shard").over(missing):
        _write(dataset, targets[path], path)
    return len(missing)


def _holds(path: Path, shard: ShardInfo) -> bool:
    """Return whether a file is the export of a shard; raise ShardError if it is something else."""
    if not path.exists():
        return False
    try:
        metadata = pq.read_metadata(path).metadata or {}
    except (pa.ArrowException, OSError):
        metadata = {}
    if metadata.get(SHARD) != shard.sha256.encode():
        raise ShardError(f"{path}: not the export of this dataset's {shard.name}: choose a new or empty folder")
    return True


def _write(dataset: Dataset, shard: ShardInfo, path: Path) -> None:
    batches = dataset.batches(shard)
    first = next(batches)
    schema = first.schema.with_metadata({SHARD: shard.sha256.encode()})
    # Ids, vectors and texts hardly repeat: dictionaries would only take time.
    with (
        atomic_write(path) as stream,
        pq.ParquetWriter(stream, schema, compression="zstd", use_dictionary=False) as writer,
    ):
        for batch in (first, *batches):
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))
