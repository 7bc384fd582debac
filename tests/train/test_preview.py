"""What a run learns from, as text: an anchor, its positive, and a hard and an easy negative."""

from pydoc_data.topics import topics

import pytest

from clearspan.shards import Dataset
from clearspan.train.build import build_feed, build_learner
from clearspan.train.config.recipe import load
from clearspan.train.preview import WIDTH, as_file, examples, in_short

CHAPTERS = {" ".join(text.split()) for text in topics.values()}


@pytest.mark.parametrize("strategy", ["any", "adjacent", "subsuming"])
def test_spans_are_shown_as_anchor_positive_and_negatives(tiny: list[str], strategy: str) -> None:
    recipe = load("demo", [*tiny, f"objectives.spans.sampler.positives={strategy}", "output=unused"])
    datasets = {name: Dataset(data.path) for name, data in recipe.data.items()}
    learner, tokenizer, _ = build_learner(recipe, datasets, 1, False)
    feed = build_feed(recipe, datasets, learner, 0, 1)
    batch, _ = next(feed.prefetched(feed.start(), {"text": learner.columns("text")}, learner.collate))
    found = examples(learner, tokenizer, batch)
    assert list(found) == ["spans"] and len(found["spans"]) == 4  # what mlm masks are the anchors themselves
    for shown in found["spans"]:
        (anchor, positive, hard, easy), labels = (text for _, text in shown), [label for label, _ in shown]
        kind = labels[1].removeprefix("positive, ")
        assert labels == ["anchor", f"positive, {kind}", "hard negative", "easy negative"]
        assert kind in {"any": ("overlapping", "adjacent", "subsumed"), "subsuming": ("subsumed",)}.get(
            strategy, (strategy,)
        )
        assert kind != "subsumed" or positive in anchor
        assert any(anchor in text and hard in text for text in CHAPTERS)
        assert not any(anchor in text and easy in text for text in CHAPTERS)
    again = examples(learner, tokenizer, batch)
    assert again == found and as_file(found).count("hard negative: ") == 4
    lines = in_short(found)
    assert len(lines) == 4 and lines[0].startswith("spans: anchor: ") and max(map(len, lines)) < WIDTH + 45


def test_sentences_are_shown_with_their_views(tiny_clear: list[str]) -> None:
    recipe = load("clear-subs+del-span", [*tiny_clear, "output=unused"])
    datasets = {name: Dataset(data.path) for name, data in recipe.data.items()}
    learner, tokenizer, _ = build_learner(recipe, datasets, 1, False)
    feed = build_feed(recipe, datasets, learner, 0, 1)
    batch, _ = next(feed.prefetched(feed.start(), {"text": learner.columns("text")}, learner.collate))
    found = examples(learner, tokenizer, batch)
    assert [label for label, _ in found["clear"][0]] == ["view_0", "view_1"]
    assert [label for label, _ in found["mlm"][0]] == ["tokens"]
    assert "[DEL]" in found["clear"][0][0][1] and "[DEL]" not in found["mlm"][0][0][1]
