"""Losses against other people's implementations and against one rank."""

import functools
import itertools

import pytest
import torch
from pytorch_metric_learning.losses import NTXentLoss
from torch.distributed.nn import functional

from clearspan.train import collectives
from clearspan.train.collectives import gather
from clearspan.train.model import losses
from clearspan.train.model.chunked_cross_entropy import masked_lm
from clearspan.train.model.losses import (
    _class_index,
    accuracy,
    alignment,
    gathered_index,
    info_nce,
    nt_xent,
    sup_con,
    uniformity,
)
from tests.train.ranks import run_on_ranks

SUP_CON = ("khosla", "paper", "published-code")


def pairs(count: int, dim: int = 16, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    anchors, positives = torch.randn(2, count, dim, generator=torch.Generator().manual_seed(seed))
    return anchors.requires_grad_(), positives.requires_grad_()


@pytest.mark.guarantee("ranks-as-one")
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


def masked_nt_xent_on_a_rank(rank: int, ranks: int) -> list[torch.Tensor]:
    """With false negatives and a memory of more negatives, of which a row is empty."""
    (anchors, positives), (memory, _) = pairs(8), pairs(5, seed=1)
    memory = torch.nn.functional.normalize(memory.detach(), dim=1) * (torch.arange(5) != 3)[:, None]
    same = torch.zeros(8, 8, dtype=torch.bool)
    same[:, [1, 6]] = True
    part = slice(rank * 8 // ranks, (rank + 1) * 8 // ranks)
    loss = nt_xent(anchors[part], positives[part], 0.05, memory, same[part])
    loss.backward()
    return [loss.detach(), anchors.grad, positives.grad]


LABELS = torch.tensor([3, 1, 3, 7, 1, 3, 0, 7])


def info_nce_on_a_rank(rank: int, ranks: int) -> list[torch.Tensor]:
    (anchors, positives), (negatives, _) = pairs(8), pairs(8, seed=1)
    part = slice(rank * 8 // ranks, (rank + 1) * 8 // ranks)
    loss = info_nce(anchors[part], positives[part], 0.05, [negatives[part]], 0.7)
    loss.backward()
    return [loss.detach(), anchors.grad, positives.grad, negatives.grad]


def sup_con_on_a_rank(rank: int, ranks: int, variant: str = "khosla") -> list[torch.Tensor]:
    first, second = pairs(8)
    part = slice(rank * 8 // ranks, (rank + 1) * 8 // ranks)
    loss = sup_con(first[part], second[part], LABELS[part], 0.07, variant)
    loss.backward()
    return [loss.detach(), first.grad, second.grad]


UNCHANGED = torch.nn.Linear(30, 30, bias=False).requires_grad_(False)
"""A decoder whose logits are its input."""
UNCHANGED.weight.copy_(torch.eye(30))


def masked_lm_on_a_rank(rank: int, ranks: int) -> list[torch.Tensor]:
    logits = torch.randn(10, 30, generator=torch.Generator().manual_seed(3)).requires_grad_()
    labels = torch.arange(10)
    labels[4] = -100
    part = slice(0, 10) if ranks == 1 else (slice(0, 3), slice(3, 10))[rank]
    loss, _ = masked_lm(logits[part], UNCHANGED, labels[part])
    loss.backward()
    later = labels.roll(3).masked_fill(torch.arange(10) < 2, -100)  # as many slots, other masked tokens
    return [loss.detach(), logits.grad, masked_lm(logits[part].detach(), UNCHANGED, later[part])[0]]


def measured_on_a_rank(rank: int, ranks: int) -> list[torch.Tensor]:
    """Return the contrastive losses of held-out examples, which have no gradients."""
    (anchors, positives), (negatives, _) = pairs(8), pairs(8, seed=1)
    part = slice(rank * 8 // ranks, (rank + 1) * 8 // ranks)
    with torch.no_grad():
        return [
            nt_xent(anchors[part], positives[part], 0.05),
            info_nce(anchors[part], positives[part], 0.05, [negatives[part]], 0.7),
            sup_con(anchors[part], positives[part], LABELS[part], 0.07),
        ]


@pytest.mark.guarantee("ranks-as-one")
@pytest.mark.parametrize(
    "on_a_rank",
    [
        nt_xent_on_a_rank,
        masked_nt_xent_on_a_rank,
        info_nce_on_a_rank,
        *(functools.partial(sup_con_on_a_rank, variant=variant) for variant in SUP_CON),
        masked_lm_on_a_rank,
        measured_on_a_rank,
    ],
)
def test_two_ranks_give_the_loss_and_gradients_of_one(on_a_rank) -> None:
    """The mean over ranks, which is what DeepSpeed takes of the gradients."""
    one, two = on_a_rank(0, 1), run_on_ranks(on_a_rank, 2)
    for index, expected in enumerate(one):
        torch.testing.assert_close((two[0][index] + two[1][index]) / 2, expected, atol=1e-6, rtol=1e-5)


@pytest.mark.guarantee("ranks-as-one")
def test_masked_lm_of_no_masked_token_is_zero_and_differentiable() -> None:
    logits = torch.randn(3, 30, requires_grad=True)
    loss, accuracy = masked_lm(logits, UNCHANGED, torch.full((3,), -100), measured=True)
    loss.backward()
    assert loss.item() == accuracy.item() == 0 and torch.equal(logits.grad, torch.zeros(3, 30))


def test_alignment_and_uniformity_of_known_points() -> None:
    points = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    assert alignment(points, points).item() == 0
    assert alignment(points, points.flip(0)).item() == pytest.approx(2.0)
    assert uniformity(points).item() == pytest.approx(-4.0)


def doubles(count: int, seed: int = 0) -> list[torch.Tensor]:
    """Three sets of vectors in fp64, for gradcheck."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(count, 6, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(3)]


def cosine(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return first @ second / (first.norm() * second.norm())


@pytest.mark.guarantee("ranks-as-one")
@pytest.mark.guarantee("several-negatives")
def test_info_nce_is_simcses_equations_written_out() -> None:
    anchors, positives, negatives = doubles(5)
    for hard, weight in ((None, 0.0), (negatives, 0.0), (negatives, 1.3)):
        losses = []
        for i, anchor in enumerate(anchors):
            terms = [torch.exp(cosine(anchor, positive) / 0.05) for positive in positives]
            total = sum(terms)
            for j, negative in enumerate(hard if hard is not None else ()):
                total = total + torch.exp(cosine(anchor, negative) / 0.05 + weight * (i == j))
            losses.append(-torch.log(terms[i] / total))
        expected = torch.stack(losses).mean()
        torch.testing.assert_close(
            info_nce(anchors, positives, 0.05, [] if hard is None else [hard], weight), expected, atol=1e-10, rtol=1e-10
        )
    assert torch.autograd.gradcheck(
        lambda *given: info_nce(*given[:2], 0.5, given[2:], 0.3), (anchors, positives, negatives)
    )


def reference_sup_con(
    first: torch.Tensor, second: torch.Tensor, labels: list[int], temperature: float, variant: str
) -> torch.Tensor:
    """Each variant from its definition, a point at a time."""
    losses = []
    if variant == "khosla":
        points, classes = [*first, *second], labels * 2
        for i, point in enumerate(points):
            others = [j for j in range(len(points)) if j != i]
            total = sum(torch.exp(cosine(point, points[j]) / temperature) for j in others)
            alike = [j for j in others if classes[j] == classes[i]]
            terms = [torch.log(torch.exp(cosine(point, points[j]) / temperature) / total) for j in alike]
            losses.append(-sum(terms) / len(terms))
    for i, point in enumerate(first if variant != "khosla" else ()):
        terms = [torch.exp(cosine(point, other) / temperature) for other in second]
        if variant == "paper":
            alike = sum(term for term, label in zip(terms, labels, strict=True) if label == labels[i])
            unlike = sum(term for term, label in zip(terms, labels, strict=True) if label != labels[i])
            losses.append(-torch.log(alike / unlike))
        else:
            losses.append(-torch.log(terms[sorted(set(labels)).index(labels[i])] / sum(terms)))
    return torch.stack(losses).mean()


@pytest.mark.guarantee("ranks-as-one")
@pytest.mark.parametrize("variant", SUP_CON)
def test_sup_con_is_its_definition_written_out(variant: str) -> None:
    first, second, _ = doubles(8)
    found = sup_con(first, second, LABELS, 0.07, variant)
    expected = reference_sup_con(first, second, LABELS.tolist(), 0.07, variant)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)
    assert torch.autograd.gradcheck(lambda *given: sup_con(*given, LABELS, 0.5, variant), (first, second))


@pytest.mark.parametrize(("classes", "own", "shared"), [(60, 0.037, 0.55), (50, 0.040, 0.61)])
def test_the_published_codes_targets_are_hardly_ever_of_the_anchors_class(
    classes: int, own: float, shared: float
) -> None:
    """In batches of 48, as docs/papers.md says; and how many anchors have another of their class."""
    labels = torch.randint(classes, (1000, 48), generator=torch.Generator().manual_seed(0))
    targets = torch.stack([batch[_class_index(batch, batch)] for batch in labels])
    assert (targets == labels).float().mean().item() == pytest.approx(own, abs=0.003)
    alike = (labels[:, :, None] == labels[:, None]).sum(2) > 1
    assert alike.float().mean().item() == pytest.approx(shared, abs=0.01)


def test_eq_4_of_one_class_alone_is_zero_and_differentiable() -> None:
    first, second = pairs(4)
    loss = sup_con(first, second, torch.zeros(4, dtype=torch.int64), 0.07, "paper")
    loss.backward()
    assert loss.item() == 0 and torch.equal(first.grad, torch.zeros_like(first))


def test_accuracy_counts_anchors_whose_nearest_is_their_own() -> None:
    points = torch.eye(4)
    assert accuracy(points, 3 * points).item() == 1
    assert accuracy(points, points[[1, 0, 2, 3]]).item() == 0.5


def accuracy_on_a_rank(rank: int, ranks: int) -> torch.Tensor:
    anchors, noise = torch.randn(2, 32, 16, generator=torch.Generator().manual_seed(2))
    part = slice(rank * 32 // ranks, (rank + 1) * 32 // ranks)
    return accuracy(anchors[part], (anchors + 2 * noise)[part])


@pytest.mark.guarantee("ranks-as-one")
def test_two_ranks_give_the_accuracy_of_one() -> None:
    """Each anchor is to be told from as many, however they are shared out."""
    one, two = accuracy_on_a_rank(0, 1), run_on_ranks(accuracy_on_a_rank, 2)
    assert 0 < one < 1 and (two[0] + two[1]) / 2 == one


@pytest.mark.guarantee("ranks-as-one")
@pytest.mark.parametrize("masked", [1, 2, 5])
def test_masked_lm_is_the_mean_over_the_masked_tokens_and_measures_only_if_asked(masked: int) -> None:
    logits = torch.randn(6, 30, generator=torch.Generator().manual_seed(3))
    labels = torch.full((6,), -100)
    labels[:masked] = torch.arange(masked)
    logits[0, 0] = 9.0
    loss, correct = masked_lm(logits, UNCHANGED, labels, measured=True)
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(logits, labels))
    assert correct.item() == pytest.approx((logits.argmax(1) == labels).sum().item() / masked) != 0
    assert masked_lm(logits, UNCHANGED, labels)[1].item() == 0


@pytest.mark.guarantee("ranks-as-one")
def test_on_one_rank_rows_and_their_places_are_as_they_are() -> None:
    rows = torch.randn(5, 3)
    assert gather(rows) is rows and gathered_index(rows).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.guarantee("ranks-as-one")
def test_a_later_rank_gathers_all_rows_and_its_own_come_after_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on the third of four ranks, each with its number in its rows."""
    monkeypatch.setattr(losses, "world", lambda: (2, 4))
    monkeypatch.setattr(collectives, "world", lambda: (2, 4))
    monkeypatch.setattr(functional, "all_gather", lambda rows: [rows + number for number in range(4)])
    rows = torch.full((2, 3), 1 / 3)
    assert gathered_index(rows).tolist() == [4, 5] and gathered_index(rows[:1]).tolist() == [2]
    with torch.no_grad():
        without_gradients = gather(rows)
    monkeypatch.setattr(losses, "world", lambda: (5000, 6000))
    assert gathered_index(rows).tolist() == [10_000, 10_001]
    for found in (gather(rows), without_gradients):
        assert torch.equal(found[:, 0], torch.tensor([0.0, 0, 1, 1, 2, 2, 3, 3]) + 1 / 3)


@pytest.mark.guarantee("ranks-as-one")
@pytest.mark.parametrize(
    "on_a_rank",
    [
        nt_xent_on_a_rank,
        masked_nt_xent_on_a_rank,
        info_nce_on_a_rank,
        *(functools.partial(sup_con_on_a_rank, variant=variant) for variant in SUP_CON),
    ],
)
def test_a_loss_is_the_mean_over_ranks_that_see_the_rows_of_all(on_a_rank, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ranks that take turns: what a rank sends in its first turn, the other gets in its second."""
    expected, found = on_a_rank(0, 1)[0], []
    sent: dict[int, list[torch.Tensor]] = {0: [], 1: []}
    for is_second, rank in ((False, 0), (False, 1), (True, 0), (True, 1)):
        calls = itertools.count()

        def gathered(rows: torch.Tensor, is_second=is_second, rank=rank, calls=calls) -> torch.Tensor:
            place = next(calls)
            if not is_second:
                sent[rank].append(rows.detach())
                return torch.cat([rows, rows])
            return torch.cat([rows if of == rank else sent[of][place] for of in range(2)])

        monkeypatch.setattr(losses, "gather", gathered)
        monkeypatch.setattr(losses, "gather_labels", gathered)
        monkeypatch.setattr(losses, "world", lambda rank=rank: (rank, 2))
        loss = on_a_rank(rank, 2)[0]
        found += [loss] if is_second else []
    torch.testing.assert_close((found[0] + found[1]) / 2, expected, atol=1e-6, rtol=1e-5)
    assert not torch.isclose(found[0], found[1])


@pytest.mark.guarantee("ranks-as-one")
def test_a_false_negative_is_as_if_it_were_not_there_and_a_positive_always_is() -> None:
    (anchors, positives), (negatives, _) = pairs(4), pairs(4, seed=1)
    same = torch.zeros(4, 8, dtype=torch.bool)
    same[:, 2] = same[:, 5] = True
    found = info_nce(anchors, positives, 0.5, [negatives], 0.7, same)
    blocks = [torch.nn.functional.normalize(rows, dim=1) for rows in (anchors, positives, negatives)]
    logits = blocks[0] @ torch.cat(blocks[1:]).T / 0.5 + 0.7 * torch.eye(4, 8).roll(4, 1)
    terms = logits.exp() * (~same | (torch.eye(4, 8) == 1))
    torch.testing.assert_close(found, -torch.log(terms.diagonal() / terms.sum(1)).mean())
