"""results.json: strict JSON, and a check that recognizes it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearspan.eval.results import Results


def strict(text: str) -> Any:
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_an_undefined_score_is_null() -> None:
    results = Results("m", scores={"A": {"spearman": float("nan")}}, intervals={"A": {"spearman": (float("nan"), 2.0)}})
    results.averages["mean"] = {"value": float("nan"), "tasks": ["A"], "missing": []}
    read = strict(results.to_json())
    assert read["scores"] == {"A": {"spearman": None}}
    assert read["intervals"] == {"A": {"spearman": [None, 2.0]}}
    assert read["averages"]["mean"]["value"] is None


def test_what_numpy_and_pathlib_have_for_numbers_and_names_is_written_as_those() -> None:
    settings = {"l2": np.float32(0.5), "folds": np.arange(2), "nan": np.float32("nan"), "file": Path("a/b"), 1: (True,)}
    read = strict(Results("m", settings={"MR": settings}).to_json())
    assert read["settings"]["MR"] == {"l2": 0.5, "folds": [0, 1], "nan": None, "file": "a/b", "1": [True]}
