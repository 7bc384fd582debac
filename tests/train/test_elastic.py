"""A run that resumes on another number of ranks, or at another ZeRO stage, has the same examples and losses."""

import functools
import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.train import runs
from tests.train.ranks import train_alone, train_on_ranks

FIGURES = ("loss", "spans/loss", "mlm/loss", "grad_norm", "spans/grad_norm", "mlm/grad_norm", "learning_rate", "tokens")
PORT = 25700 + os.getpid() % 90
TOLD = "tests/train/told_examples.py"
EXTRAS = [
    "data.text.batch_size=8",
    "training.gradient_accumulation_steps=2",
    "training.gradient_norms=true",
    "objectives.spans.memory=24",
    "objectives.spans.head=relu",
    "objectives.spans.head_dim=15",  # odd, so that parts have padding
    "objectives.spans.head_hidden=15",
]


def examples(told: Path, ranks: list[int]) -> list[list[list[int]]]:
    """Return the ids of each step's micro-batches, in the order of one rank; `ranks` is the number at each step."""
    found = []
    for step, count in enumerate(ranks, 1):
        parts = [json.loads((told / f"{step}.{rank}").read_text())["text"] for rank in range(count)]
        found.append([list(itertools.chain(*micro_batch)) for micro_batch in zip(*parts, strict=True)])
    return found


@pytest.fixture(scope="module")
def alone(tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(run, ids): six steps on one rank at stage 0."""
    run, told = tmp_path_factory.mktemp("elastic") / "alone", tmp_path_factory.mktemp("told")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOLD", str(told))
        train_alone(*tiny, *EXTRAS, f"output={run}", script=TOLD)
    return run, told


SAME_STAGE = [((0, 2), (0, 1)), ((1, 2), (1, 1)), ((2, 2), (2, 1)), ((2, 1), (2, 2))]
OTHER_STAGE = [((1, 2), (2, 1)), ((2, 1), (1, 1)), ((0, 1), (2, 2)), ((2, 2), (0, 1))]


HalfRun = Callable[[int, int], tuple[Path, Path]]


@pytest.fixture(scope="module")
def half_run(tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> HalfRun:
    """(stage, ranks) -> (run, ids) of a run that is stopped after three of its six steps; each is made once."""

    @functools.cache
    def made(stage: int, ranks: int) -> tuple[Path, Path]:
        run, told = tmp_path_factory.mktemp("half") / "run", tmp_path_factory.mktemp("told")
        at = {1: 3, 2: 2}[ranks]  # two ranks agree one step later
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TOLD", str(told))
            words = [*tiny, *EXTRAS, f"output={run}", f"training.zero_stage={stage}"]
            stopped = train_on_ranks(ranks, *words, script=TOLD, at=at, port=PORT + 100 * stage, code=130)
        assert "stopped and saved at step 3 of 6" in stopped.stderr
        return run, told

    return made


@pytest.mark.exhaustive
@pytest.mark.parametrize("first, then", SAME_STAGE + OTHER_STAGE)
def test_three_steps_and_three_on_other_ranks_or_at_another_stage_are_six_on_one(
    alone: tuple[Path, Path],
    half_run: HalfRun,
    tiny: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    first: tuple[int, int],
    then: tuple[int, int],
) -> None:
    """The cases are pairs of (stage, ranks); memory bank, projection head and micro-batches are on."""
    run, told = (runs.copied(half, tmp_path / half.name) for half in half_run(*first))
    monkeypatch.setenv("TOLD", str(told))
    (_, before), (stage, now) = first, then
    again = [*tiny, *EXTRAS, f"output={run}", f"training.zero_stage={stage}", "--resume"]
    port = PORT + 100 * (3 + (SAME_STAGE + OTHER_STAGE).index((first, then)))
    train_on_ranks(now, *again, script=TOLD, port=port)
    assert examples(told, [before] * 3 + [now] * 3) == examples(alone[1], [1] * 6)
    for found, expected in zip(runs.metrics(run, FIGURES), runs.metrics(alone[0], FIGURES), strict=True):
        assert found == pytest.approx(expected, rel=1e-5)
    ours, theirs = (runs.last_weights(one) for one in (run, alone[0]))
    assert ours.keys() == theirs.keys()
    for name, weights in ours.items():
        torch.testing.assert_close(weights, theirs[name], atol=2e-5, rtol=1e-4)


@pytest.mark.exhaustive
@pytest.mark.parametrize("stage", [1, 2])
def test_two_ranks_with_a_part_of_the_state_each_resume_bit_for_bit(
    half_run: HalfRun, tiny: list[str], tmp_path: Path, stage: int
) -> None:
    run, whole = runs.copied(half_run(stage, 2)[0], tmp_path / "half"), tmp_path / "whole"
    words = [*tiny, *EXTRAS, f"training.zero_stage={stage}"]
    train_on_ranks(2, *words, f"output={whole}", port=PORT + 1100 + 10 * stage)
    train_on_ranks(2, *words, f"output={run}", "--resume", port=PORT + 1101 + 10 * stage)
    assert runs.metrics(run, FIGURES) == runs.metrics(whole, FIGURES)
    states = [torch.load(path / "checkpoints" / "step-00000006" / "states.pt") for path in (run, whole)]
    ours, theirs = (flat(each["module"]) | flat(each["optimizer"]) for each in states)
    assert ours.keys() == theirs.keys() and any(key.endswith("exp_avg_sq") for key in ours)
    assert [key for key in ours if not np.array_equal(ours[key], theirs[key])] == []


def flat(state: Any, key: str = "") -> dict[str, np.ndarray]:
    """Return the tensors in a state by their path in it."""
    if isinstance(state, torch.Tensor):
        return {key: state.numpy()}
    items = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, list) else ()
    return {name: tensor for part, value in items for name, tensor in flat(value, f"{key}.{part}").items()}
