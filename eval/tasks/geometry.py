"""Score the alignment and the uniformity (Wang and Isola 2020) of a model's embeddings on STS-B.

    alignment  = mean |x - y|^2 over the pairs with a gold score above 4: how close similar sentences are
    uniformity = log of the mean exp(-2 |x - y|^2) over all pairs of distinct sentences: how evenly embeddings spread

x and y are embeddings scaled to unit length. SimCSE and NonLing-CSE (section 5.2) plot both values on STS-B without
naming the split; SimCSE's authors say that it is the whole data set. Lower values are better. The values are not
percentages, and they have no intervals, because a bootstrap sample of the pairs would not sample the distribution of
embeddings on the sphere.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clearspan.common.encoder.embedder import unit_vectors
from clearspan.eval.data.sts_data import ScoredPairs
from clearspan.eval.details import Details
from clearspan.eval.scores import TaskScores
from clearspan.eval.tasks.sts import read_all_splits
from clearspan.eval.tasks.task import Family, Loaded, TaskContext, load_each
from clearspan.retrieval.products import Floats

NAME = "geometry"
THRESHOLD = 4.0
_BLOCK = 2048


def alignment(left: Floats, right: Floats) -> float:
    """Return the mean squared distance between row i of `left` and row i of `right`; NaN if there are no rows.

    The rows are not scaled to unit length here.

    Args:
        left, right: the embeddings of the first and the second texts of n pairs, (n, dim) each.
    """
    if not len(left):
        return float("nan")
    return float(np.mean(np.sum((left.astype(np.float64) - right) ** 2, axis=1)))


def uniformity(vectors: Floats) -> float:
    """Return the log of the mean of exp(-2 |x - y|^2) over all pairs of different rows x and y; NaN if n < 2.

    The rows are not scaled to unit length here. Their dot products are computed in the dtype of the array, for two
    blocks of rows at a time. The exponentials are added up in float64.

    Args:
        vectors: the embeddings of n texts, (n, dim).
    """
    num = len(vectors)
    if num < 2:
        return float("nan")
    squares = np.sum(vectors * vectors, axis=1)
    total = 0.0
    for i in range(0, num, _BLOCK):
        for j in range(i, num, _BLOCK):
            rows, columns = slice(i, i + _BLOCK), slice(j, j + _BLOCK)
            exponents = vectors[rows] @ vectors[columns].T
            exponents *= 4
            exponents -= 2 * squares[rows, None]
            exponents -= 2 * squares[None, columns]
            np.minimum(exponents, 0, out=exponents)  # rounding may put a distance below 0
            np.exp(exponents, out=exponents)
            if i == j:
                exponents = np.triu(exponents, k=1)
            total += float(exponents.sum(dtype=np.float64))
    return float(np.log(total / (num * (num - 1) / 2)))


@dataclass(frozen=True)
class GeometryTask:
    """A task that scores the alignment and the uniformity of a model's embeddings on STS-B.

    Attributes:
        splits: `train`, `dev` or `test` -> the sentence pairs of the split, for all three splits.
        files: the data files.
        name: the name of the task.
    """

    splits: dict[str, ScoredPairs]
    files: tuple[Path, ...] = ()
    name: str = NAME

    def score(self, run: TaskContext) -> TaskScores:
        """Return `alignment` and `uniformity` over all splits together, and also over each split.

        The scores over a split are named after it, for example `alignment_dev`.

        Raises:
            UnscoredError: the model has no embeddings.
        """
        splits = {"": _joined(list(self.splits.values())), **self.splits}
        run.embedder.embed(splits[""].left + splits[""].right)
        scores: dict[str, float] = {}
        counts: dict[str, dict[str, float]] = {}
        for split, pairs in splits.items():
            suffix = f"_{split}" if split else ""
            left, right = (unit_vectors(run.embedder.embed(texts)) for texts in (pairs.left, pairs.right))
            distinct = list(dict.fromkeys(pairs.left + pairs.right))
            alike = pairs.gold > THRESHOLD
            scores[f"alignment{suffix}"] = alignment(left[alike], right[alike])
            scores[f"uniformity{suffix}"] = uniformity(unit_vectors(run.embedder.embed(distinct)))
            counts[split] = {"num_pairs": int(alike.sum()), "num_sentences": len(distinct)}
        details = Details(
            "On STS-B; not percentages, lower is better. Alignment is over pairs with a gold score above "
            f"{THRESHOLD:g}, uniformity over all pairs of distinct sentences."
        )
        return TaskScores(
            scores,
            main="alignment",
            headline=("alignment", "uniformity"),
            counts={"pairs": int(counts[""]["num_pairs"]), "sentences": int(counts[""]["num_sentences"])},
            details=details,
            subsets={split: counts[split] for split in self.splits},
            settings={"threshold": THRESHOLD},
        )


def load(data: Path) -> Loaded:
    """Read the task from a SentEval data folder.

    The main scores need all three splits. If one of them does not exist, the task is left out, and `Loaded.missing` has
    the reason.

    Raises:
        DataError: a file is malformed.
    """
    return load_each({NAME: lambda: GeometryTask(*read_all_splits(data, "STSBenchmark"))})


FAMILY = Family(load, "alignment and uniformity on DIR/downstream/STS/STSBenchmark/")


def _joined(splits: list[ScoredPairs]) -> ScoredPairs:
    return ScoredPairs(
        [text for pairs in splits for text in pairs.left],
        [text for pairs in splits for text in pairs.right],
        np.concatenate([pairs.gold for pairs in splits]),
    )
