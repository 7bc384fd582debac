"""Read several datasets at the same time: each dataset has a stream, and each micro-batch takes a batch from every one.

When a dataset ends, it starts its next epoch, whatever the positions of the other datasets. The epochs of the run are
the epochs of the primary dataset. The state of a feed consists of the states of its streams.
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
        """Return name of a dataset -> the number of its epochs read up to `state`, such as 1.5 in its second epoch."""
        return {
            name: state[name].epoch + state[name].position / stream.dataset.num_examples
            for name, stream in self.streams.items()
        }

    def notes(self, total: int) -> list[str]:
        """Return a note for the user about each dataset that a run reads unexpectedly often or rarely.

        A dataset gets a note if the run reads it more than 10 times (`MANY_TIMES`). A dataset other than the primary
        one also gets a note if the run reads it more or less than once (rounded to one decimal).

        Args:
            total: the length of the run, in steps.
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
        """Yield (micro-batch, state) endlessly. The state is the position of each dataset after the micro-batch's step.

        A micro-batch is a dict: name of a dataset -> its batch.

        A thread for each dataset reads and collates its examples in advance. It is ahead of the caller by at most one
        step and one micro-batch.

        Args:
            state: the position of each dataset before the first step.
            columns: name of a dataset -> the names of the columns to read from its shards.
            collate: a function that takes a rank's examples of one dataset in a step, and returns name of an
                objective -> its columns. It is called in the dataset's thread.

        Raises:
            StreamError: an example has too few tokens, and its stream does not skip such examples.
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
    """Return the state of a feed as nested dicts of plain values, for a checkpoint."""
    return {name: dataclasses.asdict(stream) for name, stream in state.items()}


def from_plain(content: Mapping[str, Mapping[str, Any]]) -> FeedState:
    """Return the state of a feed from the nested dicts of `to_plain`, which a checkpoint holds."""
    return {name: StreamState(**stream) for name, stream in content.items()}
