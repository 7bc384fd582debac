"""Held-out part of rows that share texts: whole groups, the requested fraction, in any order."""

import itertools
import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearspan.pipelines.builders.triplets import Triplets
from clearspan.pipelines.counter import Counts
from clearspan.pipelines.units import decisions, linking
from clearspan.pipelines.units.curation import DUPLICATE, HELD_OUT, KEEP, Curation
from clearspan.pipelines.units.job import STAGED, Entries, Job, UnitResult
from clearspan.pipelines.units.keys import TEXT, texts
from clearspan.pipelines.units.linking import join
from clearspan.pipelines.units.rounds import rounds
from clearspan.pipelines.units.unit import _Collected
from clearspan.shards import storage
from clearspan.shards.schema import schema

Rows = list[tuple[int, int]]


def batch(rows: Rows) -> pa.RecordBatch:
    """Return a batch of rows of two texts with one token each."""
    columns = ([[text] for text in column] for column in zip(*rows, strict=True))
    return pa.record_batch([list(range(len(rows))), *columns], schema=schema("triplets", pa.uint16()))


@pytest.fixture
def chosen(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch):
    """Return the held-out rows of units of rows of two texts; the hashes of texts have three slices."""
    monkeypatch.setattr(decisions, "num_slices", lambda job: 3)

    def choose(units: list[Rows], fraction: float, dropped: Rows = ()) -> list[list[bool]]:
        curation = Curation(dedup=bool(dropped), holdout_fraction=fraction, shared_texts=True)
        folder = str(tmp_path_factory.mktemp("job"))
        job = Job(folder, "", "", Triplets, {}, len(units), None, 0, curation=curation)
        for unit, rows in enumerate(units):
            entries = texts(batch(rows), None, 0).tobytes() if rows else b""
            storage.publish_bytes(entries, job.entries_path(Entries.TEXTS, unit))
            storage.publish_bytes(
                UnitResult([], Counts(kept=len(rows))).to_json("", unit), job.result_path(unit, STAGED)
            )
        if dropped:
            found = [
                (row, unit) for unit, rows in enumerate(units) for row, texts in enumerate(rows) if texts in dropped
            ]
            for number in range(3):
                part = np.array(found[number::3], np.int64).reshape(-1, 2)
                decisions._write(
                    job, Entries.DUPLICATES, number, part[:, 0].astype(decisions.ROW), part[:, 1], len(units)
                )
        for each in rounds(curation)[:-1]:
            for element in reversed(each.elements(job)):
                each.work(job, *element)
        marks = [decisions.marks_of(job, unit) for unit in range(len(units))]
        dropped_rows = [[row in dropped for row in rows] for rows in units]
        assert [(each == DUPLICATE).tolist() for each in marks] == dropped_rows
        assert all(np.isin(each, (KEEP, DUPLICATE, HELD_OUT)).all() for each in marks)
        return [(each == HELD_OUT).tolist() for each in marks]

    return choose


def expected(units: list[Rows], fraction: float) -> list[list[bool]]:
    """Return what all rows together say: connected components, by the smallest hash of their texts."""
    rows = list(itertools.chain(*units))
    entries = texts(batch(rows), None, 0)
    hashes = dict(zip(itertools.chain(*zip(*rows, strict=True)), entries["text"].tolist(), strict=True))
    parent = {text: text for text in hashes}

    def root(text: int) -> int:
        while parent[text] != text:
            text = parent[text]
        return text

    for one, other in rows:
        low, high = sorted((root(one), root(other)), key=hashes.__getitem__)
        parent[high] = low
    sizes = Counter(root(one) for one, _ in rows)
    wanted = fraction * len(rows)
    small = {text for text, size in sizes.items() if size <= max(linking.SMALL, linking.OF_WANTED * wanted)}
    rate = min(linking.MOST, wanted / max(1, sum(sizes[text] for text in small)))
    draws = {text: float(linking.draws(np.array([hashes[text]], np.uint64))[0]) for text in small}
    return [[draws.get(root(one), math.inf) < rate for one, _ in unit] for unit in units]


def texts_of(units: list[Rows], chosen: list[list[bool]], side: bool) -> set[int]:
    pairs = zip(itertools.chain(*units), itertools.chain(*chosen), strict=True)
    return {text for row, is_held in pairs if is_held is side for text in row}


@pytest.mark.guarantee("linked-rows")
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


@pytest.mark.guarantee("any-workers", "linked-rows")
@pytest.mark.slow
@pytest.mark.parametrize("num_texts", [1000, 1500, 4000, 60_000])
def test_units_agree_on_what_all_rows_together_say(chosen, num_texts: int) -> None:
    for seed in range(3):
        units = [*random_units(seed, num_texts), []]
        assert chosen(units, 0.2) == expected(units, 0.2)


@pytest.mark.guarantee("linked-rows")
def test_one_unit_decides_as_many(chosen) -> None:
    units = random_units(3, 1500)
    assert list(itertools.chain(*chosen(units, 0.2))) == chosen([list(itertools.chain(*units))], 0.2)[0]


def chains(lengths: list[int]) -> list[Rows]:
    """Return chains of rows that share a text with the next, which is always another unit's."""
    units: list[Rows] = [[], []]
    first = 0
    for length in lengths:
        for number in range(length):
            units[number % 2].append((first + number, first + number + 1))
        first += length + 1
    return units


@pytest.mark.guarantee("linked-rows")
def test_a_chain_through_many_units_is_one_group(chosen) -> None:
    units = chains([200] * 6 + [2] * 50)
    found = chosen(units, 0.3)
    assert found == expected(units, 0.3) and 0 < sum(map(sum, found)) < 1300


@pytest.mark.guarantee("linked-rows")
def test_each_text_and_pair_of_names_is_sent_once() -> None:
    sent = linking.members(np.array([5, 5, 5, 7], np.uint64), np.array([2, 1, 2, 1], np.uint64))
    assert sorted(sent.tolist()) == [(1, 1), (2, 2), (5, 1), (5, 2), (7, 1)]


@pytest.mark.guarantee("linked-rows")
def test_a_group_that_is_unresolved_in_the_end_is_trained_on(chosen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linking, "ITERATIONS", 2)
    units = chains([60] * 10 + [1] * 400)
    found = chosen(units, 0.3)
    long, short = found[0][:300] + found[1], found[0][300:]
    assert not any(long) and 200 < sum(short) < 370
    assert not texts_of(units, found, True) & texts_of(units, found, False)


@pytest.mark.guarantee("linked-rows")
@pytest.mark.parametrize("num_texts", [1500, 4000, 60_000])
def test_no_text_of_a_held_out_row_is_in_another_and_the_fraction_is_kept(chosen, num_texts: int) -> None:
    units = random_units(1, num_texts)
    found = chosen(units, 0.2)
    assert not texts_of(units, found, True) & texts_of(units, found, False)
    assert 120 < sum(map(sum, found)) < 280


@pytest.mark.guarantee("linked-rows")
def test_the_side_of_a_row_that_shares_no_text_is_the_same_in_any_run(chosen) -> None:
    units = random_units(2, 60_000)
    sides = dict(zip(itertools.chain(*units), itertools.chain(*chosen(units, 0.3)), strict=True))
    alone = [row for row in sides if sum(bool({*row} & {*other}) for other in sides) == 1]
    assert len(alone) > 900
    assert chosen([alone[::-1], []], 0.3) == [[sides[row] for row in alone[::-1]], []]


@pytest.mark.guarantee("linked-rows")
@pytest.mark.guarantee("groups-apart")
def test_a_group_larger_than_the_held_out_part_is_trained_on(chosen) -> None:
    common = [(0, number) for number in range(1, 601)]
    units = [common, [(number, number + 1) for number in range(1000, 1800, 2)]]
    found = chosen(units, 0.2)
    assert sum(found[0]) == 0 and 150 < sum(found[1]) < 250


@pytest.mark.guarantee("linked-rows")
def test_rows_that_are_dropped_join_nothing(chosen) -> None:
    rows = [(1, 2), (2, 3), (3, 4)]
    assert chosen([rows], 0.99, dropped=rows) == [[False] * 3]
    units = [[(0, number) for number in range(1, 100)], [(number, number + 1000) for number in range(1, 100)]]
    held = chosen(units, 0.4, dropped=units[0])
    assert sum(held[0]) == 0 and 20 < sum(held[1]) < 60


@pytest.mark.guarantee("groups-apart", "linked-rows")
@pytest.mark.parametrize(("wanted", "largest"), [(20, 8), (180, 9)])
def test_a_group_is_eligible_by_its_rows_in_all_units_unless_a_unit_may_name_it_otherwise(
    wanted: float, largest: int
) -> None:
    by_unit = [(1, 8), (2, 9), (3, 5), (4, 1), (3, 4), (5, 5), (5, 5), (6, 3)]
    sizes = np.array([*((group, rows, False) for group, rows in by_unit), (6, 0, True)], linking.SIZE)
    rows = {1: 8, 2: 9, 3: 9, 4: 1, 5: 10, 6: math.inf}
    assert linking.eligible(sizes, wanted).tolist() == [rows[group] <= largest for group in sizes["group"].tolist()]


@pytest.mark.guarantee("groups-apart", "linked-rows")
def test_each_text_of_a_row_and_its_group_are_entries_of_the_row() -> None:
    rows = batch([(1, 2), (2, 3)])
    hashes = np.array([[2, 91, 4, 92], [6, 93, 2, 94]], np.uint64)
    groups = np.array([[20], [22]], np.uint64)
    by_hash = [(1, 100), (1, 101), (2, 100), (3, 101)]
    assert sorted(texts(rows, hashes, 100).tolist()) == by_hash
    assert sorted(texts(rows, hashes, 100, groups).tolist()) == [*by_hash, (10, 100), (11, 101)]
    several = np.arange(40, dtype=np.uint64).reshape(2, 20)  # ten texts in a row
    assert texts(rows, several, 100).tolist() == [(text + 10 * n, 100 + n) for text in range(10) for n in range(2)]
    one, two, again, three = texts(rows, None, 100)[[0, 2, 1, 3]].tolist()
    assert two[0] == again[0] and {two[1], again[1]} == {100, 101} and len({one[0], two[0], three[0]}) == 3


@pytest.mark.guarantee("groups-apart", "linked-rows")
def test_entries_name_the_row_of_a_unit_however_many_rows_came_before() -> None:
    curation = Curation(holdout_fraction=0.2, shared_texts=True)
    collected = _Collected(Job("", "", "", Triplets, {}, 1, None, 0, curation=curation))  # type: ignore[arg-type]
    collected.rows = 70_000
    for rows in ([(1, 2), (3, 4)], [(5, 6)]):
        collected.add(batch(rows))
    found = np.concatenate(collected.parts[Entries.TEXTS])
    assert found["row"].tolist() == [70_000, 70_001] * 2 + [70_002] * 2 and len({*found["text"].tolist()}) == 6


@pytest.mark.guarantee("linked-rows")
def test_rows_that_share_a_text_in_any_column_have_one_name() -> None:
    """The names are the smallest texts; row 5 is dropped, so that its texts join nothing."""
    rows = [{9, 4}, {4, 7}, {7, 3}, {8}, {3, 6}, {8, 2}, {2}, {6, 5}]
    links = np.array([(text, row) for row, each in enumerate(rows) for text in sorted(each)], TEXT)
    for order in (slice(None), slice(None, None, -1), np.random.default_rng(0).permutation(len(links))):
        names = linking.components(links[order], np.arange(len(rows)) != 5)
        assert names.tolist() == [3, 3, 3, 8, 3, int(linking.DROPPED), 2, 3]


@pytest.mark.guarantee("linked-rows")
def test_a_text_of_very_many_rows_joins_all_of_them() -> None:
    number = 70_000
    links = np.empty(2 * number, TEXT)
    links["row"] = np.tile(np.arange(number), 2)
    links["text"][:number], links["text"][number:] = 7, 10 + np.arange(number)
    links["text"][-9] = 3
    names = linking.components(links, np.arange(number) != 5)
    assert set(names.tolist()) == {3, int(linking.DROPPED)} and np.flatnonzero(names != 3).tolist() == [5]


@pytest.mark.guarantee("linked-rows")
def test_a_group_takes_the_smallest_name_that_a_reply_has_for_it() -> None:
    groups = np.array([5, 9, 7, 12, 9], np.uint64)
    sent = np.array([(9, 4), (5, 3), (9, 2), (1, 0), (9, 8)], linking.MEMBER)
    assert linking.rename(groups, sent).tolist() == [3, 2, 7, 12, 2]
    assert linking.rename(groups, sent[:0]).tolist() == groups.tolist()


@pytest.mark.guarantee("linked-rows")
def test_units_are_told_the_smallest_name_for_a_text_that_several_have() -> None:
    sent = np.array([(1, 5), (3, 4), (1, 3), (2, 7), (3, 4), (1, 6)], linking.MEMBER)

    def told(to_all: bool) -> dict[int, tuple[int, int]]:
        places, named = linking.replies(sent, to_all)
        assert len(places) == len({*places.tolist()}) and places.dtype == np.int64
        return dict(zip(places.tolist(), named.tolist(), strict=True))

    assert told(True) == {0: (5, 3), 1: (4, 4), 2: (3, 3), 4: (4, 4), 5: (6, 3)}
    assert told(False) == {0: (5, 3), 5: (6, 3)}
    places, named = linking.replies(sent[:0], True)
    assert (len(places), len(named), places.dtype, named.dtype) == (0, 0, np.int64, linking.MEMBER)


@pytest.mark.guarantee("linked-rows")
def test_groups_are_held_out_at_the_rate_that_gives_the_rows_and_at_most_half() -> None:
    names = np.arange(1, 2001, dtype=np.uint64)
    draws = linking.draws(names)
    assert draws.min() >= 0 and draws.max() < 1
    assert linking.held_out(names, 200, 2000).tolist() == (draws < 0.1).tolist()
    assert 140 < linking.held_out(names, 200, 2000).sum() < 260
    for eligible in (0, 1, 100):
        assert linking.held_out(names, 200, eligible).tolist() == (draws < 0.5).tolist()
    lowest = float(draws.min())
    assert linking.held_out(names, lowest, 1).sum() == 0
    assert linking.held_out(names, np.nextafter(lowest, 1), 1).sum() == 1
