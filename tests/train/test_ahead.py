"""Batches on the device before they are wanted; streams of CUDA are stood in for."""

import contextlib
import itertools
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from clearspan.train.data.ahead import copied_ahead
from clearspan.train.data.batch import Batch
from clearspan.train.data.feed import FeedState, MicroBatch


def test_batches_come_ahead_as_they_are_and_the_source_is_closed_with_them() -> None:
    closed = []

    def source() -> Iterator[tuple[MicroBatch, FeedState]]:
        try:
            for number in itertools.count():
                yield {"text": Batch({"spans/x": torch.full((2,), number)}, torch.arange(2), torch.zeros(2))}, {}
        finally:
            closed.append(True)

    batches = copied_ahead(source(), torch.device("cpu"))
    assert [int(next(batches)[0]["text"].values("spans/x")[0]) for _ in range(3)] == [0, 1, 2]
    batches.close()
    assert closed


def test_a_copy_is_begun_by_its_own_stream_before_its_batch_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream that works waits for the copy in hand and not for the next, and holds its memory."""
    said: list[str] = []

    class Working:
        def wait_stream(self, stream: object) -> None:
            assert stream is beside
            said.append("waited")

    working, beside, current = Working(), object(), [None]

    @contextlib.contextmanager
    def entered(stream: object) -> Iterator[None]:
        current[0] = stream
        yield
        current[0] = None

    def copied(batch: Batch, device: torch.device) -> Batch:
        assert current[0] is beside
        said.append(f"copied {int(batch.ids)}")
        return batch

    monkeypatch.setattr(torch.cuda, "Stream", lambda device: beside)
    monkeypatch.setattr(torch.cuda, "stream", entered)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: working)
    monkeypatch.setattr(Batch, "to", copied)
    held: list[tuple[int, object]] = []
    monkeypatch.setattr(Tensor, "record_stream", lambda tensor, stream: held.append((id(tensor), stream)))
    host = [Batch({"spans/x": torch.zeros(2)}, torch.tensor(number), torch.zeros(())) for number in range(3)]
    batches = copied_ahead((({"text": one}, {}) for one in host), torch.device("cuda"))
    next(batches)
    assert said == ["copied 0", "waited", "copied 1"]
    assert held == [(id(one), working) for one in (host[0].columns["spans/x"], host[0].ids, host[0].epochs)]
    next(batches)
    assert said[3:] == ["waited", "copied 2"]
    next(batches)  # though there is no fourth: what goes wrong with one is told where that one is wanted
    with pytest.raises(RuntimeError):
        next(batches)
