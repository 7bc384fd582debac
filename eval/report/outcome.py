"""Describe the outcome of an evaluation in words and bar charts.

    ScoreSummary ──> sentence        "static + BM25 finds most: MRR 45.1, 4.2 above BM25 [3.1, 5.3]."
                 ──> model_table     one line on each model
                 ──> score_figures   bars with intervals, best first
                 ──> examples        a query that the best model wins, and a query that it loses

The terminal and the report show the same sentence.
"""

import math
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from clearspan.common.encoder.prompts import Sides
from clearspan.common.hub import HUB
from clearspan.common.model_forms import HYBRID
from clearspan.common.progress import counted
from clearspan.eval.details import Answer, Table
from clearspan.eval.report.figures import Bars, ScoreBar, best_first
from clearspan.eval.report.summary import ScoreSummary, heading
from clearspan.eval.results import Results, Scored
from clearspan.eval.scores import Difference, in_percent
from clearspan.retrieval.ranks import DEPTH

BEST = {
    "retrieval": "finds most",
    "heldout": "finds most",
    "queries": "finds most",
    "captions": "finds most",
    "sts": "agrees best with people's scores",
    "stsb-multilingual": "agrees best with people's scores",
    "pairs": "agrees best with the scores",
    "transfer": "classifies best",
    "probing": "classifies best",
    "probing-mlp": "classifies best",
    "glue": "is best after fine-tuning",
}
"""Family of tasks -> verb phrase that says what its best model does."""
METRICS = {"mrr": "MRR", "ndcg@10": "nDCG@10", "map": "MAP", "acc": "accuracy", "accuracy": "accuracy"}
"""Metric -> name of the metric in sentences."""
BASELINES = {
    "bm25": "BM25: the words that query and text share, rare ones weighing more; no training",
    "tfidf": "cosine of counts of words, weighted by tf-idf; no training",
    "bow": "cosine of counts of words (bag of words); no training",
}
FEW_TASKS = 6
"""The most tasks for which the summary has bar charts. If there are more, the sections of the families have them."""
_SHOWN_CHARACTERS = 300


class _Pair(NamedTuple):
    """The two models that a report compares on a task.

    Attributes:
        best: the evaluation of the model with the best main score.
        other: the evaluation of the first model of the run. If that is the best or has no defined main score, the
            evaluation of the second best model.
        difference: the main score of `best` minus the main score of `other`; None if it was not computed.
    """

    best: Scored
    other: Scored
    difference: Difference | None


def metric_name(metric: str) -> str:
    """Return the name of a metric for sentences and charts, such as nDCG@10 for `ndcg@10`."""
    return METRICS.get(metric, "Spearman" if metric.startswith("spearman") else metric)


def among(counts: dict[str, int]) -> str:
    """Return a phrase for the number of documents that a task ranks, such as `among 26,108 texts`.

    Args:
        counts: the sizes of the task's data, such as {"queries": 225, "documents": 1400}.

    Returns:
        The phrase; "" if the task does not rank documents.
    """
    return f"among {counts['documents']:,} texts" if "documents" in counts else ""


def sentence(summary: ScoreSummary) -> str:
    """Return one sentence on the outcome of an evaluation; "" if no task was scored.

    If there are several models, the sentence names the best one and compares it with another one. If there is one
    model, the sentence has the model's scores.
    """
    tasks = list(summary.families)
    if not tasks:
        return ""
    if len(summary.scored) == 1:
        return _sentence_on_one_model(summary, tasks)
    return _sentence_on_one_task(summary, tasks[0]) if len(tasks) == 1 else _sentence_on_tasks(summary, tasks)


def _sentence_on_one_model(summary: ScoreSummary, tasks: list[str]) -> str:
    (name,) = summary.names
    if len(tasks) == 1:
        bar = _bars(summary, tasks[0])[0]
        counts = summary.of(tasks[0])[name].counts
        interval = f" [{bar.low:.1f}, {bar.high:.1f}]" if math.isfinite(bar.low) else ""
        score = " ".join(filter(None, (f"{_value(bar.value)}{interval}", among(counts))))
        return f"{name}: {metric_name(summary.main(tasks[0]))} {score}."
    if summary.averages:
        averages = summary.scored[0].results.averages
        means = [f"{each} {_value(averages[each]['value'])} ({summary.coverage(each)})" for each in summary.averages]
        return f"{name}: average {', '.join(means)}."
    bars = [bar for bar in _bars_of_tasks(summary, tasks) if math.isfinite(bar.value)]
    if not bars:
        return f"{name}: every score of {counted(len(tasks), 'task')} is undefined."
    worst, best = (f"{_value(bar.value)} ({bar.name})" for bar in (bars[-1], bars[0]))
    return f"{name}: {counted(len(tasks), 'task')}, from {worst} to {best}."


def _sentence_on_one_task(summary: ScoreSummary, task: str) -> str:
    """Return the sentence that compares several models on one task."""
    metric = metric_name(summary.main(task))
    pair = compared(summary, task)
    if pair is None:
        return f"No model has a defined {metric} on {task}."
    best, other = pair.best.results.model, pair.other.results.model
    score, rival = (_value(each.results.scores[task][summary.main(task)]) for each in (pair.best, pair.other))
    number = among(summary.of(task)[best].counts)
    where = f", {number}" if number else ""
    verb = BEST.get(summary.families[task], "is best")
    if pair.difference is None or not math.isfinite(pair.difference.value):
        return f"{best} {verb}: {metric} {score}; {other} {rival}{where}."
    change = pair.difference
    if change.exceeds_noise:
        side = "above" if change.value > 0 else "below"
        low, high = sorted((abs(change.low), abs(change.high)))
        return (
            f"{best} {verb}: {metric} {score}, {abs(change.value):.1f} {side} {other} [{low:.1f}, {high:.1f}]{where}."
        )
    decided = "Too few examples to decide" if change.has_few else "No difference beyond noise"
    return (
        f"{decided}: {best} has the best {metric}, {score}, and {other} {rival} "
        f"({change.value:+.1f} [{change.low:+.1f}, {change.high:+.1f}]){where}."
    )


def _sentence_on_tasks(summary: ScoreSummary, tasks: list[str]) -> str:
    """Return the sentence that compares several models on several tasks."""
    pairs = {task: pair for task in tasks if (pair := compared(summary, task))}
    wins = Counter(pair.best.results.model for pair in pairs.values())
    if not wins:
        return f"No model has a defined score on {counted(len(tasks), 'task')}."
    best, number = wins.most_common(1)[0]
    first = summary.scored[0]
    rival = first if best != first.results.model else None
    if rival is None:
        others = Counter(pair.other.results.model for pair in pairs.values())
        rival = next(scored for scored in summary.scored if scored.results.model == others.most_common(1)[0][0])
    winner = next(scored for scored in summary.scored if scored.results.model == best)
    changes = [change for task in tasks if (change := _difference(summary, winner, rival, task))]
    better = sum(change.exceeds_noise and change.value > 0 for change in changes)
    worse = sum(change.exceeds_noise and change.value < 0 for change in changes)
    noise = (
        f"; beyond noise it is better than {rival.results.model} on {better} and worse on {worse}" if changes else ""
    )
    return f"{best} is best on {number} of {counted(len(tasks), 'task')}{noise}."


def compared(summary: ScoreSummary, task: str) -> _Pair | None:
    """Return the best model on a task and the model to compare it with; None if fewer than two have a main score.

    The best model is compared with the first model of the run or, if that is the best or has no defined main score,
    with the second best model.
    """
    names = [bar.name for bar in _bars(summary, task) if math.isfinite(bar.value)]
    if len(names) < 2:
        return None
    first = summary.names[0]
    of = {scored.results.model: scored for scored in summary.scored}
    best = of[names[0]]
    other = of[first] if first in names[1:] else of[names[1]]
    return _Pair(best, other, _difference(summary, best, other, task))


def _difference(summary: ScoreSummary, best: Scored, other: Scored, task: str) -> Difference | None:
    """Return the main score of `best` minus `other`'s on a task; None if the run did not compute it."""
    first = summary.scored[0]
    if other is first:
        return best.differences.get(task)
    if best is not first or task not in other.differences:
        return None
    change = other.differences[task]
    return Difference(-change.value, -change.high, -change.low, change.p, change.p_holm)


def _value(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else "undefined"


def _bar(scored: Scored, task: str, name: str, metric: str) -> ScoreBar:
    low, high = scored.results.intervals.get(task, {}).get(metric, (math.nan, math.nan))
    return ScoreBar(name, scored.results.scores.get(task, {}).get(metric, math.nan), low, high)


def _bars(summary: ScoreSummary, task: str) -> list[ScoreBar]:
    """Return a bar for each model that was scored on a task, with the model's main score, best first."""
    main = summary.main(task)
    bars = [_bar(each, task, each.results.model, main) for each in summary.scored if task in each.tasks]
    return best_first(bars, in_percent(main))


def _bars_of_tasks(summary: ScoreSummary, tasks: list[str]) -> list[ScoreBar]:
    """Return a bar for each task, with the main score of the run's first model on the task, highest score first."""
    return best_first([_bar(summary.scored[0], task, task, summary.main(task)) for task in tasks])


def task_figure(summary: ScoreSummary, task: str, caption: str = "") -> Bars:
    """Return a bar chart of a task, with each model's main score, best first. The best of several bars is emphasized.

    Args:
        summary: the evaluations of the run.
        caption: the line above the bars; "" for none.
    """
    rows = _bars(summary, task)
    main = summary.main(task)
    best = rows[0].value if len(rows) > 1 else math.nan
    number = among(next(iter(summary.of(task).values())).counts)
    sense = "%" if in_percent(main) else "less is better"
    unit = f"{metric_name(main)}, {sense}{f', {number}' if number else ''}"
    return Bars([row._replace(is_strong=row.value == best) for row in rows], unit, caption)


def score_figures(summary: ScoreSummary) -> list[Bars]:
    """Return the bar charts that stand at the top of a report.

    If there is one model with several tasks, there is a chart for each family of tasks, with a bar for each task. A
    family is left out if one of its main scores is not a percentage. In all other cases, there is a chart for each task
    or, if there are more than six tasks (FEW_TASKS), for each average over tasks, such as `sts_simcse`. It has a bar
    for each model.
    """
    tasks = list(summary.families)
    if len(summary.scored) == 1 and len(tasks) > 1:
        families = dict.fromkeys(summary.families.values())
        of = {family: [task for task in tasks if summary.families[task] == family] for family in families}
        return [
            Bars(_bars_of_tasks(summary, each), _unit(summary, each), heading(family) if len(of) > 1 else "")
            for family, each in of.items()
            if all(in_percent(summary.main(task)) for task in each)
        ]
    if len(tasks) <= FEW_TASKS:
        return [task_figure(summary, task, task if len(tasks) > 1 else "") for task in tasks]
    return [_average(summary, name) for name in summary.averages]


def _unit(summary: ScoreSummary, tasks: list[str]) -> str:
    return f"{', '.join(dict.fromkeys(metric_name(summary.main(task)) for task in tasks))}, %"


def _average(summary: ScoreSummary, name: str) -> Bars:
    of = [(each.results.model, each.results.averages.get(name)) for each in summary.scored]
    rows = best_first(ScoreBar(model, float(mean["value"])) for model, mean in of if mean)
    best = rows[0].value
    return Bars([row._replace(is_strong=row.value == best) for row in rows], "%", f"{name}: {summary.coverage(name)}")


def model_table(summary: ScoreSummary) -> Table:
    """Return a table with the name and a one-line description of each model."""
    return Table(("model", "what it is"), [(each.results.model, about(each.results)) for each in summary.scored])


def about(results: Results) -> str:
    """Return a one-line description of a model.

    The description has the folder, the file or the function of the model; the model's weight if it is combined with
    BM25; the dimension of the embeddings; and the prompts. For a baseline such as BM25, it is a phrase on how the
    baseline compares texts.
    """
    spec, environment = results.spec, results.environment
    if spec in BASELINES and not environment.get("embedding_dim"):
        return BASELINES[spec]
    words = [_kind(spec.removeprefix(HYBRID) if spec.startswith(HYBRID) else spec)]
    if spec.startswith(HYBRID):
        weights = sorted({each["hybrid_weight"] for each in results.settings.values() if "hybrid_weight" in each})
        shown = " or ".join(f"{weight:.2g}" for weight in weights)
        words = [f"{words[0]}, with BM25{f' (weight of the model {shown}, of BM25 the rest)' if shown else ''}"]
    if dim := environment.get("embedding_dim"):
        words.append(f"{dim:,} dimensions")
    if prompts := environment.get("prompts"):
        words.append(f"prompts: {Sides(**prompts)}")
    return "; ".join(words)


def _kind(spec: str) -> str:
    if not spec:
        return "a model"
    if spec.startswith(HUB):
        return f"the model {spec}"
    if ":" in spec and not Path(spec).exists():
        return f"the function {spec}"
    return f"the word vectors {spec}" if Path(spec).is_file() else f"the model in {spec}"


def examples(summary: ScoreSummary, task: str) -> list[Table]:
    """Return a table with the query that the best model wins by most, and one with the query that it loses by most.

    The best model is compared with the other model that `compared` returns. It wins a query if it ranks the relevant
    document higher than the other model does, and loses a query if it ranks the text lower. The margin is the
    difference of the reciprocal ranks. If there is no query that it wins, or none that it loses, that table is left
    out. The list is empty if fewer than two models have a defined main score.
    """
    pair = compared(summary, task)
    if pair is None:
        return []
    best, other = (each.tasks[task].details.answers for each in (pair.best, pair.other))
    if len(best) != len(other):
        return []
    names = pair.best.results.model, pair.other.results.model
    gains = [_reciprocal(a) - _reciprocal(b) for a, b in zip(best, other, strict=True)]
    tables = []
    for word, index in (("wins", _index_of_largest(gains)), ("loses", _index_of_largest([-gain for gain in gains]))):
        if index is not None:
            tables.append(_example(f"{names[0]} {word}", names, best[index], other[index]))
    return tables


def _index_of_largest(gains: list[float]) -> int | None:
    """Return the index of the largest gain, or of the first one if several are equal; None if no gain is above 0."""
    index = max(range(len(gains)), key=gains.__getitem__, default=None)
    return index if index is not None and gains[index] > 0 else None


def _reciprocal(answer: Answer) -> float:
    return 1 / answer.rank if answer.rank else 0.0


def _example(outcome: str, names: tuple[str, str], best: Answer, other: Answer) -> Table:
    ranks = [f"rank {each.rank:,}" if each.rank else f"not among the first {DEPTH:,}" for each in (best, other)]
    rows: list[tuple[Any, ...]] = [("query", cut(best.query)), ("relevant document", cut(best.right))]
    for name, answer in zip(names, (best, other), strict=True):
        if answer.rank != 1:
            rows.append((f"first for {name}", cut(answer.first)))
    return Table(("", ""), rows, f"{outcome}: {ranks[0]}; {names[1]}: {ranks[1]}")


def cut(text: str, max_characters: int = _SHOWN_CHARACTERS) -> str:
    """Return a text as one line. If it is longer than `max_characters`, return its beginning, followed by `…`."""
    text = " ".join(text.split())
    return text if len(text) <= max_characters else text[:max_characters] + "…"
