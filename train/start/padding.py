"""Measure the padding of a run whose encoder cannot run packed (`common.encoder.padded`)."""

from clearspan.common.encoder.padded import rows_with_padding
from clearspan.train.data.feed import Feed
from clearspan.train.step.learner import Learner


def padding_share(learner: Learner, feed: Feed) -> float:
    """Return the fraction of padding among the tokens that the encoder computes in a run's first micro-batch.

    It is 0.0 for an encoder that runs packed. Otherwise the first micro-batch is read, and its sequences are drawn as
    in training.

    Args:
        learner: the module that is trained, on the CPU.
        feed: the streams of the datasets.

    Raises:
        StreamError, ShardError: an example of the first step is too short, or a shard is damaged.
    """
    if not learner.encoder.padded_because:
        return 0.0
    columns = {name: learner.columns(name) for name in feed.streams}
    batches = feed.prefetched(feed.start(), columns, learner.collate)
    try:
        batch, _ = next(batches)
        drawn = [learner.prepare(batch, turn).packed.lengths for turn in learner.turns]
    finally:
        batches.close()  # type: ignore[attr-defined]
    lengths = [each for each in drawn if each is not None]
    return 1 - sum(map(sum, lengths)) / sum(map(rows_with_padding, lengths))
