"""The model of a large run: its figures against hand-computed ones, and what a small run measures."""

import argparse
from pathlib import Path

import pytest

from benchmarks.capacity import Sizes, limits, measure_sizes, scenario, table
from clearspan.pipelines.units.plan import MANY_UNITS, UNIT_BYTES

SIZES = Sizes(100.0, 20.0, 100.0, 800.0, 300.0, 20.0, 1024.0, 0.5)
ASSUMED = argparse.Namespace(document_bytes=5000.0, file_bytes=1e8, mb_per_s=50.0, request_s=0.16, worker_gb=16.0)


def test_the_figures_of_a_million_documents_by_hand() -> None:
    found = scenario(10**6, 10, SIZES, ASSUMED)
    assert (found["text"], found["unit"], found["units"]) == (5e9, UNIT_BYTES, 40)
    assert found["tokenizing"] == 4 * 128e6 / 50e6
    assert found["shards"] == 40 and found["manifest.json"] == 40 * 300
    assert found["plan.json"] == 50 * 100 + 40 * 20
    assert found["keys"] == 20e6 + 40 * 1024
    assert (found["slices of keys"], found["reads of keys"]) == (1, 40)
    assert found["reading keys"] == pytest.approx(40 * 2 * 0.01)
    assert found["planning"] == pytest.approx(50 * 11 * 0.01)
    assert found["planning, one by one"] == pytest.approx(16 * found["planning"])


def test_units_grow_where_there_would_be_too_many() -> None:
    found = scenario(10**10, 10, SIZES, ASSUMED)
    assert found["units"] == MANY_UNITS and found["unit"] == 1.25e9
    assert limits(SIZES, ASSUMED)["40,000 units of 128 MB: units grow"] == 1.024e9


@pytest.mark.exhaustive
def test_a_small_run_measures_what_each_part_adds(shared_data: Path, roberta_tokenizer: Path) -> None:
    found = measure_sizes(shared_data / "text", str(roberta_tokenizer), 1.0)
    assert (found.keys_of_document, found.keys_of_unit) == (20, 8 * 4097)
    assert all(0 < size < 2000 for name, size in vars(found).items() if name != "keys_of_unit")
    result = {"sizes": vars(found), "scenarios": [], "limits": {}}
    result["scenarios"] = [{"documents": 10**9, "workers": 100, **scenario(10**9, 100, found, ASSUMED)}]
    assert "1e09 on 100" in table(result)
