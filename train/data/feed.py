"""Several datasets, read side by side: each has a stream of its own, and a step takes a batch from every one.

A dataset that ends begins its next epoch alone; the others go on. One of them is the primary: its epochs are the run's.
The state is that of every stream.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from clearspan.train.data.batch import Batch, Columns, Rows
from clearspan.train.data.stream import ExampleStream, StreamState

MicroBatch = dict[str, Batch]
"""One rank's examples of one micro-batch, by dataset."""
FeedState = dict[str, StreamState]
"""Where each dataset's next batch begins."""


class Feed:
    """The streams of a run, by the recipe's names of the datasets.

    Args:
        primary: the dataset whose epochs are the run's; "": the first.
    """

    def __init__(self, streams: Mapping[str, ExampleStream], primary: str = "") -> None:
        self.streams = dict(streams)
        self.primary = primary or next(iter(self.streams))

    @property
    def steps_per_epoch(self) -> int:
        return self.streams[self.primary].steps_per_epoch

    def epochs(self, state: FeedState) -> dict[str, float]:
        """How often each dataset was passed over, with the fraction of its examples in the epoch that it is in."""
        return {
            name: state[name].epoch + state[name].position / stream.dataset.num_examples
            for name, stream in self.streams.items()
        }

    def begun(self, before: FeedState, after: FeedState) -> list[str]:
        """A line for each dataset that began a new epoch between two states: the second, the third, and from there on
        each power of two, as a small dataset may have thousands.
        """
        return [
            f"data.{name}: begins anew, pass {after[name].epoch + 1} over its {_count(stream)} examples"
            for name, stream in self.streams.items()
            if any(_told(number) for number in range(before[name].epoch + 2, after[name].epoch + 2))
        ]

    def notes(self, total: int) -> list[str]:
        """A line for each dataset beside the primary one that so many steps pass over more or less than once."""
        said = {name: _times(total / stream.steps_per_epoch) for name, stream in self.streams.items()}
        return [
            f"data.{name}: its {_count(stream)} examples are passed over {said[name]} while data.{self.primary} is "
            f"{said[self.primary]}"
            for name, stream in self.streams.items()
            if name != self.primary and said[name] != "once"
        ]

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


def _told(number: int) -> bool:
    """Whether a pass is told when it begins."""
    return number == 3 or number & (number - 1) == 0


def _count(stream: ExampleStream) -> str:
    return f"{stream.num_examples:,}"


def _times(passes: float) -> str:
    return "once" if round(passes, 1) == 1 else f"{passes:.1f} times" if passes > 1 else f"{passes:.2g} times"


def to_plain(state: FeedState) -> dict[str, dict[str, Any]]:
    """A state as plain values, for a checkpoint."""
    return {name: dataclasses.asdict(one) for name, one in state.items()}


def from_plain(content: Mapping[str, Mapping[str, Any]]) -> FeedState:
    return {name: StreamState(**one) for name, one in content.items()}
