"""Counts by length: every list counted once, under the edge below it."""

import itertools

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from clearspan.shards import lengths
from clearspan.shards.schema import schema


def batch(sizes: list[int]) -> pa.RecordBatch:
    rows = [{"id": number, "tokens": [7] * size, "source": ""} for number, size in enumerate(sizes)]
    return pa.RecordBatch.from_pylist(rows, schema=schema("documents", pa.uint16()))


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=20))
def test_every_example_is_between_its_edge_and_the_next(sizes: list[int]) -> None:
    measured = lengths.measure(batch(sizes))["tokens"]
    for low, high in itertools.pairwise(lengths.EDGES.tolist()):
        assert measured.get(str(low), 0) == sum(low <= size < high for size in sizes)


def test_every_ragged_column_is_measured_and_no_other() -> None:
    row = {"id": 0, "tokens": [1, 2], "view_0": [], "view_1": [1, 2, 3]}
    found = lengths.measure(pa.RecordBatch.from_pylist([row], schema=schema("sentences", pa.uint16(), views=2)))
    assert found == {"tokens": {"2": 1}, "view_0": {"0": 1}, "view_1": {"3": 1}}
    images = pa.RecordBatch.from_pylist([{"id": 0, "image": b"", "label": 1}], schema=schema("images"))
    assert lengths.measure(images) == {}


def test_sums_are_ordered_by_length() -> None:
    parts = [{"tokens": {"1024": 1, "96": 2}}, {"tokens": {"2048": 1, "96": 1}, "positive": {"1": 2}}]
    total = lengths.add(parts)
    assert list(total["tokens"].items()) == [("96", 3), ("1024", 1), ("2048", 1)]
    assert total["positive"] == {"1": 2}


def test_bars_leave_no_length_out() -> None:
    assert lengths.text({"tokens": {"2048": 40, "4096": 1}, "view_0": {"1": 41}}).splitlines() == [
        "  tokens per example",
        "     from      to                                              examples",
        "    2,048   3,071   ########################################         40",
        "    3,072   4,095                                                     0",
        "    4,096   6,143   #                                                 1",
    ]
    assert lengths.text({}) == ""
