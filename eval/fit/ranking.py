"""Pictures and captions projected into one space, as SentEval trains it for COCO.

    picture ──> linear ──┐ unit length,
                         ├ 1,000-d       ──> pictures ranked for a caption, captions for a picture
    caption ──> linear ──┘
    loss: a pair's own product at least 0.2 above that with 30 other captions, and with 30 other pictures

COCO's 566,000 captions take hours on a CPU: this is work for a GPU, `device`.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import normalize

from clearspan.eval.fit.early_stopping import EarlyStopping
from clearspan.eval.fit.folds import Ints

BATCH = 128
_DIM = 1000
_MARGIN = 0.2
_CONTRASTIVE = 30
_MOST_PASSES = 20
_TENACITY = 3
_FOLDS, _IMAGES_A_FOLD = 5, 1000

CUTS = (1, 5, 10)


@dataclass(frozen=True)
class Side:
    """One split: n pictures and the captions of each, k after k.

    Attributes:
        images: (n, image dim) float32.
        captions: (k n, sentence dim) float32.
    """

    images: NDArray[np.float32]
    captions: NDArray[np.float32]


@dataclass(frozen=True)
class Ranks:
    """Within each fold, the rank from 1 of the best own caption of each picture, and of each caption's picture.

    Attributes:
        image_to_text: for each fold the pictures' ranks, int64.
        text_to_image: for each fold the captions' ranks, int64.
    """

    image_to_text: list[Ints]
    text_to_image: list[Ints]

    def figures(self) -> dict[str, float]:
        """Recall at 1, 5 and 10 in percent and the median rank in both directions, `i2t_r1` ... `t2i_medr`.

        Each is the mean of the folds' own. A median between two ranks counts as the lower one, as in SentEval.
        """
        found: dict[str, float] = {}
        for direction, folds in (("i2t", self.image_to_text), ("t2i", self.text_to_image)):
            for cut in CUTS:
                found[f"{direction}_r{cut}"] = 100 * float(np.mean([np.mean(ranks <= cut) for ranks in folds]))
            found[f"{direction}_medr"] = float(np.mean([np.floor(np.median(ranks)) for ranks in folds]))
        return found

    def mean_recall(self) -> float:
        """The mean of the six recalls, in percent: a sixth of what SentEval calls `devacc`."""
        figures = self.figures()
        return float(np.mean([figures[f"{direction}_r{cut}"] for direction in ("i2t", "t2i") for cut in CUTS]))


@dataclass(frozen=True)
class Ranked:
    """What a training gave, of the model that ranks dev best."""

    dev: Ranks
    test: Ranks
    passes: int


class _Projections(nn.Module):
    def __init__(self, image_dim: int, sentence_dim: int) -> None:
        super().__init__()
        self.image = nn.Linear(image_dim, _DIM)
        self.sentence = nn.Linear(sentence_dim, _DIM)

    def forward(self, images: Tensor, sentences: Tensor) -> tuple[Tensor, Tensor]:
        return normalize(self.image(images), dim=-1), normalize(self.sentence(sentences), dim=-1)


def train(train_side: Side, dev: Side, test: Side, seed: int, device: str) -> Ranked:
    """Trains until dev's recalls have failed to rise at four checks in all, or 21 passes.

    SentEval's protocol to the detail: Adam, batches of 128 captions with their pictures; a check each pass, of which
    the fourth that fails ends the training (`fit.early_stopping`); the limit of 20 passes is looked at before one more.
    What a batch is contrasted with is drawn from the rows outside it, with replacement, and may be another caption of
    the same picture.

    Args:
        train_side: more than 128 captions.
        seed: of weights, orders and contrasts, as torch and numpy draw them.
        device: as torch names it; the training's embeddings are held there.
    """
    generator = np.random.RandomState(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _Projections(train_side.images.shape[1], train_side.captions.shape[1])
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters())
    images, captions = (torch.from_numpy(x).to(device) for x in (train_side.images, train_side.captions))
    best, best_ranks, passes = model, None, 0
    checks = EarlyStopping(_TENACITY)
    while passes <= _MOST_PASSES and not checks.over:
        for rows, other_images, other_captions in _batches(len(captions), generator):
            loss = _loss(model, images, captions, *(torch.from_numpy(x) for x in (rows, other_images, other_captions)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        passes += 1
        ranks = _ranks(model, dev, device)
        if checks.better(ranks.mean_recall()):
            best, best_ranks = copy.deepcopy(model), ranks
    assert best_ranks is not None  # a recall is never below 0
    return Ranked(best_ranks, _ranks(best, test, device), passes)


def ranks_of(products: NDArray[np.floating[Any]], captions_per_image: int) -> tuple[Ints, Ints]:
    """Ranks from 1 by descending product of pictures with captions, (n, k n): of each picture's best caption (n,), of
    each caption's picture (k n,). What has the same product ranks in its order, so a collapsed encoder gains nothing.
    """
    num_images, num_captions = products.shape
    image_of = np.arange(num_captions) // captions_per_image
    own = products[image_of, np.arange(num_captions)]  # (k n,)
    by_image = own.reshape(num_images, captions_per_image)
    first_best = by_image.argmax(axis=1) + captions_per_image * np.arange(num_images)
    return (
        _rank(products, by_image.max(axis=1, keepdims=True), first_best[:, None], axis=1),
        _rank(products, own[None], image_of[None], axis=0),
    )


def _rank(products: NDArray[np.floating[Any]], own: NDArray[Any], position: Ints, axis: int) -> Ints:
    places = np.expand_dims(np.arange(products.shape[axis]), 1 - axis)
    ahead = (products > own) | ((products == own) & (places < position))
    return np.asarray(ahead.sum(axis=axis) + 1, np.int64)


def _batches(num_rows: int, generator: np.random.RandomState) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Rows of a batch (b,), and of the captions whose pictures, and which themselves, it is contrasted with (b, 30)."""
    order = generator.permutation(num_rows)
    for start in range(0, num_rows, BATCH):
        rows = order[start : start + BATCH]
        contrasts = []
        for _ in range(2):
            drawn = generator.randint(0, num_rows - len(rows), size=_CONTRASTIVE * len(rows))
            outside = order[np.where(drawn >= start, drawn + len(rows), drawn)]
            contrasts.append(outside.reshape(len(rows), _CONTRASTIVE))
        yield rows, contrasts[0], contrasts[1]


def _loss(
    model: _Projections, images: Tensor, captions: Tensor, rows: Tensor, other_images: Tensor, other_captions: Tensor
) -> Tensor:
    per_image = len(captions) // len(images)
    rows, other_images, other_captions = (x.to(images.device) for x in (rows, other_images, other_captions))
    image, sentence = model(images[rows // per_image], captions[rows])  # (b, 1000)
    contrast_image, contrast_sentence = model(images[other_images // per_image], captions[other_captions])
    own = (image * sentence).sum(-1)[:, None]
    to_sentences = torch.einsum("bd,bcd->bc", image, contrast_sentence)
    to_images = torch.einsum("bd,bcd->bc", sentence, contrast_image)
    return (_MARGIN - own + to_sentences).clamp(min=0).sum() + (_MARGIN - own + to_images).clamp(min=0).sum()


@torch.no_grad()
def _ranks(model: _Projections, side: Side, device: str) -> Ranks:
    """In five folds of a thousand pictures as in SentEval, or of what there is."""
    per_image = len(side.captions) // len(side.images)
    found = Ranks([], [])
    num_images = min(len(side.images), _FOLDS * _IMAGES_A_FOLD)
    for fold in np.array_split(np.arange(num_images), min(_FOLDS, num_images)):
        start, end = int(fold[0]), int(fold[-1]) + 1
        images = torch.from_numpy(side.images[start:end]).to(device)
        captions = torch.from_numpy(side.captions[per_image * start : per_image * end]).to(device)
        image, sentence = model(images, captions)
        to_text, to_image = ranks_of((image @ sentence.T).cpu().numpy(), per_image)
        found.image_to_text.append(to_text)
        found.text_to_image.append(to_image)
    return found
