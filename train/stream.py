"""The order of documents: a pure function of (seed, epoch, position), the same for any number of ranks.

    1. an epoch     permutes the shards                                       key (seed, epoch)
    2. a window     the next `shuffle_shards` shards, decoded into memory
    3. its order    permutes the window's documents, short ones left out      key (seed, epoch, window)
    4. a batch      the next B documents of that order; an epoch's last documents, fewer than B, are left out
    5. a rank       documents r B / R .. (r + 1) B / R of the batch

State is (epoch, position): documents passed in that epoch, short ones included. Every rank decodes every window (a
shard decodes far faster than it trains) and slices its part, so nothing depends on ranks or workers and a resume reads
no window before the one it needs. A thread decodes ahead; batches it holds are not counted as consumed.
"""

import dataclasses
import queue
import threading
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from shards import Dataset
from train.keyed import integer_seed


class StreamError(ValueError):
    """The shards do not suit the recipe. The message names the key and the mend."""


@dataclasses.dataclass(frozen=True)
class StreamState:
    """Where the next batch begins."""

    epoch: int = 0
    position: int = 0


@dataclasses.dataclass
class Batch:
    """One rank's documents: tokens (S,) int32, offsets (B + 1,), ids (B,), epochs (B,) int64."""

    tokens: Tensor
    offsets: Tensor
    ids: Tensor
    epochs: Tensor

    def to(self, device: torch.device) -> "Batch":
        return Batch(*(getattr(self, f.name).to(device, non_blocking=True) for f in dataclasses.fields(self)))

    def pin(self) -> "Batch":
        return Batch(*(getattr(self, f.name).pin_memory() for f in dataclasses.fields(self)))


class DocumentStream:
    """An endless stream of batches over a dataset of documents.

    Args:
        batch_size: documents in a batch over all ranks; a multiple of the number of ranks.
        min_tokens: shorter documents are an error, or with `skip_short` left out; `num_short` counts them.

    Raises:
        StreamError: the dataset is of another kind, or has too few documents for one batch.
        ShardError: (on counting, or later on reading) a shard is damaged.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        seed: int,
        shuffle_shards: int,
        min_tokens: int,
        skip_short: bool,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        if dataset.manifest.kind != "documents":
            raise StreamError(f"data.path {dataset.folder}: holds {dataset.manifest.kind}, the recipe needs documents")
        if batch_size % ranks:
            raise StreamError(f"training.batch_size {batch_size} is not a multiple of the {ranks} ranks")
        self.dataset, self.batch_size, self.seed, self.shuffle_shards = dataset, batch_size, seed, shuffle_shards
        self.min_tokens, self.skip_short = min_tokens, skip_short
        self.part = slice(rank * batch_size // ranks, (rank + 1) * batch_size // ranks)
        self.num_short = self._count_short() if skip_short else 0
        kept = dataset.num_examples - self.num_short
        if kept < batch_size:
            short = f" (after {self.num_short} shorter than the {min_tokens} tokens that the spans need)"
            raise StreamError(
                f"data.path {dataset.folder}: {kept} documents{short if self.num_short else ''} are fewer than "
                f"training.batch_size {batch_size}: lower that, or num_anchors, max_span or min_distance"
            )
        self.steps_per_epoch = kept // batch_size

    def _count_short(self) -> int:
        return sum(
            int((np.diff(batch.column("tokens").offsets.to_numpy()) < self.min_tokens).sum()) for batch in self.dataset
        )

    def batches(self, state: StreamState) -> Iterator[tuple[Batch, StreamState]]:
        """Batches from a state on, each with the state after it. Endless.

        Raises:
            StreamError: a document is too short and not to be skipped.
            ShardError: a shard is damaged.
        """
        epoch, position = state.epoch, state.position
        while True:
            rows: list[np.ndarray] = []
            ids: list[int] = []
            for order, window in self._windows(epoch, position):
                for row in order:
                    position += 1
                    tokens = window.tokens(row)
                    if len(tokens) < self.min_tokens:
                        self._check_short(window.id(row), len(tokens))
                        continue
                    rows.append(tokens)
                    ids.append(window.id(row))
                    if len(rows) == self.batch_size:
                        yield _collate(rows[self.part], ids[self.part], epoch), StreamState(epoch, position)
                        rows, ids = [], []
            epoch, position = epoch + 1, 0

    def prefetched(self, state: StreamState, depth: int = 2) -> Iterator[tuple[Batch, StreamState]]:
        """`batches`, made by a thread that stays at most `depth` batches ahead."""
        return prefetch(lambda: self.batches(state), depth)

    def _check_short(self, document: int, length: int) -> None:
        if not self.skip_short:
            raise StreamError(
                f"{self.dataset.folder}: document {document} has {length} tokens, the spans need {self.min_tokens}: "
                "set data.short_documents to skip or shrink, or lower max_span or min_distance"
            )

    def _windows(self, epoch: int, position: int) -> Iterator[tuple[np.ndarray, "_Window"]]:
        """(order, window) of an epoch from a position on; windows before it are not read."""
        shards = self.dataset.shards
        permuted = self._permutation(len(shards), epoch, 0)
        for start in range(0, len(shards), self.shuffle_shards):
            members = [shards[i] for i in permuted[start : start + self.shuffle_shards]]
            size = sum(shard.examples for shard in members)
            if position >= size:
                position -= size
                continue
            window = _Window([batch for shard in members for batch in self.dataset.batches(shard)])
            yield self._permutation(size, epoch, 1 + start)[position:], window
            position = 0

    def _permutation(self, size: int, epoch: int, purpose: int) -> np.ndarray:
        generator = np.random.Generator(np.random.Philox(integer_seed(self.seed, epoch, purpose)))
        return generator.permutation(size)


class _Window:
    """Decoded record batches as one indexable list of documents, without copying their tokens."""

    def __init__(self, batches: list) -> None:
        self.ends = np.cumsum([batch.num_rows for batch in batches])
        self.ids = [batch.column("id").to_numpy() for batch in batches]
        self.offsets = [batch.column("tokens").offsets.to_numpy() for batch in batches]
        self.values = [batch.column("tokens").values.to_numpy() for batch in batches]

    def _locate(self, row: int) -> tuple[int, int]:
        batch = int(np.searchsorted(self.ends, row, side="right"))
        return batch, row - (int(self.ends[batch - 1]) if batch else 0)

    def id(self, row: int) -> int:
        batch, row = self._locate(row)
        return int(self.ids[batch][row])

    def tokens(self, row: int) -> np.ndarray:
        batch, row = self._locate(row)
        return self.values[batch][self.offsets[batch][row] : self.offsets[batch][row + 1]]


def _collate(documents: list[np.ndarray], ids: list[int], epoch: int) -> Batch:
    batch = Batch(
        tokens=torch.from_numpy(np.concatenate(documents).astype(np.int32)),
        offsets=torch.tensor([0, *np.cumsum([len(tokens) for tokens in documents]).tolist()]),
        ids=torch.tensor(ids),
        epochs=torch.full((len(ids),), epoch),
    )
    return batch.pin() if torch.cuda.is_available() else batch


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
