"""An optimizer and a logger of the user's own: a file beside the data, and a line in the recipe each."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from clearspan.train.config.options import RecipeError
from clearspan.train.recipe import load
from tests.conftest import ROOT
from tests.processes import environment, run_commands
from tests.train.runs import same_weights, without_its_last_checkpoint

MODULE = '''
import json
import re
import torch

class Lion(torch.optim.Optimizer):
    """Chen et al. 2023: the sign of an interpolated momentum, with decoupled weight decay."""

    def __init__(self, params, lr, betas=(0.9, 0.99)):
        super().__init__(params, {"lr": lr, "weight_decay": 0.0, "betas": betas})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in (p for p in group["params"] if p.grad is not None):
                state = self.state[p]
                mean = state.setdefault("mean", torch.zeros_like(p))
                (first, second), rate = group["betas"], group["lr"]
                p.mul_(1 - rate * group["weight_decay"]).add_(mean.lerp(p.grad, 1 - first).sign_(), alpha=-rate)
                mean.lerp_(p.grad, 1 - second)

def nothing(params, lr):
    return None

class Table:
    def __init__(self, run, recipe, step):
        self.file = open(run / "table.jsonl", "a")
        print(json.dumps({"step": step, "rate": recipe["optimizer"]["learning_rate"]}), file=self.file)

    def log(self, step, metrics):
        print(json.dumps({"step": step, "loss": metrics["loss"]}), file=self.file)

    def close(self):
        print("closed", file=self.file)
        self.file.close()

class Deaf:
    def __init__(self, run, recipe, step):
        self.close = print
'''
OWN = ["optimizer.type=mine:Lion", "optimizer.options.betas=[0.8,0.9]", "training.loggers=[mine:Table]"]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("house")
    (folder / "mine.py").write_text(MODULE)
    return folder


def trained(house: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    line = [str(ROOT / "train" / "run.py"), "--recipe", "demo", "--quiet", *overrides]
    return run_commands(line, [environment()], folder=house)


@pytest.mark.exhaustive
def test_a_run_trains_by_them_and_resumes_bit_for_bit(house: Path, tiny: list[str], tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    save = "training.save_steps=3"
    done = trained(house, *tiny, *OWN, save, f"output={whole}")
    assert done.returncode == 0, done.stderr
    plain = tmp_path / "adamw"
    assert trained(house, *tiny, f"output={plain}").returncode == 0
    assert not same_weights(whole, plain)
    losses = [json.loads(line)["loss"] for line in (whole / "metrics.jsonl").read_text().splitlines()]
    first, *logged, last = (whole / "table.jsonl").read_text().splitlines()
    assert json.loads(first) == {"step": 0, "rate": load("demo", [*tiny, "output=o"]).optimizer.learning_rate}
    assert [json.loads(line)["loss"] for line in logged] == losses and last == "closed"
    resumed = without_its_last_checkpoint(whole, tmp_path / "resumed")
    done = trained(house, "--resume", *tiny, *OWN, save, f"output={resumed}")
    assert done.returncode == 0, done.stderr
    assert same_weights(whole, resumed)
    assert json.loads((resumed / "table.jsonl").read_text().splitlines()[len(losses) + 2])["step"] == 3


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optimizer.options.rho=1", "optimizer.type mine:Lion: cannot be made: .*unexpected keyword argument 'rho'"),
        ("optimizer.type=mine:nothing", "optimizer.type mine:nothing: .*unexpected keyword argument 'betas'"),
        ("training.loggers=[mine:Deaf]", "training.loggers: mine:Deaf: not a logger: it lacks log"),
    ],
)
def test_what_cannot_work_is_a_line(override: str, message: str, house: Path, tiny: list[str], tmp_path: Path) -> None:
    done = trained(house, *tiny, *OWN, override, f"output={tmp_path / 'run'}")
    assert done.returncode in (1, 2) and "Traceback" not in done.stderr

    assert re.search(message, done.stderr), done.stderr


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["optimizer.options.rho=1"], "optimizer.options rho: of an optimizer of your own; adamw has betas and eps"),
        (["optimizer.type=absent:Lion"], "optimizer.type absent:Lion: there is no module absent"),
        (["optimizer.type=adam"], "optimizer.type adam: not of the form module:name"),
        (["optimizer.type=torch.optim:SGD", "training.zero_stage=1"], "needs training.zero_stage=0"),
        (["training.loggers=[absent:Table]"], "training.loggers: absent:Table: there is no module absent"),
    ],
)
def test_it_is_refused_before_the_run(overrides: list[str], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        load("demo", ["data.text.path=shards", "output=run", "model.path=model", *overrides])


def test_an_optimizer_of_torch_needs_no_module_of_ones_own() -> None:
    recipe = load("demo", ["data.text.path=shards", "output=run", "model.path=m", "optimizer.type=torch.optim:SGD"])
    assert recipe.optimizers().popitem()[1].type == "torch.optim:SGD"
