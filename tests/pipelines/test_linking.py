"""Held-out part of rows that share texts: whole groups, the requested fraction, in any order."""

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearspan.pipelines.units import keys
from clearspan.pipelines.units.linking import held_out, join, links
from clearspan.shards.schema import schema

Rows = list[tuple[int, int]]


def batch(rows: Rows) -> pa.RecordBatch:
    """Return a batch of rows of two texts with one token each."""
    columns = ([[text] for text in column] for column in zip(*rows, strict=True))
    return pa.record_batch([list(range(len(rows))), *columns], schema=schema("triplets", pa.uint16()))


@pytest.fixture
def chosen(tmp_path: Path):
    """Return the held-out rows of units of rows of two texts; keys are read in three slices."""

    def choose(units: list[Rows], fraction: float, dropped: Rows = ()) -> list[list[bool]]:
        paths = [str(tmp_path / f"{number}.links") for number in range(len(units))]
        for path, rows in zip(paths, units, strict=True):
            Path(path).write_bytes(keys.pack_keys([links(batch(rows), 0)] if rows else []))
        kept = [np.array([row not in dropped for row in rows], bool) for rows in units]
        return [found.tolist() for found in held_out(kept, paths, 3, fraction)]

    return choose


def texts_of(units: list[Rows], chosen: list[list[bool]], side: bool) -> set[int]:
    pairs = zip(itertools.chain(*units), itertools.chain(*chosen), strict=True)
    return {text for row, is_held in pairs if is_held is side for text in row}


@given(
    st.integers(1, 30).flatmap(
        lambda n: st.lists(st.tuples(*[st.integers(0, n - 1)] * 2), max_size=40).map(lambda p: (n, p))
    )
)
def test_groups_are_the_connected_components(graph: tuple[int, Rows]) -> None:
    num, pairs = graph
    group, expected = np.arange(num), list(range(num))
    for one, other in pairs:
        low, high = sorted((expected[one], expected[other]))
        expected = [low if label == high else label for label in expected]
    left, right = np.array(pairs, np.int64).reshape(-1, 2).T
    join(group, left, right)
    assert group.tolist() == expected


def random_units(seed: int, num_texts: int) -> list[Rows]:
    draws = np.random.default_rng(seed).integers(0, num_texts, (4, 250, 2))
    return [[(int(one), int(other)) for one, other in unit] for unit in draws]


@pytest.mark.parametrize("num_texts", [1500, 4000, 60_000])
def test_no_text_of_a_held_out_row_is_in_another_and_the_fraction_is_kept(chosen, num_texts: int) -> None:
    units = random_units(1, num_texts)
    found = chosen(units, 0.2)
    assert not texts_of(units, found, True) & texts_of(units, found, False)
    assert 120 < sum(map(sum, found)) < 280


def test_the_side_of_a_row_that_shares_no_text_is_the_same_in_any_run(chosen) -> None:
    units = random_units(2, 60_000)
    sides = dict(zip(itertools.chain(*units), itertools.chain(*chosen(units, 0.3)), strict=True))
    alone = [row for row in sides if sum(bool({*row} & {*other}) for other in sides) == 1]
    assert len(alone) > 900
    assert chosen([alone[::-1], []], 0.3) == [[sides[row] for row in alone[::-1]], []]


def test_a_group_larger_than_the_held_out_part_is_trained_on(chosen) -> None:
    common = [(0, number) for number in range(1, 601)]
    units = [common, [(number, number + 1) for number in range(1000, 1800, 2)]]
    found = chosen(units, 0.2)
    assert sum(found[0]) == 0 and 150 < sum(found[1]) < 250


def test_rows_that_are_dropped_join_nothing(chosen) -> None:
    rows = [(1, 2), (2, 3), (3, 4)]
    assert chosen([rows], 0.99, dropped=rows) == [[False] * 3]
    units = [[(0, number) for number in range(1, 100)], [(number, number + 1000) for number in range(1, 100)]]
    held = chosen(units, 0.4, dropped=units[0])
    assert sum(held[0]) == 0 and 20 < sum(held[1]) < 60
