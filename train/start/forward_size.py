"""Estimate the size of the batch in one rank's forward pass, for the token budget and for `--dry-run`."""

import dataclasses
import math
from collections.abc import Mapping

from clearspan.train.model.packing import Budget, SpecialTokens, plan_budget
from clearspan.train.step.contract import Objective


@dataclasses.dataclass
class ForwardSize:
    """The estimated size of the packed batch in one rank's forward pass.

    Attributes:
        sequences: the number of sequences, both of tokens and of patches.
        mean_tokens: the mean number of tokens in a batch, special tokens included, patches excluded.
        patches: the number of patches in a batch.
        budget: the number of tokens that every batch has if the run needs batches of a fixed shape. It is computed for
            other runs too. None if the batch has patches only.
    """

    sequences: int
    mean_tokens: float
    patches: int
    budget: Budget | None

    @property
    def rows(self) -> int:
        """The number of rows (tokens and patches) of a packed batch that is filled up to the token budget."""
        return self.patches + (self.budget.tokens if self.budget else 0)


def forward_size(
    objectives: list[Objective], examples: Mapping[str, int], special: SpecialTokens, capacity: int, shrinks: bool
) -> ForwardSize:
    """Return the estimated size of the packed batch in one rank's forward pass.

    Its fixed number of tokens (`budget`) depends on the variance of the number of tokens in a batch. The variance is
    estimated as if the sequences of one example were all long or all short, as a sentence and its views are.

    Args:
        objectives: the objectives whose sequences are encoded in the forward pass.
        examples: name of a dataset -> the number of its examples in a rank's micro-batch.
        special: the special tokens around each sequence of tokens.
        capacity: the longest sequence that the encoder takes, in tokens without special tokens.
        shrinks: whether spans shrink to fit short documents. A sequence may then have a single token.
    """
    loads = [(examples[objective.data], objective.data, objective.workload()) for objective in objectives]
    patch_sequences = sum(count * work.patch_sequences for count, _, work in loads)
    patches = sum(count * work.patches for count, _, work in loads)
    texts = [(count, data, work) for count, data, work in loads if work.sequences]
    if not texts:
        return ForwardSize(patch_sequences, 0.0, patches, None)
    sequences = sum(count * work.sequences for count, _, work in texts)
    mean = sum(count * work.mean_tokens for count, _, work in texts) + sequences * special.count
    variance = 0.0
    for name in dict.fromkeys(data for _, data, _ in texts):
        variance += examples[name] * sum(math.sqrt(work.variance) for _, data, work in texts if data == name) ** 2
    shortest = (1 if shrinks else min(work.shortest for _, _, work in texts)) + special.count
    longest = min(max(work.longest for _, _, work in texts), capacity) + special.count
    mean = min(mean, sequences * longest)
    budget = plan_budget(mean, variance, sequences, shortest, longest)
    return ForwardSize(sequences + patch_sequences, mean, patches, budget)
