"""Several datasets side by side: each with a stream, epochs and draws of its own."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from shards import Dataset
from tests.train.conftest import write_dataset
from tests.train.ranks import train_alone
from tests.train.runs import metrics, same_weights, without_its_last_checkpoint
from train.build import build_feed, build_learner
from train.data.feed import Feed, FeedState, MicroBatch, from_plain, to_plain
from train.learner import Learner
from train.options import RecipeError
from train.recipe import load

SPANS = ("max_span=24", "min_span=4", "placement=uniform", "min_distance=16")
TWO = [
    "objectives.spans.data=text",
    "objectives.mlm=null",
    "data.more.batch_size=4",
    "data.more.short_documents=skip",
    "objectives.again.type=spans",
    "objectives.again.data=more",
    *(
        f"objectives.again.sampler.{key}"
        for key in ("max_span=24", "min_span=4", "placement=uniform", "min_distance=16")
    ),
]


@pytest.fixture(scope="module")
def two(tiny: list[str], documents: list[list[int]], tokenizer_folder: Path, tmp_path_factory) -> list[str]:
    """A recipe of two datasets, the second one of ten documents."""
    few = write_dataset(tmp_path_factory.mktemp("data") / "few", documents[:10], tokenizer_folder)
    return [*tiny, *TWO, f"data.more.path={few}"]


def feed_of(overrides: list[str]) -> tuple[Learner, Feed]:
    recipe = load("demo", [*overrides, "output=unused"])
    datasets = {name: Dataset(data.path) for name, data in recipe.data.items()}
    learner, _, _ = build_learner(recipe, datasets, 1, False)
    return learner, build_feed(recipe, datasets, learner, 0, 1)


def steps(overrides: list[str], state: FeedState | None = None) -> Iterator[tuple[MicroBatch, FeedState]]:
    learner, feed = feed_of(overrides)
    columns = {name: learner.columns(name) for name in feed.streams}
    return feed.prefetched(state or feed.start(), columns, learner.collate)


def test_a_small_dataset_begins_its_next_epoch_alone(two: list[str]) -> None:
    found = list(itertools.islice(steps(two), 5))
    assert [batch["more"].epochs[0].item() for batch, _ in found] == [0, 0, 1, 1, 2]
    assert {batch["text"].epochs[0].item() for batch, _ in found} == {0}
    assert [len(batch["more"].ids) for batch, _ in found] == [4] * 5


def test_any_state_continues_every_dataset_as_if_never_stopped(two: list[str]) -> None:
    whole = list(itertools.islice(steps(two), 5))
    rest = itertools.islice(steps(two, from_plain(to_plain(whole[1][1]))), 3)
    for (expected, state), (found, its_state) in zip(whole[2:], rest, strict=True):
        assert its_state == state and all(torch.equal(expected[name].ids, found[name].ids) for name in expected)


def test_a_run_over_two_datasets_resumes_bit_for_bit(two: list[str], tmp_path: Path) -> None:
    options = [*two, "training.max_steps=6", "training.save_steps=3"]
    whole = tmp_path / "whole"
    done = train_alone(*options, f"output={whole}")
    assert done.returncode == 0, done.stderr
    half = without_its_last_checkpoint(whole, tmp_path / "half")
    resumed = train_alone(*options, f"output={half}", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    names = ("loss", "spans/loss", "again/loss", "grad_norm", "tokens")
    assert metrics(half, names) == metrics(whole, names) and same_weights(half, whole)


def test_datasets_of_different_tokenizers_are_refused(two: list[str], sentences_folder: Path) -> None:
    with pytest.raises(RecipeError, match=r"data\.more: was made with another tokenizer than data\.text"):
        feed_of([*two, f"data.more.path={sentences_folder}"])
