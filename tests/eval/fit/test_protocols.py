"""The three schemes: the rows of each fit, the choice of L2, the averages."""

import numpy as np
import pytest
from sklearn.model_selection import StratifiedKFold

from clearspan.eval.fit import protocols
from clearspan.eval.fit.classifiers import ClassifierSettings, Fits, Fold, Problem
from clearspan.eval.fit.features import of_sentences
from clearspan.eval.fit.folds import too_few
from clearspan.eval.fit.protocols import L2, PROTOCOLS, FitInputs, Protocol

NUM = 40
LABELS = np.array([0, 1] * (NUM // 2))


class Recorded(FitInputs):
    """A trainer without fits: it has preset dev accuracies and predicts class 1 for every row."""

    def __init__(self, splits: dict[str, np.ndarray], dev_accuracies: list[np.ndarray], num_folds: int = 2) -> None:
        features = of_sentences(np.zeros((NUM, 3), np.float32))
        super().__init__(Problem(features, LABELS, 2, splits), Protocol(num_folds, ClassifierSettings()), seed=7)
        self.__dict__["told"], self.__dict__["asked"] = dev_accuracies, []

    def fit(self, folds: list[Fold], l2: np.ndarray) -> Fits:
        self.__dict__["asked"].append((list(folds), l2))
        told = self.__dict__["told"].pop(0)
        return Always(np.asarray(told, float))


class Always(Fits):
    def __init__(self, dev_accuracy: np.ndarray) -> None:
        super().__init__([], dev_accuracy, np.zeros(0, np.int64))

    def predict(self, features: object, rows: np.ndarray, fold: int = 0, l2: int = 0) -> np.ndarray:
        return np.full(len(rows), l2 + 1)


def test_kfold_chooses_by_the_mean_over_folds_of_the_run_s_seed_and_refits_on_all_training_rows() -> None:
    splits = {"train": np.arange(30), "test": np.arange(30, 40)}
    trainer = Recorded(splits, [[[0.9, 0.5, 0.6, 0.6], [0.1, 0.7, 0.6, 0.6]], [[0.5]]])
    outcome = protocols.run_scheme(trainer, "kfold")
    (folds, l2), (last, chosen) = trainer.__dict__["asked"]
    expected = list(StratifiedKFold(2, shuffle=True, random_state=7).split(np.zeros(30), LABELS[:30]))
    assert [(f.train.tolist(), f.dev.tolist()) for f in folds] == [(a.tolist(), b.tolist()) for a, b in expected]
    assert l2.tolist() == [list(L2)] * 2
    assert (last[0].train.tolist(), last[0].dev, chosen.tolist()) == (list(range(30)), None, [[L2[1]]])
    assert (outcome.dev_accuracy, outcome.l2) == (60, [L2[1]])
    assert (outcome.accuracy, outcome.rows.tolist()) == (50, list(range(30, 40)))


def test_split_tests_the_very_fit_that_the_dev_rows_chose() -> None:
    splits = {"train": np.arange(20), "dev": np.arange(20, 30), "test": np.array([31, 33, 35, 36])}
    trainer = Recorded(splits, [[[0.3, 0.2, 0.1, 0.3]]])
    outcome = protocols.run_scheme(trainer, "split")
    ((folds, l2),) = trainer.__dict__["asked"]
    assert (folds[0].train.tolist(), folds[0].dev.tolist()) == (list(range(20)), list(range(20, 30)))
    assert l2.tolist() == [list(L2)]
    assert (outcome.l2, outcome.dev_accuracy, outcome.accuracy) == ([L2[0]], 30, 75)


def test_nested_chooses_within_each_fold_whose_seed_is_never_the_run_s() -> None:
    inner = np.array([[[0.1, 0.3, 0.2, 0.2], [0.3, 0.3, 0.2, 0.2]], [[0.1, 0.1, 0.1, 0.4], [0.2, 0.1, 0.1, 0.4]]])
    trainer = Recorded({"train": np.arange(NUM)}, [inner.reshape(4, 4), [[0.5], [0.5]]])
    outcome = protocols.run_scheme(trainer, "nested")
    (folds, _), (last, chosen) = trainer.__dict__["asked"]
    outer = list(StratifiedKFold(2, shuffle=True, random_state=1111).split(np.zeros(NUM), LABELS))
    at = 0
    for train, test in outer:
        cut = StratifiedKFold(2, shuffle=True, random_state=1111).split(np.zeros(len(train)), LABELS[train])
        for learnt, held in cut:
            assert (folds[at].train.tolist(), folds[at].dev.tolist()) == (train[learnt].tolist(), train[held].tolist())
            assert not set(folds[at].train) & set(test)
            at += 1
    assert [fold.train.tolist() for fold in last] == [train.tolist() for train, _ in outer]
    assert chosen.tolist() == [[L2[1]], [L2[3]]] and all(fold.dev is None for fold in last)
    assert outcome.dev_accuracy == 35
    assert sorted(outcome.rows) == list(range(NUM)) and outcome.groups.tolist() == [0] * 20 + [1] * 20
    assert outcome.accuracy == 50


def test_accuracies_are_compared_after_rounding_to_two_decimals() -> None:
    splits = {"train": np.arange(20), "dev": np.arange(20, 30), "test": np.arange(30, 40)}
    assert protocols.run_scheme(Recorded(splits, [[[0.5, 0.50004, 0.4, 0.4]]]), "split").l2 == [L2[0]]
    assert protocols.run_scheme(Recorded(splits, [[[0.5, 0.50006, 0.4, 0.4]]]), "split").l2 == [L2[1]]


@pytest.mark.guarantee("published-scores")
def test_the_protocols_are_senteval_s() -> None:
    assert PROTOCOLS["full"] == Protocol(10, ClassifierSettings("adam", 64, 5, 4, 200))
    assert PROTOCOLS["fast"] == Protocol(5, ClassifierSettings("rmsprop", 128, 3, 2, 200))
    assert L2 == (1e-5, 1e-4, 1e-3, 1e-2)


@pytest.mark.parametrize(
    ("labels", "scheme", "reason"),
    [
        ([1] * 100, "split", "one class"),
        ([0, 1] * 9, "kfold", "largest class has 9 training examples, and 10 folds need 10"),
        ([0, 1] * 19, "nested", "largest class has 19 training examples, and 10 folds need 20"),
        ([0] * 10 + [1] * 5, "kfold", "15 training examples, and a dev split of 5 % of a fold needs 20"),
        ([0, 1], "split", ""),
        ([0, 1] * 20, "nested", ""),
        ([0, 1] * 10, "kfold", ""),
    ],
)
def test_what_cannot_be_cut_into_folds_is_said(labels: list, scheme: str, reason: str) -> None:
    found = too_few(np.array(labels), scheme, 10)
    assert reason in found and bool(found) == bool(reason)
