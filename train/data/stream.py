"""Stream of examples, in an order that is a pure function of (seed, epoch, position), for any number of ranks.

    1. epoch        the dataset's shards, in an order drawn from (seed, dataset, epoch)
    2. window       the next `shuffle_shards` shards, decoded into memory
    3. order        the window's examples, in an order drawn from (seed, dataset, epoch, window); examples outside the
                    fraction `share` of the dataset are skipped. An example with fewer than `min_tokens` tokens is
                    skipped if `skip_short` is true; otherwise it is an error
    4. step         the next `batch_size` examples; if fewer are left at the end of an epoch, they are dropped
    5. micro-batch  the step's examples, cut into `micro_batches` equal parts, whose gradients are added up
    6. rank         each micro-batch, cut into `ranks` equal parts, one for each rank; if the loss contrasts all
                    examples of a step (`whole`), 6 comes before 5: the step is cut for the ranks first
    7. collation    the objectives turn the rank's examples into columns, e.g. of views, on the host

The state of a stream is (epoch, position). The position is the number of examples at the beginning of the epoch's order
that have been used or skipped. Every rank decodes every window, because decoding is far faster than training, and takes
its part of the examples. So the order does not depend on the number of ranks or threads, and a resumed run does not
decode the windows before its position. A thread decodes and collates in advance; the position does not count these
examples until a step uses them.
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
    """The shards of a dataset do not suit the recipe. The message names the recipe's key, and says what to change."""


@dataclasses.dataclass(frozen=True)
class StreamState:
    """The place in an `ExampleStream` where a step begins.

    Attributes:
        epoch: the number of the epoch, from 0 on.
        position: the number of examples that precede the step in the epoch's order, including examples that the stream
            skipped.
    """

    epoch: int = 0
    position: int = 0


@dataclasses.dataclass(eq=False)
class ExampleStream:
    """An endless stream of one rank's batches of a dataset. When an epoch ends, the next one begins.

    Args:
        name: the dataset's name in the recipe.
        dataset: the shards.
        batch_size: the number of examples in a step, over all ranks; a multiple of `ranks` x `micro_batches`.
        seed: the seed of the run, from which the orders of shards and examples are drawn.
        shuffle_shards: the number of shards whose examples are shuffled together.
        min_tokens: the minimum length of an example, in tokens.
        measured: the name of the column of token lists whose lengths are compared with `min_tokens`.
        skip_short: True to skip an example with fewer than `min_tokens` tokens; False to raise a StreamError for it.
        micro_batches: the number of micro-batches in a step. A batch is one rank's part of a micro-batch.
        rank, ranks: the index of this rank, from 0 on, and the number of ranks.
        share: the fraction of the dataset's examples to read, from 0 to 1. The hash of an example's id decides whether
            it is read.
        whole: True if the loss contrasts all examples of a step, as with gradient caching. The examples of a rank and
            their order then do not depend on `micro_batches`.

    Raises:
        StreamError: the dataset has too few examples for one step; an example is too short, and `skip_short` is False;
            or `batch_size` is not a multiple of `ranks` x `micro_batches`.
        ShardError: a shard is damaged. This is found while examples are counted, or later while they are read.
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
        """The number of examples that an epoch reads.

        These are the examples in the fraction `share` of the dataset that have at least `min_tokens` tokens.
        """
        return self.num_shared - self.num_short

    def _counts(self) -> tuple[int, int]:
        """Count the examples in the fraction `share` of the dataset, and those with too few tokens.

        A shard is read only if its entry in the manifest is not enough to count them.

        Returns:
            (number of examples in the fraction, number of these that have fewer than `min_tokens` tokens).

        Raises:
            StreamError: an example in the fraction is too short, and `skip_short` is False.
            ShardError: a shard is damaged.
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
        """Return lines for the user about examples that no epoch reads; [] if there are none.

        Each line states a number of examples and the reason: they are outside the fraction `share`, or too short.
        """
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
        """Yield (batch, state after the batch's step) endlessly.

        For each step there are `micro_batches` batches, all with the same state.

        Args:
            state: the state at which to start.
            columns: the names of the columns to read from the shards.
            collate: a function that takes this rank's examples of a step, and returns name of an objective -> its
                columns.

        Raises:
            StreamError: an example is too short, and `skip_short` is False.
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
        """Yield what `batches` yields for the same arguments. A thread makes the batches in advance.

        The thread is ahead of the caller by at most one step and one batch.

        Args:
            state: the state at which to start.
            columns: the names of the columns to read from the shards.
            collate: a function that takes this rank's examples of a step, and returns name of an objective -> its
                columns. It is called in the thread.
        """
        return prefetch(lambda: self.batches(state, columns, collate), self.micro_batches + 1)

    def _gather(self, rows: list[tuple["_Window", int]], epoch: int) -> Rows:
        """Return this rank's part of the examples of a step.

        Args:
            rows: for each example of the step, over all ranks: (the `_Window` of shards in memory that holds it, its
                index there).
            epoch: the number of the epoch, which becomes a field of the result.
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
        """Yield (indices, window) for each window of an epoch: the examples of the next `shuffle_shards` shards.

        The indices are those of all examples in the window, in random order, also of those outside the fraction
        `share` of the dataset.

        Args:
            epoch: the number of the epoch.
            position: the number of examples at the beginning of the epoch's order to leave out. Shards of which all
                examples are left out are not read.
            columns: the names of the columns to read.
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
    """The examples of some shards in memory, indexed like one list. Their tokens are not copied.

    Args:
        batches: the record batches of the shards.
        columns: the names of the columns to hold.
        share: the fraction of the dataset to read.
        measured: the name of the column of token lists from which `lengths` is computed.

    Attributes:
        ids: the ids of the n examples, (n,) int64.
        shared: a mask of the examples, (n,) bool: true for those in the fraction `share`.
        lengths: the lengths of the examples in tokens, (n,). There is no such attribute if the shards lack the column
            `measured`.
    """

    def __init__(self, batches: list[pa.RecordBatch], columns: Sequence[str], share: float, measured: str) -> None:
        self.ends = np.cumsum([batch.num_rows for batch in batches])
        self.ids = np.concatenate([batch.column("id").to_numpy() for batch in batches])
        self.shared = in_share(self.ids, share)
        self.columns = {name: [_values(_column_or_empty(batch, name)) for batch in batches] for name in columns}
        if measured in batches[0].schema.names:
            self.lengths = np.concatenate([Ragged.from_arrow(batch.column(measured)).lengths for batch in batches])

    def value(self, name: str, row: int) -> Any:
        """Return the value in the column `name` of example number `row`, counted from 0 over all shards in memory."""
        batch = int(np.searchsorted(self.ends, row, side="right"))
        value = self.columns[name][batch][row - (int(self.ends[batch - 1]) if batch else 0)]
        if isinstance(value, pa.Scalar):
            return array_of(value) if is_array(value.type) else value.as_py()
        return value


def in_share(ids: np.ndarray, share: float) -> np.ndarray:
    """Return a mask of n examples, (n,) bool: true for those that belong to a random fraction of a dataset.

    The hash of an example's id decides whether it belongs to the fraction.

    Args:
        ids: the ids of the examples, (n,) int64.
        share: the fraction, from 0 to 1.
    """
    draws = keyed.shift(keyed.draw(keyed.mix(Purpose.SHARE, ids), 1), 11)
    inside: np.ndarray = draws < share * 2.0**53
    return inside


def _column_or_empty(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Return a column of a record batch. If the batch lacks it, return a column of empty lists.

    The batches of a held-out part can lack a column that the training part has, such as hard negatives.
    """
    if name in batch.schema.names:
        return batch.column(name)
    return pa.array([[]] * batch.num_rows, batch.column("tokens").type)


def _values(column: pa.Array) -> Ragged | np.ndarray | pa.Array:
    """Return a column in a form whose elements can be read quickly one by one.

    Token lists become a `Ragged`, and numbers a numpy array. Other columns are returned unchanged.
    """
    if pa.types.is_list(column.type) and not is_array(column.type):
        return Ragged.from_arrow(column)
    return column.to_numpy() if pa.types.is_primitive(column.type) else column


def _column(name: str, rows: list[tuple[_Window, int]]) -> Column:
    """Return the values of the column `name` for some examples.

    Args:
        rows: for each example: (the `_Window` of shards in memory that holds it, its index there).
    """
    values = [window.value(name, row) for window, row in rows]
    stored = rows[0][0].columns[name][0]
    if isinstance(stored, Ragged):
        return Ragged.of(values, values[0].dtype)
    return np.array(values) if isinstance(stored, np.ndarray) else values


def prefetch(
    make: Callable[[], Iterator[tuple[Batch, StreamState]]], depth: int
) -> Iterator[tuple[Batch, StreamState]]:
    """Yield the items of an endless iterator. A thread makes them in advance, at most `depth` items ahead.

    The iterator's exceptions are raised in the caller's thread.

    Args:
        make: a function that creates the iterator.
        depth: the maximum number of items that wait for the caller.
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
