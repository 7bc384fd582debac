"""Several datasets side by side: each with a stream, epochs and draws of its own."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from clearspan.shards import Dataset
from clearspan.train.config.options import RecipeError
from clearspan.train.data.feed import Feed, FeedState, MicroBatch, from_plain, to_plain
from clearspan.train.data.stream import StreamState
from clearspan.train.engine.loop import total_steps
from clearspan.train.recipe import load_recipe
from clearspan.train.start.build_learner import build_learner
from clearspan.train.start.build_streams import build_feed
from clearspan.train.step.learner import Learner
from tests.train.conftest import write_dataset

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
    recipe = load_recipe("demo", [*overrides, "output=unused"])
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


def test_the_primary_datasets_epochs_are_the_runs(two: list[str]) -> None:
    epochs = ["training.max_steps=0", "training.epochs=3"]
    for primary, named in ([], "text"), (["training.primary=more"], "more"):
        _, feed = feed_of([*two, *primary])
        recipe = load_recipe("demo", [*two, *epochs, *primary, "output=unused"])
        assert total_steps(recipe, feed) == 3 * feed.streams[named].steps_per_epoch
    assert feed.streams["text"].steps_per_epoch > feed.streams["more"].steps_per_epoch == 2


def test_datasets_that_are_passed_over_more_or_less_than_once_are_named(two: list[str]) -> None:
    _, feed = feed_of(two)
    once = feed.streams["text"].steps_per_epoch
    assert feed.notes(once) == [f"data.more: its 10 examples are read {once / 2:.3g} times in {once:,} steps"]
    _, feed = feed_of([*two, "training.primary=more"])
    (note,) = feed.notes(2)
    assert note.startswith("data.text: ") and note.endswith(f"examples are read {2 / once:.3g} times in 2 steps")


def test_a_primary_dataset_that_is_read_many_times_is_named(two: list[str]) -> None:
    _, feed = feed_of([*two, "training.primary=more"])
    assert not any(note.startswith("data.more") for note in feed.notes(20))
    assert feed.notes(21)[-1] == "data.more: its 10 examples are read 10.5 times in 21 steps"


def test_epochs_are_counted_with_the_fraction_of_the_current_one(two: list[str]) -> None:
    _, feed = feed_of(two)
    assert feed.epochs({"text": StreamState(0, 24), "more": StreamState(1, 4)})["more"] == 1.4


def test_datasets_of_different_tokenizers_are_refused(two: list[str], sentences_folder: Path) -> None:
    with pytest.raises(RecipeError, match=r"data\.more: .* tokenizer .*data\.text"):
        feed_of([*two, f"data.more.path={sentences_folder}"])
