"""The rolling hash against its definition, of NumPy and of torch alike."""

import numpy as np
import pytest
import torch

from clearspan.shards import keyed, rolling

WORD = 1 << 64


def slow(items: list[int]) -> int:
    """The hash of a run as the sum that defines it, in Python's integers, as int64."""
    total = sum(item * keyed.GOLDEN**place for place, item in enumerate(items)) % WORD
    return total - WORD if total >= WORD >> 1 else total


@pytest.mark.parametrize("of", [np.array, torch.tensor])
def test_the_hash_of_any_run_is_the_sum_that_defines_it(of) -> None:
    items = np.random.default_rng(1).integers(-(1 << 63), 1 << 63, 40).tolist()
    base, inverse = (rolling.powers(of([0] * 41), number) for number in (keyed.GOLDEN, rolling.INVERSE))
    terms = of(items) * base[:-1]
    sums = of([0, *terms.cumsum(0).tolist()])
    starts, ends = of([0, 3, 39, 7, 40]), of([40, 17, 40, 7, 40])
    expected = [slow(items[start:end]) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    assert rolling.hashes(sums, inverse, starts, ends).tolist() == expected


def test_equal_runs_have_equal_hashes_wherever_they_begin() -> None:
    items = np.array([5, 6, 7, 8, 5, 6, 7, 9], np.int64)
    base, inverse = (rolling.powers(np.empty(9, np.int64), number) for number in (keyed.GOLDEN, rolling.INVERSE))
    sums = np.append(0, np.cumsum(items * base[:-1]))
    hashes = rolling.hashes(sums, inverse, np.array([0, 4, 0, 4]), np.array([3, 7, 4, 8]))
    assert hashes[0] == hashes[1] and hashes[2] != hashes[3]
