"""The averages that papers print over several tasks, each to its own rule.

    scores ──> the figure that a paper takes of each task ──> their mean

Papers take different figures of the same task: STS-B is the cosine's Spearman in SimCSE, and in DeCLUTR and CLEAR that
of a trained regressor. Which, is what an `Average` says.
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
    """How one average is taken.

    Attributes:
        metrics: task -> the metrics whose mean stands for it; most tasks have one.
        rounded: whether each value is rounded to two decimals before the mean is taken, as SimCSE's script does.
        least: of how many tasks it is given at all: averages of nearly every task say nothing where only a family was
            asked for.
    """

    metrics: Mapping[str, tuple[str, ...]]
    rounded: bool = False
    least: int = 1


YEARS = ("STS12", "STS13", "STS14", "STS15", "STS16")
SUPERVISED = ("SICKRelatedness-finetune", "STSBenchmark-finetune")
_PLAIN = ("CR", "MR", "MPQA", "SUBJ", "SST2", "SST5", "TREC")


def _each(tasks: tuple[str, ...], *metrics: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(tasks, metrics)


_DOWNSTREAM = {
    **_each((*_PLAIN, "SICKEntailment", "ImageCaptionRetrieval"), "acc"),
    "MRPC": ("acc", "f1"),
    **_each(SUPERVISED, "spearman"),
    **_each(YEARS, "spearman_mean"),
}
_DOWNSTREAM_DEV = {
    **_each((*_PLAIN, "MRPC", "SICKEntailment", "ImageCaptionRetrieval"), "devacc"),
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

`sts_simcse`, `transfer_simcse`: the sevens of SimCSE, as its evaluation script has them (NonLing-CSE's Tables 1, E.1).
`downstream_declutr`: DeCLUTR's (ACL, Table 2 and appendix C.2), of SentEval's downstream tasks all but SNLI. It takes
Spearman where there is one, for STS12-16 the mean over subsets; for MRPC the mean of accuracy and F1; for captions that
of the six recalls. `downstream_declutr_snli`: with SNLI, as in version 1.
`*_dev`: of the validation set, as the authors' script has it: accuracies on dev, Pearson for the trained regressors,
and for STS12-16, which have no dev split, the test's figure.
`clear_sts`: CLEAR's Table 2. The paper names neither metric nor aggregation: Spearman and SentEval's mean over subsets
are our assumption; its STS-B and SICK-R must be SentEval's trained regressors, as no [CLS] untrained has such cosines.
`glue_clear`: CLEAR's Table 1, unweighted over the eight; `glue_clear_matched`: its Table 3, MNLI's matched half alone.
"""

HALVES: dict[str, tuple[str, str]] = {
    "declutr_v1": ("downstream_declutr_snli", "probing_declutr"),
    "declutr_v1_dev": ("downstream_declutr_snli_dev", "probing_declutr_dev"),
}
"""Averages of two averages: "Avg." of DeCLUTR's version 1, of downstream and probing tasks, whatever their numbers."""


def average(name: str, scores: Scores, least: int | None = None) -> dict[str, Any] | None:
    """One average by its name in AVERAGES or HALVES.

    Where tasks are missing the mean is over the others, and such a value is not comparable with published ones. A task
    that lacks one of its metrics counts as missing; one that is NaN makes the average NaN.

    Args:
        least: of how many tasks it is given at all; None: as many as the rule asks for.

    Returns:
        {"value": percent, "tasks": what it covers, "missing": what it should cover and does not}; None where fewer
        tasks are there than that.
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
    each = [round(value, 2) if rule.rounded else value for value in (float(np.mean(v)) for v in values.values())]
    missing = [task for task in rule.metrics if task not in values]
    return {"value": math.fsum(each) / len(each), "tasks": list(values), "missing": missing}


def averages(scores: Scores) -> dict[str, dict[str, Any]]:
    """Every average that the scores allow: name -> what `average` gives."""
    found = {name: average(name, scores) for name in (*AVERAGES, *HALVES)}
    return {name: one for name, one in found.items() if one is not None}
