"""The order of examples: a pure function of (seed, epoch, position), the same for any number of ranks.

    1. an epoch     permutes the shards                                       key (seed, dataset, epoch)
    2. a window     the next `shuffle_shards` shards, decoded into memory
    3. its order    permutes the window's examples; what is not of the share, and short documents, are left out
                                                                              key (seed, dataset, epoch, window)
    4. a step       the next B examples of that order; an epoch's last examples, fewer than B, are left out
    5. a micro-batch  examples j B / K .. (j + 1) B / K of the step, the j-th of K whose gradients add up
    6. a rank       its part, 1 / R, of each micro-batch; `whole`: of the step, which it cuts into micro-batches
    7. collation    what the objectives make of that part's columns on the host, e.g. views

State is (epoch, position): examples passed in that epoch, those left out included. Every rank decodes every window (a
shard decodes far faster than it trains) and gathers its part, so nothing depends on ranks or workers and a resume reads
no window before the one it needs. A thread decodes and collates ahead; what it holds is not counted as consumed.
"""

import dataclasses
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from clearspan.shards import Dataset, ShardError, ShardInfo, keyed
from clearspan.shards.layouts import array_of, is_array
from clearspan.shards.ragged import Ragged
from clearspan.shards.schema import token_columns
from clearspan.train.data.batch import Batch, Column, Columns, Rows, cut_micro_batches
from clearspan.train.draws import Purpose, integer_seed, name_key

Collate = Callable[[Rows], Mapping[str, Columns]]
"""What makes of a rank's rows each objective's columns."""


class StreamError(ValueError):
    """The shards do not suit the recipe. The message names the key and the mend."""


@dataclasses.dataclass(frozen=True)
class StreamState:
    """Where the next batch begins."""

    epoch: int = 0
    position: int = 0


class ExampleStream:
    """An endless stream of batches over one dataset.

    Args:
        name: the recipe's name of the dataset.
        batch_size: examples in a step over all ranks; a multiple of ranks x micro-batches.
        min_tokens: shorter examples are an error, or with `skip_short` left out; `num_short` counts them.
        micro_batches: of a step; a batch is one rank's part of one.
        whole: whether a step's examples are learnt from together, as with gradient caching: any number of micro-batches
            has them in the order that one has.
        share: of the examples, by their ids; the others are left out.

    Raises:
        StreamError: the dataset has too few examples for one step, an example is too short and not to be left out, or
            the batch size does not suit the ranks.
        ShardError: (on counting, or later on reading) a shard is damaged.
    """

    def __init__(
        self,
        name: str,
        dataset: Dataset,
        batch_size: int,
        seed: int,
        shuffle_shards: int,
        min_tokens: int = 0,
        skip_short: bool = False,
        micro_batches: int = 1,
        rank: int = 0,
        ranks: int = 1,
        share: float = 1.0,
        whole: bool = False,
    ) -> None:
        if batch_size % (ranks * micro_batches):
            times = f" x training.gradient_accumulation_steps {micro_batches}" if micro_batches > 1 else ""
            raise StreamError(
                f"data.{name}.batch_size {batch_size} is not a multiple of the {ranks} ranks{times}: "
                "take as many ranks as divide it, or another batch size"
            )
        self.name, self.dataset, self.batch_size, self.seed = name, dataset, batch_size, seed
        self.shuffle_shards, self.min_tokens, self.skip_short = shuffle_shards, min_tokens, skip_short
        self.micro_batches, self.rank, self.ranks = micro_batches, rank, ranks
        self.examples = batch_size // (ranks * micro_batches)
        self.share, self.whole = share, whole
        self.num_shared, self.num_short = self._counts()
        if self.num_examples < batch_size:
            short = f" (after {self.num_short} shorter than the {min_tokens} tokens that the objectives need)"
            mend = ", or num_anchors, max_span or min_distance" if self.num_short else ""
            of = f" of a share of {share:g}" if share < 1 else ""
            raise StreamError(
                f"data.{name}.path {dataset.folder}: {self.num_examples} {dataset.manifest.kind}{of}"
                f"{short if self.num_short else ''} are fewer than data.{name}.batch_size {batch_size}: lower that"
                f"{mend}{', or raise the share' if of else ''}"
            )
        self.steps_per_epoch = self.num_examples // batch_size

    @property
    def num_examples(self) -> int:
        """Those that an epoch goes through."""
        return self.num_shared - self.num_short

    def _counts(self) -> tuple[int, int]:
        """Return the number of examples of the share, and how many of these are too short. Shards are read only where
        the manifest does not tell.
        """
        shared = short = 0
        for shard in self.dataset.shards:
            if self.share == 1 and not self._may_be_short(shard):
                shared += shard.examples
                continue
            for batch in self.dataset.batches(shard):
                ids = batch.column("id").to_numpy()
                chosen = in_share(ids, self.share)
                shared += int(chosen.sum())
                if self.min_tokens:
                    lengths = np.diff(batch.column("tokens").offsets.to_numpy())
                    too_short = np.flatnonzero(chosen & (lengths < self.min_tokens))
                    for row in too_short[:1]:
                        self._check_short(int(ids[row]), int(lengths[row]))
                    short += len(too_short)
        return shared, short

    def _may_be_short(self, shard: ShardInfo) -> bool:
        """Return whether a shard's examples may be too short, by its counts by length; True for one without counts."""
        return self.min_tokens > min(map(int, shard.lengths.get("tokens", {"0": 1})), default=0)

    def left_out(self) -> list[str]:
        """What an epoch does without, a line each."""
        folder, kind = self.dataset.folder, self.dataset.manifest.kind
        said = []
        if self.share < 1:
            said.append(
                f"{folder}: {self.num_shared} of {self.dataset.num_examples} {kind} are read, data.{self.name}.share "
                f"{self.share:g}"
            )
        if self.num_short:
            said.append(f"{folder}: {self.num_short} of {self.num_shared} {kind} are too short, left out")
        return said

    def batches(
        self, state: StreamState, columns: Sequence[str], collate: Collate
    ) -> Iterator[tuple[Batch, StreamState]]:
        """Batches from a state on, `micro_batches` a step, each with the state after its step. Endless.

        Args:
            columns: the shards' columns to read.
            collate: makes of a rank's rows of a step what goes to the device.

        Raises:
            StreamError: an example is too short and not to be skipped.
            ShardError: a shard is damaged.
        """
        epoch, position = state.epoch, state.position
        while True:
            rows: list[tuple[_Window, int]] = []
            for order, window in self._windows(epoch, position, columns):
                for row in order:
                    position += 1
                    if not window.shared[row]:
                        continue
                    if self.min_tokens and window.lengths[row] < self.min_tokens:
                        self._check_short(int(window.ids[row]), int(window.lengths[row]))
                        continue
                    rows.append((window, row))
                    if len(rows) == self.batch_size:
                        after = StreamState(epoch, position)
                        found = self._gather(rows, epoch)
                        for batch in cut_micro_batches(collate(found), found.ids, epoch, self.examples):
                            yield batch.pin() if torch.cuda.is_available() else batch, after
                        rows = []
            epoch, position = epoch + 1, 0

    def prefetched(
        self, state: StreamState, columns: Sequence[str], collate: Collate
    ) -> Iterator[tuple[Batch, StreamState]]:
        """`batches`, made by a thread that stays at most one step and one batch ahead."""
        return prefetch(lambda: self.batches(state, columns, collate), self.micro_batches + 1)

    def _gather(self, rows: list[tuple["_Window", int]], epoch: int) -> Rows:
        """This rank's rows of a step together: a few large blocks cost far less than many small ones."""
        together = len(rows) // (1 if self.whole else self.micro_batches)
        each = together // self.ranks
        firsts = range(self.rank * each, len(rows), together)
        places = [place for first in firsts for place in range(first, first + each)]
        own = [rows[place] for place in places]

        def peer(row: int, uniform: float) -> dict[str, Any]:
            first, place = divmod(places[row], together)
            other = (place + 1 + int(uniform * (together - 1))) % together
            window, at = rows[first * together + other]
            return {"id": int(window.ids[at]), **{name: window.value(name, at) for name in window.columns}}

        ids = np.array([window.ids[row] for window, row in own])
        return Rows(self.name, {name: _column(name, own) for name in own[0][0].columns}, ids, epoch, peer)

    def _check_short(self, document: int, length: int) -> None:
        if not self.skip_short:
            raise StreamError(
                f"{self.dataset.folder}: document {document} has {length} tokens, the spans need {self.min_tokens}: "
                f"set data.{self.name}.short_documents to skip or shrink, or lower max_span or min_distance"
            )

    def _windows(self, epoch: int, position: int, columns: Sequence[str]) -> Iterator[tuple[np.ndarray, "_Window"]]:
        """(order, window) of an epoch from a position on; windows before it are not read."""
        shards = self.dataset.shards
        permuted = self._permutation(len(shards), epoch, Purpose.SHARDS)
        for start in range(0, len(shards), self.shuffle_shards):
            members = [shards[i] for i in permuted[start : start + self.shuffle_shards]]
            size = sum(shard.examples for shard in members)
            if position >= size:
                position -= size
                continue
            window = _Window([batch for shard in members for batch in self._batches(shard)], columns, self.share)
            yield self._permutation(size, epoch, Purpose.WINDOW, start)[position:], window
            position = 0

    def _batches(self, shard: ShardInfo) -> Iterator[pa.RecordBatch]:
        """A shard's batches; an id that the tokenizer lacks would end in another row of the embeddings, or in none."""
        for batch in self.dataset.batches(shard):
            for name in token_columns(batch.schema):
                ids = batch.column(name).flatten().to_numpy()
                if len(ids) and ids.max() >= self.dataset.vocab_size:
                    raise ShardError(
                        f"{self.dataset.folder}: {shard.name}: token id {ids.max():,} is outside the vocabulary of "
                        f"{self.dataset.vocab_size:,}: run the pipeline again"
                    )
            yield batch

    def _permutation(self, size: int, epoch: int, *purpose: int) -> np.ndarray:
        seed = integer_seed(self.seed, name_key(self.name), epoch, *purpose)
        generator = np.random.Generator(np.random.Philox(seed))
        return generator.permutation(size)


class _Window:
    """Decoded record batches as one indexable list of examples, without copying their tokens."""

    def __init__(self, batches: list[pa.RecordBatch], columns: Sequence[str], share: float) -> None:
        self.ends = np.cumsum([batch.num_rows for batch in batches])
        self.ids = np.concatenate([batch.column("id").to_numpy() for batch in batches])
        self.shared = in_share(self.ids, share)
        self.columns = {name: [_values(batch.column(name)) for batch in batches] for name in columns}
        if "tokens" in batches[0].schema.names:
            self.lengths = np.concatenate([Ragged.from_arrow(batch.column("tokens")).lengths for batch in batches])

    def value(self, name: str, row: int) -> Any:
        batch = int(np.searchsorted(self.ends, row, side="right"))
        value = self.columns[name][batch][row - (int(self.ends[batch - 1]) if batch else 0)]
        if isinstance(value, pa.Scalar):
            return array_of(value) if is_array(value.type) else value.as_py()
        return value


def in_share(ids: np.ndarray, share: float) -> np.ndarray:
    """Which examples a share of a dataset has, (n,) bool: about so many, by ids (n,) int64 alone."""
    draws = keyed.shift(keyed.draw(keyed.mix(Purpose.SHARE, ids), 1), 11)
    return draws < share * 2.0**53


def _values(column: pa.Array) -> Ragged | np.ndarray | pa.Array:
    """A column in the form that its rows are taken from."""
    if pa.types.is_list(column.type) and not is_array(column.type):
        return Ragged.from_arrow(column)
    return column.to_numpy() if pa.types.is_primitive(column.type) else column


def _column(name: str, rows: list[tuple[_Window, int]]) -> Column:
    """The values of these rows, in their order."""
    values = [window.value(name, row) for window, row in rows]
    kept = rows[0][0].columns[name][0]
    if isinstance(kept, Ragged):
        return Ragged.of(values, values[0].dtype)
    return np.array(values) if isinstance(kept, np.ndarray) else values


def prefetch(
    make: Callable[[], Iterator[tuple[Batch, StreamState]]], depth: int
) -> Iterator[tuple[Batch, StreamState]]:
    """Runs an endless iterator in a thread, at most `depth` items ahead; its exceptions are raised here."""
    items: queue.Queue = queue.Queue(maxsize=depth)
    stopped = threading.Event()

    def put(item: object) -> None:
        while not stopped.is_set():
            try:
                items.put(item, timeout=0.1)
                return
            except queue.Full:
                continue

    def work() -> None:
        try:
            for item in make():
                put(item)
                if stopped.is_set():
                    return
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=work, daemon=True, name="prefetch")
    thread.start()
    try:
        while True:
            item = items.get()
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        thread.join()
