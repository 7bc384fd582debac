"""A classifier on frozen embeddings, by one of SentEval's schemes: what transfer and probing tasks are made of.

    splits, sorted as SentEval sorts them ──> embeddings ──> a row a sentence or pair ──> scheme ──> accuracy

The order decides which rows a seeded fold gets, so it is part of the protocol: by number of tokens, then label.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from clearspan.eval.data.labelled import Labelled, LabelledPairs
from clearspan.eval.files import DataError, MissingDataError
from clearspan.eval.fit.folds import NUM_FOLDS, Ints, Scheme, too_few
from clearspan.eval.report.html import Section
from clearspan.eval.report.table import Table
from clearspan.eval.scores import Examples, TaskScores, figure
from clearspan.eval.tasks.task import Loaded, Run, Task

if TYPE_CHECKING:
    from clearspan.eval.fit.protocols import Outcome, Problem

Splits = Mapping[str, Labelled] | Mapping[str, LabelledPairs]
_MOST_CLASSES = 30  # that the report lists one by one


@dataclass(frozen=True)
class Head:
    """The classifier: num_hidden sigmoids in a hidden layer with dropout before them; 0: logistic regression."""

    num_hidden: int = 0
    dropout: float = 0.0


@dataclass(frozen=True)
class ClassificationTask:
    """One data set and the way in which it is classified.

    Attributes:
        splits: `train`, `dev` and `test` as far as the scheme has them; nested: `train`, which is tested in folds.
        classes: their names, by label.
        parts: what a pair's row is made of: `left` u, `right` v, `difference` |u - v|, `product` u * v.
        f1: whether the F1 of class 1 is a figure.
        heads: of these, the best on the dev rows is tested.
        grid: the L2 values; empty: SentEval's four.
        max_epoch, epoch_size: other than the protocol's.
        snli_order: pairs are sorted by their second sentence first and labels by their names, as SentEval does SNLI's.
        keep: whether embeddings are remembered for other tasks.
    """

    name: str
    scheme: Scheme
    splits: Splits
    classes: tuple[str, ...]
    files: tuple[Path, ...] = ()
    parts: tuple[str, ...] = ()
    f1: bool = False
    heads: tuple[Head, ...] = (Head(),)
    grid: tuple[float, ...] = ()
    max_epoch: int | None = None
    epoch_size: int | None = None
    snli_order: bool = False
    keep: bool = True
    _sizes: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_sizes", {split: len(data) for split, data in self.splits.items()})
        if reason := too_few(self.splits["train"].labels, self.scheme, max(NUM_FOLDS.values())):
            raise DataError(f"{self.files[0] if self.files else self.name}: {reason}; restore it from the original")

    def score(self, run: Run) -> TaskScores:
        """Accuracy on test rows and dev rows, in percent, and F1 where the task has it."""
        from clearspan.eval.fit.protocols import L2, PROTOCOLS, Trainer, run_scheme

        problem = self.problem(run)
        protocol = PROTOCOLS[run.protocol]
        settings = replace(
            protocol.settings,
            max_epoch=self.max_epoch or protocol.settings.max_epoch,
            epoch_size=self.epoch_size or protocol.settings.epoch_size,
        )
        grid = self.grid or L2
        best: Outcome | None = None
        for head in self.heads:
            of_head = replace(settings, num_hidden=head.num_hidden, dropout=head.dropout)
            label = self.name if run.progress else ""
            trainer = Trainer(problem, replace(protocol, settings=of_head), run.seed, run.device, label)
            outcome = run_scheme(trainer, self.scheme, grid)
            if best is None or outcome.dev_accuracy > best.dev_accuracy:
                best, chosen = outcome, head
        assert best is not None
        rests_on: dict[str, object] = {
            "protocol": run.protocol,
            "scheme": self.scheme,
            "num_folds": None if self.scheme == "split" else protocol.num_folds,
            "seed": run.seed,
            "l2": best.l2,
            "num_hidden": chosen.num_hidden,
            "dropout": chosen.dropout,
        }
        return self._scores(best, problem.labels, grid, rests_on)

    def problem(self, run: Run) -> "Problem":
        """The task as arrays: the rows of its splits one after the other, each split in SentEval's order."""
        from clearspan.eval.fit import features
        from clearspan.eval.fit.protocols import Problem

        orders = {split: self.order(data) for split, data in self.splits.items()}
        labels = np.concatenate([data.labels[orders[split]] for split, data in self.splits.items()])
        texts = [[_pick(side, orders[split]) for side in _sides(data)] for split, data in self.splits.items()]
        columns = [[text for split in texts for text in split[side]] for side in range(len(texts[0]))]
        if len(columns) == 1:
            rows = features.of_sentences(run.embedder.embed(columns[0], self.keep), run.device)
        else:
            distinct = list(dict.fromkeys(columns[0] + columns[1]))
            place = {text: number for number, text in enumerate(distinct)}
            left, right = (np.array([place[text] for text in column], np.int64) for column in columns)
            table = run.embedder.embed(distinct, self.keep)
            rows = features.of_pairs(table, left, right, self.parts, run.device)
        ends = np.cumsum(list(self._sizes.values()))
        splits = {
            split: np.arange(end - size, end) for (split, size), end in zip(self._sizes.items(), ends, strict=True)
        }
        return Problem(rows, labels, len(self.classes), splits)

    def order(self, data: Labelled | LabelledPairs) -> Ints:
        """The rows of a split in SentEval's order: by number of tokens, then label; int64 (n,)."""
        lengths = [np.array([len(text.split()) for text in side]) for side in _sides(data)]
        labels = data.labels
        if self.snli_order:
            lengths.reverse()
            labels = np.argsort(np.argsort(self.classes))[labels]
        return np.lexsort((labels, *reversed(lengths)))

    def _scores(
        self, outcome: "Outcome", labels: Ints, grid: tuple[float, ...], settings: dict[str, object]
    ) -> TaskScores:
        gold = labels[outcome.rows]
        examples = {"acc": Examples.of("accuracy", outcome.predicted, gold, outcome.groups)}
        scores = {"acc": outcome.accuracy, "devacc": outcome.dev_accuracy}
        if self.f1:
            examples["f1"] = Examples.of("f1", outcome.predicted, gold)
            scores["f1"] = figure(examples["f1"])
        what = "pairs" if self.parts else "sentences"
        return TaskScores(
            scores=scores,
            main="acc",
            headline=tuple(metric for metric in ("acc", "f1") if metric in scores),
            counts={what: sum(self._sizes.values()), "test": len(gold)},
            section=Section(self.name, tables=_tables(outcome, gold, self.classes, grid)),
            examples=examples,
            settings=settings,
        )


def load_tasks(names: Mapping[str, Callable[[], ClassificationTask]]) -> Loaded:
    """Reads each task; those whose files are not there are missing, with the reason.

    Raises:
        DataError: a file is malformed.
    """
    tasks: list[Task] = []
    missing: dict[str, str] = {}
    for name, read in names.items():
        try:
            tasks.append(read())
        except MissingDataError as error:
            missing[name] = str(error)
    return Loaded(tasks, missing)


def _sides(data: Labelled | LabelledPairs) -> list[list[str]]:
    return [data.texts] if isinstance(data, Labelled) else [data.left, data.right]


def _pick(texts: list[str], order: Ints) -> list[str]:
    return [texts[row] for row in order]


def _tables(outcome: "Outcome", gold: Ints, classes: tuple[str, ...], grid: tuple[float, ...]) -> list[Table]:
    rows = [
        (fold if len(outcome.l2) > 1 else "all", f"{l2:g}", *accuracies)
        for fold, (l2, accuracies) in enumerate(zip(outcome.l2, outcome.dev_accuracies, strict=True), start=1)
    ]
    header = ("fold", "L2 chosen", *(f"dev accuracy at {value:g}" for value in grid))
    tables = [Table(header, rows, caption="choice of L2")]
    if len(classes) <= _MOST_CLASSES:
        of_class = [(name, gold == label) for label, name in enumerate(classes)]
        found = [
            (name, int(true.sum()), 100 * float(np.mean(outcome.predicted[true] == gold[true])) if true.any() else None)
            for name, true in of_class
        ]
        tables.append(Table(("class", "test examples", "classified right, percent"), found))
    return tables
