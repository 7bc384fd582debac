"""Project images and captions of COCO into one space and rank them for each other, as SentEval does.

    image   ──> linear, 1,000-d, unit length ──┬──> cosines ──> images ranked for each caption,
    caption ──> linear, 1,000-d, unit length ──┘                captions ranked for each image

The loss is a margin loss: the cosine of an image and its caption must exceed, by 0.2, the cosine of the image with each
of 30 other captions, and the cosine of the caption with each of 30 other images.

Training on COCO's 566,000 captions takes hours on a CPU: use a GPU.
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
    """The vectors of a split: n images with k captions each.

    Attributes:
        images: the features of the images, (n, image dim) float32.
        captions: the embeddings of the captions, (k n, sentence dim) float32; the captions of an image are consecutive.
    """

    images: NDArray[np.float32]
    captions: NDArray[np.float32]


@dataclass(frozen=True)
class FoldRanks:
    """The ranks, from 1, of the right captions for each image and of the right image for each caption.

    A split is divided into folds of up to 1,000 images with their captions. Within each fold, all captions are ranked
    for each image, and all images for each caption.

    Attributes:
        image_to_text: for each fold, the best rank of a right caption for each image, (images,) int64.
        text_to_image: for each fold, the rank of the right image for each caption, (captions,) int64.
    """

    image_to_text: list[Ints]
    text_to_image: list[Ints]

    def figures(self) -> dict[str, float]:
        """Return the recalls at 1, 5 and 10 in percent and the median rank in both directions, as name -> figure.

        The names are `i2t_r1`, `i2t_r5`, `i2t_r10` and `i2t_medr` for captions ranked for an image, and the same with
        `t2i` for images ranked for a caption. Each figure is the mean over the folds. If the median of a fold lies
        between two ranks, it is rounded down, as in SentEval.
        """
        figures: dict[str, float] = {}
        for direction, folds in (("i2t", self.image_to_text), ("t2i", self.text_to_image)):
            for cut in CUTS:
                figures[f"{direction}_r{cut}"] = 100 * float(np.mean([np.mean(ranks <= cut) for ranks in folds]))
            figures[f"{direction}_medr"] = float(np.mean([np.floor(np.median(ranks)) for ranks in folds]))
        return figures

    def mean_recall(self) -> float:
        """Return the mean of the recalls at 1, 5 and 10 for captions and for images, in percent.

        SentEval's `devacc` is the sum of these six recalls.
        """
        figures = self.figures()
        return float(np.mean([figures[f"{direction}_r{cut}"] for direction in ("i2t", "t2i") for cut in CUTS]))


@dataclass(frozen=True)
class BestRanks:
    """The ranks with the best projections of images and captions: those with the highest mean recall on the dev split.

    Attributes:
        dev, test: the ranks in the dev split and in the test split.
        passes: the number of passes over the training captions until training ended.
    """

    dev: FoldRanks
    test: FoldRanks
    passes: int


class _Projections(nn.Module):
    def __init__(self, image_dim: int, sentence_dim: int) -> None:
        super().__init__()
        self.image = nn.Linear(image_dim, _DIM)
        self.sentence = nn.Linear(sentence_dim, _DIM)

    def forward(self, images: Tensor, sentences: Tensor) -> tuple[Tensor, Tensor]:
        return normalize(self.image(images), dim=-1), normalize(self.sentence(sentences), dim=-1)


def train(train_side: Side, dev: Side, test: Side, seed: int, device: str) -> BestRanks:
    """Train a projection of images and one of captions; return the ranks in the dev and test splits with the best pair.

    The protocol is SentEval's: Adam, and batches of 128 captions with their images. After each pass, the mean recall on
    the dev split is computed; the best projections are those after the pass with the highest recall. Training ends
    after the fourth pass that does not raise the highest recall so far (the four need not be consecutive), and at the
    latest after 21 passes. Negatives are drawn with replacement from the captions that are not in the batch, and may
    include another caption of the same image.

    Args:
        train_side: the vectors of the training split, with more than 128 captions.
        dev, test: the vectors of the dev split and of the test split.
        seed: the seed of torch, which draws the initial weights, and of numpy, which draws the order of captions and
            the negatives.
        device: the torch device, which also holds the training embeddings.
    """
    generator = np.random.RandomState(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _Projections(train_side.images.shape[1], train_side.captions.shape[1])
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters())
    images, captions = (torch.from_numpy(x).to(device) for x in (train_side.images, train_side.captions))
    best, best_ranks = model, None
    passes = failed = 0
    while passes <= _MOST_PASSES and failed <= _TENACITY:
        for rows, other_images, other_captions in _batches(len(captions), generator):
            loss = _loss(model, images, captions, *(torch.from_numpy(x) for x in (rows, other_images, other_captions)))
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
        passes += 1
        ranks = _ranks(model, dev, device)
        if best_ranks is None or ranks.mean_recall() > best_ranks.mean_recall():
            best, best_ranks = copy.deepcopy(model), ranks
        else:
            failed += 1
    assert best_ranks is not None
    return BestRanks(best_ranks, _ranks(best, test, device), passes)


def ranks_of(products: NDArray[np.floating[Any]], captions_per_image: int) -> tuple[Ints, Ints]:
    """Rank captions for images and images for captions, where each of n images has k captions.

    Ranks begin at 1. Among equal similarities, the one that comes first in the data has the better rank, so that an
    encoder with the same vector for all texts gains nothing.

    Args:
        products: the similarities of n images with k n captions, (n, k n); the captions of image i are the columns
            k i to k i + k - 1.
        captions_per_image: the number k of captions of an image.

    Returns:
        For each image, the best rank of one of its captions among all captions, (n,) int64; for each caption, the rank
        of its image among all images, (k n,) int64.
    """
    num_images, num_captions = products.shape
    image_of = np.arange(num_captions) // captions_per_image
    matching = products[image_of, np.arange(num_captions)]  # (k n,)
    by_image = matching.reshape(num_images, captions_per_image)
    first_best = by_image.argmax(axis=1) + captions_per_image * np.arange(num_images)
    return (
        _rank(products, by_image.max(axis=1, keepdims=True), first_best[:, None], axis=1),
        _rank(products, matching[None], image_of[None], axis=0),
    )


def _rank(products: NDArray[np.floating[Any]], matching: NDArray[Any], position: Ints, axis: int) -> Ints:
    places = np.expand_dims(np.arange(products.shape[axis]), 1 - axis)
    ahead = (products > matching) | ((products == matching) & (places < position))
    return np.asarray(ahead.sum(axis=axis) + 1, np.int64)


def _batches(num_rows: int, generator: np.random.RandomState) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield the batches of one pass over the training captions, in random order.

    Args:
        num_rows: the number of training captions.
        generator: the random generator that draws the order of the captions and their negatives.

    Yields:
        Three arrays of indices of captions: the b captions of the batch, (b,); for each of these, 30 captions whose
        images are its negative images, (b, 30); and for each, 30 captions that are its negative captions, (b, 30).
    """
    order = generator.permutation(num_rows)
    for start in range(0, num_rows, BATCH):
        rows = order[start : start + BATCH]
        negatives = []
        for _ in range(2):
            drawn = generator.randint(0, num_rows - len(rows), size=_CONTRASTIVE * len(rows))
            outside = order[np.where(drawn >= start, drawn + len(rows), drawn)]
            negatives.append(outside.reshape(len(rows), _CONTRASTIVE))
        yield rows, negatives[0], negatives[1]


def _loss(
    model: _Projections, images: Tensor, captions: Tensor, rows: Tensor, other_images: Tensor, other_captions: Tensor
) -> Tensor:
    per_image = len(captions) // len(images)
    rows, other_images, other_captions = (x.to(images.device) for x in (rows, other_images, other_captions))
    image, sentence = model(images[rows // per_image], captions[rows])  # (b, 1000)
    contrast_image, contrast_sentence = model(images[other_images // per_image], captions[other_captions])
    matching = (image * sentence).sum(-1)[:, None]
    to_sentences = torch.einsum("bd,bcd->bc", image, contrast_sentence)
    to_images = torch.einsum("bd,bcd->bc", sentence, contrast_image)
    margins = (_MARGIN - matching + to_sentences, _MARGIN - matching + to_images)
    loss: Tensor = margins[0].clamp(min=0).sum() + margins[1].clamp(min=0).sum()
    return loss


@torch.no_grad()
def _ranks(model: _Projections, side: Side, device: str) -> FoldRanks:
    """Return the ranks in five folds of 1,000 images each, as in SentEval.

    The first 5,000 images are used. If there are fewer, they are divided into five folds of about the same size.

    Args:
        model: the projections.
        side: the vectors of the dev or test split.
    """
    per_image = len(side.captions) // len(side.images)
    ranks = FoldRanks([], [])
    num_images = min(len(side.images), _FOLDS * _IMAGES_A_FOLD)
    for fold in np.array_split(np.arange(num_images), min(_FOLDS, num_images)):
        start, end = int(fold[0]), int(fold[-1]) + 1
        images = torch.from_numpy(side.images[start:end]).to(device)
        captions = torch.from_numpy(side.captions[per_image * start : per_image * end]).to(device)
        image, sentence = model(images, captions)
        to_text, to_image = ranks_of((image @ sentence.T).cpu().numpy(), per_image)
        ranks.image_to_text.append(to_text)
        ranks.text_to_image.append(to_image)
    return ranks
