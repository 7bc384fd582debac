"""Train many classifiers of one shape together: forward, gradients and optimizer are written out.

    rows (folds, batch, d) ──W──> logits (folds, L2 values x classes, batch) ──softmax──> errors ──> gradients ──> W

All L2 values of a fold share their rows, so one matrix product serves them all. The batch is the last dimension of the
logits: the softmax then uses whole vector registers, and the gradient has the layout of the weights.
"""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from clearspan.eval.fit.features import Features, padded

_BLOCK = 1024  # rows per matrix product in prediction


def initial_layers(dim: int, num_hidden: int, num_classes: int, seed: int) -> tuple[list[Tensor], Tensor]:
    """Return the initial layers, each (outputs, padded(inputs)), and the state of torch's generator afterwards.

    The weights are the numbers that torch draws directly after seeding.
    """
    sizes = [dim, num_hidden, num_classes] if num_hidden else [dim, num_classes]
    layers = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for inputs, outputs in itertools.pairwise(sizes):
            linear = nn.Linear(inputs, outputs)
            layer = torch.zeros(outputs, padded(inputs))
            layer[:, :inputs] = linear.weight
            layer[:, inputs] = linear.bias
            layers.append(layer)
        return layers, torch.get_rng_state()


class _Layer:
    """The weights of one layer of all fits, (folds, L2 values, outputs, inputs), and its optimizer state."""

    def __init__(self, weights: Tensor, optimizer: str) -> None:
        self.weights = weights
        self.optimizer = optimizer
        self.mean = torch.zeros_like(weights)
        self.square = torch.zeros_like(weights)
        self.scratch = weights.clone()

    def keep(self, at: tuple[Tensor, Tensor]) -> None:
        """Drop all fits except those at these folds and L2 values."""
        self.weights, self.mean, self.square = self.weights[at], self.mean[at], self.square[at]
        self.scratch = self.weights.clone()

    def step(self, inputs: Tensor, errors: Tensor, share: float, decay: Tensor, step: int) -> None:
        """Update the weights once by the mean gradient.

        Args:
            inputs: (n, batch, inputs) for n folds or n fits.
            errors: (n, outputs, batch), the gradients of the loss by the outputs.
            share: weight of one row in the mean.
            decay: L2, (folds, L2 values, 1, 1).
            step: number of this update, from 1.
        """
        gradient = torch.mul(self.weights, decay, out=self.scratch)
        gradient.view(len(inputs), -1, inputs.shape[2]).baddbmm_(errors, inputs, alpha=share)
        # The moments omit their factors 1 - beta, which the scalars include: this saves an operation for each.
        if self.optimizer == "adam":
            lr, beta1, beta2, eps = 1e-3, 0.9, 0.999, 1e-8
            torch.add(gradient, self.mean, alpha=beta1, out=self.mean)
            self.square.mul_(beta2).addcmul_(gradient, gradient)
            scale = ((1 - beta2) / (1 - beta2**step)) ** 0.5
            rate = lr * (1 - beta1) / (1 - beta1**step) / scale
            root = torch.sqrt(self.square, out=self.scratch).add_(eps / scale)
            self.weights.addcdiv_(self.mean, root, value=-rate)
        else:
            lr, alpha, eps = 1e-2, 0.99, 1e-8
            self.square.mul_(alpha).addcmul_(gradient, gradient)
            scale = (1 - alpha) ** 0.5
            root = torch.sqrt(self.square, out=self.mean).add_(eps / scale)
            self.weights.addcdiv_(gradient, root, value=-lr / scale)


class Classifiers:
    """Fits (folds, L2 values) of one shape, all at the same step.

    Args:
        initial: the initial weights that all fits share, by layer (outputs, inputs).
        decay: L2, (folds, L2 values).
    """

    def __init__(self, features: Features, initial: Sequence[Tensor], decay: Tensor, optimizer: str) -> None:
        self._features = features
        self._decay = decay[:, :, None, None]
        self._layers = [_Layer(layer.expand(*decay.shape, *layer.shape).clone(), optimizer) for layer in initial]
        self._num_hidden = len(initial[0]) if len(initial) > 1 else 0
        self._num_steps = 0
        self._classes = torch.arange(len(initial[-1]), device=decay.device)[:, None]

    @property
    def weights(self) -> list[Tensor]:
        """The weights by layer, (folds, L2 values, outputs, inputs)."""
        return [layer.weights for layer in self._layers]

    def keep(self, folds: Tensor, slots: Tensor) -> None:
        """Keep only the fits of these folds (n,) with these L2 values of each fold (n, m); drop all others."""
        at = (folds[:, None], slots)
        for layer in self._layers:
            layer.keep(at)
        self._decay = self._decay[at]

    def predict(self, fold: int, rows: Tensor) -> Tensor:
        """Return the class of each row (n,) by the fits of a fold: (L2 values, n)."""
        return predict([layer.weights[fold] for layer in self._layers], self._features, rows)

    def step(
        self, rows: Tensor, labels: Tensor, share: float, shares: Tensor | None = None, dropout: Tensor | None = None
    ) -> None:
        """Update every fit once.

        Args:
            rows, labels: (folds, batch) int64.
            share: weight of a row in the mean loss; multiplied by `shares` (folds, batch) where folds differ in size.
            dropout: factors (folds, 1, hidden, batch) of the hidden layer.
        """
        self._num_steps += 1
        folds, batch = rows.shape
        first, last = self._layers[0], self._layers[-1]
        hidden = self._num_hidden
        l2s, classes = self._decay.shape[1], last.weights.shape[2]
        x = self._features.take(rows.view(-1), first.weights.new_empty(folds * batch, first.weights.shape[3]))
        x = x.view(folds, batch, -1)
        if hidden:
            before = torch.bmm(first.weights.view(folds, l2s * hidden, -1), x.mT).view(folds, l2s, hidden, batch)
            if dropout is not None:
                before.mul_(dropout)
            inputs = before.new_empty(folds * l2s, padded(hidden), batch)
            active = torch.sigmoid(before.view(folds * l2s, hidden, batch), out=inputs[:, :hidden])
            inputs[:, hidden] = 1
            inputs[:, hidden + 1 :] = 0
            logits = torch.bmm(last.weights.view(folds * l2s, classes, -1), inputs)
        else:
            logits = torch.bmm(last.weights.view(folds, l2s * classes, -1), x.mT)
        errors = torch.softmax(logits.view(folds, l2s, classes, batch), dim=2)
        errors.sub_((labels[:, None, None] == self._classes).float())
        if shares is not None:
            errors.mul_(shares[:, None, None])
        if hidden:
            errors = errors.view(folds * l2s, classes, batch)
            slopes = torch.addcmul(active, active, active, value=-1)
            slopes.mul_(torch.bmm(last.weights.view(folds * l2s, classes, -1)[:, :, :hidden].mT, errors))
            last.step(inputs.mT, errors, share, self._decay, self._num_steps)
            errors = slopes.view(folds, l2s, hidden, batch)
            if dropout is not None:
                errors.mul_(dropout)
        first.step(x, errors.view(folds, -1, batch), share, self._decay, self._num_steps)


def predict(layers: Sequence[Tensor], features: Features, rows: Tensor) -> Tensor:
    """Return the class of each row (n,) by the fits of a fold: (fits, n) from layers (fits, outputs, inputs)."""
    first, last = layers[0], layers[-1]
    classes = []
    for block in torch.split(rows, _BLOCK):
        x = features.take(block, first.new_empty(len(block), first.shape[2]))
        outputs = (first.flatten(0, 1) @ x.mT).view(*first.shape[:2], -1)
        if len(layers) > 1:
            inputs = outputs.new_zeros(len(outputs), last.shape[2], len(block))
            torch.sigmoid(outputs, out=inputs[:, : first.shape[1]])
            inputs[:, first.shape[1]] = 1
            outputs = last @ inputs
        classes.append(outputs.argmax(dim=1))
    return torch.cat(classes, dim=1)
