"""The folder of a run: which runs are continued, and what is refused before anything is started."""

import json
import os
import shutil
from pathlib import Path

import pytest

import clearspan
from clearspan.cli.parser import parse
from clearspan.cli.run import Work, run
from clearspan.common.checksummed_folder import write_manifest
from clearspan.train import api, run_folder
from clearspan.train.__main__ import Train, check
from clearspan.train.config.options import Recipe, RecipeError
from clearspan.train.recipe import load_recipe
from clearspan.train.request import TrainOptions
from clearspan.train.run_folder import INPUTS, mark_finished, repeated, save
from tests.train.conftest import write_dataset


@pytest.fixture
def recipe(dataset_folder: Path, tokenizer_folder: Path, tmp_path: Path) -> Recipe:
    """A recipe whose data, model and scored pairs are copies, to be replaced."""
    shutil.copytree(dataset_folder, tmp_path / "texts")
    shutil.copytree(tokenizer_folder, tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "pairs.csv").write_text("a cat,a kitten,5\n")
    return load_recipe("demo", words(tmp_path))


def words(folder: Path, *more: str) -> list[str]:
    paths = [f"data.text.path={folder / 'texts'}", f"model.path={folder / 'model'}", f"output={folder / 'run'}"]
    chosen = ["model.config=null", f"training.eval_data={folder / 'pairs.csv'}", "training.eval_steps=2"]
    return [*paths, *chosen, *more]


def begin(recipe: Recipe, finish: bool = False) -> None:
    """Leave what a run leaves that has saved a checkpoint."""
    save(recipe)
    folder = Path(recipe.output)
    (folder / "checkpoints" / "step-00000002").mkdir(parents=True)
    if finish:
        end(folder)


def end(folder: Path) -> None:
    """Leave what a run leaves at its end."""
    (folder / "model").mkdir()
    (folder / "model" / "model.safetensors").write_bytes(b"weights")
    (folder / "model" / "README.md").write_text("A card.")
    write_manifest(folder / "model", "model")
    (folder / "metrics.jsonl").write_text('{"step": 2, "loss": 1.5}\n')
    mark_finished(folder)


@pytest.mark.guarantee("finished-work-checked")
def test_the_same_recipe_finds_its_run(recipe: Recipe, tmp_path: Path) -> None:
    """Wherever its data lie now."""
    assert repeated(recipe) == "new"
    begin(recipe)
    assert repeated(recipe) == "halted"
    end(tmp_path / "run")
    (tmp_path / "texts").rename(tmp_path / "moved")
    assert repeated(load_recipe("demo", words(tmp_path, f"data.text.path={tmp_path / 'moved'}"))) == "finished"


@pytest.mark.guarantee("finished-work-checked")
def test_a_finished_run_without_its_model_goes_on_to_export_again(recipe: Recipe, tmp_path: Path) -> None:
    begin(recipe, finish=True)
    assert repeated(recipe) == "finished"
    shutil.rmtree(tmp_path / "run" / "model")
    assert repeated(recipe) == "halted"


@pytest.mark.guarantee("finished-work-checked")
@pytest.mark.parametrize("damage", ["flipped", "truncated", "missing", "added"])
def test_a_finished_run_with_a_damaged_model_goes_on_to_export_again(
    recipe: Recipe, tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is there is moved out of the way; a card that the user edits is no damage."""
    begin(recipe, finish=True)
    run, weights = tmp_path / "run", tmp_path / "run" / "model" / "model.safetensors"
    (run / "model" / "README.md").write_text("A better card.")
    assert repeated(recipe) == "finished"
    run_folder.set_aside_model(run)
    assert weights.exists() and capsys.readouterr().out == ""
    changes = {"flipped": b"weightr", "truncated": b"weig", "added": b"weights"}
    weights.unlink() if damage == "missing" else weights.write_bytes(changes[damage])
    if damage == "added":
        (run / "model" / "2_Dense.safetensors").write_bytes(b"mine")
    assert repeated(recipe) == "halted"
    for aside in ("model.damaged", "model.damaged-2"):
        run_folder.set_aside_model(run)
        assert f"moved to {run / aside}, and exported again" in capsys.readouterr().out
        assert (run / aside / "README.md").read_text() == "A better card." and not (run / "model").exists()
        shutil.copytree(run / aside, run / "model")


@pytest.mark.guarantee("finished-work-checked")
def test_changed_metrics_of_a_finished_run_are_refused(recipe: Recipe, tmp_path: Path) -> None:
    begin(recipe, finish=True)
    run_folder.check_metrics(tmp_path / "run")
    path = tmp_path / "run" / "metrics.jsonl"
    whole = path.read_bytes()
    others = [b'{"step": 2, "loss": 1.4}\n', whole.replace(b"\n", b"\r\n"), whole[:-1], whole + b"\n", whole * 2, b""]
    for changed in others:
        path.write_bytes(changed)
        with pytest.raises(RecipeError, match=r"metrics\.jsonl: missing or changed"):
            run_folder.check_metrics(tmp_path / "run")


@pytest.mark.guarantee("finished-work-checked")
@pytest.mark.parametrize("name", ["metrics.jsonl", "model/model.safetensors"])
@pytest.mark.parametrize("place", [0, -2])
def test_what_a_bad_block_damages_of_a_finished_run_is_noticed_whenever_it_is_asked(
    recipe: Recipe, tmp_path: Path, name: str, place: int
) -> None:
    """A bad block changes neither the size nor the times of a file. Of two runs, only the damaged one is named."""
    begin(recipe, finish=True)
    run, other = tmp_path / "run", tmp_path / "other"
    shutil.copytree(run, other)
    path = run / name
    whole, times = path.read_bytes(), path.stat()
    damaged = bytearray(whole)
    damaged[place] ^= 1
    for _ in range(2):
        path.write_bytes(whole)
        assert repeated(recipe) == "finished"
        run_folder.check_metrics(run)
        path.write_bytes(damaged)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        for _ in range(2):
            run_folder.check_metrics(other)
            if name == "metrics.jsonl":
                with pytest.raises(RecipeError, match=f"^{path}: missing or changed since the run ended"):
                    run_folder.check_metrics(run)
            else:
                assert repeated(recipe) == "halted"


@pytest.mark.guarantee("finished-work-checked")
def test_a_finished_run_that_goes_on_has_not_finished(recipe: Recipe, tmp_path: Path) -> None:
    """Killed while it is made longer, it must not pass for the run that its old model is from."""
    begin(recipe, finish=True)
    longer = load_recipe("demo", words(tmp_path, "training.max_steps=500"))
    save(longer)
    assert repeated(longer) == "halted"


@pytest.mark.guarantee("finished-work-checked")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("optimizer.learning_rate=0.5", "the run in it has another optimizer.learning_rate; see"),
        ("training.max_steps=9", "the run in it has another training.max_steps (see .*): name another output"),
        ("training.bf16=true", "another training.bf16 "),
    ],
)
def test_another_recipe_is_refused_with_what_differs(recipe: Recipe, tmp_path: Path, change: str, said: str) -> None:
    began = load_recipe("demo", words(tmp_path, "training.bf16=false"))
    begin(began)
    assert repeated(recipe) == "halted"  # auto is what the run has made of it
    with pytest.raises(RecipeError, match=said.replace("(see", r"\(see").replace("*):", r"*\):")):
        repeated(load_recipe("demo", words(tmp_path, change)))


def replace_texts(folder: Path, documents: list[list[int]], tokenizer_folder: Path) -> None:
    shutil.rmtree(folder / "texts")
    write_dataset(folder / "texts", documents[:30], tokenizer_folder)


@pytest.mark.guarantee("finished-work-checked")
@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("key", ["data.text.path", "model.path", "training.eval_data"])
def test_replaced_data_of_the_same_name_is_refused(
    recipe: Recipe, tmp_path: Path, documents: list[list[int]], tokenizer_folder: Path, key: str, resume: bool
) -> None:
    begin(recipe)
    if key == "data.text.path":
        replace_texts(tmp_path, documents, tokenizer_folder)
    else:
        name = "model/config.json" if key == "model.path" else "pairs.csv"
        (tmp_path / name).write_text("a cat,a dog,3\n")
    with pytest.raises(RecipeError, match=f"^{key} .*: is no longer what the run in .*/run read: put it back"):
        run_folder.check(recipe, resume=True) if resume else repeated(recipe)


def test_the_same_shards_with_another_tokenizer_are_other_data(
    documents: list[list[int]], tokenizer_folder: Path, tmp_path: Path
) -> None:
    """Shards hold no special tokens: those around a sequence are the tokenizer's."""
    bare = Path(shutil.copytree(tokenizer_folder, tmp_path / "bare"))
    record = json.loads((bare / "tokenizer.json").read_text())
    (bare / "tokenizer.json").write_text(json.dumps({**record, "post_processor": None}))
    made = [write_dataset(tmp_path / f"of-{folder.name}", documents[:4], folder) for folder in (tokenizer_folder, bare)]
    assert len(set(map(run_folder.dataset_sha256, made))) == 2


def test_other_pairs_do_not_judge_a_run_that_resumes(recipe: Recipe, tmp_path: Path) -> None:
    """Their scores do not compare; the same pairs may lie elsewhere."""
    begin(recipe)
    shutil.copy(tmp_path / "pairs.csv", tmp_path / "moved.csv")
    run_folder.check(load_recipe("demo", words(tmp_path, f"training.eval_data={tmp_path / 'moved.csv'}")), resume=True)
    (tmp_path / "more.csv").write_text("a cat,a dog,3\n")
    for other in (tmp_path / "more.csv", ""):
        with pytest.raises(RecipeError, match=r"^training\.eval_data .*: is no longer what the run in"):
            run_folder.check(load_recipe("demo", words(tmp_path, f"training.eval_data={other}")), resume=True)


def test_without_its_record_a_run_is_refused(recipe: Recipe, tmp_path: Path) -> None:
    begin(recipe)
    path = tmp_path / "run" / INPUTS
    whole = path.read_bytes()
    flipped = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(0, len(whole) - 1, 5)]
    for damaged in (b"[]", whole[:-20], *flipped):
        path.write_bytes(damaged)
        try:
            assert repeated(recipe) == "halted"  # in what is no content: white space, the name of the hash
        except RecipeError as error:
            assert f"{INPUTS}: missing or damaged" in str(error)


def test_the_command_refuses_before_it_starts_ranks(
    recipe: Recipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def checked(*more: str) -> tuple[int, str]:
        options = parse(Train, ["--recipe", "demo", *words(tmp_path), *more])
        code = run(Work("train", lambda: check(options) or 0, (ValueError, OSError)))
        return code, capsys.readouterr().err

    assert checked() == (0, "") and not (tmp_path / "run").exists()
    begin(recipe)
    code, error = checked()
    assert code == 2 and error.count("\n") == 1 and "holds a run already; continue it with --resume" in error
    assert checked("--resume") == (0, "")
    code, error = checked("--resume", "training.seed=1")
    assert code == 2 and "the run in it has another training.seed" in error
    with run_folder.files.locked(tmp_path / "run"):
        code, error = checked("--resume")
    assert code == 1 and "another run is writing to this folder" in error
    code, error = checked("data.text.path=absent", f"output={tmp_path / 'new'}")
    assert code == 1 and "absent: no manifest.json" in error


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[TrainOptions]:
    """The commands that `train_model` would run in processes of their own."""
    found: list[TrainOptions] = []
    monkeypatch.setattr(api, "call", lambda _, options, *more, **__: found.append(options))
    return found


def test_the_same_call_trains_continues_and_then_does_nothing(
    recipe: Recipe, tmp_path: Path, started: list[TrainOptions], capsys: pytest.CaptureFixture[str]
) -> None:
    clearspan.train_model(recipe)
    begin(recipe)
    clearspan.train_model("demo", words(tmp_path))
    assert [train.resume for train in started] == [False, True]
    end(tmp_path / "run")
    assert clearspan.train_model(recipe).model == tmp_path / "run" / "model"
    assert len(started) == 2
    assert capsys.readouterr().out == f"{tmp_path / 'run'}: this run has finished already: nothing to do\n"


@pytest.mark.guarantee("finished-work-checked")
@pytest.mark.parametrize("damage", ["missing", "a folder", "truncated"])
def test_metrics_that_are_gone_are_refused_and_before_the_end_none_are_asked_for(
    damage: str, recipe: Recipe, tmp_path: Path
) -> None:
    begin(recipe)
    metrics = tmp_path / "run" / "metrics.jsonl"
    run_folder.check_metrics(tmp_path / "run")
    metrics.write_text('{"step": 1, "loss": 1.5}\n')
    run_folder.check_metrics(tmp_path / "run")
    end(tmp_path / "run")
    metrics.write_text('{"step": 2') if damage == "truncated" else metrics.unlink()
    if damage == "a folder":
        metrics.mkdir()
    with pytest.raises(RecipeError, match=r"metrics\.jsonl: missing or changed"):
        run_folder.check_metrics(tmp_path / "run")


@pytest.mark.guarantee("finished-work-checked")
def test_a_folder_that_holds_another_run_is_never_taken_for_the_recipes(recipe: Recipe, tmp_path: Path) -> None:
    begin(recipe, finish=True)
    for change in ("training.max_steps=3", "training.max_steps=3 optimizer.learning_rate=1e-3"):
        with pytest.raises(RecipeError, match=r"^output .*the run in it has another .*(max_steps|learning_rate)"):
            repeated(load_recipe("demo", words(tmp_path, *change.split())))
    (tmp_path / "run" / "checkpoints" / "step-00000002").rmdir()
    shutil.rmtree(tmp_path / "run" / "model")
    assert repeated(recipe) == "new"
