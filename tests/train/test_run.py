"""Whole runs through the deepspeed launcher: losses, resume, ranks, the exported folder."""

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from clearspan.train.engine.checkpoint import Checkpoints
from tests.conftest import ROOT
from tests.processes import environment
from tests.train import runs
from tests.train.ranks import launch, train_alone, train_on_ranks
from tests.train.runs import same_weights

FIGURES = ("loss", "spans/loss", "mlm/loss", "grad_norm", "tokens", "learning_rate")


def metrics(run: Path) -> list[dict[str, float]]:
    return runs.metrics(run, FIGURES)


@pytest.fixture(scope="module")
def whole_runs(tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The same six steps, uninterrupted: on one rank, and on two of the launcher."""
    folder = tmp_path_factory.mktemp("runs")
    made = {ranks: folder / f"{ranks}-ranks" for ranks in (1, 2)}
    shared = set(Path("/dev/shm").glob("deepspeed*"))
    train_alone(*tiny, f"output={made[1]}")
    both = launch(2, "train/run.py", "--recipe", "demo", *tiny, f"output={made[2]}")
    assert both.returncode == 0, both.stderr
    assert set(Path("/dev/shm").glob("deepspeed*")) <= shared, "DeepSpeed left buffers in shared memory"
    return made


@pytest.mark.slow
def test_the_files_of_a_run_are_for_whom_the_umask_lets_read(whole_runs: dict[int, Path], tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    usual = (tmp_path / "usual").stat().st_mode
    files = [path for run in whole_runs.values() for path in run.rglob("*") if path.is_file()]
    assert files and not [path for path in files if path.stat().st_mode != usual]


@pytest.mark.slow
def test_a_run_leaves_what_it_promises(whole_runs: dict[int, Path]) -> None:
    run = whole_runs[1]
    assert {path.name for path in run.iterdir()} == {
        "recipe.yaml",
        "inputs.json",
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
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"step-00000006"}


@pytest.mark.guarantee("ranks-as-one")
@pytest.mark.slow
def test_two_ranks_train_as_one(whole_runs: dict[int, Path]) -> None:
    for one, two in zip(metrics(whole_runs[1]), metrics(whole_runs[2]), strict=True):
        assert two == pytest.approx(one, rel=1e-4)


@pytest.mark.guarantee("bit-equal-resume")
@pytest.mark.exhaustive
def test_a_terminated_run_resumes_bit_for_bit(tiny: list[str], tmp_path: Path) -> None:
    """With dropout, bf16 and the end of an epoch between: nothing that decides a step is lost."""
    arguments = [*tiny, "model.config.hidden_dropout_prob=0.1", "model.config.attention_probs_dropout_prob=0.1"]
    arguments += ["training.bf16=true", "training.max_steps=12", "training.save_steps=5"]
    outputs = [f"output={tmp_path / name}" for name in ("whole", "stopped")]
    train_alone(*arguments, outputs[0])
    stopped = train_alone(*arguments, outputs[1], script="tests/train/terminated_at.py", code=130)
    assert "stopped and saved at step 8 of 12" in stopped.stderr and not (tmp_path / "stopped" / "model").exists()
    with (tmp_path / "stopped" / "metrics.jsonl").open("a") as lines:
        lines.write('{"step": 9, "lo')  # a kill in the middle of a line
    train_alone(*arguments, outputs[1], "--resume")
    assert metrics(tmp_path / "stopped") == metrics(tmp_path / "whole")
    assert same_weights(tmp_path / "stopped", tmp_path / "whole")


@pytest.mark.exhaustive
def test_two_ranks_resume_bit_for_bit(whole_runs: dict[int, Path], tiny: list[str], tmp_path: Path) -> None:
    """SIGTERM reaches one rank only; both stop one step later, save, and go on as if nothing had been."""
    run, port = tmp_path / "run", 29310 + os.getpid() % 300
    arguments = [*tiny, f"output={run}"]
    stopped = train_on_ranks(2, *arguments, script="tests/train/terminated_at.py", port=port, at=3, code=130)
    assert "stopped and saved at step 4 of 6" in stopped.stderr
    assert metrics(run) == metrics(whole_runs[2])[:4]
    train_on_ranks(2, *arguments, "--resume", port=port + 1)
    assert metrics(run) == metrics(whole_runs[2])
    assert same_weights(run, whole_runs[2])


@pytest.mark.exhaustive
def test_ranks_whose_launcher_is_killed_stop_and_save(
    tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A SIGTERM to the deepspeed command kills it alone: its rank must not train on unseen."""
    monkeypatch.setenv("TERMINATED_LAUNCHER", "1")
    arguments = ["--recipe", "demo", *tiny, "training.max_steps=3000", f"output={tmp_path / 'run'}"]
    stopped = launch(1, "tests/train/terminated_at.py", *arguments, at=3)
    assert "stopped and saved at step" in stopped.stderr, stopped.stderr
    assert Checkpoints(tmp_path / "run").last()


@pytest.mark.guarantee("one-line-errors")
@pytest.mark.exhaustive
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_command_that_is_interrupted_saves_and_exits_with_130(ranks: int, tiny: list[str], tmp_path: Path) -> None:
    """So that `clearspan train && clearspan eval` scores no unfinished run."""
    words = ["--num_accelerators", str(ranks), "--recipe", "demo", *tiny, "training.max_steps=600"]
    command = [sys.executable, "-m", "clearspan.train", *words, f"output={tmp_path / 'run'}"]
    # A process in a shell's background begins with SIGINT ignored, and so would its children.
    heeding = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, cwd=ROOT, env=environment(), preexec_fn=heeding, **pipes)
    assert process.stdout is not None
    assert any(re.search(r"step \d+/600", line) for line in process.stdout), process.communicate()[1]
    process.send_signal(signal.SIGINT)
    error = process.communicate(timeout=100)[1]
    said = rf"train: {tmp_path}/run: stopped and saved at step \d+ of 600; continue with --resume\n"
    assert process.returncode == 130 and re.fullmatch(said, error), error
    assert Checkpoints(tmp_path / "run").last() and not (tmp_path / "run" / "model").exists()


@pytest.mark.exhaustive
def test_ranks_of_deepspeed_whose_time_is_over_exit_with_130(tiny: list[str], tmp_path: Path) -> None:
    words = [*tiny, f"output={tmp_path / 'run'}", "training.max_hours=1e-9"]
    stopped = launch(2, "train/run.py", "--recipe", "demo", *words)
    assert stopped.returncode == 130 and "stopped and saved at step 2 of 6; continue with --resume" in stopped.stderr


@pytest.mark.guarantee("same-vectors")
@pytest.mark.slow
def test_the_exported_folder_is_the_same_model_everywhere(whole_runs: dict[int, Path], texts: list[str]) -> None:
    from sentence_transformers import SentenceTransformer
    from transformers import AutoModel, AutoTokenizer

    from clearspan.common.encoder.library import load_with_library

    folder = whole_runs[1] / "model"
    chosen = ["", "A sentence.", "A longer one, of several words.", texts[0]]
    ours = load_with_library(folder).encode(chosen)
    theirs = SentenceTransformer(str(folder), device="cpu")
    assert theirs.max_seq_length == 64
    np.testing.assert_allclose(ours, theirs.encode(chosen), atol=1e-5)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder, add_pooling_layer=False)
    hidden = model.eval()(**tokenizer(chosen[2], return_tensors="pt")).last_hidden_state[0]
    np.testing.assert_allclose(ours[2], hidden.mean(0).detach(), atol=1e-5)
    assert "clearspan" not in (folder / "config.json").read_text().lower()


@pytest.mark.guarantee("output-kept")
@pytest.mark.slow
def test_export_replaces_an_export_and_nothing_else(
    whole_runs: dict[int, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user's own model is one that looks the same, and so is an export that was worked on."""
    from clearspan.train.export import main

    out = tmp_path / "out"
    assert main([str(whole_runs[1]), str(out)]) == main([str(whole_runs[1]), str(out)]) == 0
    assert same_folders(out, whole_runs[1] / "model")
    capsys.readouterr()
    shutil.copytree(out, tmp_path / "own")
    (tmp_path / "own" / "manifest.json").unlink()
    (out / "README.md").write_text("A card of my own.")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "README.md").write_text("kept")
    for folder, named in ((tmp_path / "own", "manifest.json"), (out, "README.md"), (tmp_path / "notes", "manifest")):
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        assert main([str(whole_runs[1]), str(folder)]) == 1
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and "something other" in error and named in error
        assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("calls", [1, 2, 4, 8])
def test_an_export_that_was_stopped_begins_again(
    whole_runs: dict[int, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """Stopped while files are moved into place; until all are there, there are no weights."""
    from clearspan.train.export import WEIGHTS, export

    out = tmp_path / "out"
    export(whole_runs[1], out)

    def replace(path: Path, target: Path, times: list[int] = [calls]) -> None:  # noqa: B006 (counts)
        if not times[0]:
            raise KeyboardInterrupt
        times[0] -= 1
        path.rename(target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "replace", replace)
        export(whole_runs[1], out)
    assert not (out / WEIGHTS).exists()
    export(whole_runs[1], out)
    assert same_folders(out, whole_runs[1] / "model")


def same_folders(ours: Path, theirs: Path) -> bool:
    """Whether two folders hold the same files, but for the name of the model in its card, and so the manifest."""
    found = [
        {path.relative_to(one).as_posix(): path.read_bytes() for path in one.rglob("*") if path.is_file()}
        for one in (ours, theirs)
    ]
    named = {"README.md", "manifest.json"}
    return found[0].keys() == found[1].keys() and all(found[0][n] == found[1][n] for n in found[0].keys() - named)


def test_export_of_no_run_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from clearspan.train.export import main

    assert main([str(tmp_path), str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "not the folder of a run" in error
