"""Read several datasets side by side: each dataset has a stream, and a step takes a batch from every stream.

A dataset that ends starts its next epoch independently of the other datasets. The epochs of the run are the epochs of
the primary dataset. The state of a feed consists of the states of its streams.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from clearspan.train.data.batch import Batch, Columns, Rows
from clearspan.train.data.stream import ExampleStream, StreamState

MicroBatch = dict[str, Batch]
"""One rank's examples of one micro-batch, by dataset."""
FeedState = dict[str, StreamState]
"""The position of each dataset's next batch."""
MANY_TIMES = 10
"""The number of epochs of a dataset above which the user gets a note."""


class Feed:
    """The streams of a run, one for each dataset.

    Args:
        streams: name of a dataset in the recipe -> its stream.
        primary: the dataset whose epochs count as the epochs of the run; "" for the first dataset.
    """

    def __init__(self, streams: Mapping[str, ExampleStream], primary: str = "") -> None:
        self.streams = dict(streams)
        self.primary = primary or next(iter(self.streams))

    @property
    def steps_per_epoch(self) -> int:
        return self.streams[self.primary].steps_per_epoch

    def epochs(self, state: FeedState) -> dict[str, float]:
        """Return the number of epochs read from each dataset, including the fraction of the current epoch."""
        return {
            name: state[name].epoch + state[name].position / stream.dataset.num_examples
            for name, stream in self.streams.items()
        }

    def notes(self, total: int) -> list[str]:
        """Return a note about each dataset that a run of `total` steps reads an unexpected number of times.

        More than `MANY_TIMES` times are unexpected for any dataset. For a dataset that is not the primary one, any
        number that does not round to 1.0 is unexpected.
        """
        times = {name: total / stream.steps_per_epoch for name, stream in self.streams.items()}
        return [
            f"data.{name}: its {stream.num_examples:,} examples are read {times[name]:.3g} times in {total:,} steps"
            for name, stream in self.streams.items()
            if times[name] > MANY_TIMES or (name != self.primary and round(times[name], 1) != 1)
        ]

    def start(self) -> FeedState:
        return {name: StreamState() for name in self.streams}

    def prefetched(
        self, state: FeedState, columns: Mapping[str, list[str]], collate: Callable[[Rows], Mapping[str, Columns]]
    ) -> Iterator[tuple[MicroBatch, FeedState]]:
        """Yield micro-batches endlessly, starting at `state`, each with the state after its step.

        Every dataset has a thread, which is at most one step and one batch ahead.

        Args:
            columns: dataset -> the columns to read from its shards.
            collate: returns the columns of each objective for a rank's rows; called in the dataset's thread.

        Raises:
            StreamError: an example is too short, and its stream does not skip short examples.
            ShardError: a shard is damaged.
        """
        sources = [stream.prefetched(state[name], columns[name], collate) for name, stream in self.streams.items()]
        try:
            while True:
                items = [next(source) for source in sources]
                yield (
                    {name: batch for name, (batch, _) in zip(self.streams, items, strict=True)},
                    {name: after for name, (_, after) in zip(self.streams, items, strict=True)},
                )
        finally:
            for source in sources:
                source.close()  # type: ignore[attr-defined]


def to_plain(state: FeedState) -> dict[str, dict[str, Any]]:
    """Return a state as plain values, for a checkpoint."""
    return {name: dataclasses.asdict(stream) for name, stream in state.items()}


def from_plain(content: Mapping[str, Mapping[str, Any]]) -> FeedState:
    """Return the state that a checkpoint holds as plain values."""
    return {name: StreamState(**stream) for name, stream in content.items()}
