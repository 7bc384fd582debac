"""The averages over several tasks that papers report, each by its own rule.

    scores ──> the metric that a paper uses for each task ──> their mean

Papers use different metrics for the same task: for STS-B, SimCSE reports the Spearman correlation of cosines, DeCLUTR
and CLEAR the correlation of a trained regressor. An `Average` defines the metrics.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from clearspan.eval.data.senteval import PROBING

Scores = Mapping[str, Mapping[str, float]]
"""Task -> metric -> percent."""


@dataclass(frozen=True)
class Average:
    """The rule of an average.

    Attributes:
        metrics: task -> the metrics whose mean represents the task; a single metric for most tasks.
        rounded: whether to round each value to two decimals before averaging, as SimCSE's script does.
        least: minimum number of scored tasks; with fewer, e.g. only one family, the average is omitted.
    """

    metrics: Mapping[str, tuple[str, ...]]
    rounded: bool = False
    least: int = 1


YEARS = ("STS12", "STS13", "STS14", "STS15", "STS16")
CAPTIONS = "ImageCaptionRetrieval"
"""A task in DeCLUTR's averages that is costly to score (`--tasks captions`: its data is large, its fit takes hours). If
it is the only missing task, tables show the average with a note."""
SUPERVISED = ("SICKRelatedness-finetune", "STSBenchmark-finetune")
_PLAIN = ("CR", "MR", "MPQA", "SUBJ", "SST2", "SST5", "TREC")


def _each(tasks: tuple[str, ...], *metrics: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(tasks, metrics)


_DOWNSTREAM = {
    **_each((*_PLAIN, "SICKEntailment", CAPTIONS), "acc"),
    "MRPC": ("acc", "f1"),
    **_each(SUPERVISED, "spearman"),
    **_each(YEARS, "spearman_mean"),
}
_DOWNSTREAM_DEV = {
    **_each((*_PLAIN, "MRPC", "SICKEntailment", CAPTIONS), "devacc"),
    **_each(SUPERVISED, "devpearson"),
    **_each(YEARS, "spearman_mean"),
}
_GLUE = {
    **_each(("glue/MNLI", "glue/QNLI", "glue/RTE", "glue/SST-2"), "accuracy"),
    **_each(("glue/QQP", "glue/MRPC", "glue/STS-B"), "mean"),
    "glue/CoLA": ("matthews",),
}

AVERAGES: dict[str, Average] = {
    "sts_simcse": Average(
        {**_each(YEARS, "spearman_all"), **_each(("STSBenchmark", "SICKRelatedness"), "spearman")}, rounded=True
    ),
    "transfer_simcse": Average(_each(("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC"), "acc"), rounded=True),
    "downstream_declutr": Average(_DOWNSTREAM, least=9),
    "downstream_declutr_snli": Average({**_DOWNSTREAM, "SNLI": ("acc",)}, least=9),
    "probing_declutr": Average(_each(tuple(PROBING), "acc")),
    "downstream_declutr_dev": Average(_DOWNSTREAM_DEV, least=9),
    "downstream_declutr_snli_dev": Average({**_DOWNSTREAM_DEV, "SNLI": ("devacc",)}, least=9),
    "probing_declutr_dev": Average(_each(tuple(PROBING), "devacc")),
    "clear_sts": Average({**_each(SUPERVISED, "spearman"), **_each(YEARS, "spearman_mean")}, least=6),
    "glue_clear": Average(_GLUE),
    "glue_clear_matched": Average({**_GLUE, "glue/MNLI": ("accuracy_matched",)}),
}
"""Name -> rule.

`sts_simcse`, `transfer_simcse`: SimCSE's averages of seven tasks, as in its script (NonLing-CSE's Tables 1, E.1).
`downstream_declutr`: DeCLUTR's average (ACL, Table 2 and appendix C.2) of all SentEval downstream tasks except SNLI. It
uses Spearman for similarity tasks, for STS12-16 the mean over subsets; the mean of accuracy and F1 for MRPC; and the
mean of the six recalls for COCO's captions. `downstream_declutr_snli`: with SNLI, as in v1.
`*_dev`: on the validation set, as in the authors' script: accuracies on dev, Pearson for the trained regressors, and
the test figure for STS12-16, which have no dev split.
`clear_sts`: CLEAR's Table 2. The paper names neither metric nor aggregation: Spearman and SentEval's mean over subsets
are our assumption; its STS-B and SICK-R must be SentEval's trained regressors, since cosines of an untrained [CLS]
score far lower.
`glue_clear`: CLEAR's Table 1, unweighted over eight tasks; `glue_clear_matched`: its Table 3, MNLI-matched only.
"""

HALVES: dict[str, tuple[str, str]] = {
    "declutr_v1": ("downstream_declutr_snli", "probing_declutr"),
    "declutr_v1_dev": ("downstream_declutr_snli_dev", "probing_declutr_dev"),
}
"""Averages of two averages: "Avg." of DeCLUTR's version 1, the unweighted mean over downstream and probing tasks."""


def average(name: str, scores: Scores, least: int | None = None) -> dict[str, Any] | None:
    """Compute an average by its name in AVERAGES or HALVES.

    If tasks are missing, the mean is over the remaining tasks and not comparable with published values. A task that
    lacks one of its metrics counts as missing; a NaN makes the average NaN.

    Args:
        least: minimum number of scored tasks; None: the minimum of the rule.

    Returns:
        {"value": percent, "tasks": the covered tasks, "missing": the missing tasks}; None if too few tasks are scored.
    """
    if name in HALVES:
        first, second = (average(half, scores, least) for half in HALVES[name])
        if first is None or second is None:
            return None
        value = (first["value"] + second["value"]) / 2
        return {"value": value, **{key: first[key] + second[key] for key in ("tasks", "missing")}}
    rule = AVERAGES[name]
    values = {
        task: [scores[task][metric] for metric in metrics]
        for task, metrics in rule.metrics.items()
        if all(metric in scores.get(task, {}) for metric in metrics)
    }
    if len(values) < (rule.least if least is None else max(1, least)):
        return None
    means = [round(value, 2) if rule.rounded else value for value in (float(np.mean(v)) for v in values.values())]
    return {"value": math.fsum(means) / len(means), "tasks": list(values), "missing": missing_tasks(name, scores)}


def missing_tasks(name: str, scores: Scores) -> list[str]:
    """Return the tasks of an average that lack a score in one of the metrics that the average uses."""
    return [
        task
        for half in HALVES.get(name, (name,))
        for task, metrics in AVERAGES[half].metrics.items()
        if any(metric not in scores.get(task, {}) for metric in metrics)
    ]


def averages(scores: Scores) -> dict[str, dict[str, Any]]:
    """Compute every average that the scores allow: name -> result of `average`."""
    results = {name: average(name, scores) for name in (*AVERAGES, *HALVES)}
    return {name: result for name, result in results.items() if result is not None}
