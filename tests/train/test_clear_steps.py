"""A step of CLEAR and masked LM: one forward or several, one rank or two, a free shape or a fixed one."""

from pathlib import Path

import pytest
import torch

from clearspan.shards import Dataset
from clearspan.train.config.options import ALL
from clearspan.train.data.stream import ExampleStream, StreamState
from clearspan.train.model.masking import Masked, mask
from clearspan.train.recipe import load_recipe
from clearspan.train.start.build_learner import build_learner

RECIPE = "clear-subs+del-span"
ONE_MICRO_BATCH = "training.gradient_accumulation_steps=1"


@pytest.mark.slow
def test_the_budget_holds_every_forward_and_not_much_more(
    tiny_clear: list[str], sentences_folder: Path, sentences: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the manifest and a sample say of lengths, against 30 micro-batches of 64 sentences and their views."""
    recipe = load_recipe(RECIPE, [*tiny_clear, "output=o", "data.text.batch_size=64", ONE_MICRO_BATCH])
    learner, _, sizes = build_learner(recipe, {"text": Dataset(sentences_folder)}, 1, False)
    size = sizes[ALL]
    stream = ExampleStream("text", Dataset(sentences_folder), 64, 0, 100)
    batches = stream.batches(StreamState(), learner.columns("text"), learner.collate)
    assert max(map(len, sentences)) > learner.encoder.max_tokens, "the test wants sentences that are cut"
    slots = learner.objectives[1].num_slots(64)
    masked: list[Masked] = []
    monkeypatch.setattr(
        "clearspan.train.step.requests.mask", lambda *given: (found := mask(*given), masked.append(found[1]))[0]
    )
    for _ in range(30):
        with torch.no_grad():
            _, metrics = learner({"text": next(batches)[0]})
        assert metrics["tokens"] <= size.budget.tokens and len(masked.pop().index) <= slots
    assert size.sequences == 192 and size.budget.tokens < 1.6 * metrics["tokens"]
