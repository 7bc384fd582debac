"""Compute the averages over several tasks that papers report, from the scores of the user's models.

    scores ──> the score of each task by the metric that the paper uses ──> mean

Papers use different metrics for the same task. For STS-B, for example, SimCSE reports the Spearman correlation of
cosines, whereas DeCLUTR and CLEAR report the correlation of a trained regressor. An `Average` defines the tasks and the
metrics of one average of a paper.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from clearspan.eval.data.senteval import PROBING

Scores = Mapping[str, Mapping[str, float]]
"""Task -> metric -> value in percent."""


@dataclass(frozen=True)
class Average:
    """The definition of an average over tasks.

    Attributes:
        metrics: name of a task -> the metric of the task that is averaged. If several metrics are given, the mean of
            the task's scores by these metrics is averaged.
        rounded: whether the score of each task is rounded to two decimals before averaging, as in SimCSE's script.
        least: the average is computed only if at least this number of its tasks were scored.
    """

    metrics: Mapping[str, tuple[str, ...]]
    rounded: bool = False
    least: int = 1


YEARS = ("STS12", "STS13", "STS14", "STS15", "STS16")
CAPTIONS = "ImageCaptionRetrieval"
"""A task in DeCLUTR's averages that is costly to score (`--tasks captions`): its data is large and its fit takes hours.
If it is the only missing task, tables show the average with a note."""
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
"""Name of an average -> definition.

`sts_simcse` and `transfer_simcse` are SimCSE's averages of seven tasks, as in its script. NonLing-CSE's Tables 1 and
E.1 use them too.
`downstream_declutr` is DeCLUTR's average (ACL, Table 2 and appendix C.2) of all downstream tasks of SentEval except
SNLI. Similarity tasks are represented by Spearman correlations (STS12-16 by the mean over their subsets), MRPC by the
mean of accuracy and F1, and COCO's captions by the mean of six recalls. `downstream_declutr_snli` includes SNLI, as in
version 1 of the paper.
`*_dev` are the same averages on dev splits, as in the authors' script: with dev accuracies, Pearson correlations for
the trained regressors, and the test scores of STS12-16, which have no dev split.
`clear_sts` is the average of CLEAR's Table 2. The paper names neither the metric nor the aggregation. We assume
Spearman and SentEval's mean over subsets. Its STS-B and SICK-R must be SentEval's trained regressors, because the
cosines of an untrained [CLS] score far lower.
`glue_clear` is the average of CLEAR's Table 1, the mean over eight tasks. `glue_clear_matched` is the average of Table
3, with only the matched dev set of MNLI.
"""

HALVES: dict[str, tuple[str, str]] = {
    "declutr_v1": ("downstream_declutr_snli", "probing_declutr"),
    "declutr_v1_dev": ("downstream_declutr_snli_dev", "probing_declutr_dev"),
}
"""Name of an average -> the two averages whose mean it is. This is "Avg." in version 1 of DeCLUTR's paper, over
downstream and probing tasks."""


def average(name: str, scores: Scores, min_tasks: int | None = None) -> dict[str, Any] | None:
    """Compute an average over the tasks on which a model was scored.

    If tasks are missing, the average is the mean over the remaining tasks, which is not comparable with published
    values. A task that lacks one of its metrics counts as missing. If a score is NaN, the average is NaN.

    Args:
        name: the name of the average: a key of AVERAGES, or of HALVES for a mean of two averages.
        scores: name of a task -> metric -> the score of a model in percent.
        min_tasks: the number of scored tasks below which no average is computed; None for the number in the definition
            of the average (`Average.least`). In a mean of two averages, it applies to each of the two.

    Returns:
        {"value": percent, "tasks": the tasks in the mean, "missing": the missing tasks}; None if too few are scored.
    """
    if name in HALVES:
        first, second = (average(half, scores, min_tasks) for half in HALVES[name])
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
    if len(values) < (rule.least if min_tasks is None else max(1, min_tasks)):
        return None
    means = [round(value, 2) if rule.rounded else value for value in (float(np.mean(v)) for v in values.values())]
    return {"value": math.fsum(means) / len(means), "tasks": list(values), "missing": missing_tasks(name, scores)}


def missing_tasks(name: str, scores: Scores) -> list[str]:
    """Return the tasks of an average for which `scores` lacks at least one of the metrics that the average uses.

    Args:
        name: the name of the average, such as `sts_simcse`.
        scores: name of a task -> metric -> the score of a model in percent.
    """
    return [
        task
        for half in HALVES.get(name, (name,))
        for task, metrics in AVERAGES[half].metrics.items()
        if any(metric not in scores.get(task, {}) for metric in metrics)
    ]


def averages(scores: Scores) -> dict[str, dict[str, Any]]:
    """Compute all averages for which a model was scored on enough tasks.

    Args:
        scores: name of a task -> metric -> the score of a model in percent.

    Returns:
        Name of an average -> {"value": percent, "tasks": the tasks in the mean, "missing": the missing tasks}.
    """
    results = {name: average(name, scores) for name in (*AVERAGES, *HALVES)}
    return {name: result for name, result in results.items() if result is not None}
