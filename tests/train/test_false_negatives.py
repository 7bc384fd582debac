"""`mask_equal`: examples of one id or with equal texts are no negatives: against definitions written out in fp64."""

import dataclasses
import itertools
from collections.abc import Callable, Collection
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from clearspan.common.ragged import Ragged
from clearspan.train.data.batch import Batch, TokenLists
from clearspan.train.data.span_sampler import SpanConfig
from clearspan.train.model.encoded import Encoded, SequenceVectors
from clearspan.train.model.losses import info_nce, nt_xent
from clearspan.train.model.packing import TokenSlices
from clearspan.train.objectives import (
    ContrastiveConfig,
    ContrastiveObjective,
    Request,
    Setting,
    clear,
    patches,
    simcse,
    spans,
)
from tests.train.conftest import write_dataset
from tests.train.ranks import run_on_ranks
from tests.train.test_gradient_caching import cached_step, whole_step
from tests.train.test_learner import learner_and_batch
from tests.train.test_losses import cosine, doubles, pairs

ANCHORS, POSITIVES, DIM = 2, 2, 6
Same = Callable[[int, int], bool]
"""Whether an example is no negative of another one."""


def test_text_keys_are_equal_where_slices_are(documents: list[list[int]]) -> None:
    """Of every slice of up to six of a text's tokens; with few different tokens, many slices are equal."""
    tokens = torch.tensor([token % 3 for token in documents[0][:80]])
    slices = [(start, length) for length in range(7) for start in range(80 - length)]
    starts, lengths = torch.tensor(slices).unbind(1)
    keys = TokenSlices(tokens.int(), starts, lengths).text_keys().tolist()
    texts = [tuple(tokens[start : start + length].tolist()) for start, length in slices]
    assert len(set(zip(keys, texts, strict=True))) == len(set(keys)) == len(set(texts)) < len(texts) - 100


def written_out(points: Tensor, partners: list[int], others: list[list[int]], temperature: float) -> Tensor:
    """The mean over points of -log softmax at the partner, over it and the others."""
    losses = []
    for point, partner, negatives in zip(points, partners, others, strict=False):
        terms = [torch.exp(cosine(point, points[column]) / temperature) for column in (partner, *negatives)]
        losses.append(-torch.log(terms[0] / sum(terms)))
    return torch.stack(losses).mean()


def nt_xent_written_out(anchors: Tensor, positives: Tensor, temperature: float, same: Same) -> Tensor:
    n = len(anchors)
    others = [[j for j in range(2 * n) if j % n != i % n and not same(i % n, j % n)] for i in range(2 * n)]
    return written_out(torch.cat([anchors, positives]), [*range(n, 2 * n), *range(n)], others, temperature)


def info_nce_written_out(
    anchors: Tensor, positives: Tensor, temperature: float, same: Same, negatives: Tensor, wrong: Same
) -> Tensor:
    n = len(anchors)
    others = [
        [n + j for j in range(n) if j != i and not same(i, j)]
        + [2 * n + j for j in range(len(negatives)) if not wrong(i, j)]
        for i in range(n)
    ]
    return written_out(torch.cat([anchors, positives, negatives]), list(range(n, 2 * n)), others, temperature)


@pytest.mark.guarantee("several-negatives")
def test_the_losses_leave_out_what_is_the_same() -> None:
    anchors, positives, negatives = doubles(5)
    same = torch.zeros(5, 10, dtype=torch.bool)
    for i, j in ((0, 3), (3, 0), (1, 4), (4, 1), (2, 2), (0, 8), (1, 6)):
        same[i, j] = True
    found = nt_xent(anchors, positives, 0.5, false_negatives=same[:, :5])
    torch.testing.assert_close(found, nt_xent_written_out(anchors, positives, 0.5, lambda i, j: bool(same[i, j])))
    expected = info_nce_written_out(
        *(anchors, positives, 0.5, lambda i, j: bool(same[i, j])), *(negatives, lambda i, j: bool(same[i, 5 + j]))
    )
    torch.testing.assert_close(info_nce(anchors, positives, 0.5, [negatives], false_negatives=same), expected)
    assert torch.autograd.gradcheck(
        lambda *both: nt_xent(*both, 0.5, false_negatives=same[:, :5]), (anchors, positives)
    )
    assert torch.autograd.gradcheck(
        lambda *given: info_nce(*given[:2], 0.5, given[2:], false_negatives=same), (anchors, positives, negatives)
    )


def test_an_example_that_has_no_negative_left_has_no_loss() -> None:
    anchors, positives = pairs(3)
    loss = nt_xent(anchors, positives, 0.05, false_negatives=torch.ones(3, 3, dtype=torch.bool))
    loss.backward()
    assert loss.item() == 0 and not anchors.grad.any()


IDS = [7, 8, 9, 7, 11, 9, 13, 14]
"""The texts of examples 1 and 4 are equal, too; 2 and 5 have one id and two texts, as a folder with damaged ids has."""


@pytest.fixture(scope="module")
def columns(sentences: list[list[int]]) -> dict[str, list[list[int]]]:
    """Columns of eight examples: real sentences of 20 to 50 tokens, some of which are alike."""
    chosen = [row for row in sentences if 20 <= len(row) <= 50][:40]
    a, b, c, d, e, f = chosen[:6]
    columns = {"tokens": [a, b, c, a, b, d, e, f]}
    for number, name in enumerate(("positive", "negative", "view_0", "view_1"), 1):
        columns[name] = chosen[8 * number : 8 * number + 8]
    columns["positive"][6] = columns["positive"][2]
    columns["negative"][0], columns["negative"][3], columns["negative"][6] = b, columns["positive"][3], e
    columns["view_1"][7] = columns["view_0"][2]
    return columns


def batch_of(columns: dict[str, list[list[int]]], part: slice) -> Batch:
    lists = {
        name: TokenLists.of(Ragged.of([np.array(r) for r in rows[part]], np.uint16)) for name, rows in columns.items()
    }
    ids = torch.tensor(IDS[part])
    return Batch({**lists, "values": torch.zeros(len(ids), 1, 2), "labels": ids}, ids, torch.zeros_like(ids))


def objective(name: str, setting: Setting, mask_equal: bool = True) -> ContrastiveObjective:
    if name == "spans":
        sampler = SpanConfig(ANCHORS, POSITIVES, 4, 24, placement="uniform", min_distance=0)
        return spans.SpanContrast(spans.SpansConfig(sampler=sampler, mask_equal=mask_equal), setting)
    if name == "clear":
        config = clear.ClearConfig(augment="del-span", head="none", mask_equal=mask_equal)
        return clear.Clear(config, setting, clear.StoredViews(2, setting))
    if name == "patches":
        config = patches.PatchesConfig(loss="simclr", head="none", mask_equal=mask_equal)
        return patches.PatchContrast(config, setting, SimpleNamespace(patches=4, views=1))
    columns = ["tokens", "positive", "negative"][: 1 if name == "simcse" else 3]
    return simcse.SimCSE(simcse.SimcseConfig(mask_equal=mask_equal), setting, columns)


@dataclasses.dataclass
class OnARank:
    """Loss and gradients of vectors for the examples of a rank."""

    name: str
    setting: Setting
    columns: dict[str, list[list[int]]]
    mask_equal: bool = True

    def __call__(self, rank: int, ranks: int) -> list[Tensor]:
        own = objective(self.name, self.setting, self.mask_equal)
        part = slice(rank * 8 // ranks, (rank + 1) * 8 // ranks)
        request = own.request(batch_of(self.columns, part))
        blocks, leaves, rows, at = {}, {}, [], 0
        for number, (block, sequences) in enumerate(request.sequences.items()):
            count = len(sequences.content)
            drawn = torch.randn(
                count * ranks, DIM, generator=torch.Generator().manual_seed(number), dtype=torch.float64
            )
            leaves[block] = drawn.requires_grad_()
            rows.append(drawn[rank * count : (rank + 1) * count])
            blocks[f"{self.setting.name}/{block}"] = slice(at, at := at + count)
        vectors = SequenceVectors(torch.cat(rows), torch.cat(rows), blocks)
        loss, _ = own.trained_loss(Encoded(vectors, self.setting.name, False, own.pools), request.context)
        loss.backward()
        return [loss.detach(), *(leaf.grad for leaf in leaves.values())]


@pytest.fixture(scope="module")
def setting(tiny: list[str]) -> Setting:
    """Of a learner; its dataset is not read."""
    return learner_and_batch(tiny)[0].objectives[0].setting


def contents(request: Request) -> dict[str, list[tuple[int, ...]]]:
    found = {}
    for block, sequences in request.sequences.items():
        slices = sequences.content
        if isinstance(slices, TokenSlices):
            bounds = zip(slices.starts.tolist(), slices.lengths.tolist(), strict=True)
            found[block] = [tuple(slices.tokens[start : start + length].tolist()) for start, length in bounds]
    return found


def expected_loss(name: str, setting: Setting, columns: dict[str, list[list[int]]]) -> Tensor:
    """From the texts themselves, a pair of examples at a time."""
    own = objective(name, setting)
    request = own.request(batch_of(columns, slice(8)))
    drawn = [
        torch.randn(len(sequences.content), DIM, generator=torch.Generator().manual_seed(number), dtype=torch.float64)
        for number, sequences in enumerate(request.sequences.values())
    ]
    found, temperature = contents(request), own.config.temperature

    def share(first: Collection, second: Collection) -> bool:
        return not set(first).isdisjoint(second)

    if name == "spans":
        positives = drawn[1].view(8 * ANCHORS, POSITIVES, DIM).mean(1)
        texts = [
            {anchor, *found["positives"][POSITIVES * i : POSITIVES * (i + 1)]}
            for i, anchor in enumerate(found["anchors"])
        ]

        def same(i: int, j: int) -> bool:
            one, other = i // ANCHORS, j // ANCHORS
            alike = IDS[one] == IDS[other] or columns["tokens"][one] == columns["tokens"][other]
            return (one != other and alike) or share(texts[i], texts[j])

        return nt_xent_written_out(drawn[0], positives, temperature, same)
    blocks = {"clear": ("view_0", "view_1"), "patches": ()}.get(name, ("tokens", "positive"))
    texts = [{found[block][i] for block in blocks} for i in range(8)]
    if name == "clear":
        texts = [{*views, tuple(row)} for views, row in zip(texts, columns["tokens"], strict=True)]
    alike = [[IDS[i] == IDS[j] or share(texts[i], texts[j]) for j in range(8)] for i in range(8)]
    if name == "clear":
        return nt_xent_written_out(*drawn, temperature, lambda i, j: alike[i][j])
    hard = found.get("negative", [])
    return info_nce_written_out(
        *drawn[:2],
        temperature,
        lambda i, j: alike[i][j],
        torch.cat(drawn[2:]) if hard else drawn[0][:0],
        lambda i, j: hard[j] in texts[i],
    )


@pytest.mark.guarantee("several-negatives")
@pytest.mark.parametrize("name", ["spans", "clear", "simcse", "triplets", "patches"])
def test_every_objective_masks_what_is_equal_on_one_rank_and_on_two(
    name: str, setting: Setting, columns: dict[str, list[list[int]]]
) -> None:
    one, without = (OnARank(name, setting, columns, mask)(0, 1) for mask in (True, False))
    torch.testing.assert_close(one[0], expected_loss(name, setting, columns), atol=1e-9, rtol=1e-9)
    assert without[0] - one[0] > 0.01
    two = run_on_ranks(OnARank(name, setting, columns), 2)
    for index, expected in enumerate(one):
        torch.testing.assert_close((two[0][index] + two[1][index]) / 2, expected, atol=1e-9, rtol=1e-9)


def test_several_anchors_of_a_text_stay_negatives_of_each_other(setting: Setting, columns: dict) -> None:
    """But not anchors that are equal: of a text of one token all are."""
    own = objective("spans", setting)
    rows = [[5], *columns["tokens"][1:3], *columns["tokens"][5:]]
    lists = {"tokens": TokenLists.of(Ragged.of([np.array(row) for row in rows], np.uint16))}
    ids = torch.arange(len(rows))
    keys = own.request(Batch(lists, ids, torch.zeros_like(ids))).context
    same = own._false_negatives(keys)
    for row, other in itertools.product(range(2), range(2)):
        assert same[row, other]
    assert not same[2:].masked_fill(torch.eye(len(same), dtype=torch.bool)[2:], False).any()


@pytest.mark.slow
def test_gradient_caching_masks_as_one_large_batch_does(
    tiny: list[str], documents: list[list[int]], tokenizer_folder: Path, tmp_path: Path
) -> None:
    """Every document is in the data three times, mostly in different micro-batches; Matryoshka's prefixes as well."""
    repeated = [row for row in documents[:30] for _ in range(3)]
    folder = write_dataset(tmp_path / "data", repeated, tokenizer_folder, 1_000_000)
    given = [*tiny, f"data.text.path={folder}", "data.text.batch_size=64", "objectives.spans.head=relu"]
    masked = [*given, "objectives.spans.mask_equal=true", "objectives.spans.dims=[4,16]"]
    metrics, expected = whole_step(masked)
    found, own = cached_step(masked)
    assert own.keys() == expected.keys() and len(expected) > 30
    for name, gradient in expected.items():
        torch.testing.assert_close(own[name], gradient, atol=1e-4, rtol=1e-4, msg=name)
    assert found["spans/loss"].item() == pytest.approx(metrics["spans/loss"].item(), rel=1e-5)
    unmasked, _ = whole_step([*given, "objectives.spans.dims=[4,16]"])
    assert unmasked["spans/loss"] - metrics["spans/loss"] > 0.01


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (spans.SpansConfig(memory=8, mask_equal=True), "mask_equal true does not work with memory 8"),
        (patches.PatchesConfig(mask_equal=True), "mask_equal true has no effect with loss: khosla"),
    ],
)
def test_options_that_cannot_work_are_refused(config: ContrastiveConfig, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        config.check()
