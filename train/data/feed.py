"""Several datasets, read side by side: each has a stream of its own, and a step takes a batch from every one.

A dataset that ends begins its next epoch alone; the others go on. The state is that of every stream.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from train.data.batch import Batch, Columns, Rows
from train.data.stream import ExampleStream, StreamState

MicroBatch = dict[str, Batch]
"""One rank's examples of one micro-batch, by dataset."""
FeedState = dict[str, StreamState]
"""Where each dataset's next batch begins."""


class Feed:
    """The streams of a run, by the recipe's names of the datasets; the first one's epochs are the run's."""

    def __init__(self, streams: Mapping[str, ExampleStream]) -> None:
        self.streams = dict(streams)

    @property
    def steps_per_epoch(self) -> int:
        return next(iter(self.streams.values())).steps_per_epoch

    def start(self) -> FeedState:
        return {name: StreamState() for name in self.streams}

    def prefetched(
        self, state: FeedState, columns: Mapping[str, list[str]], collate: Callable[[Rows], Mapping[str, Columns]]
    ) -> Iterator[tuple[MicroBatch, FeedState]]:
        """Endless micro-batches from a state on, each with the state after its step; every dataset has a thread, which
        stays at most one step and one batch ahead.

        Args:
            columns: the shards' columns to read, by dataset.
            collate: makes of a rank's rows each objective's columns; called in the dataset's thread.

        Raises:
            StreamError, ShardError: see `ExampleStream.batches`.
        """
        sources = [stream.prefetched(state[name], columns[name], collate) for name, stream in self.streams.items()]
        try:
            while True:
                found = [next(source) for source in sources]
                yield (
                    {name: batch for name, (batch, _) in zip(self.streams, found, strict=True)},
                    {name: after for name, (_, after) in zip(self.streams, found, strict=True)},
                )
        finally:
            for source in sources:
                source.close()  # type: ignore[attr-defined]


def to_plain(state: FeedState) -> dict[str, dict[str, Any]]:
    """A state as plain values, for a checkpoint."""
    return {name: dataclasses.asdict(one) for name, one in state.items()}


def from_plain(content: Mapping[str, Mapping[str, Any]]) -> FeedState:
    return {name: StreamState(**one) for name, one in content.items()}
