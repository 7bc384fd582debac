"""The best checkpoint is picked by its score, and a start that no step bettered is exported as what it is."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from clearspan.train import export as exports
from clearspan.train.card import NO_STEP, PREPARED, UNCHANGED
from clearspan.train.engine.checkpoint import CheckpointError, Checkpoints
from clearspan.train.export import DATA, SKELETON, export
from clearspan.train.model.encoder import TrainableEncoder
from clearspan.train.model.source import Given
from clearspan.train.selection import model_selection
from clearspan.train.selection.model_selection import Judge


class HeldOut:
    """Held-out examples with these losses, one after another."""

    def __init__(self, *figures: dict[str, float], judging: bool = True) -> None:
        self.figures, self.judging = list(figures), {"mlm": 1.0} if judging else {}

    def metrics(self, engine: object, quiet: bool) -> dict[str, float]:
        assert quiet is False
        return self.figures.pop(0)


class Encoder:
    """An encoder with a new layer after that of the model as given, whose pooling it has."""

    pools_as_given, as_given = TrainableEncoder.pools_as_given, TrainableEncoder.as_given

    def __init__(self, pools_as_given: bool = False) -> None:
        self.given, self.pooling, self.head = Given("mean", 1, False), "mean", ["dense", "new"]
        self.head = self.head[:1] if pools_as_given else self.head


def engine(encoder: Encoder | None = None) -> Any:
    return SimpleNamespace(device="cpu", module=SimpleNamespace(encoder=encoder))


def judge(*scores: float, held_out: HeldOut | None = None, eval_steps: int = 2) -> Judge:
    left = list(scores)
    recipe: Any = SimpleNamespace(training=SimpleNamespace(eval_steps=eval_steps))
    evaluate: Any = (lambda learner: left.pop(0)) if scores else None
    return Judge(recipe, evaluate, held_out, quiet=False)  # type: ignore[arg-type]


@pytest.mark.guarantee("export-of-the-start")
def test_only_a_higher_dev_score_is_better_and_one_that_is_no_number_never() -> None:
    judged = judge(50.123456789, 50.123456789, math.nan, 51.0, math.inf, 49.0)
    found = [judged.judge(engine()) for _ in range(6)]
    logged = [{"dev_score": score} for score in (50.123456789, 50.123456789, 51.0)]
    assert found[:4] == [(logged[0], True), (logged[1], False), ({}, False), (logged[2], True)]
    assert found[4][0] == {} and found[5] == ({"dev_score": 49.0}, False)
    below_0 = judge(-4.0, -5.0, -3.0, 0.0)
    assert [below_0.judge(engine())[1] for _ in range(4)] == [True, False, True, True]


@pytest.mark.guarantee("export-of-the-start")
def test_a_dev_score_counts_and_not_the_held_out_loss_which_is_logged_beside_it() -> None:
    judged = judge(50.0, 49.0, held_out=HeldOut({"validation/loss": 3.0}, {"validation/loss": 1.0}))
    assert judged.judge(engine()) == ({"dev_score": 50.0, "validation/loss": 3.0}, True)
    assert judged.judge(engine()) == ({"dev_score": 49.0, "validation/loss": 1.0}, False)
    assert judged.best == 50.0


@pytest.mark.guarantee("export-of-the-start")
def test_without_a_dev_score_the_lowest_held_out_loss_is_the_best() -> None:
    losses = [{"validation/loss": loss, "validation/mlm/loss": 9.0} for loss in (3.0, 3.0, 2.5, 2.75)]
    judged = judge(held_out=HeldOut(*losses, {"validation/mlm/loss": 9.0}))
    assert [judged.judge(engine()) for _ in range(5)] == [
        *zip(losses, [True, False, True, False], strict=True),
        ({"validation/mlm/loss": 9.0}, False),
    ]
    assert judged.best == -2.5


@pytest.mark.guarantee("export-of-the-start")
def test_nothing_is_better_where_nothing_picks_a_checkpoint() -> None:
    for judged in (
        judge(50.0, eval_steps=0),
        judge(held_out=HeldOut({"validation/loss": 1.0}), eval_steps=0),
        judge(held_out=HeldOut({"validation/loss": 1.0}, judging=False)),
    ):
        figures, better = judged.judge(engine())
        assert figures and not better and judged.best == -math.inf
        assert judged.judge_given(engine(Encoder())) == {} and not judged.given


@pytest.mark.guarantee("export-of-the-start")
def test_rank_0_alone_computes_the_dev_score_and_every_rank_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_selection, "world", lambda: (1, 2))
    monkeypatch.setattr(model_selection, "sum_over_ranks", lambda score: score + 61.5)
    assert judge(50.0).judge(engine()) == ({"dev_score": 61.5}, True)
    monkeypatch.setattr(model_selection, "world", lambda: (0, 2))
    monkeypatch.setattr(model_selection, "sum_over_ranks", lambda score: score)
    assert judge(50.0).judge(engine()) == ({"dev_score": 50.0}, True)


@pytest.mark.guarantee("export-of-the-start")
@pytest.mark.parametrize(("first", "second", "is_given"), [(60.0, 55.0, True), (60.0, 60.0, True), (60.0, 65.0, False)])
def test_the_model_as_given_is_judged_first_and_is_the_best_until_one_is_better(
    first: float, second: float, is_given: bool
) -> None:
    encoder = Encoder()
    heads = []
    judged = judge(1.0, held_out=HeldOut(*[{"validation/loss": 2.0}] * 3))
    scores = [first, second, 50.0]
    judged.evaluate = lambda learner: heads.append([*learner.encoder.head]) or scores.pop(0)  # type: ignore[assignment]
    assert judged.judge_given(engine(encoder)) == {"given/dev_score": 60.0, "given/validation/loss": 2.0}
    assert judged.given and judged.best == 60.0
    assert judged.judge(engine(encoder))[1] is not is_given
    assert judged.given == is_given and heads == [["dense"], ["dense", "new"]]
    judged.judge(engine(encoder))
    assert judged.given == is_given


@pytest.mark.guarantee("export-of-the-start")
def test_a_model_that_pools_as_given_is_judged_once_and_a_worse_step_is_never_the_given_one() -> None:
    judged = judge(60.0, 55.0)
    assert judged.judge_given(engine(Encoder(pools_as_given=True))) == {} and judged.best == -math.inf
    assert judged.judge(engine())[1] and not judged.judge(engine())[1] and not judged.given


@pytest.mark.guarantee("export-of-the-start")
def test_a_given_model_is_judged_by_the_held_out_loss_where_there_is_no_dev_score() -> None:
    losses = [{"validation/loss": loss} for loss in (2.00001, 2.00002, 2.0)]
    judged = judge(held_out=HeldOut(*losses))
    assert judged.judge_given(engine(Encoder())) == {"given/validation/loss": 2.00001} and judged.given
    assert not judged.judge(engine())[1] and judged.given and judged.best == -2.00001
    assert judged.judge(engine())[1] and not judged.given


@pytest.mark.guarantee("export-of-the-start")
def test_a_given_model_without_a_score_is_not_the_best() -> None:
    judged = judge(math.nan)
    assert judged.judge_given(engine(Encoder())) == {} and not judged.given


def written(run: Path, *steps: tuple[int, bool, bool]) -> Path:
    """Write the folder of a run with a checkpoint for each (step, is the best, is as given)."""
    (run / SKELETON).mkdir(parents=True)
    (run / SKELETON / DATA).write_text(json.dumps({"text": {"kind": "documents"}}))
    (run / "recipe.yaml").write_text("output: o\n")
    lines = [{"step": step, "dev_score": 60.0 + step} for step in (0, 1, 4)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    checkpoints = Checkpoints(run)
    for step, best, given in steps:
        state = {"step": step, "total": 9, "best": 60.0} | ({"given": True} if given else {})
        checkpoints.write(
            step, {"module": {"w": torch.full((2,), float(step))}, "optimizer": {}, "clearspan": state}, best
        )
    return run


@pytest.mark.guarantee("export-of-the-start")
@pytest.mark.parametrize(
    ("steps", "checkpoint", "pools_as_given", "step", "said"),
    [
        ([(0, True, True), (4, False, True)], None, False, 0, UNCHANGED),
        ([(0, True, False), (4, False, False)], None, True, 0, UNCHANGED),
        ([(0, True, True), (4, False, True)], "best", False, 0, UNCHANGED),
        ([(0, True, False), (4, False, False)], "best", False, 0, PREPARED),
        ([(0, True, True)], "last", True, 0, NO_STEP),
        ([(0, False, False)], None, False, 0, NO_STEP),
        ([(0, True, True), (4, False, True)], "last", False, 4, "the last checkpoint, that of step 4"),
        ([(0, True, True), (1, True, False), (4, False, False)], None, True, 1, "the best checkpoint, that of step 1"),
        ([(1, False, True), (1234, False, True)], None, True, 1234, "the last checkpoint, that of step 1,234"),
    ],
)
def test_the_start_is_exported_as_given_as_pooled_or_as_no_step_and_is_said_to_be_that(
    steps: list[tuple[int, bool, bool]],
    checkpoint: str | None,
    pools_as_given: bool,
    step: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = written(tmp_path / "run", *steps)
    became, folders = [], []
    encoder = SimpleNamespace(pools_as_given=pools_as_given, become_given=lambda: became.append(True))

    def trained(folder: Path, weights: dict[str, torch.Tensor]) -> tuple[Any, str, str]:
        assert folder == run and weights["w"].tolist() == [step, step]
        return encoder, "its tokenizer", "its recipe"

    monkeypatch.setattr(exports, "_trained", trained)
    monkeypatch.setattr(exports, "write_folder", lambda *arguments: folders.append(arguments))
    assert export(run, tmp_path / "out", checkpoint) == said
    assert bool(became) == (said == UNCHANGED)
    ((*model, origin, formats, held_out),) = folders
    assert not formats and held_out is None
    assert model == [encoder, "its tokenizer", tmp_path / "out", "its recipe"]
    assert (origin.step, origin.start) == (step, "" if step else said)
    assert origin.data == {"text": {"kind": "documents"}}
    assert origin.scores == {at: {"dev_score": 60.0 + at} for at in sorted({0, step}) if at in (0, 1, 4)}


@pytest.mark.guarantee("export-of-the-start")
@pytest.mark.parametrize("missing", ["recipe.yaml", SKELETON])
def test_a_folder_without_a_recipe_or_an_encoder_is_no_run(tmp_path: Path, missing: str) -> None:
    run = written(tmp_path / "run", (0, True, True))
    (run / missing).rename(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match=rf"^{run}: not .*recipe\.yaml"):
        export(run, tmp_path / "out")


def encoder_of(given: Given | None) -> tuple[Any, list[bool]]:
    """Return what the methods use of an encoder by the mean and three layers, and a list of dropped heads."""
    dropped: list[bool] = []
    head = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    return SimpleNamespace(given=given, pooling="mean", head=head, drop_mlm_head=lambda: dropped.append(True)), dropped


@pytest.mark.guarantee("export-of-the-start")
@pytest.mark.parametrize("has_mlm_head", [True, False])
@pytest.mark.parametrize("layers", [0, 1, 3])
def test_an_encoder_becomes_as_given_in_its_pooling_its_layers_and_its_head(layers: int, has_mlm_head: bool) -> None:
    encoder, dropped = encoder_of(Given("cls", layers, has_mlm_head))
    before = list(encoder.head)
    with TrainableEncoder.as_given(encoder):
        assert encoder.pooling == "cls" and list(encoder.head) == before[:layers] and not dropped
    assert encoder.pooling == "mean" and list(encoder.head) == before
    TrainableEncoder.become_given(encoder)
    assert encoder.pooling == "cls" and list(encoder.head) == before[:layers]
    assert bool(dropped) == (not has_mlm_head)


@pytest.mark.guarantee("export-of-the-start")
def test_an_encoder_that_began_at_random_stays_as_it_is() -> None:
    encoder, dropped = encoder_of(None)
    TrainableEncoder.become_given(encoder)
    assert (encoder.pooling, len(encoder.head), dropped) == ("mean", 3, [])
