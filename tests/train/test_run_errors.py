"""What a user gets wrong, through the command's own entry: exit codes and one line on stderr."""

import shutil
from pathlib import Path

import pytest

from tests.train.ranks import train_alone
from train.run import main


def failed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 1) -> str:
    """The one line of a run that must fail."""
    assert main(["--recipe", "demo", *arguments, "--quiet"]) == code
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("train: ") and "Traceback" not in error
    return error


def failed_in_training(*arguments: str) -> str:
    """The same, of a run that gets as far as its first steps."""
    done = train_alone(*arguments)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    return done.stderr.strip().splitlines()[-1]


def test_shards_that_are_not_there(tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = failed(capsys, *tiny, f"data.path={tmp_path / 'absent'}", f"output={tmp_path / 'run'}")
    assert "no manifest.json" in error and str(tmp_path / "absent") in error
    assert not (tmp_path / "run").exists()


def test_a_shard_with_a_flipped_byte(tiny: list[str], dataset_folder: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(dataset_folder, damaged)
    for shard in damaged.glob("*.tar"):
        content = bytearray(shard.read_bytes())
        content[len(content) // 2] ^= 1
        shard.write_bytes(content)
    error = failed_in_training(*tiny, f"data.path={damaged}", f"output={tmp_path / 'run'}")
    assert "documents-00000-" in error and "sha256" in error


def test_an_unknown_key_and_an_unknown_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "training.batchsize" in failed(capsys, "data.path=d", "output=o", "training.batchsize=4", code=2)
    assert main(["--recipe", "nope"]) == 2
    assert "declutr-small" in capsys.readouterr().err


def test_documents_too_short_for_the_spans(tiny: list[str], tmp_path: Path) -> None:
    error = failed_in_training(*tiny, "objectives.spans.spans.min_distance=5000", f"output={tmp_path / 'run'}")
    assert "short_documents" in error


def test_a_folder_that_holds_a_run_is_not_overwritten(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints" / "last").write_text("step-00000001")
    (run / "recipe.yaml").write_text("kept")
    assert "--resume" in failed(capsys, *tiny, f"output={run}", code=2)
    assert (run / "recipe.yaml").read_text() == "kept"
    assert "no checkpoint to resume" in failed(capsys, *tiny, f"output={tmp_path / 'other'}", "--resume", code=2)


def test_resuming_with_another_recipe_says_what_differs(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from train.recipe import load, to_yaml

    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints" / "last").write_text("step-00000001")
    (run / "recipe.yaml").write_text(to_yaml(load("demo", [*tiny, f"output={run}", "optimizer.learning_rate=1e-4"])))
    assert "another optimizer.learning_rate" in failed(capsys, *tiny, f"output={run}", "--resume", code=2)


def test_a_loss_that_is_not_a_number_stops_the_run(tiny: list[str], tmp_path: Path) -> None:
    error = failed_in_training(*tiny, "optimizer.learning_rate=1e30", f"output={tmp_path / 'run'}")
    assert "learning_rate" in error and "step" in error


def test_a_run_that_failed_before_its_first_checkpoint_starts_over(tiny: list[str], tmp_path: Path) -> None:
    output = f"output={tmp_path / 'run'}"
    assert "short_documents" in failed_in_training(*tiny, "objectives.spans.spans.min_distance=5000", output)
    done = train_alone(*tiny, "training.max_steps=1", output)
    assert done.returncode == 0, done.stderr


def test_evaluation_data_that_is_not_there(tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluation = ["training.eval_steps=2", f"training.eval_data={tmp_path}"]
    assert "training.eval_data: " in failed(capsys, *tiny, *evaluation, f"output={tmp_path / 'run'}", code=2)


def test_bad_usage_is_exit_2() -> None:
    with pytest.raises(SystemExit) as raised:
        main([])
    assert raised.value.code == 2


def test_dry_run_prints_recipe_parameters_budget_and_memory(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--recipe", "demo", *tiny, f"output={tmp_path / 'run'}", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    for expected in ("temperature: 0.05", "parameters ", "token budget", "GiB", "32 sequences"):
        assert expected in printed
    assert not (tmp_path / "run").exists()


def test_the_best_checkpoint_by_sts_b_dev_is_the_one_exported(
    tiny: list[str], shared_data: Path, tmp_path: Path
) -> None:
    evaluation = ["training.eval_steps=2", f"training.eval_data={shared_data / 'senteval'}", "training.max_steps=4"]
    done = train_alone(*tiny, *evaluation, f"output={tmp_path / 'run'}")
    assert done.returncode == 0, done.stderr
    assert "the best checkpoint" in done.stdout
    scores = [line for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines() if "dev_score" in line]
    assert len(scores) == 2
    assert (tmp_path / "run" / "checkpoints" / "best").is_file()


def test_overrides_may_stand_before_and_after_options(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = f"output={tmp_path / 'run'}"
    assert (
        main(["optimizer.learning_rate=0.5", "--recipe", "demo", *tiny, "--dry-run", output, "optimizer.eps=0.25"]) == 0
    )
    printed = capsys.readouterr().out
    assert "learning_rate: 0.5" in printed and "eps: 0.25" in printed
