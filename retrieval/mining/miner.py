"""A run of `clearspan mine`: mine negatives for the work units that have no result yet, and write the new dataset.

    source dataset ──> distinct texts ──> embeddings (cached)
    each unit of the source without a result:
        blocks of rows ──> nearest texts by the model or BM25 ──> choice of negatives ──> shards ──> _done/00003.json
    copy validation/ and the resources ──> manifest.json, last

The file in `_done/` holds the result of a unit: the hashes of its shards, and statistics. If a killed run is started
again, it mines the units that have no result, or whose shards are missing or damaged. Texts that are in the cache are
not embedded again. plan.json holds the hashes of the source and of the model, and all options. It is an error if the
output folder belongs to a run with another plan, or if a shard of the source is damaged.
"""

import contextlib
import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from clearspan.common.checksummed import build, dump_checksummed, load_checksummed
from clearspan.common.files import locked, remove_temporaries, temporary_folder
from clearspan.common.hub import with_recorded_hub
from clearspan.common.progress import ProgressBar
from clearspan.common.ragged import Ragged, segments
from clearspan.retrieval.mining.choice import Allowed, ChoiceOptions, allowed_texts, negatives_of_rows
from clearspan.retrieval.mining.nearest import LexicalSearch, Nearest, cosines
from clearspan.retrieval.mining.source import MiningSource, read_source
from clearspan.retrieval.topk import DECIMALS
from clearspan.shards import Manifest, ShardInfo, ShardWriter, held_out, storage
from clearspan.shards.manifest import NAME
from clearspan.shards.ownership import check_ownership
from clearspan.shards.reader import Dataset, read_back, read_resource
from clearspan.shards.schema import KINDS, columns_named, numbered

PLAN, DONE = "plan.json", "_done"
"""Names in the output folder: the description of the run, and the folder of the results of finished units."""
ROWS = 1024
"""Number of rows that are compared with all texts at once."""


@dataclasses.dataclass(frozen=True)
class Figures:
    """Statistics of rows for which negatives were mined.

    Attributes:
        rows: the number of rows.
        by_number: number of mined negatives (as a text, such as "4") -> the number of rows that have so many.
        left_out: name of an option -> number of texts, over all rows, that this option ruled out as negatives.
        positives, negatives: the number of positives, and of mined negatives, of all rows.
        positive, negative: the sum of the scores of all positives, and of all mined negatives, in millionths. Each
            score is rounded to a whole number of millionths, so that the sums do not depend on the order of addition.
    """

    rows: int = 0
    by_number: dict[str, int] = dataclasses.field(default_factory=dict)
    left_out: dict[str, int] = dataclasses.field(default_factory=dict)
    positives: int = 0
    negatives: int = 0
    positive: int = 0
    negative: int = 0

    def __add__(self, other: "Figures") -> "Figures":
        pairs = ((getattr(self, field.name), getattr(other, field.name)) for field in dataclasses.fields(self))
        return Figures(*(_sum(*pair) for pair in pairs))


def _sum(one: Any, other: Any) -> Any:
    if isinstance(one, dict):
        return {name: one.get(name, 0) + other.get(name, 0) for name in sorted({*one, *other}, key=_by_number)}
    return one + other


def _by_number(name: str) -> tuple[int, str]:
    return (int(name), "") if name.isdigit() else (0, name)


@dataclasses.dataclass(frozen=True)
class MinedUnit:
    """The result of mining negatives for the rows of a work unit.

    Attributes:
        shards: the name, the hash and further properties of each shard that the unit wrote, for the manifest.
        figures: the statistics of the unit's rows.
    """

    shards: list[ShardInfo]
    figures: Figures

    @classmethod
    def load(cls, folder: str, unit: int, plan: str) -> "MinedUnit | None":
        """Read the result of a work unit from the output folder; return None if the unit must be mined.

        It must be mined if its result is missing, is damaged or was written under a different plan, or if one of its
        shards is missing or damaged.

        Args:
            folder: the output folder.
            unit: the number of the work unit.
            plan: the hash of plan.json.
        """
        path = storage.join(folder, DONE, f"{unit:05d}.json")
        if not storage.exists(path):
            return None
        try:
            record = load_checksummed(storage.read_bytes(path))
            if (record["plan"], record["unit"]) != (plan, unit):
                return None
            shards = [build(ShardInfo, shard) for shard in record["shards"]]
            figures = build(Figures, record["figures"])
        except (ValueError, LookupError, TypeError):
            return None
        paths = {shard: storage.join(folder, shard.name) for shard in shards}
        whole = all(storage.exists(path) and storage.sha256(path) == shard.sha256 for shard, path in paths.items())
        return cls(shards, figures) if whole else None

    def save(self, folder: str, unit: int, plan: str) -> None:
        record = {"plan": plan, "unit": unit, **dataclasses.asdict(self)}
        storage.publish_bytes(dump_checksummed(record), storage.join(folder, DONE, f"{unit:05d}.json"))


@dataclasses.dataclass(frozen=True)
class Miner:
    """Finds negatives for the rows of a dataset: by a model, by BM25, or by both.

    Attributes:
        source: the rows and their texts.
        options: the options for the choice of negatives.
        titles: the embeddings of the queries (the distinct first texts of the rows, `source.titles`), as n unit
            vectors, (n, dim) float32; None if there is no model.
        nearest: the search by the model among the texts of the dataset; None if there is no model.
        lexical: the search by BM25 among the texts of the dataset; None if BM25 is not used.
    """

    source: MiningSource
    options: ChoiceOptions
    titles: NDArray[np.float32] | None
    nearest: Nearest | None
    lexical: LexicalSearch | None

    def mine_rows(self, first: int, ids: NDArray[np.int64]) -> tuple[list[list[int]], Figures]:
        """Return the negatives of m consecutive rows, and statistics of these rows.

        The negatives of a row are a list of indices in `source.texts`.

        Args:
            first: the index of the first row in the dataset.
            ids: the ids of the rows, (m,), on which a random choice of negatives depends.
        """
        source, rows = self.source, range(first, first + len(ids))
        asked, own = source.title_of[rows], [source.positives[row] for row in rows]
        without = [source.not_negatives(row) for row in rows]
        texts = [source.titles[title] for title in asked.tolist()]
        by_model = by_words = None
        depth = self.options.range_max
        if self.nearest is not None and self.titles is not None:
            queries = self.titles[asked]
            of_positives = self._cosines_of(queries, own)
            bound = np.array([scores.min() for scores in of_positives])
            ranked = self.nearest.search(queries, without, depth)
            by_model = allowed_texts(ranked, ranked.scores, bound, ids, self.options)
            if self.lexical is not None:
                ranked = self.lexical.search(texts, without, depth)
                scores = cosines(queries, self.nearest.vectors, ranked.indices)
                by_words = allowed_texts(ranked, scores, bound, ids, self.options)
        else:
            assert self.lexical is not None
            of_positives = self.lexical.scores(texts, own)
            bound = np.array([scores.min() for scores in of_positives])
            ranked = self.lexical.search(texts, without, depth)
            by_words = allowed_texts(ranked, ranked.scores, bound, ids, self.options)
        taken = list(negatives_of_rows(by_model, by_words, self.options))
        return [list(each) for each in taken], _figures(taken, of_positives, by_model, by_words)

    def _cosines_of(self, queries: NDArray[np.float32], indices: list[NDArray[np.int64]]) -> list[NDArray[np.float64]]:
        """Return, for each of m queries, its cosine similarities with some texts, as an array with a value for each
        text.

        Args:
            queries: the vectors of the queries, which are unit vectors, (m, dim).
            indices: for each query, the indices of the texts to compare with it.
        """
        assert self.nearest is not None
        rows = np.repeat(np.arange(len(indices)), [len(each) for each in indices])
        flat = cosines(queries[rows], self.nearest.vectors, np.concatenate(indices)[:, None])[:, 0]
        return np.split(flat, np.cumsum([len(each) for each in indices])[:-1])


def _figures(
    taken: list[dict[int, float]],
    positives: list[NDArray[np.float64]],
    by_model: Allowed | None,
    by_words: Allowed | None,
) -> Figures:
    left_out: Counter[str] = Counter()
    for each in (by_model, by_words):
        left_out.update(each.left_out if each else {})
    scores = [score for each in taken for score in each.values()]
    return Figures(
        len(taken),
        {str(number): count for number, count in sorted(Counter(map(len, taken)).items())},
        dict(sorted(left_out.items())),
        sum(map(len, positives)),
        len(scores),
        _units(np.concatenate(positives)),
        _units(np.array(scores)),
    )


def _units(scores: NDArray[np.float64]) -> int:
    return int(np.rint(scores * 10.0**DECIMALS).sum())


def mine(
    dataset: Dataset,
    output: str,
    fingerprint: Mapping[str, Any],
    prepare: Callable[[MiningSource], Miner],
    quiet: bool,
) -> tuple[Manifest, Figures, MiningSource | None]:
    """Mine negatives for the work units of a dataset that have no result in the output folder, and write the new
    dataset.

    Args:
        dataset: the source: the dataset whose rows get negatives.
        output: the output folder.
        fingerprint: the fingerprint of the new dataset.
        prepare: function that gets the rows and texts of the source, and returns the object that finds negatives for
            them. It is called only if a unit has no result.
        quiet: if true, no progress is shown.

    Returns:
        (manifest, figures, source): the manifest of the new dataset, the statistics of all its rows, and the rows and
        texts of the source. `source` is None if all units had results, because the source was then not read.

    Raises:
        OwnershipError: the output folder belongs to a different run.
        PipelineError: the source's positives and negatives have different prompts.
        ShardError: the source is damaged.
    """
    fingerprint = _with_recorded(fingerprint, output)
    plan = dump_checksummed({"fingerprint": dict(fingerprint)}, indent=1)
    sha256 = hashlib.sha256(plan).hexdigest()
    with contextlib.nullcontext() if storage.is_remote(output) else locked(output):
        check_ownership(output, PLAN, plan)
        for folder in () if storage.is_remote(output) else ("", DONE, held_out.FOLDER):
            remove_temporaries(Path(output, folder))
        storage.publish_if_changed(plan, storage.join(output, PLAN))
        units = sorted({shard.unit for shard in dataset.shards})
        results = {unit: result for unit in units if (result := MinedUnit.load(output, unit, sha256))}
        source = None
        if left := [unit for unit in units if unit not in results]:
            storage.remove(storage.join(output, NAME))
            _copy_resources(dataset, output)
            source = read_source(dataset, quiet)
            results |= _mine_units(dataset, output, sha256, prepare(source), left, quiet)
        _copy_held_out(dataset, output)
        results = dict(sorted(results.items()))
        shards = [shard for result in results.values() for shard in result.shards]
        counts = {"read": dataset.num_examples, "kept": dataset.num_examples, "filtered": {}, "bad": 0}
        manifest = Manifest(dataset.kind.name, dict(fingerprint), shards, counts)
        manifest.save(output)
    return manifest, sum((result.figures for result in results.values()), Figures()), source


def _with_recorded(fingerprint: Mapping[str, Any], output: str) -> Mapping[str, Any]:
    """Return the fingerprint of a run that began in the output folder if it differs in the commits of models alone."""
    try:
        began: Mapping[str, Any] = load_checksummed(storage.read_bytes(storage.join(output, PLAN)))["fingerprint"]
        recorded: dict[str, Any] = json.loads(json.dumps(with_recorded_hub(fingerprint, began)))
    except (FileNotFoundError, ValueError, LookupError, TypeError):  # `check_ownership` says what is wrong
        return fingerprint
    return began if recorded == began else fingerprint


def _mine_units(
    dataset: Dataset, output: str, plan: str, miner: Miner, units: Sequence[int], quiet: bool
) -> dict[int, MinedUnit]:
    """Mine negatives for work units of a dataset, and write their shards and results to the output folder.

    Args:
        dataset: the source: the dataset whose rows get negatives.
        output: the output folder.
        plan: the hash of plan.json.
        miner: finds the negatives of rows.
        units: the numbers of the work units.
        quiet: if true, no progress is shown.

    Returns:
        Number of a unit -> its result.
    """
    ends = np.cumsum([shard.examples for shard in dataset.shards]).tolist()
    firsts = {shard.name: end - shard.examples for shard, end in zip(dataset.shards, ends, strict=True)}
    own = [shard for shard in dataset.shards if shard.unit in units]
    num_rows = sum(shard.examples for shard in own)
    results = {}
    with ProgressBar(num_rows, f"mining {num_rows:,} rows", quiet, unit="row") as bar:
        for unit in units:
            figures = Figures()
            with temporary_folder(None if storage.is_remote(output) else Path(output)) as spool:
                writer = ShardWriter(Path(spool), dataset.kind.name, unit)
                for shard in (shard for shard in own if shard.unit == unit):
                    first = firsts[shard.name]
                    for batch in dataset.batches(shard):
                        mined: list[list[int]] = []
                        for start in range(0, batch.num_rows, ROWS):
                            ids = batch.column("id").to_numpy()[start : start + ROWS]
                            more, of_block = miner.mine_rows(first + start, ids)
                            mined, figures = mined + more, figures + of_block
                            bar.update(len(ids))
                        writer.write(_with_negatives(batch, miner, first, mined))
                        first += batch.num_rows
                shards = writer.close()
                for made in shards:
                    read_back(Path(spool, made.name), made)
                    storage.publish_file(Path(spool, made.name), storage.join(output, made.name))
            results[unit] = MinedUnit(shards, figures)
            results[unit].save(output, unit, plan)
    return results


def _with_negatives(batch: pa.RecordBatch, miner: Miner, first: int, mined: Sequence[Sequence[int]]) -> pa.RecordBatch:
    """Return a batch of the source dataset with the mined negatives added after the negatives that its rows already
    have.

    Args:
        batch: consecutive rows of the source.
        miner: the object that found the negatives; it holds the texts of the source.
        first: the index of the batch's first row in the source.
        mined: for each row of the batch, the indices of its mined negatives.
    """
    source = miner.source
    own = columns_named("negative", batch.schema.names)
    names = numbered("negative", len(own) + miner.options.negatives)
    indices = np.full((batch.num_rows, len(names)), -1)
    for row, more in enumerate(mined):
        both = [*source.negatives[first + row].tolist(), *more]
        indices[row, : len(both)] = both
    kept = [name for name in batch.schema.names if name not in own]
    fields = KINDS["triplets"].schema(batch.schema.field("tokens").type.value_type, [*kept[3:], *names])
    lists = [_texts(source.tokens, column).to_arrow(fields.field("tokens").type) for column in indices.T]
    return pa.record_batch([*(batch.column(name) for name in kept), *lists], schema=fields)


def _texts(tokens: Ragged, indices: NDArray[np.int64]) -> Ragged:
    """Return the token ids of the texts with the given indices; an empty list for the index -1.

    Args:
        tokens: the token ids of all texts of the source.
    """
    known = indices.clip(min=0)
    return segments(tokens.values, tokens.offsets[known], np.where(indices < 0, 0, tokens.lengths[known]))


def _copy_resources(dataset: Dataset, output: str) -> None:
    for path, sha256 in dataset.manifest.resources.items():
        content = read_resource(dataset.folder, path, sha256)
        storage.publish_if_changed(content, storage.join(output, *path.split("/")))


def _copy_held_out(dataset: Dataset, output: str) -> None:
    """Copy the held-out part of the dataset to the output folder, unchanged, with no mined negatives.

    Scores on it can therefore be compared before and after the mining.
    """
    if (part := held_out.find(dataset.folder)) is None:
        return
    held, target = Dataset(part), held_out.folder_of(output)
    _copy_resources(held, target)
    for shard in held.shards:
        path = storage.join(target, shard.name)
        if not storage.exists(path) or storage.sha256(path) != shard.sha256:
            storage.publish_bytes(held.fetch(shard).read_bytes(), path)
    storage.publish_if_changed(storage.read_bytes(storage.join(part, NAME)), storage.join(target, NAME))
