"""Processing of a work unit, from its splits of the input files to published shards and a result file.

    1. read_splits          bytes of the splits -> records, one at a time    a class for each format, `readers`
    2. counter.readable     records that a reader leaves out are counted
    3. worker.build         a record -> its texts, pictures or clips         the builder's own, with its filters
    4. worker.examples      those of many records -> record batches          `builders.text`, `.labeled`, `.embedding`
    5. collected.add        hashes by which examples are compared leave the batches
    6. shards.write         batches -> a shard in a temporary folder -> read back and published; then the next shard
    7. lists of bad records and of excluded examples, counts, hashes of all files -> the unit's result in `_done`

Steps 1 to 4 are generators: a step asks the one before it, so that a unit needs the memory of a few batches. A record
that is not kept is counted where it ends: as filtered for a reason, or as bad (`RecordError`).

The options of a run may require that examples are dropped or held out because of other examples, such as equal ones
(`decisions`). A unit then has two stages. The first stage writes shards and a result to `_staged`. When it is decided
what happens to each example, the second stage reads these shards, and writes the final shards and the result in
`_done`.

If the output folder is local, the temporary folder is inside it, so that a shard can be published by renaming it. If
the process is killed, a later run removes the temporary folder.
"""

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import zstandard

from clearspan.common.files import temporary_folder
from clearspan.pipelines.attached import GROUPS, HASHES, detach
from clearspan.pipelines.builders import Worker
from clearspan.pipelines.counter import RecordCounter, json_line
from clearspan.pipelines.readers import read_splits
from clearspan.pipelines.text import minhash
from clearspan.pipelines.units import decisions, near
from clearspan.pipelines.units.changes import save_read
from clearspan.pipelines.units.curation import HELD_OUT, NEAR_DUPLICATE
from clearspan.pipelines.units.exchange import BUCKETS, bucket, pack
from clearspan.pipelines.units.job import (
    DONE,
    EXCLUDED,
    LISTS,
    NEAR_DUPLICATES,
    REJECTED,
    STAGED,
    Entries,
    Job,
    UnitResult,
)
from clearspan.pipelines.units.keys import ID_BITS, KEY, TEXT, keys, sides, texts
from clearspan.pipelines.units.plan import Unit
from clearspan.shards import ShardInfo, ShardWriter, held_out, storage
from clearspan.shards.reader import ShardError, check_bytes, read_back, read_batches
from clearspan.shards.schema import KINDS, token_columns

BATCH_BYTES = 1 << 20


@contextlib.contextmanager
def _spool(folder: str) -> Iterator[Path]:
    with temporary_folder(None if storage.is_remote(folder) else Path(folder)) as spool:
        yield Path(spool)


class _Shards(ShardWriter):
    """Writer of a work unit's shards that reads each finished shard back to check it, and then publishes it."""

    def __init__(self, spool: Path, folder: str, job: Job, unit: int) -> None:
        spool.mkdir(exist_ok=True)
        super().__init__(spool, job.builder.name, job.first_shard + unit)
        self.folder = folder

    def _finish_shard(self) -> None:
        super()._finish_shard()
        shard = self.finished[-1]
        local = self.spool / shard.name
        read_back(local, shard)
        storage.publish_file(local, storage.join(self.folder, shard.name))
        local.unlink(missing_ok=True)


class _Collected:
    """Collector of data on the examples of a work unit, by which duplicates and groups to hold out are found.

    The module `decisions` compares these data, such as hashes of the texts, with the data of the other units.

    Args:
        job: the run; its options (`job.curation`) determine which data are collected.
    """

    def __init__(self, job: Job) -> None:
        curation = job.curation
        self.curation = curation
        self.rows = 0
        self.columns = token_columns(KINDS[job.builder.name].schema(pa.uint16()))
        is_near = curation.near_dedup is not None
        sorts = [
            (Entries.HEADS, np.dtype(bool), curation.dedup and curation.has_chunks),
            (Entries.KEYS, KEY, curation.dedup),
            (Entries.TEXTS, TEXT, curation.is_linked),
            (Entries.SIDES, np.dtype(bool), curation.holdout_fraction > 0 and not curation.is_linked),
            (Entries.BANDS, near.BAND, is_near),
            (Entries.SKETCHES, near.DESCRIBED, is_near),
        ]
        used = [(name, dtype) for name, dtype, is_used in sorts if is_used and curation.is_staged]
        self.parts = {name: [np.empty(0, dtype)] for name, dtype in used}
        self.last_chunk = 0

    def add(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Collect the data of the next batch of examples; return the batch with only the columns of the dataset.

        The columns that are removed hold hashes for the search for duplicates (`pipelines.attached`).
        """
        batch, hashes = detach(batch, HASHES)
        batch, groups = detach(batch, GROUPS)
        batch, sketches = detach(batch, minhash.COLUMN)
        if self.curation.near_dedup is not None and sketches is not None:
            self.parts[Entries.BANDS].append(near.Banding(self.curation.near_dedup).bands(sketches, self.rows))
            self.parts[Entries.SKETCHES].append(near.describe(batch.column("id").to_numpy(), sketches))
        if Entries.KEYS in self.parts:
            found = keys(batch, hashes, self.rows, self.columns)
            self.parts[Entries.KEYS].append(found[self._heads(batch)] if Entries.HEADS in self.parts else found)
        if Entries.TEXTS in self.parts:
            self.parts[Entries.TEXTS].append(texts(batch, hashes, self.rows, groups))
        if Entries.SIDES in self.parts:
            self.parts[Entries.SIDES].append(self.curation.held_out(sides(batch, hashes)))
        self.rows += batch.num_rows
        return batch

    def _heads(self, batch: pa.RecordBatch) -> np.ndarray:
        """Return the mask, (n,) bool, of the rows that hold the first chunk of a document; store the mask for `files`.

        Documents are compared by their first chunks. If one is a duplicate, all chunks of its document are dropped.
        """
        chunks = batch.column("chunk").to_numpy()
        heads: np.ndarray = np.diff(chunks, prepend=self.last_chunk) <= 0
        if not self.rows:
            heads[0] = True
        self.last_chunk = int(chunks[-1])
        self.parts[Entries.HEADS].append(heads)
        return heads

    def files(self, unit: int) -> dict[str, bytes]:
        """Return the files with the collected data: name in the output folder -> content.

        Entries that hold a hash of an example's content, or of a band of its MinHash sketch, are sorted by the bucket
        of this hash, because other workers read a range of buckets from all units. All other entries are in the order
        of the examples.

        Args:
            unit: the number of the work unit, for the names of the files.
        """
        by = {Entries.KEYS: ("id", ID_BITS), Entries.BANDS: ("band", 64)}
        contents = {}
        for name, parts in self.parts.items():
            entries = np.concatenate(parts)
            field, bits = by.get(name, ("", 0))
            packed = pack(entries, bucket(entries[field], bits), BUCKETS) if field else entries.tobytes()
            contents[Job.entries_name(name, unit)] = packed
        return contents


class _Rebatcher:
    """Combiner of small batches into batches of at least `size` bytes; only the last batch may be smaller."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._parts: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Add a batch; yield the combined batch if it has reached `size` bytes."""
        if batch.num_rows:
            self._parts.append(batch)
            self._bytes += batch.nbytes
        if self._bytes >= self.size:
            yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining rows as a batch, if there are any."""
        if self._parts:
            yield pa.concat_batches(self._parts)
            self._parts = []
            self._bytes = 0


def process_unit(unit: Unit, job: Job, worker: Worker) -> UnitResult:
    """Read the input of a work unit, and write its shards and its result; return the result.

    If the options of the run drop or hold out examples because of others, such as duplicates, all examples are written
    to `_staged`; `finish_unit` later selects from these. Processing the unit again writes the same files.

    Raises:
        PipelineError: an input is damaged, has changed since planning or holds mostly bad records, or the fast
            tokenizer gives wrong ids for a text.
        ShardError: a shard cannot be read back.
        OSError: a disk or an object store failed.
    """
    counter = RecordCounter(job.reasons, job.max_bad_fraction)
    contents: list[str] = []
    records = read_splits(job.root, unit.splits, job.reading, contents)
    batches = worker.examples(counter.readable(records), counter)
    collected = _Collected(job)
    with _spool(job.folder) as spool:
        if job.curation.is_staged:
            staged = _Shards(spool, job.staged_folder, job, unit.number)
            for batch in batches:
                staged.write(collected.add(batch))
            shards = staged.close()
            held = list[ShardInfo]()
        else:
            shards, held = _finish(_with_held_out_mask(batches, job), job, unit.number, spool)
    written = {REJECTED: counter.rejected, EXCLUDED: counter.excluded}
    files = {job.list_name(name, unit.number): zstandard.compress(lines) for name, lines in written.items() if lines}
    sums = _publish(job, {**files, **collected.files(unit.number)})
    done = UnitResult(shards, counter.counts, held, sums)
    path = job.result_path(unit.number, STAGED if job.curation.is_staged else DONE)
    save_read(job.folder, job.plan, unit.number, contents)
    storage.publish_bytes(done.to_json(job.plan, unit.number), path)
    return done


def _publish(job: Job, files: Mapping[str, bytes]) -> dict[str, str]:
    """Write files, a dict of name -> content, to the output folder; return name -> SHA-256."""
    for name, data in files.items():
        storage.publish_bytes(data, job.path(name))
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def finish_unit(job: Job, unit: int, _: int) -> None:
    """Write a work unit's final shards, and its result in `_done`, after the examples of all units were compared.

    The examples are read from the shards that `process_unit` wrote. Duplicates, near-duplicates, and examples beyond
    the maximum number for the run (`job.curation.limit`) are left out. A second call writes the same files.

    Args:
        unit: the number of the work unit.
        _: the number of slices, which is not used.
    """
    staged = decisions.staged(job, unit)
    marks = decisions.marks_of(job, unit)
    counts = staged.counts
    lists = [job.list_name(folder, unit) for folder in LISTS]
    files = {name: sha256 for name, sha256 in staged.files.items() if name in lists}
    with _spool(job.folder) as spool:
        kept = decisions.are_kept(marks)
        remaining = _remaining(job, unit, staged, kept, spool)
        shards, held = _finish(_with_mask(remaining, (marks == HELD_OUT)[kept]), job, unit, spool)
        if (marks == NEAR_DUPLICATE).any():
            lines = _near_duplicates(job, unit, _remaining(job, unit, staged, marks == NEAR_DUPLICATE, spool))
            files |= _publish(job, {job.list_name(NEAR_DUPLICATES, unit): zstandard.compress(b"".join(lines))})
    counts.kept = int(kept.sum())
    for mark, reason in job.curation.reasons.items():
        counts.filtered[reason] = int((marks == mark).sum())
    done = UnitResult(shards, counts, held, files)
    storage.publish_bytes(done.to_json(job.plan, unit), job.result_path(unit))


def _remaining(job: Job, unit: int, staged: UnitResult, wanted: np.ndarray, spool: Path) -> Iterator[pa.RecordBatch]:
    """Yield, in batches, the examples that a mask selects from the shards of a work unit's first stage.

    Args:
        staged: the result of the first stage, which lists its shards.
        wanted: the mask of the n examples in these shards, (n,) bool; true for the examples to yield.
        spool: a temporary folder. If the output folder is in an object store, shards are downloaded to it.

    Raises:
        ShardError: a shard of the first stage is missing or damaged; the next run repeats the unit's first stage.
    """
    joined = _Rebatcher(BATCH_BYTES)
    row = 0
    for shard in staged.shards:
        path = storage.join(job.staged_folder, shard.name)
        local = spool / STAGED / shard.name if storage.is_remote(path) else Path(path)
        if storage.is_remote(path):
            storage.download(path, local)
        try:
            check_bytes(local, shard)
        except ShardError:
            storage.remove(job.result_path(unit, STAGED))  # so that the next run repeats the unit
            raise
        for batch in read_batches(local, shard):
            yield from joined.add(batch.filter(pa.array(wanted[row : row + batch.num_rows])))
            row += batch.num_rows
    yield from joined.rest()


def _near_duplicates(job: Job, unit: int, dropped: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield a JSON line for each near-duplicate that was dropped from a work unit.

    The line holds the source (if the dataset has this column) and the id of the near-duplicate, the id of the kept
    example that it resembles, and the similarity of the two.

    Args:
        dropped: batches with all near-duplicates of the unit, in the order of the rows.
    """
    found = iter(decisions.near_duplicates(job, unit))
    for batch in dropped:
        named = [name for name in ("source", "id") if name in batch.schema.names]
        for example, (_, kept, similarity) in zip(batch.select(named).to_pylist(), found, strict=False):
            yield json_line({**example, "kept": int(kept), "similarity": round(float(similarity), 3)})


def _with_held_out_mask(batches: Iterable[pa.RecordBatch], job: Job) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """Remove the column of text hashes from each batch; yield (batch, mask).

    The mask is true for the examples of the batch that belong to the held-out part, (n,) bool.
    """
    for batch in batches:
        written, hashes = detach(batch, HASHES)
        yield written, job.curation.held_out(sides(written, hashes))


def _with_mask(batches: Iterable[pa.RecordBatch], mask: np.ndarray) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """Yield (batch, mask of its examples) for each batch; `mask` is for the examples of all batches, (n,) bool."""
    row = 0
    for batch in batches:
        yield batch, mask[row : row + batch.num_rows]
        row += batch.num_rows


def _finish(
    batches: Iterable[tuple[pa.RecordBatch, np.ndarray]], job: Job, unit: int, spool: Path
) -> tuple[list[ShardInfo], list[ShardInfo]]:
    """Write the final shards of a work unit.

    Args:
        batches: pairs of a batch of n examples and a mask, (n,) bool, which is true for the examples to hold out.
        unit: the number of the work unit, after which the shards are named.
        spool: the temporary folder to which shards are written before they are published.

    Returns:
        The manifest's entries for the training shards and for the held-out shards. If nothing is to be held out, the
        second list is empty.
    """
    train = _Shards(spool, job.folder, job, unit)
    if not job.curation.holdout_fraction:
        for batch, _ in batches:
            train.write(batch)
        return train.close(), []
    held = _Shards(spool / held_out.FOLDER, job.validation_folder, job, unit)
    both = [(train, _Rebatcher(BATCH_BYTES)), (held, _Rebatcher(BATCH_BYTES))]
    for batch, out in batches:
        for (shards, joined), mask in zip(both, (~out, out), strict=True):
            for part in joined.add(batch.filter(pa.array(mask))):
                shards.write(part)
    for shards, joined in both:
        for part in joined.rest():
            shards.write(part)
    return train.close(), held.close()
