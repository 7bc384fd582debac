"""Recipes `pairs` and `static-pairs`, and spans of the texts beside them, from one dataset of pairs."""

from pathlib import Path

import pytest
import torch

from clearspan.train.config.options import ALL, RecipeError
from tests.train.conftest import TINY_MODEL
from tests.train.test_learner import learner_and_batch
from tests.train.test_simcse import write_triplets

RECIPE = "static-pairs"
SAMPLER = "{num_anchors: 1, num_positives: 1, min_span: 8, max_span: 128, min_distance: 0, placement: uniform}"
SPANS = f"objectives.spans={{type: spans, data: text, column: positive, sampler: {SAMPLER}}}"


@pytest.fixture(scope="module")
def pairs(documents: list[list[int]], tokenizer_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Overrides for pairs of a chapter's first tokens and the 200 that follow."""
    rows = [part for document in documents for part in (document[:9], document[9:209])]
    folder = write_triplets(tmp_path_factory.mktemp("data") / "pairs", rows, tokenizer_folder, 2)
    sizes = ["data.text.batch_size=16", "model.config.hidden_size=24", "training.max_steps=6"]
    return [f"data.text.path={folder}", *sizes, "training.logging_steps=1", "training.bf16=false"]


def test_spans_are_drawn_in_the_texts_and_pairs_are_whole(pairs: list[str]) -> None:
    learner, batches, _ = learner_and_batch([*pairs, SPANS, "objectives.pairs.max_tokens=0"], recipe=RECIPE)
    batch = batches["text"]
    packed = learner.prepare(batches, ALL)
    blocks = {
        name: packed.packed.ids.split(packed.packed.cu_seqlens.diff().tolist())[part]
        for name, part in packed.blocks.items()
    }
    for row in range(16):
        title, text = (batch.of("pairs").lists(name) for name in ("tokens", "positive"))
        whole = [each.values[each.offsets[row] : each.offsets[row + 1]].tolist() for each in (title, text)]
        assert [blocks[f"pairs/{name}"][row].tolist() for name in ("tokens", "positive")] == whole
        joined = " ".join(map(str, whole[1]))
        spans = [blocks["spans/anchors"][row], blocks["spans/positives"][row]]
        assert all(" ".join(map(str, span.tolist())) in joined for span in spans)


@pytest.mark.parametrize(("recipe", "length"), [("pairs", 64), (RECIPE, 128)])
def test_the_recipes_train_on_titles_with_texts_cut(pairs: list[str], recipe: str, length: int) -> None:
    """No text is encoded whole, and nothing but the pairs: both were measured to cost more than they bring."""
    keys = pairs if recipe == RECIPE else [*TINY_MODEL, *(key for key in pairs if "hidden_size" not in key)]
    learner, batches, _ = learner_and_batch(keys, recipe=recipe)
    packed = learner.prepare(batches, ALL)
    assert set(packed.blocks) == {"pairs/tokens", "pairs/positive"}
    assert packed.packed.cu_seqlens.diff().max() == length


def test_the_vectors_begin_with_the_frequencies_in_both_columns(pairs: list[str]) -> None:
    begun, random = (
        learner_and_batch([*pairs, *more], recipe=RECIPE)[0].encoder.base.embeddings.weight.detach()
        for more in ([], ["model.init=random"])
    )
    ratio = (begun / random).mean(dim=1)
    torch.testing.assert_close(begun, random * ratio[:, None])
    assert ratio.min() == pytest.approx(0.05) and ratio.unique().numel() > 20


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (
            [SPANS, "objectives.more={type: spans, data: text}"],
            "draw spans .*positive and tokens",
        ),
        ([SPANS.replace("column: positive", "column: text")], r"objectives\.spans\.column"),
    ],
)
def test_impossible_columns_are_refused(pairs: list[str], more: list[str], reason: str) -> None:
    with pytest.raises(RecipeError, match=reason):
        learner_and_batch([*pairs, *more], recipe=RECIPE)
