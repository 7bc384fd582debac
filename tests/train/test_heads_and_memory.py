"""What DeCLUTR's first version adds to the contrast (its Figure S1): projection heads and a cross-batch memory."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from pytorch_metric_learning.losses import CrossBatchMemory, NTXentLoss

from clearspan.shards import Dataset
from clearspan.train.config.options import RecipeError
from clearspan.train.data.stream import StreamState
from clearspan.train.model.losses import nt_xent
from clearspan.train.model.memory_bank import Memory
from clearspan.train.recipe import load_recipe
from clearspan.train.start.build_streams import build_feed
from clearspan.train.step.learner import Learner
from tests.train.ranks import run_on_ranks
from tests.train.test_learner import learner_and_batch

HEAD = ["objectives.spans.head=relu", "objectives.spans.head_dim=16", "objectives.spans.head_hidden=16"]
MEMORY = "objectives.spans.memory=24"


def pooled(learner: Learner, batches: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """The vectors of a batch's anchors and of its positives, as an objective sees them."""
    (spans,) = (one for one in learner.of_turn("all") if one.name == "spans")
    seen: list[torch.Tensor] = []
    hook = spans.head.register_forward_hook(lambda module, given, made: seen.append(given[0]))
    learner(batches)
    hook.remove()
    count = len(batches["text"].ids) * spans.config.sampler.num_anchors
    return seen[0][:count], seen[0][count:]


def test_v1s_head_is_two_matrices_and_relu_over_each_span_before_the_mean(tiny: list[str]) -> None:
    """Eq. 1 of v1: W2 ReLU(W1 e), no bias; positives are averaged after it, as in the published code."""
    options = [*tiny, *HEAD, "objectives.spans.sampler.num_positives=2"]
    learner, batches, _ = learner_and_batch(options)
    first, second = dict(learner.objectives[0].named_parameters()).values()
    assert (first.shape, second.shape) == ((16, 32), (16, 16))
    anchors, positives = (F.relu(rows @ first.T) @ second.T for rows in pooled(learner, batches))
    expected = nt_xent(anchors, positives.view(len(anchors), 2, 16).mean(1), 0.05)
    _, metrics = learner(batches)
    assert metrics["spans/loss"].item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize(
    ("options", "shapes"),
    [
        ("head=none", []),
        ("head=tanh", [(32, 32)]),
        ("head=tanh head_dim=8 head_bias=true", [(8, 32), (8,)]),
        ("head=relu", [(32, 32), (32, 32)]),
        ("head=linear head_dim=8", [(32, 32), (8, 32)]),
        ("head=relu head_dim=8 head_hidden=64 head_bias=true", [(64, 32), (64,), (8, 64), (8,)]),
    ],
)
def test_a_head_has_the_layers_that_are_asked_for(tiny: list[str], options: str, shapes: list[tuple[int, ...]]) -> None:
    learner, *_ = learner_and_batch([*tiny, *(f"objectives.spans.{option}" for option in options.split())])
    assert [tuple(p.shape) for p in learner.objectives[0].parameters()] == shapes


def test_a_width_of_no_head_is_refused(tiny: list[str]) -> None:
    with pytest.raises(RecipeError, match=r"objectives\.spans: head_dim 8 .*head: none"):
        load_recipe("demo", [*tiny, "output=unused", "objectives.spans.head_dim=8"])


def batches_of_vectors(count: int = 5) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Anchors and positives of micro-batches, (6, 16) each."""
    drawn = torch.randn(count, 2, 6, 16, generator=torch.Generator().manual_seed(0))
    return [(anchors.requires_grad_(), positives.requires_grad_()) for anchors, positives in drawn]


def remembering(batches: list[tuple[torch.Tensor, torch.Tensor]], memory: Memory) -> list[torch.Tensor]:
    """Each micro-batch's loss, one after the other."""
    return [memory.nt_xent(anchors, positives, 0.05) for anchors, positives in batches]


def test_the_losses_are_those_of_other_peoples_memory() -> None:
    """pytorch-metric-learning's CrossBatchMemory, which compares a batch with a queue that the batch is in."""
    size, batches = 60, batches_of_vectors()
    theirs = CrossBatchMemory(NTXentLoss(temperature=0.05), embedding_size=16, memory_size=size)
    for number, ours in enumerate(remembering(batches, Memory(size, 16))):
        labels = (torch.arange(6) + 6 * number).repeat(2)
        expected = theirs(torch.cat(batches[number]), labels)
        assert ours.item() == pytest.approx(expected.item(), rel=1e-5), number


def test_a_memory_is_empty_at_first_and_lets_go_of_the_oldest() -> None:
    batches, memory = batches_of_vectors(), Memory(18, 16)
    losses = remembering(batches, memory)
    assert torch.equal(losses[0], nt_xent(*batches[0], 0.05))
    assert all(loss > nt_xent(*batch, 0.05) for loss, batch in zip(losses[1:], batches[1:], strict=True))
    last, before = (torch.cat(batch) for batch in (batches[-1], batches[-2]))
    assert torch.equal(memory.vectors, F.normalize(torch.cat([last, before[:6]])))


def test_no_gradient_goes_into_the_memory() -> None:
    batches, memory = batches_of_vectors(2), Memory(24, 16)
    sum(remembering(batches, memory)).backward()
    (alone,) = torch.autograd.grad(nt_xent(*batches[0], 0.05), batches[0][0])
    assert not memory.vectors.requires_grad
    torch.testing.assert_close(batches[0][0].grad, alone)


def test_nothing_is_remembered_outside_of_training() -> None:
    batches, memory = batches_of_vectors(2), Memory(24, 16)
    with torch.no_grad():
        remembering(batches, memory)
    remembering(batches, memory.eval())
    assert not memory.vectors.any()


def steps(overrides: list[str], rank: int = 0, ranks: int = 1) -> list[torch.Tensor]:
    """Loss and gradients of the third micro-batch, and the memory after it."""
    learner, _, recipe = learner_and_batch(overrides, rank, ranks)
    feed = build_feed(recipe, {"text": Dataset(recipe.data["text"].path)}, learner, rank, ranks)
    batches = feed.streams["text"].batches(StreamState(), learner.columns("text"), learner.collate)
    for _ in range(3):
        learner.zero_grad()
        loss, _ = learner({"text": next(batches)[0]})
        loss.backward()
    grads = [p.grad for p in learner.parameters() if p.grad is not None]
    return [loss.detach(), learner.objectives[0].memory.vectors, *grads]


@dataclasses.dataclass
class StepsOnARank:
    overrides: list[str]

    def __call__(self, rank: int, ranks: int) -> list[torch.Tensor]:
        return steps(self.overrides, rank, ranks)


@pytest.mark.slow
def test_two_ranks_remember_what_one_does_in_its_order(tiny: list[str]) -> None:
    """Of losses and gradients the mean over ranks is that of one; each rank holds the whole memory."""
    options = [*tiny, MEMORY, *HEAD]
    loss, vectors, *grads = steps(options)
    found = run_on_ranks(StepsOnARank(options), 2)
    for _, own, *_ in found:
        torch.testing.assert_close(own, vectors, atol=1e-5, rtol=0)
    for expected, *parts in zip([loss, *grads], *([one[0], *one[2:]] for one in found), strict=True):
        torch.testing.assert_close(sum(parts) / 2, expected, atol=1e-5, rtol=1e-4)
