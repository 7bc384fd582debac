"""The projections of images and captions equal those of SentEval's loop, and ties gain nothing."""

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from clearspan.plugins.captions import ranking

SEED, PER_IMAGE, DIM = 1111, 5, 40


def made_up(num_images: int, seed: int) -> ranking.Side:
    """Return images, and captions whose embeddings correlate with the features of their images."""
    generator = np.random.RandomState(seed)
    images = generator.randn(num_images, 16).astype(np.float32)
    shared = images[:, :12].repeat(PER_IMAGE, axis=0)
    return ranking.Side(images, shared + 0.7 * generator.randn(*shared.shape).astype(np.float32))


class SentEvals:
    """SentEval's original loop: one row per caption, with its image's features repeated."""

    def __init__(self, train: ranking.Side, dev: ranking.Side) -> None:
        np.random.seed(SEED)
        torch.manual_seed(SEED)
        self.image, self.sentence = nn.Linear(16, DIM), nn.Linear(12, DIM)
        optimizer = torch.optim.Adam([*self.image.parameters(), *self.sentence.parameters()])
        images = torch.from_numpy(train.images.repeat(PER_IMAGE, axis=0))
        captions = torch.from_numpy(train.captions)
        best, failed, self.passes, stop = -1.0, 0, 0, False
        while not stop and self.passes <= 20:
            order = list(np.random.permutation(len(captions)))
            for i in range(0, len(captions), 128):
                rows = order[i : i + 128]
                outside = order[:i] + order[i + 128 :]
                other_images = np.random.choice(outside, 30 * len(rows))
                other_captions = np.random.choice(outside, 30 * len(rows))
                image = self.unit(self.image, images[rows]).repeat_interleave(30, 0)
                sentence = self.unit(self.sentence, captions[rows]).repeat_interleave(30, 0)
                contrast_image = self.unit(self.image, images[other_images])
                contrast_sentence = self.unit(self.sentence, captions[other_captions])
                own = (image * sentence).sum(1)
                loss = torch.clamp(0.2 - own + (image * contrast_sentence).sum(1), min=0).sum()
                loss = loss + torch.clamp(0.2 - own + (sentence * contrast_image).sum(1), min=0).sum()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            self.passes += 1
            score = sum(
                self.figures(dev)[key] for key in ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10")
            )
            if score > best:
                best, kept = score, copy.deepcopy((self.image, self.sentence))
            else:
                stop = failed >= 3
                failed += 1
        self.devacc = best
        self.image, self.sentence = kept

    @staticmethod
    def unit(layer: nn.Linear, rows: torch.Tensor) -> torch.Tensor:
        projected = layer(rows)
        return projected / torch.sqrt(torch.pow(projected, 2).sum(1, keepdim=True))

    @torch.no_grad()
    def figures(self, side: ranking.Side) -> dict[str, float]:
        found: dict[str, list[float]] = {}
        size = len(side.images) // 5
        for fold in range(5):
            images = self.unit(self.image, torch.from_numpy(side.images[fold * size : (fold + 1) * size]))
            captions = torch.from_numpy(side.captions[fold * size * PER_IMAGE : (fold + 1) * size * PER_IMAGE])
            scores = (images @ self.unit(self.sentence, captions).T).numpy()
            to_text = [
                min(list(np.argsort(row)[::-1]).index(caption) for caption in range(PER_IMAGE * i, PER_IMAGE * (i + 1)))
                for i, row in enumerate(scores)
            ]
            to_image = [list(np.argsort(row)[::-1]).index(i // PER_IMAGE) for i, row in enumerate(scores.T)]
            for key, ranks in (("i2t", np.array(to_text)), ("t2i", np.array(to_image))):
                for cut in (1, 5, 10):
                    found.setdefault(f"{key}_r{cut}", []).append(100 * float(np.mean(ranks < cut)))
                found.setdefault(f"{key}_medr", []).append(float(np.floor(np.median(ranks)) + 1))
        return {key: float(np.mean(values)) for key, values in found.items()}


@pytest.mark.guarantee("coco-captions")
@pytest.mark.exhaustive
def test_it_trains_and_ranks_as_sentevals_loop_does(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ranking._DIM == 1000
    monkeypatch.setattr(ranking, "_DIM", DIM)
    train, dev, test = made_up(40, 1), made_up(100, 2), made_up(100, 3)
    found = ranking.train(train, dev, test, seed=SEED, device="cpu")
    expected = SentEvals(train, dev)
    assert found.passes == expected.passes
    assert found.test.figures() == pytest.approx(expected.figures(test), abs=1.1)  # a rank or two by rounding
    assert 6 * found.dev.mean_recall() == pytest.approx(expected.devacc, abs=3)
    assert 10 < found.test.figures()["t2i_r1"] < 90


@pytest.mark.guarantee("coco-captions")
def test_ranks_are_counted_from_1_by_descending_product() -> None:
    products = np.array([[0.9, 0.1, 0.5, 0.2], [0.8, 0.3, 0.6, 0.7]])  # two images, two captions each
    to_text, to_image = ranking.ranks_of(products, 2)
    assert to_text.tolist() == [1, 2]  # the second image's best caption, 0.7, ranks behind 0.8
    assert to_image.tolist() == [1, 2, 1, 1]
    for step in (1e-3, 1e-6, 1e-12):  # no similarity is rounded
        to_text, to_image = ranking.ranks_of(np.array([[0.5, 0.5 + step], [0.5 + 2 * step, 0.5]]), 1)
        assert (to_text.tolist(), to_image.tolist()) == ([2, 2], [2, 2])


@pytest.mark.guarantee("coco-captions")
def test_an_encoder_that_gives_all_captions_one_embedding_ranks_as_the_order_does() -> None:
    to_text, to_image = ranking.ranks_of(np.ones((4, 20)), PER_IMAGE)
    assert to_text.tolist() == [1, 6, 11, 16]
    assert to_image.tolist() == [rank for rank in (1, 2, 3, 4) for _ in range(PER_IMAGE)]


@pytest.mark.guarantee("coco-captions")
def test_figures_are_means_of_the_folds() -> None:
    ranks = ranking.FoldRanks([np.array([1, 2]), np.array([7, 30])], [np.array([1, 1, 2, 11]), np.array([1, 6, 6, 6])])
    assert ranks.figures() == {
        "i2t_r1": 25, "i2t_r5": 50, "i2t_r10": 75, "i2t_medr": (1 + 18) / 2,
        "t2i_r1": 37.5, "t2i_r5": 50, "t2i_r10": 87.5, "t2i_medr": (1 + 6) / 2,
    }  # fmt: skip
    assert ranks.mean_recall() == pytest.approx((25 + 50 + 75 + 37.5 + 50 + 87.5) / 6)


@pytest.mark.guarantee("coco-captions")
def test_a_batch_is_never_contrasted_with_itself() -> None:
    for rows, images, captions in ranking._batches(300, np.random.RandomState(0)):
        for drawn in (images, captions):
            assert drawn.shape == (len(rows), 30)
            assert not set(rows.tolist()) & set(drawn.ravel().tolist())


@pytest.mark.slow
def test_folds_are_of_a_thousand_pictures_and_of_fewer_where_there_are_fewer() -> None:
    model = ranking._Projections(16, 12)
    sizes: Any = lambda num: [len(fold) for fold in ranking._ranks(model, made_up(num, 1), "cpu").image_to_text]  # noqa: E731
    assert (sizes(3), sizes(12), sizes(5003)) == ([1, 1, 1], [3, 3, 2, 2, 2], [1000] * 5)


@pytest.mark.guarantee("coco-captions")
@pytest.mark.parametrize(
    ("recalls", "best", "passes"),
    [
        ([10, 9, 8, 7, 6], 0, 5),
        ([10, 10, 10, 10, 10], 0, 5),
        ([1, 2, 1, 3, 1, 1, 1, 9], 3, 7),
        (range(40), 20, 21),
        ([0, 0, 0, 1, 1, 2, 2, 9], 5, 7),
        ([10.002, 10.003, 10.004, 10.004, 10, 9, 9, 99], 2, 7),
    ],
)
def test_training_ends_after_the_fourth_pass_that_is_no_better_and_keeps_the_best(
    recalls: Any, best: int, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A weight counts the passes, so that the projections of each can be told apart."""
    dev, test, seen = made_up(3, 1), made_up(4, 2), []

    def loss(model: Any, images: Any, captions: Any, *batch: torch.Tensor) -> torch.Tensor:
        seen.append([each.tolist() for each in batch])
        return (model.image.bias * 0).sum() + model.sentence.bias.sum()

    def ranks(model: Any, side: ranking.Side, device: str) -> Any:
        assert device == "cpu"
        number = round((start - float(model.sentence.bias[0].detach())) / 1e-3 / 2)
        if side is dev:
            return SimpleNamespace(mean_recall=lambda: recalls[number - 1], number=number)
        assert side is test
        return number

    def batches(num_rows: int, generator: np.random.RandomState) -> Any:
        assert num_rows == 15
        return [(np.array([0]), np.array([[1]]), np.array([[2]])), (np.array([3]), np.array([[4]]), np.array([[5]]))]

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        start = float(ranking._Projections(16, 12).sentence.bias[0].detach())
    for name, function in (("_loss", loss), ("_ranks", ranks), ("_batches", batches)):
        monkeypatch.setattr(ranking, name, function)
    state = torch.get_rng_state()
    found: Any = ranking.train(made_up(3, 0), dev, test, SEED, "cpu")
    assert (found.dev.number, found.test, found.passes) == (best + 1, best + 1, passes)
    assert len(seen) == 2 * passes and seen[:2] == [[[0], [[1]], [[2]]], [[3], [[4]], [[5]]]]
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.guarantee("coco-captions")
@pytest.mark.parametrize("per_image", [1, 3])
def test_ranks_are_those_of_sorting_with_the_first_of_equals_first(per_image: int) -> None:
    products = np.random.default_rng(2).integers(0, 4, (7, 7 * per_image)) / 4
    to_text, to_image = ranking.ranks_of(products, per_image)
    for image, row in enumerate(products):
        order = np.argsort(-row, kind="stable").tolist()
        assert to_text[image] == 1 + min(order.index(per_image * image + number) for number in range(per_image))
    for caption, column in enumerate(products.T):
        assert to_image[caption] == 1 + np.argsort(-column, kind="stable").tolist().index(caption // per_image)
    assert (to_text.dtype, to_image.dtype) == (np.int64, np.int64)
