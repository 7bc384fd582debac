"""Train many small classifiers together. Each equals the classifier that SentEval trains, up to float rounding.

    one classifier ("fit") per fold and L2 value ──> cohorts of folds ──> best weights of each fit

The fits of a cohort are trained together (`eval.fit.batched`). Its folds have the same number of batches per pass over
their training rows. The fits can share their computations because SentEval seeds numpy and torch before each
classifier: all fits start from the same weights, and folds of the same size draw their rows in the same order. A fit
that has stopped is removed from its cohort. A classifier is a logistic regression, or has one hidden layer of sigmoids.
The optimizer is Adam or RMSprop.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearspan.common.progress import ProgressBar
from clearspan.eval.fit.batched import Classifiers, initial_layers, predict
from clearspan.eval.fit.features import Features, padded
from clearspan.eval.fit.folds import HELD_OUT, Ints

# Size limit of a cohort's batch in bytes. On a CPU, the batch, its activations and the weights should fit into the
# caches; an accelerator gains from larger cohorts.
_CPU_BATCH, _ACCELERATOR_BATCH = 1 << 20, 1 << 28


@dataclass(frozen=True)
class ClassifierSettings:
    """The settings of a classifier's training. The defaults are SentEval's, which the papers used.

    A check computes the accuracy on the dev rows, to stop training early.

    Attributes:
        optimizer: `adam` or `rmsprop`, with torch's default settings. The L2 value is the optimizer's weight decay,
            which applies to biases too.
        batch_size: the number of rows in a batch.
        tenacity: the number of checks that may fail to improve the dev accuracy; the next failed check stops training.
        epoch_size: the number of passes over the training rows between two checks.
        max_epoch: training stops at the first check after more than this number of passes.
        num_hidden: the size of the hidden layer of sigmoids; 0 for logistic regression.
        dropout: the fraction of the hidden layer's pre-activations that is set to 0 in training.
    """

    optimizer: Literal["adam", "rmsprop"] = "adam"
    batch_size: int = 64
    tenacity: int = 5
    epoch_size: int = 4
    max_epoch: int = 200
    num_hidden: int = 0
    dropout: float = 0.0


@dataclass(frozen=True)
class Problem:
    """A classification problem of n examples.

    Attributes:
        features: the features of the examples of all splits, one row for each example.
        labels: the class index of each example, (n,) int64.
        num_classes: the number of classes.
        splits: `train`, `dev` or `test` -> row indices of the split's examples; only `run_scheme` needs it.
    """

    features: Features
    labels: Ints
    num_classes: int
    splits: Mapping[str, Ints] = field(default_factory=dict)


@dataclass(frozen=True)
class Fold:
    """The rows of a problem that a classifier uses.

    Attributes:
        train: the row indices of the training examples, (n,) int64.
        dev: the row indices of the examples for early stopping, int64. None to draw 5 % of `train` for early stopping
            (`HELD_OUT`), and to train on the rest.
    """

    train: Ints
    dev: Ints | None = None


@dataclass
class Fits:
    """The trained classifiers, one for each fold and L2 value.

    Attributes:
        layers: the weights of each layer, (folds, L2 values, outputs, width). In the last dimension, the bias follows
            the weights of the inputs, and zeros fill the rest up to the width, a multiple of 16. They are the weights
            that had the best dev accuracy.
        dev_accuracy: the best dev accuracy of each classifier, (folds, L2 values) float64, from 0 to 1.
        num_epochs: the number of passes until the training of each classifier stopped, (folds, L2 values) int64.
    """

    layers: list[Tensor]
    dev_accuracy: NDArray[np.float64]
    num_epochs: Ints

    @torch.no_grad()
    def predict(self, features: Features, rows: Ints, fold: int = 0, l2: int = 0) -> Ints:
        """Return the class index that one of the classifiers predicts for each of n rows, (n,) int64.

        Args:
            features: the features of the problem.
            rows: the indices of the rows in the features, (n,) int64.
            fold, l2: the index of the classifier's fold, and the index of its L2 value among those of the fold.
        """
        layers = [layer[fold, l2][None] for layer in self.layers]
        at = torch.from_numpy(rows).to(layers[0].device)
        classes: Ints = predict(layers, features, at)[0].cpu().numpy()
        return classes


@torch.no_grad()
def fit(
    problem: Problem,
    folds: Sequence[Fold],
    l2: NDArray[np.float64],
    settings: ClassifierSettings,
    seed: int = 1111,
    device: str = "cpu",
    progress: str = "",
) -> Fits:
    """Train a classifier for each fold and L2 value.

    Args:
        problem: the features and labels.
        folds: the rows of the training and dev examples of each fold. If `Fold.dev` is None, dev rows are drawn.
        l2: the L2 values of each fold, (folds, L2 values).
        seed: the seed of the initial weights, of the order of rows, and of the dev rows that are drawn.
        device: the torch device on which the classifiers are trained.
        progress: the name of the progress bar; "" for no bar.

    Raises:
        ValueError: a fold has no training rows, an empty `dev`, or fewer than 20 rows to draw dev rows from.
    """
    splits = [_split(fold, seed) for fold in folds]
    if any(len(split.train) == 0 or len(split.dev) == 0 for split in splits):
        raise ValueError("a fold has no training rows or no dev rows")
    initial, drawn = initial_layers(problem.features.dim, settings.num_hidden, problem.num_classes, seed)
    initial = [layer.to(device) for layer in initial]
    fits = Fits(
        [layer.expand(*l2.shape, *layer.shape).clone() for layer in initial],
        np.zeros(l2.shape),
        np.zeros(l2.shape, np.int64),
    )
    y = torch.from_numpy(problem.labels).to(device)
    most = _CPU_BATCH if device == "cpu" else _ACCELERATOR_BATCH
    at_once = max(1, most // (4 * settings.batch_size * padded(problem.features.dim)))
    with ProgressBar(l2.size, progress, not progress, unit=" fits") as bar:

        def train(members: list[int]) -> None:
            decay = torch.from_numpy(l2[members].astype(np.float32)).to(device)
            classifiers = Classifiers(problem.features, initial, decay, settings.optimizer)
            cohort = _Cohort(classifiers, y, [splits[member] for member in members], settings, seed, drawn)
            cohort.run(fits, np.array(members), bar)

        _train_each(train, list(_cohorts(splits, settings.batch_size, at_once)), device)
    return fits


def _train_each(train: Callable[[list[int]], None], cohorts: list[list[int]], device: str) -> None:
    """Call `train` for each cohort, which is a list of folds whose classifiers are trained together.

    On a CPU, several cohorts are trained at once, each by one thread, because the matrix products of a cohort
    are too small to be divided among threads. On any other device, they are trained one after another.

    Args:
        train: function that trains the classifiers of the folds with the indices that it is given.
        cohorts: the indices of the folds in each cohort.
        device: the torch device on which `train` computes.
    """
    num_threads = torch.get_num_threads()
    if device != "cpu" or num_threads == 1:
        for members in cohorts:
            train(members)
        return
    with ThreadPoolExecutor(num_threads, initializer=lambda: torch.set_num_threads(1)) as pool:
        try:
            list(pool.map(torch.no_grad()(train), cohorts))
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(num_threads)


@dataclass(frozen=True)
class _Split:
    """The training rows and the dev rows of a fold. If the fold had no dev rows, some training rows became dev rows.

    Attributes:
        train, dev: the row indices of the training examples and of the dev examples, int64.
        first_draw: the size of the random permutation that chose the dev rows; 0 if the fold already had dev rows.
    """

    train: Ints
    dev: Ints
    first_draw: int

    @property
    def stream(self) -> tuple[int, int]:
        """The key of the fold's random numbers: `first_draw`, and the number of training rows.

        `first_draw` is the size of the permutation that was drawn to choose dev rows, or 0 if none was drawn.
        Folds with the same key draw their training rows in the same order.
        """
        return self.first_draw, len(self.train)


def _split(fold: Fold, seed: int) -> _Split:
    if fold.dev is not None:
        return _Split(fold.train, fold.dev, 0)
    num = len(fold.train)
    order = np.random.RandomState(seed).permutation(num)
    num_dev = int(HELD_OUT * num)
    return _Split(fold.train[order[num_dev:]], fold.train[order[:num_dev]], num)


def _cohorts(splits: Sequence[_Split], batch_size: int, at_once: int) -> Iterator[list[int]]:
    """Yield lists of at most `at_once` folds that have the same number of batches in a pass, to train them together."""
    by_steps: dict[int, list[int]] = {}
    for number, split in enumerate(splits):
        by_steps.setdefault(-(-len(split.train) // batch_size), []).append(number)
    for members in by_steps.values():
        num = -(-len(members) // at_once)
        yield from (part.tolist() for part in np.array_split(members, num))


class _Cohort:
    """Folds whose classifiers are trained together. All folds have the same number of batches per pass."""

    def __init__(
        self,
        fits: Classifiers,
        labels: Tensor,
        splits: list[_Split],
        settings: ClassifierSettings,
        seed: int,
        drawn: Tensor,
    ) -> None:
        self.classifiers = fits
        self.labels = labels
        self.splits = splits
        self.settings = settings
        self.dev = [torch.from_numpy(split.dev).to(labels.device) for split in splits]
        self.orders: dict[tuple[int, int], np.random.RandomState] = {}
        self.dropout_generators: dict[tuple[int, int], torch.Generator] = {}
        for split in splits:
            self.orders[split.stream] = np.random.RandomState(seed)
            if split.first_draw:
                self.orders[split.stream].permutation(split.first_draw)
            self.dropout_generators[split.stream] = torch.Generator().set_state(drawn)

    def run(self, fits: Fits, members: Ints, bar: ProgressBar) -> None:
        """Train until every classifier has stopped, and write the results to `fits`.

        Args:
            fits: the results of all folds.
            members: the indices in `fits` of this cohort's folds.
            bar: the progress bar, which advances when a classifier stops.
        """
        settings = self.settings
        shape = len(members), fits.num_epochs.shape[1]
        fold, slot = np.broadcast_arrays(members[:, None], np.arange(shape[1]))
        best = np.full(shape, -1)
        stalls = np.zeros(shape, np.int64)
        active = np.ones(shape, bool)
        epochs = 0
        while active.any() and epochs <= settings.max_epoch:
            for _ in range(settings.epoch_size):
                self._pass()
            epochs += settings.epoch_size
            correct = self._correct()
            better = active & (correct > best)
            self._copy_best(fits, better, fold[better], slot[better])
            best[better] = correct[better]
            stalled = active & ~better
            stopping = stalled & (stalls >= settings.tenacity)
            stalls += stalled
            fits.num_epochs[fold[active], slot[active]] = epochs
            sizes = np.array([[len(dev)] for dev in self.dev])
            fits.dev_accuracy[fold[better], slot[better]] = (best / sizes)[better]
            active &= ~stopping
            bar.update(int(stopping.sum()))
            if stopping.any():
                remaining = self._compact(active)
                fold, slot, best, stalls, active = (array[remaining] for array in (fold, slot, best, stalls, active))
        bar.update(int(active.sum()))

    def _copy_best(self, fits: Fits, better: NDArray[np.bool_], fold: Ints, slot: Ints) -> None:
        device = self.labels.device
        improved = torch.from_numpy(better).to(device)
        places = torch.from_numpy(fold).to(device), torch.from_numpy(slot).to(device)
        for target, weights in zip(fits.layers, self.classifiers.weights, strict=True):
            target[places] = weights[improved]

    def _compact(self, active: NDArray[np.bool_]) -> tuple[Ints, Ints]:
        """Drop folds without an active classifier and, as far as possible, the inactive classifiers of other folds.

        The n remaining folds must all have the same number m of classifiers, which is the largest number of active
        classifiers in a fold. A fold with fewer active classifiers therefore keeps some inactive ones.

        Args:
            active: true for a classifier whose training has not stopped, (folds, L2 values) bool.

        Returns:
            The indices in `active` of the remaining folds, (n, 1), and of the L2 values of their classifiers, (n, m).
        """
        folds = np.flatnonzero(active.any(axis=1))
        most = int(active.sum(axis=1).max())
        slots = np.argsort(~active[folds], axis=1, kind="stable")[:, :most]
        self.classifiers.keep(*(torch.from_numpy(array).to(self.labels.device) for array in (folds, slots)))
        self.splits = [self.splits[number] for number in folds]
        self.dev = [self.dev[number] for number in folds]
        return folds[:, None], slots

    def _correct(self) -> Ints:
        """Return the number of dev rows that each classifier classifies correctly, (folds, L2 values) int64."""
        counts = [
            (self.classifiers.predict(number, rows) == self.labels[rows]).sum(dim=1)
            for number, rows in enumerate(self.dev)
        ]
        correct: Ints = torch.stack(counts).cpu().numpy()
        return correct

    def _pass(self) -> None:
        """Train the classifiers of each fold for one pass over the fold's training rows."""
        size = self.settings.batch_size
        lengths = np.array([len(split.train) for split in self.splits])
        steps = -(-int(lengths.max()) // size)
        drawn = {stream: self.orders[stream].permutation(stream[1]) for stream in {s.stream for s in self.splits}}
        order = np.zeros((len(self.splits), steps * size), np.int64)
        for row, split in zip(order, self.splits, strict=True):
            row[: len(split.train)] = split.train[drawn[split.stream]]
        rows = torch.from_numpy(np.ascontiguousarray(order.reshape(-1, steps, size).swapaxes(0, 1)))
        rows = rows.to(self.labels.device)
        labels = self.labels[rows]
        for step in range(steps - 1):
            self.classifiers.step(rows[step], labels[step], 1 / size, dropout=self._dropout(size, None))
        rest = lengths - (steps - 1) * size
        width = int(rest.max())
        weights = (np.arange(width) < rest[:, None]) / rest[:, None]
        share = torch.from_numpy(weights.astype(np.float32)).to(self.labels.device)
        dropout = self._dropout(width, share)
        self.classifiers.step(rows[-1, :, :width].contiguous(), labels[-1, :, :width], 1.0, share, dropout)

    def _dropout(self, batch: int, shares: Tensor | None) -> Tensor | None:
        """Return the factors by which dropout multiplies the hidden layer's pre-activations for one batch of each fold.

        They are (folds, 1, hidden, batch), and equal the factors that `torch.nn.Dropout` draws on a CPU: 0, or
        1 / (1 - dropout rate). The result is None if the dropout rate is 0.

        Args:
            batch: the number of rows in each batch or, if the batches have different sizes, in the largest.
            shares: the weights of the rows, (folds, batch), if the batches have different sizes, as at the end of a
                pass; 0 for a row that pads a smaller batch. None if all batches have `batch` rows.
        """
        rate = self.settings.dropout
        if rate == 0:
            return None
        lengths = {split.stream: batch for split in self.splits}
        if shares is not None:
            lengths = {split.stream: int((share > 0).sum()) for split, share in zip(self.splits, shares, strict=True)}
        drawn = {}
        for stream, length in lengths.items():
            drawn[stream] = torch.zeros(batch, self.settings.num_hidden)
            drawn[stream][:length].bernoulli_(1 - rate, generator=self.dropout_generators[stream]).div_(1 - rate)
        return torch.stack([drawn[split.stream].mT[None] for split in self.splits]).to(self.labels.device)
