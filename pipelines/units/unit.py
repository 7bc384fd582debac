"""Processing of a work unit, from its pieces of input to published shards and a result file.

    records -> the kind's examples -> ShardWriter (spool) -> read again -> publish, shard by shard -> _rejected,
    _excluded -> _done

If the decision on a document depends on others (`curation`), there are two stages: the first writes to `_staged`, the
second reads from there once the verdicts are known. The spool of a local output folder is inside it, under a temporary
name that a later run removes: a shard on the same disk is published by renaming it.
"""

import contextlib
import dataclasses
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from clearspan.common.files import temporary_folder
from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.kinds import Worker
from clearspan.pipelines.readers import read_pieces
from clearspan.pipelines.stopwatch import Stopwatch
from clearspan.pipelines.tally import Tally
from clearspan.pipelines.units.curation import HELD_OUT, KEEP, REASONS, Rebatcher, pack_verdicts, rule, unpack_verdicts
from clearspan.pipelines.units.job import CURATED, STAGED, VALIDATION, Job, UnitResult, done_units, load_result
from clearspan.pipelines.units.keys import keys, pack_keys
from clearspan.pipelines.units.linking import links
from clearspan.pipelines.units.plan import Unit
from clearspan.shards import ShardInfo, ShardWriter, storage
from clearspan.shards.reader import check_bytes, read_back, read_batches
from clearspan.shards.schema import KINDS, token_columns

BATCH_BYTES = 1 << 20


@contextlib.contextmanager
def _spool(folder: str) -> Iterator[Path]:
    with temporary_folder(None if storage.is_remote(folder) else Path(folder)) as spool:
        yield Path(spool)


class _Shards:
    """Writer of a unit's shards that publishes each one as soon as it is finished and read back."""

    def __init__(self, spool: Path, folder: str, job: Job, unit: int, watch: Stopwatch) -> None:
        spool.mkdir(exist_ok=True)
        self.spool, self.folder, self.watch = spool, folder, watch
        self.writer = ShardWriter(spool, job.kind.name, unit)
        self.published = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch."""
        with self.watch.timing("write"):
            self.writer.write(batch)
            self._publish()

    def close(self) -> list[ShardInfo]:
        """Publish the last shard; return the entries of all."""
        with self.watch.timing("write"):
            self.writer.close()
            self._publish()
        return self.writer.finished

    def _publish(self) -> None:
        for shard in self.writer.finished[self.published :]:
            local = self.spool / shard.name
            read_back(local, shard)
            storage.publish_file(local, storage.join(self.folder, shard.name))
            local.unlink(missing_ok=True)
            self.published += 1


def process_unit(unit: Unit, job: Job, worker: Worker) -> UnitResult:
    """Process a unit, or run its first stage; a repetition writes the same files.

    Raises:
        PipelineError: an input is damaged or mostly bad, or its token ids could not be verified.
        OSError: a disk or an object store failed.
    """
    watch = Stopwatch()
    tally = Tally(job.reasons, job.max_bad_fraction)
    hashes: list[str] = []
    records = watch.each("read", read_pieces(job.root, unit.pieces, job.reading, hashes))
    batches = worker.examples(tally.readable(records), tally, watch)
    columns = token_columns(KINDS[job.kind.name].schema(pa.uint16()))
    collected: dict[str, list[np.ndarray]] = {}
    if job.curation.dedup:
        collected[job.keys_name(unit.number)] = []
    if job.curation.is_linked:
        collected[job.links_name(unit.number)] = []
    with _spool(job.folder) as spool:
        if job.curation.is_staged:
            staged, rows = _Shards(spool, job.staged_folder, job, unit.number, watch), 0
            for batch in batches:
                if job.curation.dedup:
                    collected[job.keys_name(unit.number)].append(keys(batch, rows, columns))
                if job.curation.is_linked:
                    collected[job.links_name(unit.number)].append(links(batch, rows))
                rows += batch.num_rows
                staged.write(batch)
            shards, held = staged.close(), list[ShardInfo]()
        else:
            shards, held = _finish(batches, job, unit.number, spool, watch)
    written = {job.rejected_name(unit.number): tally.rejected(), job.excluded_name(unit.number): tally.excluded()}
    files = {name: data for name, data in written.items() if data}
    files |= {name: pack_keys(parts) for name, parts in collected.items()}
    for name, data in files.items():
        storage.publish_bytes(data, job.path(name))
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    done = UnitResult(shards, tally.counts, held, sums, hashes)
    path = job.staged_path(unit.number) if job.curation.is_staged else job.done_path(unit.number)
    storage.publish_bytes(done.to_json(job.plan, unit.number), path)
    return dataclasses.replace(done, seconds=watch.stop())


def resolve(job: Job) -> list[int]:
    """Between the stages, write the verdicts on every unit's documents; return the units that remain to be finished."""
    units = range(job.num_units)
    if units_with_verdicts(job) < set(units):
        kept = [_staged(job, unit).counts.kept for unit in units]
        keys_of, links_of = ([job.path(name(unit)) for unit in units] for name in (job.keys_name, job.links_name))
        for unit, verdicts in enumerate(rule(job.curation, kept, keys_of, links_of)):
            storage.publish_bytes(pack_verdicts(verdicts), job.verdicts_path(unit))
    return sorted(set(units) - done_units(job.folder))


def units_with_verdicts(job: Job) -> set[int]:
    """Return the units whose verdicts are written."""
    names = set(storage.list_files(job.path(CURATED)))
    return {unit for unit in range(job.num_units) if Path(job.verdicts_path(unit)).name in names}


def _staged(job: Job, unit: int) -> UnitResult:
    path = job.staged_path(unit)
    if result := load_result(path, job.plan, unit):
        return result
    raise PipelineError(f"{path}: damaged: run again to recreate it")


def finish_unit(unit: int, job: Job) -> UnitResult:
    """Run the second stage of a unit: write its documents that are not dropped; a repetition writes the same files."""
    watch = Stopwatch()
    staged = _staged(job, unit)
    path = job.verdicts_path(unit)
    try:
        verdicts = unpack_verdicts(storage.read_bytes(path), staged.counts.kept)
    except ValueError as error:
        raise PipelineError(f"{path}: damaged ({error}): delete it and run again") from None
    with _spool(job.folder) as spool:
        remaining = watch.each("read", _remaining(job, staged, verdicts == KEEP, spool))
        if job.curation.is_linked:
            shards = _write(remaining, _Shards(spool, job.folder, job, unit, watch))
            remaining = watch.each("read", _remaining(job, staged, verdicts == HELD_OUT, spool))
            held = _write(remaining, _Shards(spool / VALIDATION, job.validation_folder, job, unit, watch))
        else:
            shards, held = _finish(remaining, job, unit, spool, watch)
    counts, lasting = staged.counts, job.lasting_names(unit)
    files = {name: sha256 for name, sha256 in staged.files.items() if name in lasting}
    counts.kept = int(np.isin(verdicts, (KEEP, HELD_OUT)).sum())
    for verdict, reason in REASONS.items():
        if reason in counts.filtered:
            counts.filtered[reason] = int((verdicts == verdict).sum())
    done = UnitResult(shards, counts, held, files, staged.inputs)
    storage.publish_bytes(done.to_json(job.plan, unit), job.done_path(unit))
    return dataclasses.replace(done, seconds=watch.stop())


def _remaining(job: Job, staged: UnitResult, wanted: np.ndarray, spool: Path) -> Iterator[pa.RecordBatch]:
    """Yield the staged documents that a mask (n,) bool selects, in batches."""
    joined = Rebatcher(BATCH_BYTES)
    row = 0
    for shard in staged.shards:
        path = storage.join(job.staged_folder, shard.name)
        local = spool / STAGED / shard.name if storage.is_remote(path) else Path(path)
        if storage.is_remote(path):
            storage.download(path, local)
        check_bytes(local, shard)
        for batch in read_batches(local, shard):
            yield from joined.add(batch.filter(pa.array(wanted[row : row + batch.num_rows])))
            row += batch.num_rows
    yield from joined.rest()


def _write(batches: Iterable[pa.RecordBatch], shards: _Shards) -> list[ShardInfo]:
    """Write all batches; return the entries of the shards."""
    for batch in batches:
        shards.write(batch)
    return shards.close()


def _finish(
    batches: Iterable[pa.RecordBatch], job: Job, unit: int, spool: Path, watch: Stopwatch
) -> tuple[list[ShardInfo], list[ShardInfo]]:
    """Write a unit's final shards; return the entries of those to train on and of those held out."""
    train = _Shards(spool, job.folder, job, unit, watch)
    if not job.curation.holdout_fraction:
        return _write(batches, train), []
    held = _Shards(spool / VALIDATION, job.validation_folder, job, unit, watch)
    sides = [(train, Rebatcher(BATCH_BYTES)), (held, Rebatcher(BATCH_BYTES))]
    for batch in batches:
        out = job.curation.held_out(batch)
        for (shards, joined), mask in zip(sides, (~out, out), strict=True):
            for part in joined.add(batch.filter(pa.array(mask))):
                shards.write(part)
    for shards, joined in sides:
        for part in joined.rest():
            shards.write(part)
    return train.close(), held.close()
