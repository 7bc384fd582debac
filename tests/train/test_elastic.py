"""A run that resumes on another number of ranks, or at another ZeRO stage, has the same examples and losses."""

import functools
import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from clearspan.train.engine.checkpoint import Checkpoints
from clearspan.train.engine.partitions import from_adamw, repartition, slice_of, to_adamw
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


def saved_by(ranks: int, groups: list[torch.Tensor]) -> tuple[list[dict[str, Any]], list[int]]:
    """Return (parts, lengths): the parts that ranks save of flat groups and their moments.

    DeepSpeed cuts groups into equal, even lengths.
    """
    lengths = [-(-len(group) // (2 * ranks)) * 2 for group in groups]
    parts = []
    for rank in range(ranks):
        cuts = [group[rank * length : (rank + 1) * length] for group, length in zip(groups, lengths, strict=True)]
        moments = [torch.cat([cut, cut.new_zeros(n - len(cut))]) for cut, n in zip(cuts, lengths, strict=True)]
        state = {
            key: {"step": torch.tensor(3.0), "exp_avg": padded / 2, "exp_avg_sq": padded**2}
            for key, padded in enumerate(moments)
        }
        described = [{"params": [key], "lr": 0.1} for key in range(len(groups))]
        paddings = [n - len(cut) for cut, n in zip(cuts, lengths, strict=True)]
        parts.append(
            {
                "base_optimizer_state": {"all": {"state": state, "param_groups": described}},
                "single_partition_of_fp32_groups": cuts,
                "group_paddings": paddings,
                "partition_count": [ranks] * len(groups),
                "clip_grad": 1.0,
            }
        )
    return parts, lengths


@pytest.mark.parametrize("before, now", itertools.permutations((1, 2, 3, 5, 8), 2))
def test_parts_of_some_ranks_become_those_of_others(before: int, now: int) -> None:
    """With a group of one element, most ranks hold only padding."""
    groups = [torch.arange(1.0, 1 + size) for size in (1, 9, 64, 101)]
    parts, _ = saved_by(before, groups)
    expected, lengths = saved_by(now, groups)
    for rank in range(now):
        assert str(repartition(parts, rank, now, lengths)) == str(expected[rank])


def adamw(groups: list[list[torch.Tensor]]) -> dict[str, Any]:
    """Return the state that AdamW saves without ZeRO: moments by parameter, groups that list their parameters."""
    described, state = [], {}
    for group in groups:
        described.append({"params": list(range(len(state), len(state) + len(group))), "lr": 0.1})
        for parameter in group:
            state[len(state)] = {"step": torch.tensor(3.0), "exp_avg": parameter / 2, "exp_avg_sq": parameter**2}
    return {"all": {"state": state, "param_groups": described}}


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_state_is_shared_out_and_put_back_as_it_was(ranks: int) -> None:
    """From stage 0 to the parts of ranks, and back."""
    groups = [[torch.arange(1.0, 7).view(2, 3), torch.arange(7.0, 12)], [torch.arange(12.0, 21).view(3, 3)]]
    flat = [torch.arange(1.0, 12), torch.arange(12.0, 21)]
    expected, lengths = saved_by(ranks, flat)
    (like,), _ = saved_by(1, flat)
    whole = from_adamw(adamw(groups), groups, like)
    parts = [repartition([whole], rank, ranks, lengths) for rank in range(ranks)]
    assert str(parts) == str(expected)
    assert str(to_adamw(parts, groups)) == str(adamw(groups))


def test_before_the_first_step_there_are_no_moments_to_cut() -> None:
    """A run saves the initial weights if a score picks the best checkpoint."""
    groups = [[torch.arange(1.0, 7)]]
    parts, _ = saved_by(2, groups[0])
    empty = adamw(groups)
    empty["all"]["state"] = {}
    for part in parts:
        part["base_optimizer_state"]["all"]["state"] = {}
    assert repartition(parts, 0, 1, [6])["base_optimizer_state"]["all"]["state"] == {}
    assert to_adamw(parts, groups) == empty
    assert from_adamw(empty, groups, parts[0])["base_optimizer_state"]["all"]["state"] == {}


def test_a_part_is_a_copy_that_keeps_nothing_else_alive() -> None:
    pieces = [torch.arange(4.0), torch.arange(4.0, 8.0)]
    part = slice_of(pieces, 1, 3)
    assert part.tolist() == [1, 2] and part.untyped_storage().nbytes() == 8
    assert slice_of(pieces, 3, 6).tolist() == [3, 4, 5] and slice_of(pieces, 8, 8).tolist() == []


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
        done = train_alone(*tiny, *EXTRAS, f"output={run}", script=TOLD)
    assert done.returncode == 0, done.stderr
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
            stopped = train_on_ranks(ranks, *words, script=TOLD, at=at, port=PORT + 100 * stage)
        assert stopped.returncode == 0, stopped.stderr
        assert "stopped and saved at step 3 of 6" in stopped.stdout
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
    done = train_on_ranks(now, *again, script=TOLD, port=port)
    assert done.returncode == 0, done.stderr
    assert examples(told, [before] * 3 + [now] * 3) == examples(alone[1], [1] * 6)
    for found, expected in zip(runs.metrics(run, FIGURES), runs.metrics(alone[0], FIGURES), strict=True):
        assert found == pytest.approx(expected, rel=1e-5)
    ours, theirs = (Checkpoints(one).model_states("last") for one in (run, alone[0]))
    assert ours.keys() == theirs.keys()
    for name, weights in ours.items():
        torch.testing.assert_close(weights, theirs[name], atol=2e-5, rtol=1e-4)
