"""Geometry on STS-B: how near the embeddings of pairs alike lie, and how evenly all embeddings are spread.

    alignment  = mean |x - y|^2 over the pairs with a gold score above 4
    uniformity = log of the mean exp(-2 |x - y|^2) over all pairs of distinct sentences

of embeddings scaled to unit length (Wang and Isola 2020; SimCSE and NonLing-CSE, section 5.2, plot both on
STS-B, without saying of which split; SimCSE's authors say: of the whole). Lower is better in both. Neither is a
percentage, and no interval is given: a sample of the pairs is no sample of a distribution over the sphere.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clearspan.eval.data.sts import Pairs
from clearspan.eval.files import MissingDataError
from clearspan.eval.models.embed import Floats, unit_vectors
from clearspan.eval.report.html import Section
from clearspan.eval.report.table import Table
from clearspan.eval.scores import TaskScores
from clearspan.eval.tasks.sts import read_all_splits
from clearspan.eval.tasks.task import Family, Loaded, Run

NAME = "geometry"
THRESHOLD = 4.0
_BLOCK = 2048


def alignment(left: Floats, right: Floats) -> float:
    """Mean squared distance of each row of `left` (n, d) from the same row of `right`, as given; NaN where n is 0."""
    if not len(left):
        return float("nan")
    return float(np.mean(np.sum((left.astype(np.float64) - right) ** 2, axis=1)))


def uniformity(vectors: Floats) -> float:
    """log mean exp(-2 |x - y|^2) over all pairs i < j of the rows of (n, d), as given; NaN where n is below 2.

    Products are taken in the dtype given, a block of rows at a time, and summed in float64.
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
    """STS-B's three splits."""

    splits: dict[str, Pairs]
    files: tuple[Path, ...] = ()
    name: str = NAME

    def score(self, run: Run) -> TaskScores:
        """`alignment` and `uniformity` over all splits together, and of each split as `*_train`, `*_dev`, `*_test`."""
        splits = {"": _joined(list(self.splits.values())), **self.splits}
        run.embedder.embed(splits[""].left + splits[""].right)
        scores: dict[str, float] = {}
        rows = []
        counts: dict[str, dict[str, float]] = {}
        for split, pairs in splits.items():
            suffix = f"_{split}" if split else ""
            left, right = (unit_vectors(run.embedder.embed(texts)) for texts in (pairs.left, pairs.right))
            distinct = list(dict.fromkeys(pairs.left + pairs.right))
            alike = pairs.gold > THRESHOLD
            found = {
                f"alignment{suffix}": alignment(left[alike], right[alike]),
                f"uniformity{suffix}": uniformity(unit_vectors(run.embedder.embed(distinct))),
            }
            scores |= found
            counts[split] = {"num_pairs": int(alike.sum()), "num_sentences": len(distinct)}
            rows.append((split or "all", *counts[split].values(), *found.values()))
        section = Section(
            self.name,
            text=f"On STS-B, in units of their own, lower is better in both. Alignment is over pairs with a gold score "
            f"above {THRESHOLD:g}, uniformity over all pairs of distinct sentences.",
            tables=[Table(("split", "pairs", "sentences", "alignment", "uniformity"), rows)],
        )
        return TaskScores(
            scores,
            main="alignment",
            headline=("alignment", "uniformity"),
            counts={"pairs": int(counts[""]["num_pairs"]), "sentences": int(counts[""]["num_sentences"])},
            section=section,
            subsets={split: counts[split] for split in self.splits},
            settings={"threshold": THRESHOLD},
        )


def load(data: Path) -> Loaded:
    """Reads STS-B of a SentEval data folder; it needs all its three splits, or the figures would be others.

    Raises:
        DataError: a file is malformed.
    """
    try:
        return Loaded([GeometryTask(*read_all_splits(data, "STSBenchmark"))], {})
    except MissingDataError as error:
        return Loaded([], {NAME: str(error)})


FAMILY = Family(load, "alignment and uniformity on DIR/downstream/STS/STSBenchmark/")


def _joined(splits: list[Pairs]) -> Pairs:
    return Pairs(
        [text for pairs in splits for text in pairs.left],
        [text for pairs in splits for text in pairs.right],
        np.concatenate([pairs.gold for pairs in splits]),
    )
