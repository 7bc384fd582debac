"""Copy micro-batches to the device ahead of time: the next one is copied while the device computes the current one."""

from collections.abc import Generator, Iterator

import torch

from clearspan.train.data.feed import FeedState, MicroBatch


def copied_ahead(
    batches: Iterator[tuple[MicroBatch, FeedState]], device: torch.device
) -> Generator[tuple[MicroBatch, FeedState], None, None]:
    """Yield the pairs (micro-batch, position in each dataset after its step) with the micro-batches on the device.

    On CUDA a separate stream copies each micro-batch from pinned memory while the previous micro-batch is computed;
    neither the host nor the computing kernels wait for the copy.

    Args:
        batches: the pairs, which never end, with the micro-batches on the host. Closing the returned generator closes
            this one.
        device: the device.
    """
    copying = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]  # torch's

    def copied() -> tuple[MicroBatch, FeedState]:
        batch, after = next(batches)
        with torch.cuda.stream(copying):  # None: no change of stream
            return {name: part.to(device) for name, part in batch.items()}, after

    try:
        while copying is None:
            yield copied()
        upcoming = copied()
        while True:
            batch, after = upcoming
            computing = torch.cuda.current_stream(device)
            computing.wait_stream(copying)
            for part in batch.values():
                part.used_by(computing)
            failure: Exception | None = None
            try:
                upcoming = copied()
            except Exception as error:  # it concerns the next batch; this batch is complete, and may be the last
                failure = error
            yield batch, after
            if failure is not None:
                raise failure
    finally:
        batches.close()  # type: ignore[attr-defined]
