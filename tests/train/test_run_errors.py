"""What a user gets wrong, through the command's own entry: exit codes and one line on stderr."""

import shutil
from pathlib import Path

import pytest

from clearspan.train.job import output
from clearspan.train.recipe import load_recipe, to_file, to_yaml
from clearspan.train.run import main
from tests.train.ranks import train_alone


def failed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 1) -> str:
    """The one line of a run that must fail."""
    assert main(["--recipe", "demo", *arguments, "--quiet"]) == code
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("train: ") and "Traceback" not in error
    return error


def failed_in_training(*arguments: str) -> str:
    """The same, of a run that gets as far as its first steps."""
    return train_alone(*arguments, code=1).stderr.strip().splitlines()[-1]


@pytest.mark.guarantee("damaged-shard")
def test_a_shard_with_a_flipped_byte(tiny: list[str], dataset_folder: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(dataset_folder, damaged)
    for shard in damaged.glob("*.tar"):
        content = bytearray(shard.read_bytes())
        content[len(content) // 2] ^= 1
        shard.write_bytes(content)
    error = failed_in_training(*tiny, f"data.text.path={damaged}", f"output={tmp_path / 'run'}")
    assert "documents-00000-" in error and "sha256" in error


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.guarantee("output-kept")
@pytest.mark.parametrize("resume", [[], ["--resume"]])
def test_a_folder_that_holds_what_no_run_wrote_is_left_alone(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], resume: list[str]
) -> None:
    """A recipe.yaml of one's own is the likeliest, and one that a run wrote may have been worked on."""
    run = tmp_path / "run"
    recipe = load_recipe("demo", [*tiny, f"output={run}"])
    for files in (
        {"notes.txt": b"mine"},
        {"recipe.yaml": to_yaml(recipe).encode()},
        {"recipe.yaml": to_file(recipe) + b"# mine\n", "encoder/config.json": b"mine"},
        {"checkpoints/notes": b"mine", "recipe.yaml/x": b"mine"},
        {"recipe.yaml": to_file(recipe), "model/modules.json": b"mine"},
    ):
        for name, content in files.items():
            (run / name).parent.mkdir(parents=True, exist_ok=True)
            (run / name).write_bytes(content)
        error = failed(capsys, *tiny, f"output={run}", *resume, code=2)
        assert "holds other files" in error and "folder" in error.rpartition("name a")[2]
        assert contents(run) == files
        shutil.rmtree(run)


BEFORE_THE_FIRST_STEP = {
    "a document too short for the spans": (["objectives.spans.sampler.min_distance=5000"], 1, "tokens, the spans need"),
    "shards that are not there": (["data.text.path={folder}/absent"], 1, "no manifest.json"),
    "a batch larger than the data": (["data.text.batch_size=8000"], 1, "are fewer than data.text.batch_size 8000"),
    "pairs that the shards lack": (
        ["objectives.s.type=simcse", "objectives.s.positives=pairs"],
        2,
        "column 'positive'",
    ),
    "a warm-up longer than the run": (
        ["optimizer.schedule=linear", "optimizer.warmup_steps=6"],
        2,
        "must be more than",
    ),
    "no pairs to evaluate on": (["training.eval_steps=2", "training.eval_data={folder}/absent"], 2, "eval_data: "),
    "a folder that holds a run": (["output={folder}/run"], 2, "holds a run already"),
    "a folder that is a file": (["output={folder}/other/notes.txt/run"], 2, "notes.txt is a file, not a folder"),
    "a run of another recipe": (
        ["--resume", "output={folder}/run"],
        2,
        "the run in it has another optimizer.learning_rate",
    ),
}


@pytest.mark.parametrize("problem", BEFORE_THE_FIRST_STEP)
def test_a_dry_run_refuses_what_the_run_would_refuse(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], problem: str
) -> None:
    """With the same line and exit code; and it leaves no folder behind."""
    words, code, said = BEFORE_THE_FIRST_STEP[problem]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    (tmp_path / "run" / "checkpoints" / "step-00000001").mkdir(parents=True)
    (tmp_path / "run" / "recipe.yaml").write_text(
        to_yaml(load_recipe("demo", [*tiny, "output=o", "optimizer.learning_rate=1"]))
    )
    given = [*tiny, f"output={tmp_path / 'new'}", *(word.format(folder=tmp_path) for word in words)]
    dry = failed(capsys, *given, "--dry-run", code=code)
    assert not (tmp_path / "new").exists()
    assert failed(capsys, *given, code=code) == dry and said in dry


def test_a_folder_of_a_run_that_saved_nothing_begins_again(tiny: list[str], tmp_path: Path) -> None:
    """Whatever its recipe was, and whether it is to resume or not; hidden files are nobody's."""
    run = tmp_path / "run"
    run.mkdir()
    (run / ".gitignore").write_text("*")
    for rate, resume in (("1e-4", True), ("2e-4", True), ("3e-4", False)):
        recipe = load_recipe("demo", [*tiny, f"output={run}", f"optimizer.learning_rate={rate}"])
        with output(recipe, resume) as resumes:
            assert not resumes and (run / "recipe.yaml").read_bytes() == to_file(recipe)


@pytest.mark.slow
@pytest.mark.parametrize("content", [None, b"\0\xff", b"[" * 20_000, b"model: 5\n"])
def test_a_resume_without_its_recipe_says_what_to_put_back(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    run = tmp_path / "run"
    (run / "checkpoints" / "step-00000001").mkdir(parents=True)
    if content is not None:
        (run / "recipe.yaml").write_bytes(content)
    error = failed(capsys, *tiny, f"output={run}", "--resume", code=2)
    assert f"{run / 'recipe.yaml'}: " in error or "objectives: a recipe needs" in error
    assert content is not None or "put the file back" in error


@pytest.mark.guarantee("no-foreign-code")
def test_a_run_folder_does_not_choose_which_code_runs(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its recipe names a module in the working folder that the command does not name: the module is not imported."""
    run = tmp_path / "run"
    (run / "checkpoints" / "step-00000001").mkdir(parents=True)
    (run / "recipe.yaml").write_text("extends: demo\nobjectives: {spans: {type: 'theirs:Spans'}}\n")
    (tmp_path / "theirs.py").write_text("from pathlib import Path\nPath('imported').touch()\n")
    monkeypatch.chdir(tmp_path)
    error = failed(capsys, *tiny, f"output={run}", "--resume", code=2)
    assert "objectives.spans.type theirs:Spans, which this recipe does not name" in error
    assert not (tmp_path / "imported").exists()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("place", "name"), [("import pyarrow", "SIGINT"), ("clearspan.train.engine.loop:deepspeed_config", "SIGTERM")]
)
def test_a_signal_while_training_starts_is_one_line(
    tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, name: str
) -> None:
    monkeypatch.setenv("SIGNALLED_AT", place)
    monkeypatch.setenv("SIGNAL", name)
    arguments = [*tiny, f"output={tmp_path / 'run'}"]
    stopped = train_alone(*arguments, script="tests/train/signalled_at.py", code=130)
    told = f"train: stopped by {name}: run it again, with --resume if a checkpoint is there"
    assert [line for line in stopped.stderr.splitlines() if line] == [told]
    with output(load_recipe("demo", arguments), resume=False):
        pass


def test_resuming_with_objectives_in_another_order_says_so(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    (run / "checkpoints" / "step-00000001").mkdir(parents=True)
    given = [*tiny, "objectives.mlm.input=sentence", f"output={run}"]
    recipe = load_recipe("demo", given)
    recipe.objectives = dict(reversed(recipe.objectives.items()))
    (run / "recipe.yaml").write_text(to_yaml(recipe))
    assert "objectives in another order" in failed(capsys, *given, "--resume", code=2)


@pytest.mark.guarantee("diverged-run")
@pytest.mark.slow
def test_a_loss_that_is_not_a_number_stops_the_run(tiny: list[str], tmp_path: Path) -> None:
    error = failed_in_training(*tiny, "optimizer.learning_rate=1e30", f"output={tmp_path / 'run'}")
    assert "learning_rate" in error and "step" in error


def test_evaluation_data_that_tells_no_model_from_another(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A correlation with a constant is not a number: no checkpoint would ever be the best."""
    (tmp_path / "pairs.csv").write_text("Ein Satz.,Noch einer.,3.0\nEin Haus.,Ein Hund.,3.0\n")
    evaluation = ["training.eval_steps=2", f"training.eval_data={tmp_path / 'pairs.csv'}"]
    assert "all pairs have the same score" in failed(capsys, *tiny, *evaluation, f"output={tmp_path / 'run'}", code=2)
