"""Keys that were mistyped, and the two keys that say how long a run is."""

import json
from pathlib import Path

import pytest
import yaml

from clearspan.train.config.layers import parse
from clearspan.train.config.options import RecipeError
from clearspan.train.recipe import load_recipe, to_yaml
from clearspan.train.sweeps.grid import read as read_sweep

GIVEN = ["data.text.path=d", "output=o"]


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("objectives.spans.temprature=1", "did you mean objectives.spans.temperature?"),
        ("objectives.spans.sampler.numanchors=2", "did you mean objectives.spans.sampler.num_anchors?"),
        ("objectives.span.temperature=1", "the recipe has spans, mlm; did you mean objectives.spans?"),
        ("objectives.simsce.dropout=0.1", "did you mean objectives.simcse?"),
        ("objectives.mine.type=simsce", "did you mean objectives.simcse?"),
        ("objectives.span=null", "leave out; did you mean objectives.spans?"),
        ("data.txt.path=x", "data.txt: the recipe has no such entry; did you mean data.text?"),
        (
            "data.more.path=x",
            "objectives.spans.data is not set",
        ),
        ("trainning.max_steps=4", "unknown key 'trainning'; did you mean training?"),
        ('output=""', "output: an empty text"),
        ('data.text.path=""', "data.text.path: an empty text"),
        ("training.zzz=4", "`dry_run` prints the keys there are"),
        ("training.max_steps=many", "training.max_steps must be an integer"),
        ("optimizer.betas=[false, 0.9]", "optimizer.betas.0 must be a number"),
        ("training.save_steps=0", "training.save_steps must be at least 1"),
        ("output=1e3", "output must be a text"),
        ("optimizer.betas=[0.9]", "optimizer.betas must be of length 2"),
        ("optimizer.betas=[0.9, 1]", "optimizer.betas.1 must be below 1"),
        ("optimizer.eps=.nan", "optimizer.eps must be finite"),
        ("model.config={a: [1, -.inf]}", "model.config.a.1 must be finite"),
        ("training.seed=&a [*a]", "line 1: an alias"),
        ("model.dropout=1.5", "model.dropout must be below 1"),
        ("training.seed=true", "training.seed must be an integer"),
        ("training.save_steps=1.0", "training.save_steps must be an integer"),
        ("optimizer.ratio='32'", "optimizer.ratio must be a number"),
        ("training.compile=1", "training.compile must be True or False"),
        ("training.bf16=ture", "training.bf16 ture: choose auto, True, False; did you mean 'True'?"),
        ("objectives.mlm.sampler.minspan=3", "did you mean objectives.mlm.sampler.min_span?"),
        ("data.text.btch_size=3", "did you mean data.text.batch_size?"),
        ("objectives.spans.sampler=3", "objectives.spans.sampler must be a mapping of options"),
        ("model.config={2024-01-01: 1}", "model.config: the key 2024-01-01 must be a text"),
        (
            "optimizer.options={a: [{2024-01-01: 1}]}",
            "optimizer.options.a.0: the key 2024-01-01 must be a text",
        ),
        (f"training.max_steps={'9' * 400}", "training.max_steps must be at most 9,223,372,036,854,775,807"),
        (f"data.text.batch_size=-{'9' * 30}", "data.text.batch_size must be at least 1"),
        ('model.path="\\uDCFF"', "model.path: "),
        ("optimizer.schedule=slanted_triangle", "did you mean 'slanted_triangular'?"),
        ("objectives.spans.sampler.placement=unifrom", "did you mean 'uniform'?"),
        ("objectives.spans.data=txt", "did you mean 'text'?"),
        ("objectives.mlm.input=sentnce", "did you mean 'sentence'?"),
    ],
)
def test_a_wrong_argument_is_named(argument: str, said: str) -> None:
    with pytest.raises(RecipeError) as raised:
        load_recipe("demo", ["optimizer.eps=1e-6", *GIVEN, argument])
    assert said in str(raised.value) and "\n" not in str(raised.value)


def test_a_whole_number_is_a_number_and_a_date_a_text() -> None:
    loaded = load_recipe("demo", ["data.text.path=d", "output=2024-01-01", "optimizer.ratio=4", "model.dropout=0"])
    assert (loaded.output, repr(loaded.optimizer.ratio), repr(loaded.model.dropout)) == ("2024-01-01", "4.0", "0.0")


def test_a_recipes_file_may_state_an_infinite_default(tmp_path: Path) -> None:
    """As a run's recipe.yaml does, if a class of the user's own has such a default."""
    file = tmp_path / "own.yaml"
    file.write_text("extends: demo\nmodel: {config: {cutoff: .inf, 2.5: 2024-01-01}}\n", encoding="utf-8")
    loaded = load_recipe(str(file), GIVEN)
    assert loaded.model.config["cutoff"] == float("inf") and loaded.model.config["2.5"] == "2024-01-01"
    file.write_text(to_yaml(loaded), encoding="utf-8")
    assert load_recipe(str(file)) == loaded


@pytest.mark.parametrize("name", ["1e3", "1.10", "007", "12:30", "true", "2024-01-01", "a: b", "runs/a #2", "é\n"])
def test_a_runs_recipe_says_the_same_texts(name: str) -> None:
    """To this package, and to any other reader of YAML."""
    written = to_yaml(load_recipe("demo", ["data.text.path=d", f"output={json.dumps(name)}"]))
    assert parse(written)["output"] == yaml.safe_load(written)["output"] == name


def test_a_dataset_of_ones_own_may_stand_in_place_of_the_recipes() -> None:
    assert list(
        load_recipe("declutr-small", ["data.text=null", "data.mine.path=d", "output=o", "model.path=m"]).data
    ) == ["mine"]
    assert load_recipe("clear-del-word", [*GIVEN, "objectives.spans=null"]).objectives  # leaves out what is not there


def test_epochs_on_the_command_line_stand_in_place_of_a_recipes_steps() -> None:
    training = load_recipe("demo", [*GIVEN, "training.epochs=3"]).training
    assert (training.max_steps, training.epochs) == (0, 3.0)


def test_steps_on_the_command_line_stand_in_place_of_a_recipes_epochs() -> None:
    loaded = load_recipe("declutr-small", [*GIVEN, "model.path=m", "training.max_steps=7"])
    assert loaded.training.max_steps == 7 and "epochs" not in to_yaml(loaded)


def test_a_file_counts_more_than_the_one_that_it_extends(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: demo\ntraining: {epochs: 2}")
    assert load_recipe(str(tmp_path / "mine.yaml"), GIVEN).training.max_steps == 0


def test_both_lengths_in_one_place_are_an_error(tmp_path: Path) -> None:
    both = r"training\.epochs 2 and training\.max_steps 5"
    with pytest.raises(RecipeError, match=both):
        load_recipe("demo", [*GIVEN, "training.max_steps=5", "training.epochs=2"])
    (tmp_path / "mine.yaml").write_text("extends: demo\ntraining: {epochs: 2, max_steps: 5}")
    with pytest.raises(RecipeError, match=both):
        load_recipe(str(tmp_path / "mine.yaml"), GIVEN)


def test_a_mistyped_recipe_that_is_extended_and_a_mistyped_sweep_name_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: declutr-bsae")
    with pytest.raises(RecipeError, match=r"extends: no recipe 'declutr-bsae'.*did you mean 'declutr-base'\?$"):
        load_recipe(str(tmp_path / "mine.yaml"))
    with pytest.raises(RecipeError, match=r"no sweep 'declutr-figure-22'.*did you mean 'declutr-figure-2'\?$"):
        read_sweep("declutr-figure-22")
    (tmp_path / "sweep.yaml").write_text("recipes: demo")
    with pytest.raises(RecipeError, match=r"unknown key 'recipes'; did you mean recipe\?$"):
        read_sweep(str(tmp_path / "sweep.yaml"))
