"""Held-out examples: the same losses every time, no gradient, and options that are refused."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from clearspan.shards import Dataset
from clearspan.train.config.options import RecipeError
from clearspan.train.job import NOTHING_PICKS, notes
from clearspan.train.recipe import load_recipe
from clearspan.train.selection.model_selection import Judge
from clearspan.train.selection.validation import HeldOutExamples
from clearspan.train.start.build_learner import build_learner
from clearspan.train.start.build_streams import build_feed, build_held_out
from clearspan.train.step.learner import Learner
from tests.train.conftest import write_dataset

DROPOUT = ["model.config.hidden_dropout_prob=0.5", "model.config.attention_probs_dropout_prob=0.5"]


@pytest.fixture(scope="module")
def held_folder(documents: list[list[int]], tokenizer_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of 20 documents."""
    return write_dataset(tmp_path_factory.mktemp("held") / "validation", documents[-20:], tokenizer_folder)


def built(overrides: Sequence[str]) -> tuple[Learner, HeldOutExamples]:
    recipe = load_recipe("demo", [*overrides, "training.eval_steps=2", "output=unused"])
    datasets = {name: Dataset(data.path) for name, data in recipe.data.items()}
    learner, _, _ = build_learner(recipe, datasets, 1, False)
    held_out = build_held_out(recipe, datasets, learner, 0, 1)
    assert held_out is not None
    return learner, held_out


class Engine:
    """A stand-in for DeepSpeed's engine, for forward passes only."""

    def __init__(self, module: Learner) -> None:
        self.module, self.device = module, torch.device("cpu")
        self.eval, self.train = module.eval, module.train
        self.seen: list[list[int]] = []

    def __call__(self, batches: dict, turn: str, cached: Any = None) -> Any:
        self.seen.append(next(iter(batches.values())).ids.tolist())
        return self.module(batches, turn, cached)

    def torch_autocast_enabled(self) -> bool:
        return False


@pytest.mark.slow
def test_losses_on_held_out_examples_are_the_same_every_time(tiny: list[str], held_folder: Path) -> None:
    """Despite dropout of one half in training and other draws in between; no gradient is left."""
    learner, held_out = built([*tiny, *DROPOUT, f"data.text.validation={held_folder}"])
    engine = Engine(learner.train())
    first = held_out.metrics(engine)
    torch.rand(7)
    assert held_out.metrics(engine) == first
    assert learner.training and all(parameter.grad is None for parameter in learner.parameters())
    assert engine.seen[:2] == engine.seen[2:] and [len(ids) for ids in engine.seen] == [8] * 4
    held = {int(id_) for batch in Dataset(held_folder) for id_ in batch.column("id").to_numpy()}
    assert {id_ for ids in engine.seen for id_ in ids} <= held
    total = first["validation/spans/loss"] + first["validation/mlm/loss"]
    assert first["validation/loss"] == pytest.approx(total)
    assert {"validation/spans/accuracy", "validation/mlm/accuracy"} <= first.keys()
    assert not any(name.startswith("validation/tokens") for name in first)


@pytest.mark.slow
def test_with_gradient_caching_they_are_contrasted_a_step_at_a_time(tiny: list[str], held_folder: Path) -> None:
    """The micro-batches of a step give the losses of one batch; every masked token counts the same."""
    given = [*tiny, f"data.text.validation={held_folder}"]
    cached = [*given, "training.gradient_accumulation_steps=4", "training.gradient_caching=true"]
    (learner, one), (_, many) = built(given), built(cached)
    engine = Engine(learner)
    expected = one.metrics(engine)
    found = many.metrics(engine)
    assert [len(ids) for ids in engine.seen] == [8] * 2 + [2] * 8
    del expected["validation/mlm/accuracy"], found["validation/mlm/accuracy"]
    assert found == pytest.approx(expected, rel=1e-5)


def test_examples_of_another_kind_or_tokenizer_are_refused(
    tiny: list[str], sentences_folder: Path, documents: list[list[int]], del_tokenizer_folder: Path, tmp_path: Path
) -> None:
    other = write_dataset(tmp_path / "other", documents[:20], del_tokenizer_folder)
    for folder, said in ((sentences_folder, "sentences, not documents"), (other, "made with other files")):
        with pytest.raises(RecipeError, match=said):
            built([*tiny, f"data.text.validation={folder}"])


def test_a_run_without_eval_data_says_what_picks_its_checkpoint(tiny: list[str], held_folder: Path) -> None:
    """The losses on held-out examples; without these nothing does, which is no error either."""
    learner, held_out = built([*tiny, f"data.text.validation={held_folder}"])
    picked = "training.eval_data is not set: the best checkpoint is picked by the held-out loss of spans, mlm"
    assert held_out.notes() == [picked]
    recipe = load_recipe("demo", [*tiny, "training.eval_steps=2", "output=unused"])
    feed = build_feed(recipe, {"text": Dataset(recipe.data["text"].path)}, learner, 0, 1)
    assert notes(recipe, learner, feed, None, 6) == [NOTHING_PICKS]
    assert not Judge(recipe, None, None, True).enabled


@pytest.mark.exhaustive
def test_a_loss_on_two_equal_passes_picks_no_checkpoint(tiny: list[str], sentences_folder: Path) -> None:
    """It is logged but does not count; the loss of another objective beside it does."""
    alone = [*tiny, "objectives.spans=null", "objectives.mlm=null", "objectives.simcse.data=text", "model.pooling=cls"]
    alone += [
        f"data.text.path={sentences_folder}",
        f"data.text.validation={sentences_folder}",
        "data.text.batch_size=8",
    ]
    beside = [*alone, "objectives.mlm.input=sentence", "objectives.mlm.data=text", "objectives.mlm.weight=0.5"]
    for words, picks in ((alone, False), (beside, True)):
        learner, held_out = built(words)
        engine = Engine(learner)
        judge = Judge(load_recipe("demo", [*words, "training.eval_steps=2", "output=o"]), None, held_out, True)
        figures, better = judge.judge(engine)
        assert figures["validation/simcse/accuracy"] == 1 and figures["validation/simcse/loss"] > 0
        assert judge.enabled and judge.picks == better == picks
        assert figures.get("validation/loss") == (0.5 * figures["validation/mlm/loss"] if picks else None)
        (note,) = held_out.notes()
        picked = (
            "the best checkpoint is picked by the held-out loss of mlm;" if picks else "the last checkpoint is exported"
        )
        assert picked in note and "that of objectives.simcse does not count (its positives are two passes" in note
