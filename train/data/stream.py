"""The order of examples: a pure function of (seed, epoch, position), the same for any number of ranks.

    1. an epoch     permutes the shards                                       key (seed, epoch)
    2. a window     the next `shuffle_shards` shards, decoded into memory
    3. its order    permutes the window's examples, short documents left out  key (seed, epoch, window)
    4. a step       the next B examples of that order; an epoch's last examples, fewer than B, are left out
    5. a forward    examples j B / K .. (j + 1) B / K of the step, the j-th of K forwards whose gradients add up
    6. a rank       its share, 1 / R, of each forward
    7. a preparer   what the objectives make of that share's columns on the host, e.g. views

State is (epoch, position): examples passed in that epoch, short ones included. Every rank decodes every window (a
shard decodes far faster than it trains) and gathers its part, so nothing depends on ranks or workers and a resume reads
no window before the one it needs. A thread decodes and prepares ahead; what it holds is not counted as consumed.
"""

import dataclasses
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from shards import Dataset, ShardError, ShardInfo
from shards.ragged import Ragged
from shards.schema import token_columns
from train.keyed import integer_seed

Columns = dict[str, Ragged]
"""Token columns by name, on the host: values of the shards' own type, one list an example."""


class Preparer(Protocol):
    """What makes of a rank's rows what the device needs: the objectives, together."""

    @property
    def columns(self) -> Sequence[str]:
        """The shards' token columns that it reads."""

    def prepare(self, columns: Columns, ids: np.ndarray, epoch: int) -> Columns:
        """The columns that go to the device, from those and ids (n,) int64. Called in the stream's own thread."""


class StreamError(ValueError):
    """The shards do not suit the recipe. The message names the key and the mend."""


@dataclasses.dataclass(frozen=True)
class StreamState:
    """Where the next batch begins."""

    epoch: int = 0
    position: int = 0


@dataclasses.dataclass(frozen=True)
class TokenLists:
    """n lists of tokens: values (S,) int32, list i being values[offsets[i]:offsets[i + 1]]; offsets (n + 1,) int64."""

    values: Tensor
    offsets: Tensor

    @classmethod
    def of(cls, column: Ragged) -> "TokenLists":
        return cls(torch.from_numpy(column.values.astype(np.int32)), torch.from_numpy(column.offsets))

    @property
    def lengths(self) -> Tensor:
        """(n,) int64."""
        return self.offsets.diff()


@dataclasses.dataclass(frozen=True)
class Batch:
    """One rank's examples of one forward: token columns by name, ids (B,) and epochs (B,) int64."""

    columns: dict[str, TokenLists]
    ids: Tensor
    epochs: Tensor

    @property
    def tokens(self) -> TokenLists:
        """The examples themselves; views have columns of their own."""
        return self.columns["tokens"]

    def to(self, device: torch.device) -> "Batch":
        return self._map(lambda tensor: tensor.to(device, non_blocking=True))

    def pin(self) -> "Batch":
        return self._map(Tensor.pin_memory)

    def _map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        columns = {name: TokenLists(change(c.values), change(c.offsets)) for name, c in self.columns.items()}
        return Batch(columns, change(self.ids), change(self.epochs))


class ExampleStream:
    """An endless stream of batches over a dataset of text examples.

    Args:
        kind: the kind of shards that the objectives read.
        batch_size: examples in a step over all ranks; a multiple of ranks x forwards.
        min_tokens: shorter documents are an error, or with `skip_short` left out; `num_short` counts them.
        forwards: the forwards of a step, each on its share of the examples; a batch is one rank's part of one.

    Raises:
        StreamError: the dataset is of another kind, or has too few examples for one step.
        ShardError: (on counting, or later on reading) a shard is damaged.
    """

    def __init__(
        self,
        dataset: Dataset,
        kind: str,
        batch_size: int,
        seed: int,
        shuffle_shards: int,
        min_tokens: int = 0,
        skip_short: bool = False,
        forwards: int = 1,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        found = dataset.manifest.kind
        if found != kind:
            raise StreamError(
                f"data.path {dataset.folder}: holds {found}, the recipe needs {kind}: make them with "
                f"`python -m pipelines {kind}`, or take a recipe for {found}"
            )
        if batch_size % (ranks * forwards):
            times = f" x training.gradient_accumulation_steps {forwards}" if forwards > 1 else ""
            raise StreamError(f"training.batch_size {batch_size} is not a multiple of the {ranks} ranks{times}")
        self.dataset, self.batch_size, self.seed, self.shuffle_shards = dataset, batch_size, seed, shuffle_shards
        self.min_tokens, self.skip_short, self.forwards = min_tokens, skip_short, forwards
        self.rank, self.share = rank, batch_size // (ranks * forwards)
        self.num_short = self._count_short() if skip_short else 0
        kept = dataset.num_examples - self.num_short
        if kept < batch_size:
            short = f" (after {self.num_short} shorter than the {min_tokens} tokens that the spans need)"
            mend = ", or num_anchors, max_span or min_distance" if min_tokens > 1 else ""
            raise StreamError(
                f"data.path {dataset.folder}: {kept} {kind}{short if self.num_short else ''} are fewer than "
                f"training.batch_size {batch_size}: lower that{mend}"
            )
        self.steps_per_epoch = kept // batch_size

    def _count_short(self) -> int:
        return sum(
            int((np.diff(batch.column("tokens").offsets.to_numpy()) < self.min_tokens).sum()) for batch in self.dataset
        )

    def batches(self, state: StreamState, preparer: Preparer | None = None) -> Iterator[tuple[Batch, StreamState]]:
        """Batches from a state on, `forwards` a step, each with the state after its step. Endless.

        Without a preparer they hold every token column of the shards.

        Raises:
            StreamError: a document is too short and not to be skipped.
            ShardError: a shard is damaged.
        """
        epoch, position = state.epoch, state.position
        while True:
            rows: list[tuple[_Window, int]] = []
            for order, window in self._windows(epoch, position, preparer.columns if preparer else None):
                for row in order:
                    position += 1
                    if window.lengths[row] < self.min_tokens:
                        self._check_short(int(window.ids[row]), int(window.lengths[row]))
                        continue
                    rows.append((window, row))
                    if len(rows) == self.batch_size:
                        after = StreamState(epoch, position)
                        firsts = range(self.rank * self.share, len(rows), len(rows) // self.forwards)
                        own = [row for first in firsts for row in rows[first : first + self.share]]
                        for batch in _collate(own, epoch, preparer, self.share):
                            yield batch, after
                        rows = []
            epoch, position = epoch + 1, 0

    def prefetched(self, state: StreamState, preparer: Preparer | None = None) -> Iterator[tuple[Batch, StreamState]]:
        """`batches`, made by a thread that stays at most one step and one batch ahead."""
        return prefetch(lambda: self.batches(state, preparer), self.forwards + 1)

    def _check_short(self, document: int, length: int) -> None:
        if not self.skip_short:
            raise StreamError(
                f"{self.dataset.folder}: document {document} has {length} tokens, the spans need {self.min_tokens}: "
                "set data.short_documents to skip or shrink, or lower max_span or min_distance"
            )

    def _windows(
        self, epoch: int, position: int, columns: Sequence[str] | None
    ) -> Iterator[tuple[np.ndarray, "_Window"]]:
        """(order, window) of an epoch from a position on; windows before it are not read."""
        shards = self.dataset.shards
        permuted = self._permutation(len(shards), epoch, 0)
        for start in range(0, len(shards), self.shuffle_shards):
            members = [shards[i] for i in permuted[start : start + self.shuffle_shards]]
            size = sum(shard.examples for shard in members)
            if position >= size:
                position -= size
                continue
            window = _Window([batch for shard in members for batch in self._batches(shard)], columns)
            yield self._permutation(size, epoch, 1 + start)[position:], window
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

    def _permutation(self, size: int, epoch: int, purpose: int) -> np.ndarray:
        generator = np.random.Generator(np.random.Philox(integer_seed(self.seed, epoch, purpose)))
        return generator.permutation(size)


class _Window:
    """Decoded record batches as one indexable list of examples, without copying their tokens."""

    def __init__(self, batches: list[pa.RecordBatch], columns: Sequence[str] | None) -> None:
        self.ends = np.cumsum([batch.num_rows for batch in batches])
        self.ids = np.concatenate([batch.column("id").to_numpy() for batch in batches])
        self.names = token_columns(batches[0].schema) if columns is None else columns
        self.columns = {name: [Ragged.from_arrow(batch.column(name)) for batch in batches] for name in self.names}
        self.lengths = np.concatenate([Ragged.from_arrow(batch.column("tokens")).lengths for batch in batches])

    def tokens(self, name: str, row: int) -> np.ndarray:
        batch = int(np.searchsorted(self.ends, row, side="right"))
        return self.columns[name][batch][row - (int(self.ends[batch - 1]) if batch else 0)]


def _collate(rows: list[tuple[_Window, int]], epoch: int, preparer: Preparer | None, share: int) -> Iterator[Batch]:
    """Batches of `share` rows, prepared together: a few large blocks cost far less than many small ones."""
    ids = np.array([window.ids[row] for window, row in rows])
    columns: Columns = {}
    for name in rows[0][0].names:
        lists = [window.tokens(name, row) for window, row in rows]
        columns[name] = Ragged.of(lists, lists[0].dtype)
    if preparer is not None:
        columns = preparer.prepare(columns, ids, epoch)
    for first in range(0, len(ids), share):
        part = slice(first, first + share)
        batch = Batch(
            columns={name: TokenLists.of(column.part(part)) for name, column in columns.items()},
            ids=torch.from_numpy(ids[part]),
            epochs=torch.full((share,), epoch),
        )
        yield batch.pin() if torch.cuda.is_available() else batch


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
