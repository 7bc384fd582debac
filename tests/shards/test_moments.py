"""Mean and deviation of a column of arrays: exact sums, the same in any order."""

import functools

import numpy as np
import pyarrow as pa
import pytest

from clearspan.shards.layouts import array_column
from clearspan.shards.moments import measure, statistics
from clearspan.shards.schema import MEL_BINS, add_up


def column(*spectrograms: np.ndarray) -> pa.Array:
    return array_column(spectrograms, MEL_BINS)


@pytest.fixture(scope="module")
def noise() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.normal(-6, 4, (frames, 128)).astype(np.float16) for frames in (3, 1, 0, 70)]


def test_sums_of_parts_add_up_to_the_wholes(noise: list[np.ndarray]) -> None:
    whole = measure(column(*noise))
    assert functools.reduce(add_up, [measure(column(one)) for one in reversed(noise)], {}) == whole
    values = np.concatenate(noise).astype(np.float64)
    assert statistics(whole) == pytest.approx({"mean": values.mean(), "std": values.std()}, rel=1e-12)


def test_a_slice_is_measured_as_what_it_shows(noise: list[np.ndarray]) -> None:
    assert measure(column(*noise).slice(1, 3)) == measure(column(*noise[1:]))


def test_sums_are_exact() -> None:
    values = np.zeros((1, 128), np.float16)
    values[0, :4] = [65504, -1.5, 2**-24, 65504]
    assert measure(column(values)) == {
        "values": 128,
        "sum": (2 * 65504 * 2 - 3) * 2**23 + 1,
        "squares": (2 * 65504**2 * 4 + 9) * 2**46 + 1,
    }
    assert statistics(measure(column(np.full((3, 128), -4.25, np.float16)))) == {"mean": -4.25, "std": 0.0}


def test_no_values_have_no_statistics() -> None:
    assert statistics(measure(column())) == {} == statistics({})
