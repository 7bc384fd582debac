"""Keys that were mistyped, and the two keys that say how long a run is."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from clearspan.train import __main__ as launcher
from clearspan.train import export, run, sweep
from clearspan.train.config.layers import parse
from clearspan.train.config.recipe import load, to_yaml
from clearspan.train.options import RecipeError
from clearspan.train.sweeps.grid import read as read_sweep

GIVEN = ["data.text.path=d", "output=o"]


@pytest.mark.parametrize(
    ("argument", "meant"),
    [
        ("training.batchsize=4", "did you mean data.text.batch_size?"),
        ("objectives.spans.temprature=1", "did you mean objectives.spans.temperature?"),
        ("objectives.spans.sampler.numanchors=2", "did you mean objectives.spans.sampler.num_anchors?"),
        (
            "objectives.span.temperature=1",
            "no type 'span', and the recipe has spans, mlm; did you mean objectives.spans?",
        ),
        ("objectives.simsce.dropout=0.1", "did you mean objectives.simcse?"),
        ("objectives.span=null", "the recipe has no such entry to leave out; did you mean objectives.spans?"),
        ("data.txt.batch_size=4", "no objective reads it, and the recipe has text; did you mean data.text?"),
        ("data.txt.path=x", "did you mean data.text?"),
        ("data.txt=null", "the recipe has no such entry to leave out; did you mean data.text?"),
        ("data.more.share=0.5", "the recipe has text; say which one does: objectives.NAME.data=more"),
        ("trainning.max_steps=4", "did you mean training?"),
        ("training.zzz=4", "`--dry-run` prints the keys there are"),
        ("training.max_steps=many", "training.max_steps: 'many' should be a valid integer"),
        ("training.max_steps=true", "training.max_steps: true and false are no numbers"),
        ("optimizer.betas=[false, 0.9]", "optimizer.betas.0: true and false are no numbers"),
        ("training.save_steps=0", "training.save_steps: 0 should be greater than or equal to 1"),
    ],
)
def test_a_wrong_argument_is_named_and_not_the_recipes_file(argument: str, meant: str) -> None:
    with pytest.raises(RecipeError) as raised:
        load("demo", ["optimizer.eps=1e-6", argument, *GIVEN])
    said = str(raised.value)
    assert said.startswith(f"the argument {argument!r}: ") and meant in said and "demo.yaml" not in said


@pytest.mark.parametrize("name", ["007", "1_000", "0x1F", "12:30", "2024", "2024-01-01", "runs/é, 2"])
def test_a_text_is_taken_as_it_is_written(name: str) -> None:
    assert load("demo", ["data.text.path=d", f"output={name}"]).output == name


@pytest.mark.parametrize("name", ["1.10", "1e3", "7e10123"])
def test_a_number_in_place_of_a_text_is_refused_without_quotes(name: str) -> None:
    """Its digits may be others than the user wrote: 1.1, 1000.0, inf."""
    with pytest.raises(RecipeError, match=r"output: \S+ is a number, and should be a text: put it in quotes"):
        load("demo", ["data.text.path=d", f"output={name}"])
    assert load("demo", ["data.text.path=d", f"output='{name}'"]).output == name


@pytest.mark.parametrize("value", ["runs/a #2", "#1", "'runs/a' #2"])
def test_a_part_of_an_argument_that_yaml_would_drop_is_refused(value: str) -> None:
    with pytest.raises(RecipeError, match=r"'#[12]' would be a comment: put the value in quotes"):
        load("demo", ["data.text.path=d", f"output={value}"])
    assert load("demo", ["data.text.path=d", "output='runs/a #2'"]).output == "runs/a #2"


@pytest.mark.parametrize("name", ["1e3", "1.10", "007", "12:30", "true", "2024-01-01", "a: b", "runs/a #2", "é\n"])
def test_a_runs_recipe_says_the_same_texts(name: str) -> None:
    """To this package, and to any other reader of YAML."""
    written = to_yaml(load("demo", ["data.text.path=d", f"output={json.dumps(name)}"]))
    assert parse(written)["output"] == yaml.safe_load(written)["output"] == name


def test_a_mistyped_dataset_is_to_blame_and_not_the_path_that_lacks_for_it() -> None:
    with pytest.raises(RecipeError, match=r"^the argument 'data.txt.path=d': .* did you mean data.text\?$"):
        load("demo", ["data.txt.path=d", "output=o"])


def test_a_dataset_of_ones_own_may_stand_in_place_of_the_recipes() -> None:
    assert list(load("declutr-small", ["data.text=null", "data.mine.path=d", "output=o", "model.path=m"]).data) == [
        "mine"
    ]
    assert load("clear-del-word", [*GIVEN, "objectives.spans=null"]).objectives  # leaves out what is not there


def test_a_wrong_key_of_a_file_is_the_files(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("extends: demo\ntraining: {saving_steps: 5}")
    with pytest.raises(RecipeError) as raised:
        load(str(mine), [*GIVEN, "training.save_steps=7"])
    assert str(raised.value) == f"{mine}: unknown key 'training.saving_steps'; did you mean training.save_steps?"


def test_epochs_on_the_command_line_stand_in_place_of_a_recipes_steps() -> None:
    training = load("demo", [*GIVEN, "training.epochs=3"]).training
    assert (training.max_steps, training.epochs) == (0, 3.0)


def test_steps_on_the_command_line_stand_in_place_of_a_recipes_epochs() -> None:
    loaded = load("declutr-small", [*GIVEN, "model.path=m", "training.max_steps=7"])
    assert loaded.training.max_steps == 7 and "epochs" not in to_yaml(loaded)


def test_a_misspelled_recipe_is_answered_with_the_nearest_name_alone() -> None:
    with pytest.raises(RecipeError, match=r"^no recipe 'statik'; did you mean 'static'\?$"):
        load("statik")


def test_a_file_counts_more_than_the_one_that_it_extends(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: demo\ntraining: {epochs: 2}")
    assert load(str(tmp_path / "mine.yaml"), GIVEN).training.max_steps == 0


def test_both_lengths_in_one_place_are_an_error(tmp_path: Path) -> None:
    both = r"training\.epochs 2 and training\.max_steps 5: a run has one length"
    with pytest.raises(RecipeError, match=f"the command line: {both}"):
        load("demo", [*GIVEN, "training.max_steps=5", "training.epochs=2"])
    (tmp_path / "mine.yaml").write_text("extends: demo\ntraining: {epochs: 2, max_steps: 5}")
    with pytest.raises(RecipeError, match=rf"mine\.yaml: {both}"):
        load(str(tmp_path / "mine.yaml"), GIVEN)


@pytest.mark.parametrize(
    ("name", "words", "meant"),
    [
        ("declutr-smal", [], "declutr-small"),
        ("demo", ["optimizer.schedule=slanted_triangle"], "slanted_triangular"),
        ("demo", ["optimization=alternating"], "alternate"),
        ("demo", ["model.pooling=maen"], "mean"),
        ("demo", ["data.text.short_documents=skipp"], "skip"),
        ("demo", ["objectives.spans.sampler.placement=unifrom"], "uniform"),
        ("demo", ["objectives.spans.sampler.positives=adjacant"], "adjacent"),
        ("demo", ["objectives.spans.head=tan"], "tanh"),
        ("demo", ["objectives.mlm.input=sentnce"], "sentence"),
        ("demo", ["objectives.spans.data=txt"], "text"),
        ("demo", ["objectives.mine.type=simsce"], "simcse"),
        ("demo", ["training.primary=txt"], "text"),
    ],
)
def test_a_mistyped_name_or_choice_names_the_nearest(name: str, words: list[str], meant: str) -> None:
    with pytest.raises(RecipeError, match=rf"did you mean '{meant}'\?$"):
        load(name, [*GIVEN, *words])


def test_a_mistyped_recipe_that_is_extended_and_a_mistyped_sweep_name_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: declutr-bsae")
    with pytest.raises(RecipeError, match=r"extends: no recipe 'declutr-bsae'.*did you mean 'declutr-base'\?$"):
        load(str(tmp_path / "mine.yaml"))
    with pytest.raises(RecipeError, match=r"no sweep 'declutr-figure-22'.*did you mean 'declutr-figure-2'\?$"):
        read_sweep("declutr-figure-22")
    (tmp_path / "sweep.yaml").write_text("recipes: demo")
    with pytest.raises(RecipeError, match=r"unknown key 'recipes'; did you mean recipe\?$"):
        read_sweep(str(tmp_path / "sweep.yaml"))


@pytest.mark.parametrize(
    ("main", "words", "said"),
    [
        (run.main, ["--recipe", "demo", "a.b=1", "--dryrun"], "no such option: --dryrun; did you mean '--dry-run'?"),
        (run.main, ["--recpe", "demo"], "no such option: --recpe; did you mean '--recipe'?"),
        (sweep.main, ["a.b=1", "--gird", "x=1", "--output", "o"], "no such option: --gird; did you mean '--grid'?"),
        (sweep.main, ["--output", "o", "--protocol", "fats"], "did you mean 'fast'?"),
        (launcher.main, ["--recipe", "demo", "--num_gpu=2"], "no such option: --num_gpu; did you mean '--num_gpus'?"),
        (launcher.main, ["--recipe", "demo", "--resum"], "no such option: --resum; did you mean '--resume'?"),
        (export.main, ["run", "out", "--chekpoint", "best"], "--chekpoint; did you mean '--checkpoint'?"),
    ],
)
def test_a_mistyped_option_of_a_command_names_the_nearest(
    main: Callable[[list[str]], int], words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, before anything is started."""
    with pytest.raises(SystemExit) as raised:
        main(words)
    error = capsys.readouterr().err
    assert raised.value.code == 2 and said in error and error.count("\n") == 1
