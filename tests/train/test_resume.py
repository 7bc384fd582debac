"""A resumed run has the state that was saved, draws dropout as it would have, and refuses what cannot go on."""

import copy
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from clearspan.train.config.options import OptimizerConfig, RecipeError
from clearspan.train.data.stream import StreamState
from clearspan.train.draws import Purpose, integer_seed
from clearspan.train.engine.loop import Trainer


class Kept:
    """A checkpoint in memory."""

    def save(self, engine: object, step: int, state: dict[str, Any], best: bool) -> None:
        self.saved, self.step, self.best = copy.deepcopy(state), step, best

    def load(self, engine: object) -> dict[str, Any]:
        return copy.deepcopy(self.saved)


def trainer(kept: Kept, **changed: Any) -> Any:
    """Return what saving and resuming use of a trainer of ten steps, before its first."""
    run = SimpleNamespace(
        step=0,
        total=10,
        state={"text": StreamState(), "pairs": StreamState()},
        first_loss=None,
        judge=SimpleNamespace(best=-math.inf, given=False),
        engine=SimpleNamespace(device="cpu"),
        learner=torch.nn.Linear(2, 2),
        checkpoints=kept,
        run="runs/owls",
        optimizers={"all": OptimizerConfig()},
        feed=SimpleNamespace(start=lambda: {"text": StreamState(), "pairs": StreamState()}, steps_per_epoch=7),
        recipe=SimpleNamespace(training=SimpleNamespace(max_steps=10)),
        reduced=[],
    )
    vars(run).update(changed)
    run._reduced = run.reduced.append
    return run


REACHED = {
    "step": 7,
    "state": {"text": StreamState(2, 30), "pairs": StreamState(1, 5)},
    "first_loss": 6.25,
    "judge": SimpleNamespace(best=71.5, given=True),
}


@pytest.mark.guarantee("bit-equal-resume")
@pytest.mark.parametrize("best", [False, True])
def test_a_resumed_run_has_every_part_of_the_state_that_was_saved(best: bool) -> None:
    kept = Kept()
    stopped, resumed = trainer(kept, **REACHED), trainer(kept)
    Trainer._save(stopped, {"loss": torch.tensor(2.5)}, best)
    assert (kept.step, kept.best) == (7, best)
    (checked,) = stopped.reduced
    assert checked["loss"] == 2.5 and not checked["weights_norm"].requires_grad
    assert checked["weights_norm"] == torch.nn.utils.get_total_norm(
        [each.detach() for each in stopped.learner.parameters()]
    )
    assert Trainer.resume(resumed) == []
    assert {name: getattr(resumed, name) for name in REACHED} == REACHED
    states = kept.saved["feed"].values()
    assert [type(each) for each in states] == [dict, dict], "plain values, which a checkpoint may hold"


@pytest.mark.guarantee("bit-equal-resume")
def test_a_run_of_another_length_is_told_and_a_shorter_one_than_was_made_is_refused() -> None:
    kept = Kept()
    Trainer._save(trainer(kept, **REACHED), {}, best=False)
    (line,) = Trainer.resume(trainer(kept, total=20))
    assert line.startswith(
        "runs/owls: 20 steps in place of 10; the learning rate follows the schedule of the new length"
    )
    assert Trainer.resume(trainer(kept, total=7)) == ["runs/owls: 7 steps in place of 10"]
    said = "6: the run has made 7 steps already: set a longer run"
    with pytest.raises(RecipeError, match=f"^training.max_steps {said}$"):
        Trainer.resume(trainer(kept, total=6))
    by_epochs = SimpleNamespace(training=SimpleNamespace(max_steps=0))
    with pytest.raises(RecipeError, match=f"^training.epochs, which makes {said}$"):
        Trainer.resume(trainer(kept, total=6, recipe=by_epochs))


def seeds(step: int, turn: int = 0, rank: int = 0, seed: int = 3) -> list[int]:
    """Return the seeds of a step of three micro-batches of a learner with two objectives in a turn."""
    objectives = [SimpleNamespace(data="text"), SimpleNamespace(data="pairs"), SimpleNamespace(data="text")]
    run = SimpleNamespace(
        step=step,
        rank=rank,
        learner=SimpleNamespace(of_turn=lambda name: {"all": objectives}[name]),
        recipe=SimpleNamespace(training=SimpleNamespace(seed=seed)),
    )
    batches = [{name: f"{name} {number}" for name in ("text", "pairs", "images")} for number in range(3)]
    found = []
    for number, (inputs, drawn) in enumerate(Trainer._inputs(run, "all", turn, batches)):
        assert inputs == {"text": f"text {number}", "pairs": f"pairs {number}"}
        assert torch.initial_seed() == drawn, "whatever was drawn before"
        torch.rand(1)
        found.append(drawn)
    return found


@pytest.mark.guarantee("bit-equal-resume")
def test_dropout_is_seeded_by_step_micro_batch_rank_and_turn_and_by_nothing_before() -> None:
    everything = [number for step in range(4) for number in seeds(step)]
    assert len(everything) == len(set(everything)) == 12
    torch.rand(5)
    assert seeds(2) == everything[6:9]
    others = [*seeds(2, turn=1), *seeds(2, rank=1), *seeds(2, seed=4), *seeds(2, turn=1, rank=1)]
    assert not {*others} & {*everything} and len(set(others)) == len(others)
    assert seeds(2, turn=1, rank=5) == [integer_seed(3, Purpose.DROPOUT, place, 5, 1) for place in (6, 7, 8)]
