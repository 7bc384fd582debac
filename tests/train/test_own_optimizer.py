"""An optimizer and a logger of the user's own, those of examples/extend: a file and a line in the recipe each."""

import json
import re
import shutil
import subprocess
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import clearspan
from clearspan.common.plugins import PluginError
from clearspan.train.api import TrainingError
from clearspan.train.config.optimizer import OptimizerConfig
from clearspan.train.config.options import Recipe, RecipeError, TrainingConfig
from clearspan.train.engine.checkpoint import STATES, Checkpoints, safe_load
from clearspan.train.engine.display import Display
from clearspan.train.engine.optimization import AlternatingOptimizer
from clearspan.train.engine.tracking import Tracker
from clearspan.train.recipe import load_recipe
from tests.conftest import ROOT
from tests.processes import environment, run_commands
from tests.train.runs import same_weights, without_its_last_checkpoint
from tests.train.test_turns import ALTERNATE

EXAMPLES = ROOT / "examples" / "extend"
MLFLOW = '''
"""What examples/extend/mlflow_logger.py uses of MLflow: each call is a line of calls.jsonl in the working folder."""

import json
from types import SimpleNamespace


def note(name, *given):
    with open("calls.jsonl", "a") as file:
        print(json.dumps([name, *given]), file=file)


def start_run(run_id=None, run_name=None):
    note("start_run", run_id, run_name)
    return SimpleNamespace(info=SimpleNamespace(run_id=run_id or "a1b2"))


def log_dict(dictionary, artifact_file):
    note("log_dict", dictionary["optimizer"]["learning_rate"], artifact_file)


def log_metrics(metrics, step):
    note("log_metrics", step, metrics["loss"])


def end_run():
    note("end_run")
'''
MINE = """
import torch
def nothing(params, lr):
    return None


def unreachable(*given, **options):
    raise RuntimeError("no server")


class Failing(torch.optim.SGD):
    def __init__(self, groups, lr, betas=()):
        super().__init__(groups, lr)

    def step(self, closure=None):
        raise KeyError("momentum")


class Unclear(Failing):
    def zero_grad(self, set_to_none=True):
        raise RuntimeError("no gradients")


class Full(Failing):
    def step(self, closure=None):
        raise torch.OutOfMemoryError("GPU 0 is full")


class Deaf:
    def __init__(self, run, recipe, step):
        self.close = print
"""
OWN = ["optimizer.type=lion:Lion", "optimizer.options.betas=[0.8,0.9]", "training.loggers=[mlflow_logger:MLflow]"]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's working folder with both examples, and a module that holds what cannot work."""
    folder = tmp_path_factory.mktemp("house")
    for name in ("lion.py", "mlflow_logger.py"):
        shutil.copy(EXAMPLES / name, folder)
    (folder / "mlflow.py").write_text(MLFLOW)
    (folder / "mine.py").write_text(MINE)
    return folder


def trained(house: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    line = [str(ROOT / "train" / "run.py"), "--recipe", "demo", "--quiet", *overrides]
    return run_commands(line, [environment()], folder=house)


def called(house: Path) -> list[list]:
    """The calls of MLflow so far."""
    return [json.loads(line) for line in (house / "calls.jsonl").read_text().splitlines()]


@pytest.mark.exhaustive
@pytest.mark.guarantee("own-optimizer")
def test_a_run_trains_by_them_and_resumes_bit_for_bit(house: Path, tiny: list[str], tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    save = "training.save_steps=3"
    done = trained(house, *tiny, *OWN, save, f"output={whole}")
    assert done.returncode == 0, done.stderr
    plain = tmp_path / "adamw"
    assert trained(house, *tiny, f"output={plain}").returncode == 0
    assert not same_weights(whole, plain)
    losses = [json.loads(line)["loss"] for line in (whole / "metrics.jsonl").read_text().splitlines()]
    first, recipe, *logged, last = calls = called(house)
    assert first == ["start_run", None, "whole"] and last == ["end_run"]
    assert recipe == ["log_dict", load_recipe("demo", [*tiny, "output=o"]).optimizer.learning_rate, "recipe.json"]
    assert logged == [["log_metrics", step, loss] for step, loss in enumerate(losses, 1)]
    resumed = without_its_last_checkpoint(whole, tmp_path / "resumed")
    done = trained(house, "--resume", *tiny, *OWN, save, f"output={resumed}")
    assert done.returncode == 0, done.stderr
    assert same_weights(whole, resumed)
    assert called(house)[len(calls) :] == [["start_run", "a1b2", "resumed"], recipe, *logged[3:], last]


@pytest.mark.guarantee("own-optimizer")
@pytest.mark.exhaustive
def test_turns_with_different_optimizers_resume_bit_for_bit(house: Path, tiny: list[str], tmp_path: Path) -> None:
    """AdamW for the spans, and Lion for the masked tokens."""
    lion = ["turns.mlm.type=lion:Lion", "turns.mlm.options.betas=[0.8,0.9]"]
    given = [*tiny, *ALTERNATE, *lion, "training.max_steps=6", "training.save_steps=3"]
    whole = tmp_path / "whole"
    done = trained(house, *given, f"output={whole}")
    assert done.returncode == 0, done.stderr
    state = Checkpoints(whole).folder / Checkpoints(whole).last()[0] / STATES
    found = safe_load(state)["optimizer"]
    kept = {turn: set().union(*(each.keys() for each in saved["state"].values())) for turn, saved in found.items()}
    assert kept == {"spans": {"step", "exp_avg", "exp_avg_sq"}, "mlm": {"momentum"}}
    resumed = without_its_last_checkpoint(whole, tmp_path / "resumed")
    done = trained(house, "--resume", *given, f"output={resumed}")
    assert done.returncode == 0, done.stderr
    assert same_weights(whole, resumed)
    done = trained(house, *given, "turns.mlm.type=mine:unreachable", f"output={tmp_path / 'none'}")
    assert done.returncode == 2 and "turns.mlm.type: mine:unreachable: raised RuntimeError: no server" in done.stderr


@pytest.mark.guarantee("own-optimizer")
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optimizer.options.rho=1", "optimizer.type: lion:Lion: raised TypeError: .*unexpected keyword argument 'rho'"),
        ("optimizer.type=mine:nothing", "optimizer.type: mine:nothing: .*unexpected keyword argument 'betas'"),
        ("training.loggers=[mine:Deaf]", "training.loggers: mine:Deaf: not a logger: it lacks log"),
        ("training.loggers=[mine:unreachable]", "mine:unreachable: raised RuntimeError: no server when called with"),
        ("optimizer.type=mine:unreachable", "mine:unreachable: raised RuntimeError: no server when called with"),
        (
            "optimizer.type=mine:Failing",
            "^train: optimizer.type: mine:Failing: raised KeyError: 'momentum' when called to update the weights$",
        ),
        ("optimizer.type=mine:Full", "the GPU has not enough memory for a step"),
    ],
)
def test_what_cannot_work_is_a_line(override: str, message: str, house: Path, tiny: list[str], tmp_path: Path) -> None:
    done = trained(house, *tiny, *OWN, override, f"output={tmp_path / 'run'}")
    assert done.returncode in (1, 2) and "Traceback" not in done.stderr
    assert re.search(message, done.stderr, re.MULTILINE), done.stderr


@pytest.mark.guarantee("own-optimizer")
@pytest.mark.parametrize(
    ("name", "method", "end"),
    [
        ("Failing", "step", "raised KeyError: 'momentum' .*update.*"),
        (
            "Unclear",
            "zero_grad",
            "raised RuntimeError: no gradients .*clear the gradients",
        ),
    ],
)
def test_an_optimizer_that_fails_in_a_step_is_named(
    name: str, method: str, end: str, house: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(house)
    weights = torch.nn.Parameter(torch.ones(2, 2))
    optimizer = AlternatingOptimizer({"spans": [weights]}, {"spans": OptimizerConfig(type=f"mine:{name}")}, {})
    with optimizer.during("spans"), pytest.raises(PluginError, match=f"^turns.spans.type: mine:{name}: {end}$"):
        getattr(optimizer, method)()


@pytest.mark.exhaustive
@pytest.mark.guarantee("own-optimizer")
def test_two_ranks_on_which_an_optimizer_fails_print_one_line(house: Path, tiny: list[str], tmp_path: Path) -> None:
    given = [*tiny, "optimizer.type=mine:Failing", f"output={tmp_path / 'run'}", "--quiet"]
    command = ["deepspeed", "--num_accelerators", "2", str(ROOT / "train" / "run.py"), "--recipe", "demo", *given]
    done = subprocess.run(command, cwd=house, env=environment(), capture_output=True, text=True, timeout=400)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    (line,) = [each for each in done.stderr.splitlines() if "mine:Failing" in each]
    assert line.startswith("train: optimizer.type: mine:Failing: raised KeyError: 'momentum'") and "update" in line


@pytest.mark.exhaustive
def test_python_gets_the_line_of_an_optimizer_that_fails(
    house: Path, tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(house)
    given = [*tiny, "optimizer.type=mine:Failing", f"output={tmp_path / 'run'}"]
    with pytest.raises(TrainingError, match=r"^optimizer\.type: mine:Failing: raised KeyError: 'momentum' when called"):
        clearspan.train_model("demo", given, quiet=True, num_accelerators=1)


@pytest.mark.guarantee("own-optimizer")
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["optimizer.options.rho=1"], "optimizer.options rho: .*for adamw"),
        (
            ["optimizer.type=torch.optim:SGD", "optimizer.options.lr=1"],
            r"^optimizer\.options lr: .*learning_rate",
        ),
        (["optimizer.options.weight_decay=1"], "optimizer.options weight_decay: "),
        (["optimizer.type=absent:Lion"], "optimizer.type absent:Lion: there is no module absent"),
        (["optimizer.type=adam"], "optimizer.type adam: not of the form module:name"),
        (["optimizer.type=torch.optim:SGD", "training.zero_stage=1"], "needs training.zero_stage=0"),
        (["training.loggers=[absent:Table]"], "training.loggers: absent:Table: there is no module absent"),
        (["training.loggers=[a:B,a:B]"], "training.loggers a:B, a:B: name each logger once"),
    ],
)
def test_it_is_refused_before_the_run(overrides: list[str], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        load_recipe("demo", ["data.text.path=shards", "output=run", "model.path=model", *overrides])


@pytest.mark.guarantee("own-optimizer")
def test_an_optimizer_of_torch_needs_no_module_of_ones_own() -> None:
    recipe = load_recipe(
        "demo", ["data.text.path=shards", "output=run", "model.path=m", "optimizer.type=torch.optim:SGD"]
    )
    assert recipe.optimizers().popitem()[1].type == "torch.optim:SGD"


@pytest.mark.guarantee("own-optimizer")
def test_a_logger_that_cannot_be_closed_does_not_keep_the_others_open() -> None:
    closed: list[str] = []

    def failing() -> None:
        raise RuntimeError("no server")

    tracker = object.__new__(Tracker)
    tracker.display = SimpleNamespace(close=lambda: closed.append("display"))  # type: ignore[assignment]
    tracker.loggers = [SimpleNamespace(log=print, close=each) for each in (failing, lambda: closed.append("last"))]
    with pytest.raises(RuntimeError, match="no server"):
        tracker.close()
    assert closed == ["display", "last"]


@pytest.mark.guarantee("own-optimizer")
@pytest.mark.parametrize("failing", ["log", "close"])
def test_a_logger_that_fails_is_named_and_the_run_goes_on(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hours of training are worth more than a server's log; what it did not get is in metrics.jsonl."""
    code = f"""
        class Flaky:
            def __init__(self, run, recipe, step): pass
            def log(self, step, metrics):
                if "{failing}" == "log": raise RuntimeError("no server")
            def close(self):
                if "{failing}" == "close": raise RuntimeError("no server")
    """
    (tmp_path / f"flaky_{failing}.py").write_text(textwrap.dedent(code))
    monkeypatch.chdir(tmp_path)
    spec = f"flaky_{failing}:Flaky"
    tracker = Tracker(Recipe(str(tmp_path), training=TrainingConfig(loggers=[spec])), Display(2, 0, quiet=True))
    for step in (1, 2):
        tracker.log(step, {"loss": 1.0})
    tracker.close()
    line = f"training.loggers: {spec} failed, and is called no more: RuntimeError: no server\n"
    assert capsys.readouterr().err.count(line) == 1
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2
