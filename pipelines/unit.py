"""One work unit, from its pieces of input to published shards and an account of them.

    records -> kind's batches -> ShardWriter (spool) -> read again -> publish, shard by shard -> _rejected -> _done

The spool is beside the shards where those are local, under a temporary name that a later run clears away.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pipelines.job import Done, Job
from pipelines.plan import Unit
from pipelines.readers import read_pieces
from pipelines.tally import Tally
from pipelines.tokenization import Encoder
from shards import ShardInfo, ShardWriter, storage
from shards.reader import check_bytes, read_batches


@contextlib.contextmanager
def _spool(folder: str) -> Iterator[Path]:
    beside = None if storage.is_remote(folder) else folder
    with tempfile.TemporaryDirectory(prefix=storage.TEMPORARY, dir=beside) as spool:
        yield Path(spool)


def _publish(spool: Path, job: Job, shard: ShardInfo) -> None:
    local = spool / shard.name
    check_bytes(local, shard)
    for _ in read_batches(local, shard):
        pass
    storage.publish_file(local, storage.join(job.folder, shard.name))
    local.unlink()


def process_unit(unit: Unit, job: Job, encoder: Encoder) -> Done:
    """Does the whole of a unit; done twice, it leaves the same.

    Raises:
        PipelineError: an input is damaged, or mostly bad, or its ids could not be proved.
        OSError: a disk or an object store failed.
    """
    tally = Tally(job.kind.reasons, job.max_bad_fraction)
    encoder.start_unit()
    records = read_pieces(job.root, unit.pieces, job.max_document_bytes)
    with _spool(job.folder) as spool:
        writer = ShardWriter(spool, job.kind.name, unit.number)
        published = 0
        for batch in job.kind.batches(records, encoder, tally):
            writer.write(batch)
            for shard in writer.finished[published:]:
                _publish(spool, job, shard)
                published += 1
        for shard in writer.close()[published:]:
            _publish(spool, job, shard)
    if rejected := tally.rejected():
        storage.publish_bytes(rejected, job.rejected_path(unit.number))
    done = Done(writer.finished, tally.counts)
    storage.publish_bytes(done.to_json(), job.done_path(unit.number))
    return done
