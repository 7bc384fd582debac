"""`training.bf16: auto`: what a run makes of it, saves, and keeps when it resumes."""

from pathlib import Path

import pytest
import torch

from clearspan.common import compute
from clearspan.common.compute import SLOWER, Bfloat16
from clearspan.train.config.options import Recipe, RecipeError
from clearspan.train.config.resume_policy import blocking_keys
from clearspan.train.engine import precision
from clearspan.train.engine.precision import check_ranks, resolve_precision
from clearspan.train.recipe import load_recipe, load_saved, to_file
from tests.train.ranks import train_alone
from tests.train.runs import metrics, same_weights

FAST = Bfloat16(True, "this CPU has amx_bf16")
EMULATED = Bfloat16(False, "this CPU has no instructions that multiply bfloat16", SLOWER)


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def on(monkeypatch: pytest.MonkeyPatch, device: Bfloat16) -> None:
    """Let this machine be one of another kind."""
    monkeypatch.setattr(compute, "bfloat16", lambda _: device)


def recipe_of(run: Path, *words: str) -> Recipe:
    return load_recipe("demo", ["data.text.path=d", f"output={run}", *words])


def begun(run: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    """Make the folder of a run that has a checkpoint."""
    recipe = recipe_of(run, *words)
    resolve_precision(recipe, resume=False)
    (run / "checkpoints" / "step-00000001").mkdir(parents=True)
    (run / "recipe.yaml").write_bytes(to_file(recipe))


@pytest.mark.parametrize(("device", "bf16"), [(FAST, True), (EMULATED, False)])
def test_a_run_saves_what_auto_means_on_its_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Bfloat16, bf16: bool
) -> None:
    on(monkeypatch, device)
    begun(tmp_path / "run", monkeypatch)

    saved = load_saved(tmp_path / "run" / "recipe.yaml", recipe_of(tmp_path / "run"))

    assert saved.training.bf16 is bf16


def test_a_resumed_run_keeps_bf16_on_a_device_without_it_and_says_how_to_leave_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, FAST)
    begun(tmp_path / "run", monkeypatch)
    on(monkeypatch, EMULATED)
    recipe = recipe_of(tmp_path / "run")

    (line,) = resolve_precision(recipe, resume=True)

    assert recipe.training.bf16 is True
    assert "5 to 30 times slower" in line and "set training.bf16=false" in line and "began with bf16" in line


def test_a_resumed_run_may_go_on_in_fp32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, FAST)
    begun(tmp_path / "run", monkeypatch)
    recipe = recipe_of(tmp_path / "run", "training.bf16=false")

    (line,) = resolve_precision(recipe, resume=True)

    assert "training.bf16 false in place of true" in line
    assert not blocking_keys(load_saved(tmp_path / "run" / "recipe.yaml", recipe), recipe)


def test_bf16_on_a_gpu_without_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, Bfloat16(False, "Tesla T4 has no bfloat16", "slower than fp32"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)

    with pytest.raises(RecipeError, match=r"Tesla T4 has no bfloat16.*set training\.bf16=false"):
        resolve_precision(recipe_of(tmp_path, "training.bf16=true"), resume=False)


def test_ranks_that_resolve_differently_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "gathered", lambda _: [True, False])

    with pytest.raises(RecipeError, match=r"some ranks \(0\).*training\.bf16=false"):
        check_ranks(recipe_of(tmp_path))


@pytest.mark.exhaustive
@pytest.mark.parametrize("more", [[], ["training.gradient_caching=true"]])
def test_a_steps_forwards_share_their_casts_and_train_the_same(
    more: list[str], tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradient caching's first pass, which has no gradients, makes casts of its own."""
    options = [*tiny, "training.bf16=true", "training.gradient_accumulation_steps=4", "training.max_steps=2", *more]
    runs, casts = [tmp_path / "yes", tmp_path / "no"], []
    for run in runs:
        monkeypatch.setenv("KEPT", run.name)
        done = train_alone(*options, f"output={run}", script="tests/train/casting.py")
        casts.append({tuple(map(int, line.split()[1:])) for line in done.stdout.splitlines() if line[:5] == "casts"})
    ((number, fewest, most),), ((same, every, _),) = casts
    passes = 2 if more else 1
    assert number == same > 20 and (fewest, most) == (1, passes) and every >= 4
    assert metrics(runs[0], ["loss", "grad_norm"]) == metrics(runs[1], ["loss", "grad_norm"])
    assert same_weights(*runs)
