"""The regressor equals one trained by torch's modules, and its targets are those of Tai et al."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr
from torch import nn

from clearspan.eval.fit import regression

DIM, SEED = 24, 1111


def made_up(num: int, seed: int, noise: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Return pair features, and scores from 0 to 5 that depend on them."""
    generator = np.random.RandomState(seed)
    left, right = generator.randn(2, num, DIM).astype(np.float32)
    features = regression.pair_features(left, right)
    told = features @ np.random.RandomState(0).randn(2 * DIM)
    scores = 2.5 + (told - told.mean()) / told.std() + noise * generator.randn(num)
    return features, np.clip(np.round(scores, 1), 0, 5)


def by_autograd(train: Any, dev: Any) -> tuple[nn.Module, int, int]:
    """Run SentEval's loop with torch's modules; return the best model, its passes and all passes."""
    np.random.seed(SEED)
    torch.manual_seed(SEED)
    model = nn.Sequential(nn.Linear(2 * DIM, 5), nn.Softmax(dim=-1))
    optimizer, loss_of = torch.optim.Adam(model.parameters()), nn.MSELoss()
    x, y = torch.from_numpy(train[0]), torch.from_numpy(regression.score_distributions(train[1]))
    best, best_pearson, best_passes, passes, failed, stop = None, -1.0, 0, 0, 0, False
    while not stop and passes <= 1000:
        for _ in range(50):
            order = np.random.permutation(len(x))
            for start in range(0, len(x), 64):
                rows = torch.from_numpy(order[start : start + 64])
                optimizer.zero_grad()
                loss_of(model(x[rows]), y[rows]).backward()
                optimizer.step()
        passes += 50
        with torch.no_grad():
            pearson = pearsonr(model(torch.from_numpy(dev[0])).numpy() @ np.arange(1, 6), dev[1]).statistic
        if pearson > best_pearson:
            best, best_pearson, best_passes = copy.deepcopy(model), pearson, passes
        else:
            stop = failed >= 3
            failed += 1
    assert best is not None
    return best, best_passes, passes


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("noise", "num_train", "ends_early"), [(1.0, 150, True), (0.0, 100, False)], ids=["stops early", "runs to the end"]
)
def test_it_is_what_autograd_and_torchs_adam_train(noise: float, num_train: int, ends_early: bool) -> None:
    train, dev, test = made_up(num_train, 1, noise), made_up(60, 2, noise), made_up(30, 3, noise)
    model = regression.train(*train, *dev, seed=SEED)
    expected, best_passes, passes = by_autograd(train, dev)
    assert (model.passes, model.best_passes) == (passes, best_passes)
    assert (passes < 1050) == ends_early
    with torch.no_grad():
        probabilities = expected(torch.from_numpy(test[0])).numpy()
    np.testing.assert_allclose(model.predict(test[0]), probabilities @ np.arange(1, 6), atol=1e-3)


def test_a_dev_split_of_one_score_keeps_the_first_model() -> None:
    features, _ = made_up(20, 2)
    model = regression.train(*made_up(70, 1), features, np.full(20, 3.0), seed=SEED)
    assert (model.best_passes, model.passes) == (50, 250)


@pytest.mark.parametrize(
    ("score", "row"),
    [
        (1.0, [1, 0, 0, 0, 0]),
        (3.6, [0, 0, 0.4, 0.6, 0]),
        (4.75, [0, 0, 0, 0.25, 0.75]),
        (5.0, [0, 0, 0, 0, 1]),
        (0.75, [0.75, 0, 0, 0, 0]),  # not a distribution: SentEval's treatment of STS-B's scores below 1
        (0.0, [0, 0, 0, 0, 0]),
    ],
)
def test_a_score_becomes_tais_distribution(score: float, row: list[float]) -> None:
    np.testing.assert_allclose(regression.score_distributions(np.array([score]))[0], row, atol=1e-6)


def test_features_are_the_difference_and_the_product() -> None:
    left, right = np.array([[1.0, 2.0], [np.nan, 3.0]]), np.array([[3.0, -1.0], [5.0, np.inf]])
    assert regression.pair_features(left, right).tolist() == [[2, 3, 3, -2], [5, 3, 0, 0]]
