"""Train classifiers on frozen embeddings as SentEval does, for the transfer and the probing tasks.

    splits, in SentEval's order ──> embeddings ──> features of each sentence or pair ──> scheme ──> accuracy

A scheme is the way to select the L2 value and to test the classifier, such as nested cross-validation. SentEval sorts
examples by their number of tokens and then by their label. The order affects the scores, because it decides which rows
are drawn into a fold.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from clearspan.common.records import DataError
from clearspan.eval.data.labeled import Labeled, order
from clearspan.eval.fit.folds import NUM_FOLDS, Ints, Scheme, too_few
from clearspan.eval.scores import Examples, TaskScores, figure
from clearspan.eval.tasks.task import TaskContext

if TYPE_CHECKING:
    from clearspan.eval.fit.classifiers import Problem


@dataclass(frozen=True)
class Head:
    """The architecture of a classifier.

    Attributes:
        num_hidden: the number of units in the hidden layer, which are sigmoids; 0 for logistic regression.
        dropout: the dropout rate of the hidden layer's pre-activations.
    """

    num_hidden: int = 0
    dropout: float = 0.0


@dataclass(frozen=True)
class ClassificationTask:
    """A task that classifies the sentences or pairs of a data set.

    Attributes:
        name: the name of the task.
        scheme: the way to select the L2 value (the weight of the L2 penalty) and to test the classifier. `nested` does
            both by cross-validation on `train`; `kfold` selects by cross-validation on `train` and tests on `test`;
            `split` selects on `dev` and tests on `test`.
        splits: `train`, `dev` or `test` -> labeled examples, for each split that the scheme uses.
        classes: the class names, by class index.
        files: the data files.
        parts: the features of a pair with embeddings u and v, in order: `left` is u, `right` is v, `difference` is
            |u - v|, and `product` is u * v. Empty if the examples are single sentences.
        f1: True to score the F1 of class 1 in addition to the accuracy.
        heads: the architectures of the classifiers to fit. The one with the best dev accuracy is scored.
        grid: the L2 values to select from; empty for SentEval's four values.
        max_epoch: training ends at the first check of the dev accuracy after more than this number of passes over the
            training rows; None for the number in the settings of `--protocol`.
        epoch_size: the number of passes between two checks of the dev accuracy; None for the number in the settings of
            `--protocol`.
        snli_order: True to sort the examples as SentEval sorts SNLI: by the number of tokens in the second sentence,
            then in the first sentence, and last by the alphabetical order of the class names.
        keep: whether to keep the embeddings in memory, where other tasks with the same texts find them.

    Raises:
        DataError: the training examples are too few for the scheme, or are all of one class.
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

    def __post_init__(self) -> None:
        if reason := too_few(self.splits["train"].labels, self.scheme, max(NUM_FOLDS.values())):
            raise DataError(f"{self.files[0] if self.files else self.name}: {reason}; restore it from the original")

    def score(self, run: TaskContext) -> TaskScores:
        """Fit the classifiers, and return the scores of the one with the best dev accuracy, in percent.

        `acc` is the accuracy on the test rows, `devacc` is the accuracy on the dev rows, and `f1` is the F1 on the test
        rows, if the task scores it.

        Raises:
            UnscoredError: the model has no embeddings.
        """
        from clearspan.eval.fit.protocols import L2, PROTOCOLS, FitInputs, FitResult, run_scheme

        problem = self.problem(run)
        protocol = PROTOCOLS[run.protocol]
        settings = replace(
            protocol.settings,
            max_epoch=self.max_epoch or protocol.settings.max_epoch,
            epoch_size=self.epoch_size or protocol.settings.epoch_size,
        )

        def tested(head: Head) -> FitResult:
            of_head = replace(protocol, settings=replace(settings, **vars(head)))
            trainer = FitInputs(problem, of_head, run.seed, run.device, self.name if run.progress else "")
            return run_scheme(trainer, self.scheme, self.grid or L2)

        outcomes = {head: tested(head) for head in self.heads}
        chosen, outcome = max(outcomes.items(), key=lambda item: item[1].dev_accuracy)  # the first of equals
        gold = problem.labels[outcome.rows]
        examples = {"acc": Examples.of("accuracy", outcome.predicted, gold, outcome.groups)}
        scores = {"acc": outcome.accuracy, "devacc": outcome.dev_accuracy}
        if self.f1:
            examples["f1"] = Examples.of("f1", outcome.predicted, gold)
            scores["f1"] = figure(examples["f1"])
        return TaskScores(
            scores=scores,
            main="acc",
            headline=tuple(examples),
            counts={"pairs" if self.parts else "sentences": len(problem.labels), "test": len(gold)},
            examples=examples,
            settings={
                "protocol": run.protocol,
                "scheme": self.scheme,
                "num_folds": None if self.scheme == "split" else protocol.num_folds,
                "seed": run.seed,
                "l2": outcome.l2,
                **vars(chosen),
            },
        )

    def problem(self, run: TaskContext) -> "Problem":
        """Embed the task's texts; return the features and labels of all splits, each split sorted as in SentEval."""
        from clearspan.eval.fit import features
        from clearspan.eval.fit.classifiers import Problem

        ordered = [(data, self.order(data)) for data in self.splits.values()]
        labels = np.concatenate([data.labels[rows] for data, rows in ordered])
        columns = [
            [data.columns[side][row] for data, rows in ordered for row in rows]
            for side in range(2 if self.parts else 1)
        ]
        if len(columns) == 1:
            values = features.of_sentences(run.embedder.embed(columns[0], self.keep), run.device)
        else:
            distinct = list(dict.fromkeys(columns[0] + columns[1]))
            place = {text: number for number, text in enumerate(distinct)}
            left, right = (np.array([place[text] for text in column], np.int64) for column in columns)
            table = run.embedder.embed(distinct, self.keep)
            values = features.of_pairs(table, left, right, self.parts, run.device)
        ends = np.cumsum([len(data) for data in self.splits.values()])
        rows_of = np.split(np.arange(ends[-1]), ends[:-1])
        return Problem(values, labels, len(self.classes), dict(zip(self.splits, rows_of, strict=True)))

    def order(self, data: Labeled) -> Ints:
        """Return the row indices that sort the n examples of a split as SentEval does, (n,) int64.

        SentEval sorts by the number of tokens in the first text, then in the second text of a pair, and last by the
        label. The attribute `snli_order` selects a different order.
        """
        if self.snli_order:
            return order(data.columns[::-1], np.argsort(np.argsort(self.classes))[data.labels])
        return order(data.columns, data.labels)
