"""Alignment and uniformity equal a double loop over the pairs, for all splits and for each."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearspan.common.encoder.embedder import unit_vectors
from clearspan.eval.models.embed import EmbeddingSimilarity
from clearspan.eval.tasks import geometry
from clearspan.eval.tasks.task import TaskContext
from tests.eval.tasks.test_sts import bag_of_words


def few_dimensions(texts: list[str]) -> np.ndarray:
    return bag_of_words(texts) @ np.random.RandomState(0).randn(1024, 16).astype(np.float32)


def by_double_loop(vectors: np.ndarray) -> float:
    total, num = 0.0, 0
    for i in range(len(vectors)):
        for j in range(i + 1, len(vectors)):
            total += math.exp(-2 * float(np.sum((vectors[i].astype(float) - vectors[j]) ** 2)))
            num += 1
    return math.log(total / num)


@pytest.mark.slow
@given(st.integers(2, 40), st.integers(1, 8), st.integers(0, 99), st.integers(1, 16))
def test_uniformity_is_that_of_a_double_loop_whatever_the_blocks(num: int, dim: int, seed: int, block: int) -> None:
    vectors = unit_vectors(np.random.RandomState(seed).randn(num, dim).astype(np.float32))
    vectors[0] = 0  # an embedding that is no number counts as 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(geometry, "_BLOCK", block)
        assert geometry.uniformity(vectors) == pytest.approx(by_double_loop(vectors), abs=1e-5)


def test_alignment_is_the_mean_squared_distance() -> None:
    left, right = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[1.0, 0.0], [1.0, 0.0]])
    assert geometry.alignment(left, right) == 1.0


def test_nothing_to_measure_is_not_a_number() -> None:
    assert math.isnan(geometry.alignment(np.empty((0, 4)), np.empty((0, 4))))
    assert math.isnan(geometry.uniformity(np.ones((1, 4))))


@pytest.mark.exhaustive
def test_the_figures_are_of_all_splits_together_and_of_each(shared_data: Path) -> None:
    (task,) = geometry.load(shared_data / "senteval").tasks
    assert isinstance(task, geometry.GeometryTask)
    scored = task.score(TaskContext(EmbeddingSimilarity(few_dimensions)))
    positives = {split: scored.subsets[split]["num_pairs"] for split in ("train", "dev", "test")}
    assert positives == {"train": 1052, "dev": 208, "test": 231}
    assert scored.counts["pairs"] == 1052 + 208 + 231
    assert set(scored.scores) == {
        f"{measure}{split}" for measure in ("alignment", "uniformity") for split in ("", "_train", "_dev", "_test")
    }
    weighted = sum(num * scored.scores[f"alignment_{split}"] for split, num in positives.items()) / sum(
        positives.values()
    )
    assert scored.scores["alignment"] == pytest.approx(weighted)
    dev = task.splits["dev"]
    texts = list(dict.fromkeys(dev.left + dev.right))
    vectors = unit_vectors(few_dimensions(texts)).astype(float)
    distances = 2 - 2 * vectors @ vectors.T
    distinct = np.exp(-2 * distances[np.triu_indices(len(texts), k=1)])
    assert scored.scores["uniformity_dev"] == pytest.approx(math.log(distinct.mean()), abs=1e-5)
    assert scored.subsets["dev"]["num_sentences"] == len(texts)
    assert scored.examples == {}
