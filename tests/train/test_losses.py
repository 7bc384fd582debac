"""Losses against other people's implementations and against one rank."""

import pytest
import torch
from pytorch_metric_learning.losses import NTXentLoss

from tests.train.ranks import run_on_ranks
from train.losses import alignment, masked_lm, nt_xent, uniformity


def pairs(count: int, dim: int = 16, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    anchors, positives = torch.randn(2, count, dim, generator=torch.Generator().manual_seed(seed))
    return anchors.requires_grad_(), positives.requires_grad_()


@pytest.mark.parametrize("temperature", [0.05, 0.5])
@pytest.mark.parametrize("count", [2, 7, 64])
def test_nt_xent_equals_pytorch_metric_learning(count: int, temperature: float) -> None:
    anchors, positives = pairs(count)
    labels = torch.arange(count).repeat(2)
    theirs = NTXentLoss(temperature=temperature)(torch.cat([anchors, positives]), labels)
    ours = nt_xent(anchors, positives, temperature)
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-6, rel=1e-6)
    for parameter in (anchors, positives):
        (expected,) = torch.autograd.grad(theirs, parameter, retain_graph=True)
        (found,) = torch.autograd.grad(ours, parameter, retain_graph=True)
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)


def test_nt_xent_is_computed_in_fp32_under_autocast() -> None:
    anchors, positives = pairs(8)
    expected = nt_xent(anchors, positives, 0.05)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(nt_xent(anchors, positives, 0.05), expected)


def nt_xent_on_a_rank(rank: int, ranks: int) -> list[torch.Tensor]:
    anchors, positives = pairs(8)
    part = slice(rank * 8 // ranks, (rank + 1) * 8 // ranks)
    loss = nt_xent(anchors[part], positives[part], 0.05)
    loss.backward()
    return [loss.detach(), anchors.grad, positives.grad]


def masked_lm_on_a_rank(rank: int, ranks: int) -> list[torch.Tensor]:
    logits = torch.randn(10, 30, generator=torch.Generator().manual_seed(3)).requires_grad_()
    labels = torch.arange(10)
    labels[4] = -100
    part = slice(0, 10) if ranks == 1 else (slice(0, 3), slice(3, 10))[rank]
    loss = masked_lm(logits[part], labels[part])
    loss.backward()
    return [loss.detach(), logits.grad]


@pytest.mark.parametrize("on_a_rank", [nt_xent_on_a_rank, masked_lm_on_a_rank])
def test_two_ranks_give_the_loss_and_gradients_of_one(on_a_rank) -> None:
    """The mean over ranks, which is what DeepSpeed takes of the gradients."""
    one, two = on_a_rank(0, 1), run_on_ranks(on_a_rank, 2)
    for index, expected in enumerate(one):
        torch.testing.assert_close((two[0][index] + two[1][index]) / 2, expected, atol=1e-6, rtol=1e-5)


def test_masked_lm_of_no_masked_token_is_zero_and_differentiable() -> None:
    logits = torch.randn(3, 5, requires_grad=True)
    loss = masked_lm(logits, torch.full((3,), -100))
    loss.backward()
    assert loss.item() == 0 and torch.equal(logits.grad, torch.zeros(3, 5))


def test_alignment_and_uniformity_of_known_points() -> None:
    points = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    assert alignment(points, points).item() == 0
    assert alignment(points, points.flip(0)).item() == pytest.approx(2.0)
    assert uniformity(points).item() == pytest.approx(-4.0)
