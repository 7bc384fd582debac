"""The batched trainer equals SentEval's classifiers trained one at a time: same stops, same weights."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from clearspan.eval.fit.classifiers import ClassifierSettings, Fold, Problem, fit
from clearspan.eval.fit.features import PairRows, of_pairs, of_sentences

NUM, DIM, CLASSES = 300, 12, 3
GRID = (1e-5, 1e-2)


def problem() -> tuple[np.ndarray, np.ndarray]:
    """Return rows (300, 12) of three overlapping classes, so that fits stop at different checks."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(NUM, DIM))
    noise = 2 * random.normal(size=(NUM, CLASSES))
    return rows.astype(np.float32), (rows @ random.normal(size=(DIM, CLASSES)) + noise).argmax(1)


def plain(rows: np.ndarray, labels: np.ndarray, fold: Fold, l2: float, settings: ClassifierSettings) -> tuple:
    """Train one classifier as SentEval does, with autograd, and return (model, dev accuracy, passes)."""
    x, y = torch.from_numpy(rows), torch.from_numpy(labels)
    np.random.seed(1111)
    torch.manual_seed(1111)
    if hidden := settings.num_hidden:
        dropout = nn.Dropout(settings.dropout)
        model = nn.Sequential(nn.Linear(DIM, hidden), dropout, nn.Sigmoid(), nn.Linear(hidden, CLASSES))
    else:
        model = nn.Sequential(nn.Linear(DIM, CLASSES))
    optimizer = {"adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop}[settings.optimizer]
    optimizer = optimizer(model.parameters(), weight_decay=l2)
    train, dev = fold.train, fold.dev
    if dev is None:
        order, held = np.random.permutation(len(train)), int(0.05 * len(train))
        dev, train = train[order[:held]], train[order[held:]]
    passes, best, kept, stalls = 0, -1.0, model, 0
    while passes <= settings.max_epoch:
        model.train()
        for _ in range(settings.epoch_size):
            order = np.random.permutation(len(train))
            for start in range(0, len(order), settings.batch_size):
                batch = train[order[start : start + settings.batch_size]]
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
                optimizer.step()
        passes += settings.epoch_size
        model.eval()
        with torch.no_grad():
            accuracy = float((model(x[dev]).argmax(1) == y[dev]).double().mean())
        if accuracy > best:
            best, kept = accuracy, copy.deepcopy(model)
        elif stalls >= settings.tenacity:
            break
        else:
            stalls += 1
    return kept.eval(), best, passes


def folds() -> list[Fold]:
    """Folds with different dev splits, last batches and numbers of steps, three of them without a dev split.

    Three train on 190 rows each: those left of 200 and of 199 rows, and given ones.
    """
    order = np.random.default_rng(1).permutation(NUM)
    given = [Fold(np.sort(order[cut:]), np.sort(order[:cut])) for cut in (90, 91, 130)]
    given.append(Fold(given[0].train[:190], given[0].dev))
    return [*given, Fold(np.arange(200)), Fold(np.arange(199)), Fold(np.arange(250))]


@pytest.mark.guarantee("published-scores")
@pytest.mark.parametrize(
    "settings",
    [
        ClassifierSettings(tenacity=1, epoch_size=2),
        ClassifierSettings("rmsprop", 128, 2, 1),
        ClassifierSettings(tenacity=1, epoch_size=2, num_hidden=7),
        ClassifierSettings(tenacity=1, epoch_size=2, num_hidden=20, dropout=0.2),
        ClassifierSettings("rmsprop", 128, 2, 1, num_hidden=7, dropout=0.1),
        ClassifierSettings(tenacity=50, epoch_size=1, max_epoch=5),
    ],
    ids=["adam", "rmsprop", "hidden", "dropout", "hidden-rmsprop", "max-epoch"],
)
def test_every_fit_is_the_one_that_is_trained_alone(settings: ClassifierSettings) -> None:
    rows, labels = problem()
    features = of_sentences(rows)
    fits = fit(Problem(features, labels, CLASSES), folds(), np.array([GRID] * len(folds())), settings)
    for number, fold in enumerate(folds()):
        for slot, l2 in enumerate(GRID):
            model, accuracy, passes = plain(rows, labels, fold, l2, settings)
            assert (fits.dev_accuracy[number, slot], fits.num_epochs[number, slot]) == (accuracy, passes)
            linear = [layer for layer in model if isinstance(layer, nn.Linear)]
            for layer, weights in zip(linear, fits.layers, strict=True):
                found = weights[number, slot, :, : layer.in_features + 1]
                alone = torch.cat([layer.weight, layer.bias[:, None]], dim=1)
                torch.testing.assert_close(found, alone, atol=2e-6, rtol=1e-4)
            predicted = model(torch.from_numpy(rows)).argmax(1).numpy()
            assert (fits.predict(features, np.arange(NUM), number, slot) == predicted).mean() > 0.995
    if settings.tenacity == 50:
        assert set(fits.num_epochs.ravel()) == {6}  # one more than max_epoch, as SentEval counts
    elif not settings.num_hidden:
        assert len(set(fits.num_epochs.ravel())) > 2  # fits stopped at different checks, and left the batch


@pytest.mark.guarantee("published-scores")
def test_all_of_very_many_dev_rows_decide_when_a_fit_stops_and_how_good_it_is() -> None:
    (rows, labels), settings = problem(), ClassifierSettings(tenacity=1, epoch_size=2)
    dev = np.concatenate([np.tile(np.arange(100), 60), np.tile(np.arange(250, 300), 120)])
    fold = Fold(np.arange(250), dev)
    fits = fit(Problem(of_sentences(rows), labels, CLASSES), [fold], np.array([GRID]), settings)
    for slot, l2 in enumerate(GRID):
        _, accuracy, passes = plain(rows, labels, fold, l2, settings)
        assert (fits.dev_accuracy[0, slot], fits.num_epochs[0, slot]) == (accuracy, passes)
        first = plain(rows, labels, Fold(fold.train, dev[:6000]), l2, settings)[1]
        assert abs(first - accuracy) > 0.01, "the first half alone would say otherwise"


def test_training_leaves_the_global_generators_alone() -> None:
    rows, labels = problem()
    torch.manual_seed(5)
    np.random.seed(5)
    expected = torch.rand(1), np.random.rand()
    torch.manual_seed(5)
    np.random.seed(5)
    settings = ClassifierSettings(max_epoch=0, num_hidden=3, dropout=0.5)
    fit(Problem(of_sentences(rows), labels, CLASSES), folds()[:1], np.array([GRID]), settings)
    assert (torch.rand(1), np.random.rand()) == expected


@pytest.mark.guarantee("published-scores")
def test_pairs_made_in_the_batch_are_those_made_beforehand() -> None:
    random = np.random.default_rng(2)
    table = random.normal(size=(20, DIM)).astype(np.float32)
    left, right = random.integers(0, 20, (2, NUM))
    u, v = table[left], table[right]
    parts = ("left", "right", "product", "difference")
    expected = np.concatenate([u, v, u * v, abs(u - v)], axis=1)
    held = of_pairs(table, left, right, parts)
    made = PairRows(torch.from_numpy(table), torch.from_numpy(left), torch.from_numpy(right), parts)
    rows = torch.tensor([3, 0, 299])
    for features in (held, made):
        found = features.take(rows, torch.full((3, 64), 7.0))
        assert features.dim == 4 * DIM
        np.testing.assert_array_equal(found[:, : 4 * DIM], expected[rows])
        assert found[:, 4 * DIM].tolist() == [1, 1, 1] and not found[:, 4 * DIM + 1 :].any()


def test_what_is_not_finite_counts_as_0() -> None:
    found = of_sentences(np.array([[np.nan, np.inf, -np.inf, 2]], np.float32)).take(
        torch.tensor([0]), torch.empty(1, 16)
    )
    assert found[0, :5].tolist() == [0, 0, 0, 2, 1]


@pytest.mark.guarantee("published-scores")
def test_a_fold_without_dev_rows_is_refused() -> None:
    rows, labels = problem()
    with pytest.raises(ValueError, match="no dev rows"):
        fit(Problem(of_sentences(rows), labels, CLASSES), [Fold(np.arange(19))], np.array([GRID]), ClassifierSettings())
