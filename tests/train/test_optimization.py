"""Optimizers of the user's own beside AdamW: their options, their states, and the line of one that fails."""

import copy
import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from clearspan.common.plugins import PluginError
from clearspan.train.config.optimizer import OptimizerConfig
from clearspan.train.config.options import ALL, Recipe, RecipeError, TrainingConfig, _check_optimizers
from clearspan.train.engine.optimization import AlternatingOptimizer
from clearspan.train.engine.tracking import Tracker

SGD = OptimizerConfig(type="torch.optim:SGD", options={"momentum": 0.9}, learning_rate=0.1)
ADAGRAD = OptimizerConfig(type="torch.optim:Adagrad", learning_rate=0.2)
ADAMW = OptimizerConfig(learning_rate=0.3)


class Averaged(torch.optim.Optimizer):
    """Descends along the mean of all gradients so far, times a number of its own that falls.

    It keeps the mean in fp64, the number of steps in each group, and the number of its own beside torch's state.
    """

    def __init__(self, groups: list[dict[str, Any]], lr: float, is_mean: bool = True) -> None:
        super().__init__(groups, {"lr": lr, "steps": 0})
        self.is_mean, self.factor = is_mean, 0.5

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            group["steps"] += 1
            for parameter in group["params"]:
                change = parameter.grad.double() / 3
                if self.is_mean:
                    mean = self.state[parameter].setdefault("mean", torch.zeros_like(change))
                    change = mean.add_((change - mean) / group["steps"])
                parameter.data -= (group["lr"] * self.factor / group["steps"] * change).float()
        self.factor *= 0.9

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"factor": self.factor}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({name: state_dict[name] for name in ("state", "param_groups")})
        self.factor = state_dict["factor"]
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for number, kept in state_dict["state"].items():  # in fp64, of which torch makes the parameter's dtype
            self.state[parameters[number]]["mean"] = kept["mean"].clone()


AVERAGED = OptimizerConfig(type="tests.train.test_optimization:Averaged", learning_rate=0.4)
COUNTED = dataclasses.replace(AVERAGED, options={"is_mean": False})


def built(**configs: OptimizerConfig) -> AlternatingOptimizer:
    """Return an optimizer of turns that share a matrix of ones and have a vector of ones each."""
    shared = nn.Parameter(torch.ones(3, 2))
    parameters = {turn: [shared, nn.Parameter(torch.ones(2))] for turn in configs}
    return AlternatingOptimizer(parameters, configs, {})


def stepped(optimizer: AlternatingOptimizer, number: int) -> list[torch.Tensor]:
    """Let each turn update its weights by other gradients than the other turns; return all weights."""
    weights = [p for turn in optimizer.turns.values() for group in turn.param_groups for p in group["params"]]
    for index, turn in enumerate(optimizer.turns):
        with optimizer.during(turn) as current:
            for group in current.param_groups:
                for parameter in group["params"]:
                    parameter.grad = torch.full_like(parameter, 1.0 + index + number)
            optimizer.step()
    return [weight.detach().clone() for weight in weights]


@pytest.mark.guarantee("own-optimizer")
@pytest.mark.parametrize(
    "configs",
    [
        {ALL: SGD},
        {"spans": SGD, "words": ADAGRAD},
        {"spans": SGD, "words": SGD},
        {"spans": ADAMW, "words": SGD},
        {"spans": ADAGRAD, "words": ADAMW},
    ],
)
def test_the_state_of_every_turn_is_saved_under_its_name_and_goes_on_bit_for_bit(
    configs: dict[str, OptimizerConfig],
) -> None:
    optimizer, other = built(**configs), built(**configs)
    for number in range(2):
        stepped(optimizer, number)
    state = optimizer.state_dict()
    assert list(state) == list(configs)
    for turn, each in optimizer.turns.items():
        states = each.state_dict()
        assert state[turn]["param_groups"] == states["param_groups"] and state[turn]["state"].keys() == {0, 1}
        assert all(state[turn]["state"][number].keys() == kept.keys() for number, kept in states["state"].items())
    with torch.no_grad():
        for mine, theirs in zip(other.turns.values(), optimizer.turns.values(), strict=True):
            for group, source in zip(mine.param_groups, theirs.param_groups, strict=True):
                for parameter, value in zip(group["params"], source["params"], strict=True):
                    parameter.copy_(value)
    other.load_state_dict(copy.deepcopy(dict(reversed(state.items()))))
    for number in (2, 3):
        pairs = zip(stepped(optimizer, number), stepped(other, number), strict=True)
        assert all(torch.equal(weight, resumed) for weight, resumed in pairs)


@pytest.mark.guarantee("own-optimizer")
def test_all_that_an_own_optimizer_keeps_goes_on() -> None:
    """What it keeps of each parameter in fp64, in its groups, and of its own; also where no parameter has anything."""
    configs = {"spans": AVERAGED, "words": COUNTED, "pictures": ADAMW}
    optimizer, other = built(**configs), built(**configs)
    for number in range(3):
        assert [optimizer.state_dict()[turn]["param_groups"][0]["steps"] for turn in ("spans", "words")] == [number] * 2
        stepped(optimizer, number)
    state = copy.deepcopy(optimizer.state_dict())
    weights = stepped(optimizer, 3)
    assert state["words"]["state"] == {} and state["spans"]["state"][0]["mean"].dtype == torch.float64
    other.load_state_dict(state)
    before = built(**configs)
    for number in range(3):
        stepped(before, number)
    with torch.no_grad():
        for mine, theirs in zip(other.turns.values(), before.turns.values(), strict=True):
            for group, source in zip(mine.param_groups, theirs.param_groups, strict=True):
                for parameter, value in zip(group["params"], source["params"], strict=True):
                    parameter.copy_(value)
    assert all(map(torch.equal, stepped(other, 3), weights))
    for turn in ("spans", "words"):
        mine, theirs = other.turns[turn].state_dict(), optimizer.turns[turn].state_dict()
        assert (mine["factor"], mine["param_groups"]) == (theirs["factor"], theirs["param_groups"])
        assert all(torch.equal(mine["state"][number]["mean"], kept["mean"]) for number, kept in theirs["state"].items())


CALLS: dict[str, tuple[Callable[[AlternatingOptimizer], Any], str, str]] = {
    "step": (lambda optimizer: optimizer.step(), "step", "to update the weights"),
    "state": (lambda optimizer: optimizer.state_dict(), "state_dict", "to save its state"),
    "load": (
        lambda optimizer: optimizer.load_state_dict({turn: {} for turn in optimizer.turns}),
        "load_state_dict",
        "to load its state",
    ),
    "clear": (lambda optimizer: optimizer.zero_grad(), "zero_grad", "to clear the gradients"),
}


def failing(
    optimizer: AlternatingOptimizer, method: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let a method of the last turn's optimizer raise an error once, and those of the other turns do nothing."""
    errors = [error]

    def fail(*_: Any, **__: Any) -> dict[str, Any]:
        if errors:
            raise errors.pop()
        return {}

    *others, last = optimizer.turns.values()
    for each in others:
        monkeypatch.setattr(each, method, lambda *_, **__: {})
    monkeypatch.setattr(last, method, fail)


@pytest.mark.guarantee("own-optimizer")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("configs", "key"), [({ALL: SGD}, "optimizer"), ({"spans": ADAMW, "words": SGD}, "turns.words")]
)
@pytest.mark.parametrize(
    ("error", "named"),
    [(KeyError("momentum"), "KeyError: 'momentum'"), (RuntimeError("no\nowls"), "RuntimeError: no owls")],
)
def test_what_an_own_optimizer_raises_names_it_and_the_call(
    call: str,
    configs: dict[str, OptimizerConfig],
    key: str,
    error: Exception,
    named: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, method, purpose = CALLS[call]
    optimizer = built(**configs)
    failing(optimizer, method, error, monkeypatch)
    with pytest.raises(PluginError) as raised, optimizer.during([*configs][-1 if call == "step" else 0]):
        run(optimizer)
    assert str(raised.value) == f"{key}.type: torch.optim:SGD: raised {named} when called {purpose}"


@pytest.mark.guarantee("own-optimizer")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("config", "error"),
    [(ADAMW, KeyError("exp_avg")), (ADAMW, SystemExit(3)), (SGD, torch.OutOfMemoryError("no memory"))],
)
def test_what_is_not_an_own_optimizers_fault_is_raised_as_it_is(
    call: str, config: OptimizerConfig, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, method, _ = CALLS[call]
    optimizer = built(spans=SGD, words=config)
    failing(optimizer, method, error, monkeypatch)
    with pytest.raises(type(error)) as raised, optimizer.during("words"):
        run(optimizer)
    assert raised.value is error


FROM = "every optimizer takes it from"
ONLY = "only an optimizer of your own takes them; for adamw, set betas and eps"


@pytest.mark.guarantee("own-optimizer")
@pytest.mark.parametrize(
    ("config", "message"),
    [
        (OptimizerConfig(options={"rho": 1, "alpha": 2}), f"options rho, alpha: {ONLY}"),
        (OptimizerConfig(options={"lr": 1}), f"options lr: {ONLY}"),
        (OptimizerConfig(options={"betas": [0.9, 0.99]}), f"options betas: {ONLY}"),
        (OptimizerConfig(options={"eps": 1e-6}), f"options eps: {ONLY}"),
        (OptimizerConfig(type="torch.optim:SGD", options={"momentum": 0.9, "lr": 1}), f"lr: {FROM} learning_rate: set"),
        (
            OptimizerConfig(type="torch.optim:SGD", options={"weight_decay": 0}),
            f"{FROM} weight_decay: set weight_decay",
        ),
        (OptimizerConfig(type="torch.optim:SGD", options={"weight_decay": 0, "lr": 1}), "options lr: "),
        (OptimizerConfig(type="absent_owls:Lion"), "type absent_owls:Lion: there is no module absent_owls"),
        (OptimizerConfig(type="torch.optim:Owl"), "type torch.optim:Owl: "),
    ],
)
def test_options_that_cannot_work_together_are_refused_by_their_name(config: OptimizerConfig, message: str) -> None:
    with pytest.raises(ValueError, match=f"^(options|type) .*{message.removeprefix('options ').removeprefix('type ')}"):
        config.check()
    for key, recipe in {
        "optimizer": Recipe("run", optimizer=config, turns={"spans": OptimizerConfig()}),
        "turns.words": Recipe("run", turns={"spans": OptimizerConfig(), "words": config}),
    }.items():
        with pytest.raises(RecipeError, match=rf"^{key}\.(options|type) "):
            _check_optimizers(recipe)


@pytest.mark.guarantee("own-optimizer")
@pytest.mark.parametrize("stage", [1, 2])
def test_only_adamws_state_is_partitioned(stage: int) -> None:
    training = TrainingConfig(zero_stage=stage)
    for config in (SGD, ADAGRAD, ADAMW):
        config.check()
        _check_optimizers(Recipe("run", optimizer=config, turns={"words": config}))
    _check_optimizers(Recipe("run", optimizer=ADAMW, turns={"words": ADAMW}, training=training))
    refused = "type torch.optim:SGD needs training.zero_stage=0: ZeRO partitions AdamW's state"
    with pytest.raises(RecipeError, match=rf"^optimizer\.{refused}"):
        _check_optimizers(Recipe("run", optimizer=SGD, training=training))
    with pytest.raises(RecipeError, match=rf"^turns\.words\.{refused}"):
        _check_optimizers(Recipe("run", turns={"spans": ADAMW, "words": SGD}, training=training))


@pytest.mark.guarantee("own-optimizer")
@pytest.mark.parametrize(
    "error", [RuntimeError("no server"), SystemExit("no server"), KeyError("server"), OSError(5, "no disk")]
)
@pytest.mark.parametrize("method", ["log", "close"])
def test_a_logger_that_fails_leaves_the_other_ones(
    method: str, error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    written: list[Any] = []

    def fail(*_: Any) -> None:
        raise error

    def logger(name: str, **methods: Any) -> SimpleNamespace:
        notes = {each: lambda *given, each=each: written.append((name, each, *given)) for each in ("log", "close")}
        return SimpleNamespace(**(notes | methods))

    tracker = object.__new__(Tracker)
    tracker.display = SimpleNamespace(close=lambda: None, show=lambda *_: None)  # type: ignore[assignment]
    tracker.loggers = []
    tracker.own = {"owls:First": logger("first", **{method: fail}), "owls:Second": logger("second")}
    tracker.log(1, {"loss": 2.0})
    tracker.log(2, {"loss": 1.0})
    tracker.close()
    of_second = [("second", "log", 1, {"loss": 2.0}), ("second", "log", 2, {"loss": 1.0}), ("second", "close")]
    assert [each for each in written if each[0] == "second"] == of_second and list(tracker.own) == ["owls:Second"]
    line = f"training.loggers: owls:First failed, and is called no more: {type(error).__name__}: "
    assert capsys.readouterr().err.count(line) == 1


@pytest.mark.guarantee("own-optimizer")
def test_ctrl_c_within_a_logger_stops_the_run() -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    tracker = object.__new__(Tracker)
    tracker.own = {"owls:First": SimpleNamespace(log=stop, close=stop)}
    with pytest.raises(KeyboardInterrupt):
        tracker._guarded("owls:First", stop)
    assert "owls:First" in tracker.own
