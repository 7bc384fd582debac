"""Stream of examples, in an order that is a pure function of (seed, epoch, position), for any number of ranks.

    1. epoch        the dataset's shards in random order                      key (seed, dataset, epoch)
    2. window       the next `shuffle_shards` shards, decoded into memory
    3. order        the window's examples in random order; examples outside the fraction `share` of the dataset are
                    skipped, and those of fewer than `min_tokens` tokens    key (seed, dataset, epoch, window)
    4. step         the next `batch_size` examples; fewer at the end of an epoch are dropped
    5. micro-batch  the step, cut into `micro_batches` equal parts, whose gradients add up
    6. rank         each micro-batch, cut into `ranks` equal parts, one for each rank; if the loss contrasts all
                    examples of a step (`whole`), the step is cut into parts for the ranks before step 5
    7. collation    the objectives' columns for the rank's examples, made on the host, e.g. views

The state is (epoch, position), where position is the number of examples passed in that epoch, examples skipped in 3
included. Every rank decodes every window, because decoding is far faster than training, and takes its part of the
examples. So the order does not depend on the number of ranks or threads, and a resumed run skips the windows before its
position. A thread decodes and collates ahead; examples in its queue are not yet counted in the position.
"""

import dataclasses
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from clearspan.common.ragged import Ragged
from clearspan.shards import Dataset, ShardError, ShardInfo, keyed
from clearspan.shards.layouts import array_of, is_array
from clearspan.shards.schema import token_columns
from clearspan.train.data.batch import Batch, Column, Columns, Rows, cut_micro_batches
from clearspan.train.draws import Purpose, integer_seed, name_key

Collate = Callable[[Rows], Mapping[str, Columns]]
"""A function from a rank's rows to each objective's columns."""


class StreamError(ValueError):
    """The shards do not suit the recipe. The message names the key and the remedy."""


@dataclasses.dataclass(frozen=True)
class StreamState:
    """The position of the next batch.

    Attributes:
        epoch: the epoch, from 0 on.
        position: the number of examples of the epoch that were passed, skipped examples included.
    """

    epoch: int = 0
    position: int = 0


@dataclasses.dataclass(eq=False)
class ExampleStream:
    """An endless stream of batches over one dataset.

    Args:
        name: the dataset's name in the recipe.
        batch_size: the number of examples of a step over all ranks; a multiple of ranks x micro-batches.
        shuffle_shards: the number of shards whose examples are shuffled together.
        min_tokens: the minimum length of an example, in tokens.
        measured: the column whose lengths are compared with `min_tokens`.
        skip_short: whether to skip shorter examples; if not, a shorter example is an error.
        micro_batches: the number of micro-batches of a step; a batch is one rank's part of a micro-batch.
        whole: whether all examples of a step are contrasted together, as with gradient caching. A rank then has the
            same examples in the same order for any number of micro-batches.
        share: the fraction of the examples to read, chosen by their ids.

    Raises:
        StreamError: the dataset has too few examples for one step, an example is too short, or the batch size is not a
            multiple of ranks x micro-batches.
        ShardError: a shard is damaged (found while counting examples, or later while reading).
    """

    name: str
    dataset: Dataset
    batch_size: int
    seed: int
    shuffle_shards: int
    min_tokens: int = 0
    measured: str = "tokens"
    skip_short: bool = False
    micro_batches: int = 1
    rank: int = 0
    ranks: int = 1
    share: float = 1.0
    whole: bool = False

    def __post_init__(self) -> None:
        name, batch_size = self.name, self.batch_size
        self.examples, left = divmod(batch_size, self.ranks * self.micro_batches)
        if left:
            times = f" x training.gradient_accumulation_steps {self.micro_batches}" if self.micro_batches > 1 else ""
            raise StreamError(
                f"data.{name}.batch_size {batch_size} is not a multiple of the {self.ranks} ranks{times}: "
                "use a number of ranks that divides it, or another batch size"
            )
        self.num_shared, self.num_short = self._counts()
        if self.num_examples < batch_size:
            short = f" (after {self.num_short} shorter than the {self.min_tokens} tokens that the objectives need)"
            mend = ", or num_anchors, max_span or min_distance" if self.num_short else ""
            of_share = f" of a share of {self.share:g}" if self.share < 1 else ""
            raise StreamError(
                f"data.{name}.path {self.dataset.folder}: {self.num_examples} {self.dataset.manifest.kind}{of_share}"
                f"{short if self.num_short else ''} are fewer than data.{name}.batch_size {batch_size}: lower "
                f"batch_size{mend}{', or raise the share' if of_share else ''}"
            )
        self.steps_per_epoch = self.num_examples // batch_size

    @property
    def num_examples(self) -> int:
        """The number of examples in an epoch, without examples outside `share` and without short examples."""
        return self.num_shared - self.num_short

    def _counts(self) -> tuple[int, int]:
        """Return (number of examples in `share`, number of short examples among them).

        A shard is read only if its entry in the manifest does not tell both numbers.
        """
        shared = short = 0
        for shard in self.dataset.shards:
            # The shortest length in the shard's histogram of lengths.
            shortest = min(map(int, shard.lengths.get(self.measured, {})), default=0)
            if self.share == 1 and self.min_tokens <= shortest:
                shared += shard.examples
                continue
            for batch in self.dataset.batches(shard):
                ids = batch.column("id").to_numpy()
                in_it = in_share(ids, self.share)
                shared += int(in_it.sum())
                if self.min_tokens:
                    lengths = np.diff(batch.column(self.measured).offsets.to_numpy())
                    too_short = np.flatnonzero(in_it & (lengths < self.min_tokens))
                    for row in too_short[:1]:
                        self._check_short(int(ids[row]), int(lengths[row]))
                    short += len(too_short)
        return shared, short

    def left_out(self) -> list[str]:
        """Return a line for the user about each reason why an epoch leaves examples out."""
        folder = self.dataset.folder
        kind = self.dataset.manifest.kind
        lines = []
        if self.share < 1:
            lines.append(
                f"{folder}: {self.num_shared} of {self.dataset.num_examples} {kind} are read, data.{self.name}.share "
                f"{self.share:g}"
            )
        if self.num_short:
            lines.append(f"{folder}: {self.num_short} of {self.num_shared} {kind} are too short, left out")
        return lines

    def batches(
        self, state: StreamState, columns: Sequence[str], collate: Collate
    ) -> Iterator[tuple[Batch, StreamState]]:
        """Yield batches endlessly, starting at `state`, each with the state after its step.

        A step yields `micro_batches` batches, all with the same state.

        Args:
            columns: the shards' columns to read.
            collate: returns the columns of each objective for a rank's rows of a step.

        Raises:
            StreamError: an example is too short, without `skip_short`.
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
                        part = self._gather(rows, epoch)
                        for batch in cut_micro_batches(collate(part), part.ids, epoch, self.examples):
                            yield batch.pin() if torch.cuda.is_available() else batch, after
                        rows = []
            epoch, position = epoch + 1, 0

    def prefetched(
        self, state: StreamState, columns: Sequence[str], collate: Collate
    ) -> Iterator[tuple[Batch, StreamState]]:
        """Yield the items of `batches` from a thread that is at most one step and one batch ahead."""
        return prefetch(lambda: self.batches(state, columns, collate), self.micro_batches + 1)

    def _gather(self, rows: list[tuple["_Window", int]], epoch: int) -> Rows:
        """Return this rank's part of the examples of a step.

        Args:
            rows: (window, index in the window) for each example of the step, of all ranks.
        """
        together = len(rows) // (1 if self.whole else self.micro_batches)
        each = together // self.ranks
        firsts = range(self.rank * each, len(rows), together)
        places = [place for first in firsts for place in range(first, first + each)]
        part = [rows[place] for place in places]

        def peer(row: int, uniform: float) -> dict[str, Any]:
            first, place = divmod(places[row], together)
            other = (place + 1 + int(uniform * (together - 1))) % together
            window, at = rows[first * together + other]
            return {"id": int(window.ids[at]), **{name: window.value(name, at) for name in window.columns}}

        ids = np.array([window.ids[row] for window, row in part])
        return Rows(self.name, {name: _column(name, part) for name in part[0][0].columns}, ids, epoch, peer)

    def _check_short(self, document: int, length: int) -> None:
        if not self.skip_short:
            raise StreamError(
                f"{self.dataset.folder}: document {document} has {length} tokens, the spans need {self.min_tokens}: "
                f"set data.{self.name}.short_documents to skip or shrink, or lower max_span or min_distance"
            )

    def _windows(self, epoch: int, position: int, columns: Sequence[str]) -> Iterator[tuple[np.ndarray, "_Window"]]:
        """Yield (indices of the window's examples, in random order; window) for each window of an epoch.

        Examples before `position` are left out; windows that lie before it are not read.
        """
        shards = self.dataset.shards
        permuted = self._permutation(len(shards), epoch, Purpose.SHARDS)
        for start in range(0, len(shards), self.shuffle_shards):
            members = [shards[i] for i in permuted[start : start + self.shuffle_shards]]
            size = sum(shard.examples for shard in members)
            if position >= size:
                position -= size
                continue
            window = _Window(
                [batch for shard in members for batch in self._batches(shard)], columns, self.share, self.measured
            )
            yield self._permutation(size, epoch, Purpose.WINDOW, start)[position:], window
            position = 0

    def _batches(self, shard: ShardInfo) -> Iterator[pa.RecordBatch]:
        """Yield a shard's record batches; raise ShardError if a token id is outside the vocabulary of the dataset."""
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
    """The examples of consecutive shards, indexed like one list. Their tokens are not copied."""

    def __init__(self, batches: list[pa.RecordBatch], columns: Sequence[str], share: float, measured: str) -> None:
        self.ends = np.cumsum([batch.num_rows for batch in batches])
        self.ids = np.concatenate([batch.column("id").to_numpy() for batch in batches])
        self.shared = in_share(self.ids, share)
        self.columns = {name: [_values(_column_or_empty(batch, name)) for batch in batches] for name in columns}
        if measured in batches[0].schema.names:
            self.lengths = np.concatenate([Ragged.from_arrow(batch.column(measured)).lengths for batch in batches])

    def value(self, name: str, row: int) -> Any:
        """Return the value of an example in a column; `row` is the index of the example in the window."""
        batch = int(np.searchsorted(self.ends, row, side="right"))
        value = self.columns[name][batch][row - (int(self.ends[batch - 1]) if batch else 0)]
        if isinstance(value, pa.Scalar):
            return array_of(value) if is_array(value.type) else value.as_py()
        return value


def in_share(ids: np.ndarray, share: float) -> np.ndarray:
    """Return a mask (n,) bool of the examples that belong to a random fraction `share` of a dataset.

    An example's id alone decides whether the example belongs to the fraction.

    Args:
        ids: the ids of the examples, (n,) int64.
    """
    draws = keyed.shift(keyed.draw(keyed.mix(Purpose.SHARE, ids), 1), 11)
    inside: np.ndarray = draws < share * 2.0**53
    return inside


def _column_or_empty(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Return a column of a batch; if a held-out part lacks the column, e.g. hard negatives, return empty lists."""
    if name in batch.schema.names:
        return batch.column(name)
    return pa.array([[]] * batch.num_rows, batch.column("tokens").type)


def _values(column: pa.Array) -> Ragged | np.ndarray | pa.Array:
    """Return a column in a form from which rows can be selected quickly."""
    if pa.types.is_list(column.type) and not is_array(column.type):
        return Ragged.from_arrow(column)
    return column.to_numpy() if pa.types.is_primitive(column.type) else column


def _column(name: str, rows: list[tuple[_Window, int]]) -> Column:
    """Return the values of the column `name` for some examples, each given as (window, index in the window)."""
    values = [window.value(name, row) for window, row in rows]
    stored = rows[0][0].columns[name][0]
    if isinstance(stored, Ragged):
        return Ragged.of(values, values[0].dtype)
    return np.array(values) if isinstance(stored, np.ndarray) else values


def prefetch(
    make: Callable[[], Iterator[tuple[Batch, StreamState]]], depth: int
) -> Iterator[tuple[Batch, StreamState]]:
    """Yield the items of an endless iterator that runs in a thread, at most `depth` items ahead.

    The iterator's exceptions are raised in the caller's thread.

    Args:
        make: creates the iterator.
    """
    items = make()
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as thread:
        ahead = deque(thread.submit(next, items) for _ in range(depth))
        try:
            while True:
                ahead.append(thread.submit(next, items))
                yield ahead.popleft().result()
        finally:
            thread.shutdown(cancel_futures=True)
