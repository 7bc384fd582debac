"""Micro-batches on the device before they are wanted: the next one is copied while the one before is worked on."""

from collections.abc import Generator, Iterator

import torch

from clearspan.train.data.feed import FeedState, MicroBatch


def copied_ahead(
    batches: Iterator[tuple[MicroBatch, FeedState]], device: torch.device
) -> Generator[tuple[MicroBatch, FeedState], None, None]:
    """The same endless micro-batches and states, on the device.

    On CUDA each is copied, from pinned memory, by a stream of its own when the one before is given out: neither the
    host nor the kernels of that one wait for it. Closing it closes `batches`.
    """
    beside = torch.cuda.Stream(device) if device.type == "cuda" else None

    def copied() -> tuple[MicroBatch, FeedState]:
        batch, after = next(batches)
        with torch.cuda.stream(beside):  # of None, what there is
            return {name: one.to(device) for name, one in batch.items()}, after

    try:
        while beside is None:
            yield copied()
        upcoming = copied()
        while True:
            batch, after = upcoming
            working = torch.cuda.current_stream(device)
            working.wait_stream(beside)
            for one in batch.values():
                one.used_by(working)
            late: Exception | None = None
            try:
                upcoming = copied()
            except Exception as error:  # of the next one: this one is whole, and may be the last that is wanted
                late = error
            yield batch, after
            if late is not None:
                raise late
    finally:
        batches.close()  # type: ignore[attr-defined]
