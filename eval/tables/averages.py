"""The averages that papers print over several tasks, each to its own rule."""

from collections.abc import Mapping
from typing import Any

import numpy as np

Scores = Mapping[str, Mapping[str, float]]

YEARS = ("STS12", "STS13", "STS14", "STS15", "STS16")
SIMCSE_STS = {**dict.fromkeys(YEARS, "spearman_all"), "STSBenchmark": "spearman", "SICKRelatedness": "spearman"}


def simcse_sts(scores: Scores) -> dict[str, dict[str, Any]]:
    """SimCSE's average of seven: STS12-16 by `spearman_all`, STS-B and SICK-R by the test split's `spearman`.

    As its evaluation script does, each value is rounded to two decimals before the mean is taken. Where tasks are
    missing the mean is over the others: `missing` names those, and such a value is not comparable with published ones.

    Returns:
        {"sts_simcse": {"value": percent, "tasks": [...], "missing": [...]}}, or {} when no task is present.
    """
    present = [task for task in SIMCSE_STS if task in scores]
    if not present:
        return {}
    value = float(np.mean([round(scores[task][SIMCSE_STS[task]], 2) for task in present]))
    missing = [task for task in SIMCSE_STS if task not in scores]
    return {"sts_simcse": {"value": value, "tasks": present, "missing": missing}}


def averages(scores: Scores) -> dict[str, dict[str, Any]]:
    """Every average of which a task is there: name -> {"value": percent, "tasks": [...], "missing": [...]}."""
    return simcse_sts(scores)
