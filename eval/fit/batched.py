"""Train many classifiers of one shape together, with the forward pass, the gradients and the optimizer written out.

    rows (folds, batch, features) ──weights──> logits (folds, L2 values x classes, batch) ──softmax──> errors
    errors, rows ──> gradients ──> weights

There is one classifier for each fold and each L2 value. The errors are the gradients of the loss with respect to the
logits: the softmax, minus 1 at the right class. The classifiers of a fold are trained on the same examples, so one
matrix product computes the logits of all of them. The batch is the last dimension of the logits, because the softmax
then uses whole vector registers, and the gradients have the layout of the weights.
"""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from clearspan.eval.fit.features import Features, padded

_BLOCK = 1024  # rows per matrix product in prediction


def initial_layers(dim: int, num_hidden: int, num_classes: int, seed: int) -> tuple[list[Tensor], Tensor]:
    """Return the initial weights of each layer, and the state of torch's random generator after they are drawn.

    The weights of a layer are (outputs, width) float32. The first columns are the weights of the inputs, the next one
    is the bias, and zeros fill the rest up to the width, a multiple of 16. The weights are the numbers that
    `torch.nn.Linear` draws directly after `torch.manual_seed(seed)`.

    Args:
        dim: the number of features.
        num_hidden: the size of the hidden layer; 0 for none.
        num_classes: the number of outputs of the last layer.
        seed: the seed. The state of torch's generator is restored afterwards.
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
    """One layer of all classifiers.

    Args:
        weights: the weights, (folds, L2 values, outputs, inputs), which `step` updates in place. The inputs include
            the bias and padding.
        optimizer: `adam` or `rmsprop`. The layer holds the state of the optimizer.
    """

    def __init__(self, weights: Tensor, optimizer: str) -> None:
        self.weights = weights
        self.optimizer = optimizer
        self.mean = torch.zeros_like(weights)
        self.square = torch.zeros_like(weights)
        self.scratch = weights.clone()

    def keep(self, indices: tuple[Tensor, Tensor]) -> None:
        """Drop the weights and the optimizer state of all classifiers except m classifiers of each of n folds.

        Args:
            indices: the indices of the n folds, (n, 1), and of the L2 values of their m classifiers, (n, m), int64.
        """
        self.weights, self.mean, self.square = self.weights[indices], self.mean[indices], self.square[indices]
        self.scratch = self.weights.clone()

    def step(self, inputs: Tensor, errors: Tensor, share: float, decay: Tensor, step: int) -> None:
        """Update the weights once, by the gradient of the mean loss.

        Args:
            inputs: the inputs of the layer, (n, batch, inputs). In a first layer, n is the number of folds, because all
                classifiers of a fold have the same inputs; otherwise it is the number of classifiers.
            errors: the gradients of each example's loss with respect to the outputs of the layer, (n, k, batch). In a
                first layer, k counts the outputs of all classifiers of a fold; otherwise, those of one classifier.
            share: the weight of an example in the mean loss.
            decay: the L2 value of each classifier, (folds, L2 values, 1, 1).
            step: the number of this update, from 1.
        """
        gradient = torch.mul(self.weights, decay, out=self.scratch)
        gradient.view(len(inputs), -1, inputs.shape[2]).baddbmm_(errors, inputs, alpha=share)
        # The running averages leave out their factors 1 - beta. The scalars include them, which saves two operations.
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
    """A classifier for each fold and each L2 value. All have the same shape and are updated together.

    Args:
        features: the features of all examples.
        initial: the initial weights of each layer, (outputs, inputs), which are the same for all classifiers. The
            inputs include the bias and padding.
        decay: the L2 values, (folds, L2 values).
        optimizer: `adam` or `rmsprop`.
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
        """The weights of each layer, (folds, L2 values, outputs, inputs). The inputs include the bias and padding."""
        return [layer.weights for layer in self._layers]

    def keep(self, folds: Tensor, slots: Tensor) -> None:
        """Keep m classifiers of each of n folds, and drop all others.

        Args:
            folds: the indices of the n folds, (n,) int64.
            slots: for each of these folds, the indices of the L2 values whose classifiers stay, (n, m) int64.
        """
        at = (folds[:, None], slots)
        for layer in self._layers:
            layer.keep(at)
        self._decay = self._decay[at]

    def predict(self, fold: int, rows: Tensor) -> Tensor:
        """Return the class index that each classifier of a fold predicts for n examples, (L2 values, n) int64.

        Args:
            rows: the row indices of the examples in the features, (n,) int64.
        """
        return predict([layer.weights[fold] for layer in self._layers], self._features, rows)

    def step(
        self,
        rows: Tensor,
        labels: Tensor,
        row_weight: float,
        row_factors: Tensor | None = None,
        dropout: Tensor | None = None,
    ) -> None:
        """Update every classifier once.

        Args:
            rows: the indices of each fold's rows in the features, (folds, batch) int64.
            labels: the class indices of these rows, (folds, batch) int64.
            row_weight: the weight of each row in the mean loss, such as 1 / batch.
            row_factors: further weights by which `row_weight` is multiplied, (folds, batch), if the folds have batches
                of different sizes; 0 for a row that pads a shorter batch. None if all rows have the weight
                `row_weight`.
            dropout: a mask by which the pre-activations of the hidden layer are multiplied, (folds, 1, hidden, batch),
                the same for all L2 values; None for no dropout.
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
        if row_factors is not None:
            errors.mul_(row_factors[:, None, None])
        if hidden:
            errors = errors.view(folds * l2s, classes, batch)
            slopes = torch.addcmul(active, active, active, value=-1)
            slopes.mul_(torch.bmm(last.weights.view(folds * l2s, classes, -1)[:, :, :hidden].mT, errors))
            last.step(inputs.mT, errors, row_weight, self._decay, self._num_steps)
            errors = slopes.view(folds, l2s, hidden, batch)
            if dropout is not None:
                errors.mul_(dropout)
        first.step(x, errors.view(folds, -1, batch), row_weight, self._decay, self._num_steps)


def predict(layers: Sequence[Tensor], features: Features, rows: Tensor) -> Tensor:
    """Return the class index that each classifier predicts for n examples, (classifiers, n) int64.

    Args:
        layers: the weights of each layer, (classifiers, outputs, inputs). The inputs include the bias and padding.
        rows: the row indices of the n examples in the features, (n,) int64.
    """
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
