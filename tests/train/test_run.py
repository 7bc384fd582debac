"""Whole runs through the deepspeed launcher: losses, resume, ranks, the exported folder."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.train.ranks import launch

FIGURES = ("loss", "spans/loss", "mlm/loss", "grad_norm", "tokens", "learning_rate")


def metrics(run: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: line[name] for name in ("step", *FIGURES)} for line in lines]


@pytest.fixture(scope="module")
def whole_runs(tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The same six steps, uninterrupted, on one and on two ranks."""
    folder, port = tmp_path_factory.mktemp("runs"), 29610 + os.getpid() % 300
    runs = {}
    for ranks in (1, 2):
        runs[ranks] = folder / f"{ranks}-ranks"
        done = launch(ranks, "train/run.py", "--recipe", "demo", *tiny, f"output={runs[ranks]}", port=port + ranks)
        assert done.returncode == 0, done.stderr
    return runs


def test_a_run_leaves_what_it_promises(whole_runs: dict[int, Path]) -> None:
    run = whole_runs[1]
    assert {path.name for path in run.iterdir()} == {
        "recipe.yaml",
        "encoder",
        "metrics.jsonl",
        "tensorboard",
        "checkpoints",
        "model",
    }
    assert [line["step"] for line in metrics(run)] == [1, 2, 3, 4, 5, 6]
    assert all(np.isfinite(list(line.values())).all() for line in metrics(run))
    line = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert {"tokens_per_s", "data_wait", "spans/alignment", "spans/uniformity", "mlm/accuracy"} <= line.keys()
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"step-00000006", "last"}


def test_two_ranks_train_as_one(whole_runs: dict[int, Path]) -> None:
    for one, two in zip(metrics(whole_runs[1]), metrics(whole_runs[2]), strict=True):
        assert two == pytest.approx(one, rel=1e-4)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_terminated_run_resumes_bit_for_bit(
    whole_runs: dict[int, Path], tiny: list[str], tmp_path: Path, ranks: int
) -> None:
    """SIGTERM reaches one rank only; all stop after that step, save, and go on as if nothing had been."""
    run, port = tmp_path / "run", 29310 + os.getpid() % 300
    arguments = ["--recipe", "demo", *tiny, f"output={run}"]
    stopped = launch(ranks, "tests/train/terminated_at.py", "3", *arguments, port=port)
    assert stopped.returncode == 0, stopped.stderr
    assert "stopped and saved at step 3 of 6" in stopped.stdout
    assert metrics(run) == metrics(whole_runs[ranks])[:3] and not (run / "model").exists()
    resumed = launch(ranks, "train/run.py", *arguments, "--resume", port=port + 1)
    assert resumed.returncode == 0, resumed.stderr
    assert metrics(run) == metrics(whole_runs[ranks])
    weights, expected = (load_file(r / "model" / "model.safetensors") for r in (run, whole_runs[ranks]))
    assert weights.keys() == expected.keys() and all(torch.equal(weights[k], expected[k]) for k in expected)


def test_zero_stage_1_trains_the_same_and_resumes_on_as_many_ranks_only(
    whole_runs: dict[int, Path], tiny: list[str], tmp_path: Path
) -> None:
    run, port = tmp_path / "run", 29010 + os.getpid() % 300
    arguments = ["--recipe", "demo", *tiny, "training.zero_stage=1", f"output={run}"]
    stopped = launch(2, "tests/train/terminated_at.py", "3", *arguments, port=port)
    assert stopped.returncode == 0, stopped.stderr
    refused = launch(1, "train/run.py", *arguments, "--resume", port=port + 1)
    assert refused.returncode == 1 and "saved with training.zero_stage=1 on 2 ranks" in refused.stderr
    resumed = launch(2, "train/run.py", *arguments, "--resume", port=port + 2)
    assert resumed.returncode == 0, resumed.stderr
    for found, expected in zip(metrics(run), metrics(whole_runs[2]), strict=True):
        assert found == pytest.approx(expected, rel=1e-4)


def test_a_run_resumes_on_another_number_of_ranks(whole_runs: dict[int, Path], tiny: list[str], tmp_path: Path) -> None:
    run, port = tmp_path / "run", 28710 + os.getpid() % 300
    arguments = ["--recipe", "demo", *tiny, f"output={run}"]
    assert launch(2, "tests/train/terminated_at.py", "3", *arguments, port=port).returncode == 0
    assert launch(1, "train/run.py", *arguments, "--resume", port=port + 1).returncode == 0
    for found, expected in zip(metrics(run), metrics(whole_runs[1]), strict=True):
        assert found == pytest.approx(expected, rel=1e-4)


def test_the_exported_folder_is_the_same_model_everywhere(whole_runs: dict[int, Path], texts: list[str]) -> None:
    from sentence_transformers import SentenceTransformer
    from transformers import AutoModel, AutoTokenizer

    from train.encoder import TextEncoder

    folder = whole_runs[1] / "model"
    chosen = ["", "A sentence.", "A longer one, of several words.", texts[0]]
    ours = TextEncoder.load(folder, device="cpu").encode(chosen)
    theirs = SentenceTransformer(str(folder), device="cpu")
    assert theirs.max_seq_length == 64
    np.testing.assert_allclose(ours, theirs.encode(chosen), atol=1e-5)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder, add_pooling_layer=False)
    hidden = model.eval()(**tokenizer(chosen[2], return_tensors="pt")).last_hidden_state[0]
    np.testing.assert_allclose(ours[2], hidden.mean(0).detach(), atol=1e-5)
    assert "clearspan" not in (folder / "config.json").read_text().lower()


def test_export_of_a_run_equals_what_the_run_exported(whole_runs: dict[int, Path], tmp_path: Path) -> None:
    from train.export import main

    assert main([str(whole_runs[1]), str(tmp_path / "out")]) == 0
    ours, expected = (load_file(f / "model.safetensors") for f in (tmp_path / "out", whole_runs[1] / "model"))
    assert all(torch.equal(ours[key], expected[key]) for key in expected)


def test_export_of_no_run_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from train.export import main

    assert main([str(tmp_path), str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "not the folder of a run" in error


def test_a_checkpoint_cannot_run_code(tmp_path: Path) -> None:
    import pickle

    from train.checkpoint import CheckpointError, safe_load

    class Harmful:
        def __reduce__(self) -> tuple:
            return (Path(tmp_path / "harmed").touch, ())

    torch.save({"module": Harmful()}, tmp_path / "states.pt")
    with pytest.raises((CheckpointError, pickle.UnpicklingError)):
        safe_load(tmp_path / "states.pt")
    assert not (tmp_path / "harmed").exists()
