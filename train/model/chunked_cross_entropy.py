"""Logits and cross-entropy over the vocabulary in chunks of rows, so that all logits are never stored at once.

    states (k, h), decoder (V, h) -> for each chunk of rows: logits -> log-softmax -> loss, gradient -> the next chunk

A row is one of k masked tokens, h is the width of the states, and V is the size of the vocabulary. The gradient is
computed in the forward pass, so only one chunk of logits exists at any time. The matrix products have the dtype of
autocast; the softmax is in fp32.

Every forward pass copies the decoder's weight in that dtype. On CUDA this copy is padded to a multiple of 64 rows,
because matrix products have no aligned kernel for an odd vocabulary such as RoBERTa's 50,265 ids. The added ids have a
bias of -inf, and therefore no probability and no gradient. The parameters themselves are not padded, nor are
checkpoints and exports.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from clearspan.common.encoder.autocast import in_fp32
from clearspan.train.collectives import sum_over_ranks, world

IGNORED = -100
"""The label of a slot that holds no masked token; PyTorch's default `ignore_index`."""
ALIGNED = {"cuda": 64}
"""The vocabulary is padded to a multiple of this number, by device; on other devices it is not padded."""
ALIGNED_ROWS = 64
"""A chunk that has more rows than this number has a multiple of this number."""
CHUNK_BYTES = {"cuda": 1 << 28, "cpu": 1 << 26}
"""The maximum size of a chunk's fp32 logits in bytes, by device. On a GPU this makes matrix products of more than 1,000
rows; on a CPU it is not far beyond the caches.
"""


def masked_lm(states: Tensor, decoder: nn.Linear, labels: Tensor, measured: bool = False) -> tuple[Tensor, Tensor]:
    """Return the loss and the accuracy of a masked LM, two scalars.

    The loss is in fp32. Its mean over ranks is the mean cross-entropy over the masked tokens of all ranks, even if
    ranks have different numbers of masked tokens. The accuracy is the fraction of this rank's masked tokens whose
    original id has the highest logit. It has no gradient.

    Args:
        states: the inputs of the decoder at k masked positions, (k, h), any float type.
        decoder: the linear layer from the width h of the states to the vocabulary.
        labels: the original ids, (k,) int64; -100 (`IGNORED`) for a row that has no masked token.
        measured: True to compute the accuracy; False to return 0 in its place.
    """
    count = (labels != IGNORED).sum()
    summed, correct = cross_entropy(states, decoder, labels, measured)
    return summed * world()[1] / sum_over_ranks(count).clamp(min=1), correct / count.clamp(min=1)


def cross_entropy(
    states: Tensor, decoder: nn.Linear, labels: Tensor, counted: bool = False, multiple: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return the summed cross-entropy of k rows of logits, and the number of correct predictions, two scalars.

    A prediction is correct if the row's label has the highest logit. The number is fp32, without gradient.

    Args:
        states: the inputs of the decoder, (k, h), any float type.
        decoder: the linear layer from the width h of the states to the vocabulary.
        labels: the correct ids, (k,) int64; a row with the label -100 (`IGNORED`) does not count.
        counted: True to count the correct predictions; False to return 0 in place of their number.
        multiple: the vocabulary is padded, for speed, to the next multiple of this number; None for 64 on CUDA, and no
            padding on other devices (`ALIGNED`).
    """
    device, weight, bias = states.device.type, decoder.weight, decoder.bias
    is_cast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)  # not on the meta device
    dtype = torch.get_autocast_dtype(device) if is_cast else weight.dtype
    multiple = multiple or ALIGNED.get(device, 1)
    rows = max(1, CHUNK_BYTES.get(device, CHUNK_BYTES["cpu"]) // (4 * len(weight)))
    rows -= rows % ALIGNED_ROWS if rows > ALIGNED_ROWS else 0
    differentiable = torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in (states, weight, bias)
    )
    options = dtype, multiple, rows, differentiable, counted
    loss, correct = _CrossEntropy.apply(states, weight, bias, labels, *options)  # type: ignore[no-untyped-call]
    return loss, correct


class _CrossEntropy(torch.autograd.Function):
    """The autograd function behind `cross_entropy`. It allows several backward passes, but no second derivatives."""

    @staticmethod
    @in_fp32
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        dtype: torch.dtype,
        multiple: int,
        rows: int,
        differentiable: bool,
        counted: bool,
    ) -> tuple[Tensor, Tensor]:
        matrix, offsets = _padded(weight, bias, dtype, multiple)
        given = zip((states, weight, bias), ctx.needs_input_grad, strict=False)
        gradients = [_accumulator(tensor) if differentiable and needed else None for tensor, needed in given]
        of_states, of_weight, of_bias = gradients
        precise = torch.promote_types(torch.float32, dtype)
        loss, correct = states.new_zeros((), dtype=precise), states.new_zeros((), dtype=torch.float32)
        for start in range(0, len(states), rows):
            chunk, target = states[start : start + rows].to(dtype), labels[start : start + rows]
            logits = torch.mm(chunk, matrix.T) if offsets is None else torch.addmm(offsets, chunk, matrix.T)
            scores = F.log_softmax(logits, 1, dtype=precise)
            del logits
            loss += F.nll_loss(scores, target, ignore_index=IGNORED, reduction="sum")
            if counted:
                correct += (scores.argmax(1) == target).sum()
            if not differentiable:
                continue
            gradient = _logit_gradient(scores, target).to(dtype)
            del scores
            if of_states is not None:
                of_states[start : start + rows] = gradient @ matrix
            if of_weight is not None and dtype == of_weight.dtype:
                of_weight.addmm_(gradient[:, : len(weight)].T, chunk)
            elif of_weight is not None:
                of_weight += (gradient.T @ chunk)[: len(weight)]
            if of_bias is not None:
                of_bias += gradient[:, : len(weight)].sum(0, dtype=of_bias.dtype)
        ctx.save_for_backward(*gradients)  # which frees them after the backward pass
        ctx.dtypes = [tensor.dtype for tensor in (states, weight, weight)]
        ctx.mark_non_differentiable(correct)
        return loss, correct

    @staticmethod
    @once_differentiable  # without `in_fp32`: on CUDA its end, in a thread of its own, would empty autocast's cache
    def backward(ctx: Any, of_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        pairs = zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        scaled = [None if gradient is None else (gradient * of_loss).to(dtype) for gradient, dtype in pairs]
        return (*scaled, None, None, None, None, None, None)


def _padded(weight: Tensor, bias: Tensor | None, dtype: torch.dtype, multiple: int) -> tuple[Tensor, Tensor | None]:
    """Return a decoder's weight and bias, cast to a dtype, with the vocabulary padded to a multiple of `multiple`.

    The added rows of the weight are 0, and the added elements of the bias are -inf. If the decoder has no bias, the
    returned bias is 0 except for the added elements; it is None if nothing is added.

    Args:
        weight: the decoder's weight, (V, h): V is the size of the vocabulary, h the width of the decoder's inputs.
        bias: the decoder's bias, (V,); None if it has none.
        dtype: the dtype of the result.
        multiple: the number of which the padded vocabulary is a multiple.
    """
    added = -len(weight) % multiple
    if not added:
        return weight.to(dtype), None if bias is None else bias.to(dtype)
    matrix = F.pad(weight.to(dtype), (0, 0, 0, added))
    offsets = weight.new_zeros(len(weight), dtype=dtype) if bias is None else bias.to(dtype)
    return matrix, F.pad(offsets, (0, added), value=-torch.inf)


def _accumulator(tensor: Tensor | None) -> Tensor | None:
    """Return zeros of a tensor's shape, in fp32 or a more precise dtype, to sum its gradient in; None for no tensor."""
    if tensor is None:
        return None
    return torch.zeros_like(tensor, dtype=torch.promote_types(torch.float32, tensor.dtype))


def _logit_gradient(scores: Tensor, target: Tensor) -> Tensor:
    """Return the gradient of the summed cross-entropy with respect to the logits, (k, V). It overwrites `scores`.

    Args:
        scores: the log-softmax of k rows of logits over a vocabulary of size V, (k, V).
        target: the labels, (k,) int64; -100 (`IGNORED`) for a row that does not count, whose gradient is 0.
    """
    used = (target != IGNORED)[:, None]
    gradient = scores.exp_()
    gradient.scatter_add_(1, target.clamp(min=0)[:, None], gradient.new_full((), -1.0).expand(len(target), 1))
    return gradient.mul_(used)
