"""Classification of frozen embeddings by one of SentEval's schemes: the base of the transfer and probing tasks.

    splits, sorted as SentEval sorts them ──> embeddings ──> one row per sentence or pair ──> scheme ──> accuracy

The order (by number of tokens, then label) decides which rows a seeded fold gets, so it is part of the protocol.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from clearspan.eval.data.labeled import Labeled
from clearspan.eval.files import DataError
from clearspan.eval.fit.folds import NUM_FOLDS, Ints, Scheme, too_few
from clearspan.eval.scores import Examples, TaskScores, figure
from clearspan.eval.tasks.task import Run

if TYPE_CHECKING:
    from clearspan.eval.fit.classifiers import Problem
    from clearspan.eval.fit.protocols import Outcome


@dataclass(frozen=True)
class Head:
    """A classifier: a hidden layer of `num_hidden` sigmoids with dropout before it, or logistic regression for 0."""

    num_hidden: int = 0
    dropout: float = 0.0


@dataclass(frozen=True)
class ClassificationTask:
    """A data set and its classification scheme.

    Attributes:
        splits: the scheme's splits among `train`, `dev` and `test`; `nested` has `train` only, tested in folds.
        classes: class names, by label.
        parts: features of a pair: `left` u, `right` v, `difference` |u - v|, `product` u * v; empty for sentences.
        f1: whether to score the F1 of class 1 too.
        heads: classifiers to fit; the best on the dev rows is tested.
        grid: L2 values to choose from; empty for SentEval's four.
        max_epoch, epoch_size: override the protocol's values.
        snli_order: sort pairs by their second sentence first and labels by name, as SentEval does for SNLI.
        keep: whether to keep the embeddings in memory for other tasks.
    """

    name: str
    scheme: Scheme
    splits: Mapping[str, Labeled]
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
        """Return the accuracy on test and dev rows, in percent, and F1 where the task has it."""
        from clearspan.eval.fit.protocols import L2, PROTOCOLS, Trainer, run_scheme

        problem = self.problem(run)
        protocol = PROTOCOLS[run.protocol]
        settings = replace(
            protocol.settings,
            max_epoch=self.max_epoch or protocol.settings.max_epoch,
            epoch_size=self.epoch_size or protocol.settings.epoch_size,
        )
        best: Outcome | None = None
        for head in self.heads:
            of_head = replace(settings, num_hidden=head.num_hidden, dropout=head.dropout)
            label = self.name if run.progress else ""
            trainer = Trainer(problem, replace(protocol, settings=of_head), run.seed, run.device, label)
            outcome = run_scheme(trainer, self.scheme, self.grid or L2)
            if best is None or outcome.dev_accuracy > best.dev_accuracy:
                best, chosen = outcome, head
        assert best is not None
        chosen_settings: dict[str, object] = {
            "protocol": run.protocol,
            "scheme": self.scheme,
            "num_folds": None if self.scheme == "split" else protocol.num_folds,
            "seed": run.seed,
            "l2": best.l2,
            "num_hidden": chosen.num_hidden,
            "dropout": chosen.dropout,
        }
        return self._scores(best, problem.labels, chosen_settings)

    def problem(self, run: Run) -> "Problem":
        """Return the task as arrays: the rows of all splits, concatenated, each split in SentEval's order."""
        from clearspan.eval.fit import features
        from clearspan.eval.fit.classifiers import Problem

        orders = {split: self.order(data) for split, data in self.splits.items()}
        labels = np.concatenate([data.labels[orders[split]] for split, data in self.splits.items()])
        columns = [
            [data.columns[side][row] for split, data in self.splits.items() for row in orders[split]]
            for side in range(2 if self.parts else 1)
        ]
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

    def order(self, data: Labeled) -> Ints:
        """Return the row numbers of a split in SentEval's order: by number of tokens, then label; int64 (n,)."""
        lengths = [np.array([len(text.split()) for text in side]) for side in data.columns]
        labels = data.labels
        if self.snli_order:
            lengths.reverse()
            labels = np.argsort(np.argsort(self.classes))[labels]
        return np.lexsort((labels, *reversed(lengths)))

    def _scores(self, outcome: "Outcome", labels: Ints, settings: dict[str, object]) -> TaskScores:
        gold = labels[outcome.rows]
        examples = {"acc": Examples.of("accuracy", outcome.predicted, gold, outcome.groups)}
        scores = {"acc": outcome.accuracy, "devacc": outcome.dev_accuracy}
        if self.f1:
            examples["f1"] = Examples.of("f1", outcome.predicted, gold)
            scores["f1"] = figure(examples["f1"])
        unit = "pairs" if self.parts else "sentences"
        return TaskScores(
            scores=scores,
            main="acc",
            headline=tuple(metric for metric in ("acc", "f1") if metric in scores),
            counts={unit: sum(self._sizes.values()), "test": len(gold)},
            examples=examples,
            settings=settings,
        )
