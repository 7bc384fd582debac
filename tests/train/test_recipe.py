"""Recipes: the papers' numbers, overrides, and errors that name the key."""

import copy
import itertools
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from clearspan.train.config.layers import merge_layers, read_layers
from clearspan.train.config.options import RecipeError
from clearspan.train.recipe import load_recipe
from clearspan.train.sweeps import grid
from tests.conftest import ROOT

GIVEN = ["data.text.path=d", "output=o", "model.path=m"]


@pytest.mark.guarantee("paper-recipes")
def test_a_recipe_extends_another_by_name_or_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: demo\ndata: {text: {batch_size: 7}}\nobjectives: {mlm: null}")
    (tmp_path / "again.yaml").write_text("extends: mine.yaml\noptimizer: {eps: 0.5}")
    given = ["data.text.path=d", "output=o"]
    loaded, demo = load_recipe(str(tmp_path / "again.yaml"), given), load_recipe("demo", given)
    assert (loaded.data["text"].batch_size, loaded.optimizer.eps, set(loaded.objectives)) == (7, 0.5, {"spans"})
    assert loaded.model == demo.model and loaded.objectives["spans"] == demo.objectives["spans"]
    (tmp_path / "demo.yaml").write_text("extends: demo\noptimizer: {eps: 0.25}")
    for name in ("demo.yaml", "again.yaml"):  # a name is that of a recipe of the package, whatever lies beside
        beside = load_recipe(str(tmp_path / name), given)
        assert beside.optimizer.eps == {"demo.yaml": 0.25}.get(name, 0.5) and beside.model == demo.model


@pytest.mark.guarantee("paper-recipes")
def test_a_config_of_another_model_type_replaces_the_one_that_is_extended(tmp_path: Path) -> None:
    """Of the same type it states only what it changes; the command line goes over a recipe as a file does."""
    given = ["data.text.path=d", "output=o"]
    (tmp_path / "same.yaml").write_text("extends: demo\nmodel: {config: {model_type: modernbert, hidden_size: 64}}")
    (tmp_path / "other.yaml").write_text("extends: same.yaml\nmodel: {config: {model_type: roberta, vocab_size: 9}}")
    (tmp_path / "again.yaml").write_text("extends: other.yaml\nmodel: {config: {hidden_size: 96}}")
    demo = load_recipe("demo", given).model
    assert load_recipe(str(tmp_path / "same.yaml"), given).model.config == {**demo.config, "hidden_size": 64}
    loaded = load_recipe(str(tmp_path / "again.yaml"), given).model
    assert loaded.config == {"model_type": "roberta", "vocab_size": 9, "hidden_size": 96}
    assert loaded.pooling == demo.pooling
    words = ["model.config.hidden_size=32", "model.config.model_type=bert"]
    assert load_recipe("demo", [*given, *words]).model.config == {"model_type": "bert", "hidden_size": 32}


@pytest.mark.guarantee("paper-recipes")
@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("extends: nope", "no recipe 'nope'"),
        ("extends: [demo]", "no recipe"),
        ("extends: itself.yaml", "extends itself"),
        ("extends: parent.yaml", "extends itself"),
    ],
)
def test_what_cannot_be_extended_is_named(tmp_path: Path, content: str, named: str) -> None:
    (tmp_path / "itself.yaml").write_text(content)
    (tmp_path / "parent.yaml").write_text("extends: itself.yaml")
    with pytest.raises(RecipeError) as raised:
        load_recipe(str(tmp_path / "itself.yaml"), ["data.text.path=d", "output=o"])
    assert named in str(raised.value) and "extends: " in str(raised.value) and "\n" not in str(raised.value)
    (tmp_path / "itself.yaml").write_text("a: [")
    with pytest.raises(RecipeError, match=r"itself\.yaml: line 1"):
        load_recipe(str(tmp_path / "parent.yaml"), ["data.text.path=d", "output=o"])


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["objectives.epoch.type=mlm"], "objectives.epoch: metrics"),
        (["training.eval_data=senteval"], "training.eval_data has no effect with training.eval_steps 0"),
        (["data.text.validation=d"], "data.text.validation has no effect with training.eval_steps 0"),
        (
            ["model.train=last-0"],
            "model.train 'last-0' is not one of all,",
        ),
        (["optimizer.betas=[0.9]"], "optimizer.betas"),
        (["training.primary=more"], "training.primary 'more' is not one of text"),
        (["objectives.spans=5"], "objectives.spans: expected a mapping"),
        (["objectives.spans.temperature=0"], "objectives.spans.temperature must be above 0"),
        (["objectives.spans.sampler.min_span=600"], "objectives.spans: min_span"),
        (["objectives.mlm.input=separate"], "objectives.mlm: sampler is required"),
        (["model.path=null"], "model.path or model.config"),
        (["data.path=d"], "data.path: say data.NAME.path"),
        (["data.text=d"], "data.text: expected a mapping of options"),
        (["model.path='"], 'the argument "model.path=\'": line 1: not YAML'),
        (["model.config=[1]"], "model.config must be a mapping"),
        (["optimization=alternate", "objectives.mlm.turn=a/b"], "objectives.mlm.turn a/b: a name consists of letters"),
        (
            ["data.more.path=d", "objectives.spans.data=text", "objectives.mlm.data=text"],
            "data.more: no objective reads it",
        ),
        (["objectives.mlm.turn=a"], "objectives.mlm.turn has no effect with optimization: sum"),
        (["turns.mlm.learning_rate=1"], "turns.mlm has no effect with optimization: sum"),
        (["optimization=alternate", "training.zero_stage=1"], "optimization: alternate needs training.zero_stage=0"),
        (["optimization=alternate", "turns.other.eps=1"], "turns.other: no objective"),
        (["optimization=alternate", "objectives.mlm.turn=spans"], "all objectives belong to the turn spans"),
        (["training.max_steps", "7"], "'training.max_steps' is not key=value"),
        (["output=runs/a #2"], "begins a comment of YAML"),
        (["optimizer.learning_rate=nan"], "optimizer.learning_rate"),
    ],
)
def test_a_wrong_override_is_one_line_that_names_the_key(overrides: list[str], named: str) -> None:
    with pytest.raises(RecipeError) as raised:
        load_recipe("declutr-small", [*GIVEN, *overrides])
    assert named in str(raised.value) and "\n" not in str(raised.value)


def test_an_unknown_recipe_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="declutr-base"):
        load_recipe("declutr-large")
    broken = tmp_path / "broken.yaml"
    broken.write_text("training: [")
    with pytest.raises(RecipeError, match=r"broken\.yaml: line 1: not YAML: "):
        load_recipe(str(broken))
    broken.write_text("- a list")
    with pytest.raises(RecipeError, match="mapping"):
        load_recipe(str(broken))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("extends: demo\ntraining:\n  seed: 1\n  bf16: false\n  seed: 2\n", "line 5: the key 'seed' is given"),
        ("extends: demo\ntraining: {seed: 1}\n'training': {seed: 2}\n", "line 3: the key 'training' is given"),
        ("[" * 5000, "nested too deeply"),
        ("training: {seed: " + "9" * 5000 + "}", "limit"),
        ("\0", "special characters"),
        ("extends: demo\nobjectives: {1: {type: spans}}", "objectives.1: a name is text"),
        ("extends: demo\nobjectives: [spans]", "objectives: expected a mapping"),
        ('extends: demo\noutput: "a\\0b"', "null character"),
    ],
)
def test_a_file_that_says_two_things_or_has_no_end_is_named(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(content)
    with pytest.raises(RecipeError) as raised:
        load_recipe(str(path), [GIVEN[0], "model.config=null", "model.path=m"])
    assert said in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "override", ["a." * 2000 + "b=1", "training.seed=" + "9" * 5000, "training.seed=" + "[" * 3000]
)
def test_an_override_without_end_is_one_line(override: str) -> None:
    with pytest.raises(RecipeError) as raised:
        load_recipe("declutr-small", [*GIVEN, override])
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 300


def test_a_number_may_have_an_exponent_alone_and_a_name_may_be_a_date(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: demo\noutput: 2024-01-31\nmodel: {config: {norm_eps: 1e-5}}")
    loaded = load_recipe(str(tmp_path / "mine.yaml"), ["data.text.path=d", "optimizer.eps=5e-7"])
    assert (loaded.output, loaded.optimizer.eps) == ("2024-01-31", 5e-7)
    assert loaded.model.config["norm_eps"] == 1e-5


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in itertools.pairwise("abcdefghi")
)
"""A YAML text of 400 characters that stands for 400 million values."""


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        BOMB.replace("i: &i [", "i: &i [[[[").replace("*h]\n", "*h]]]]\n"),
        BOMB + "training: {loggers: *h}\n",
        "a: &a {x: 1}\n"
        + "".join(
            f"{name}: &{name} {{<<: [{','.join([f'*{before}'] * 9)}]}}\n"
            for before, name in itertools.pairwise("abcdefghi")
        ),
    ],
)
def test_aliases_that_multiply_are_refused_before_they_are_followed(tmp_path: Path, text: str) -> None:
    (tmp_path / "bomb.yaml").write_text(text)
    with pytest.raises(RecipeError, match=r"bomb\.yaml: line 1: its aliases .* stand for more than 100,000 values"):
        load_recipe(str(tmp_path / "bomb.yaml"))
    with pytest.raises(RecipeError, match="stand for more than 100,000 values"):
        grid.read(str(tmp_path / "bomb.yaml"))
    with pytest.raises(RecipeError, match="stand for more than 100,000 values"):
        load_recipe("demo", [f"model.config={text}"])


def test_an_alias_repeats_what_it_names(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("extends: demo\ntraining: {seed: &seed 7, save_steps: *seed}\n")
    recipe = load_recipe(str(tmp_path / "own.yaml"), ["data.text.path=d", "output=o"])
    assert recipe.training.seed == recipe.training.save_steps == 7


def test_of_an_override_given_twice_the_last_counts() -> None:
    assert load_recipe("declutr-small", [*GIVEN, "training.seed=1", "training.seed=2"]).training.seed == 2


def test_a_key_that_must_be_given_is_named() -> None:
    with pytest.raises(RecipeError, match=r"data\.text\.path=VALUE"):
        load_recipe("declutr-small", ["model.path=m", "output=o", "data.text.path=???"])


def test_no_name_in_train_is_a_module_of_python_or_of_a_dependency() -> None:
    """`deepspeed train/run.py` puts train/ first on sys.path, before run.py takes it off."""
    names = {path.stem for path in (ROOT / "train").iterdir()}
    assert names & {*sys.stdlib_module_names, *metadata.packages_distributions()} == set()


def test_no_file_of_train_hides_a_module_of_the_users() -> None:
    """run.py takes train/ off sys.path, where data/ and model/ lie."""
    code = "import runpy, sys; sys.path[0] = {!r}; runpy.run_path({!r}); print(sys.path)"
    words = [sys.executable, "-c", code.format(str(ROOT / "train"), str(ROOT / "train" / "run.py"))]
    environment = {**os.environ, "PYTHONSAFEPATH": ""}  # a command that an earlier test ran may have set it
    shown = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=True, env=environment).stdout
    assert repr(str(ROOT / "train")) not in shown


SMALL: dict[str, Any] = {
    "model": {"path": "m", "config": {"model_type": "bert", "hidden_size": 64}},
    "training": {"max_steps": 9, "seed": 5},
    "loggers": ["a", "b"],
    "dims": [64],
    "eps": 1e-8,
}


@pytest.mark.guarantee("paper-recipes")
@pytest.mark.parametrize(
    ("layer", "changed"),
    [
        ({"optimizer": {"eps": 1e-6}}, {"optimizer": {"eps": 1e-6}}),
        ({"training": {"seed": 7}}, {"training": {"max_steps": 9, "seed": 7}}),
        ({"training": {"epochs": 2}}, {"training": {"seed": 5, "epochs": 2}}),
        ({"training": {"max_steps": 4}}, {"training": {"seed": 5, "max_steps": 4}}),
        ({"training": {"epochs": 0}}, {"training": {"max_steps": 9, "seed": 5, "epochs": 0}}),
        ({"training": None}, {"training": None}),
        (
            {"model": {"config": {"hidden_size": 32}}},
            {"model": {"path": "m", "config": {"model_type": "bert", "hidden_size": 32}}},
        ),
        ({"model": {"config": {"model_type": "bert"}}}, {}),
        ({"model": {"config": {"model_type": "gpt2"}}}, {"model": {"path": "m", "config": {"model_type": "gpt2"}}}),
        ({"model": {"config": None, "path": "n"}}, {"model": {"path": "n", "config": None}}),
        ({"model": None, "output": {"folder": "o"}}, {"model": None, "output": {"folder": "o"}}),
        ({"model": {"path": "n"}}, {"model": {"path": "n", "config": SMALL["model"]["config"]}}),
        ({"training": {}, "model": {"config": {}}}, {}),
        ({"loggers": ["b"], "dims": [], "eps": 0}, {"loggers": ["b"], "dims": [], "eps": 0}),
    ],
)
def test_a_layer_replaces_what_it_states_and_what_cannot_stay_beside_it(
    layer: dict[str, Any], changed: dict[str, Any]
) -> None:
    base = copy.deepcopy(SMALL)
    assert merge_layers([base, layer]) == {**SMALL, **changed}
    assert base == SMALL


@pytest.mark.guarantee("paper-recipes")
@pytest.mark.parametrize(
    ("bases", "merged"),
    [
        ([{"training": "long"}, {"training": {"epochs": 2}}], {"training": {"epochs": 2}}),
        (
            [{"training": {"epochs": 2, "seed": 1}}, {"training": {"max_steps": 4}}],
            {"training": {"seed": 1, "max_steps": 4}},
        ),
        ([{}, {"training": {"epochs": 2}}], {"training": {"epochs": 2}}),
        (
            [{"model": {"config": {"hidden_size": 8}}}, {"model": {"config": {"model_type": "bert"}}}],
            {"model": {"config": {"hidden_size": 8, "model_type": "bert"}}},
        ),
        (
            [{"a": 1, "b": {"c": 1, "d": 1}}, {"b": {"c": 2}}, {"b": {"c": 3, "e": 3}}],
            {"a": 1, "b": {"c": 3, "d": 1, "e": 3}},
        ),
        ([], {}),
    ],
)
def test_layers_are_merged_in_their_order(bases: list[dict[str, Any]], merged: dict[str, Any]) -> None:
    assert merge_layers(bases) == merged


@pytest.mark.guarantee("paper-recipes")
def test_the_layers_of_a_file_begin_with_what_extends_nothing_and_a_name_is_from_its_own_folder(tmp_path: Path) -> None:
    """Files of one name in two folders are two recipes, and there may be many."""
    (tmp_path / "small" / "tiny").mkdir(parents=True)
    (tmp_path / "base.yaml").write_text("seed: 1")
    (tmp_path / "small" / "middle.yaml").write_text("extends: ../base.yaml\nseed: 2")
    (tmp_path / "small" / "top.yml").write_text("extends: middle.yaml\nseed: 3")
    (tmp_path / "small" / "tiny" / "base.yaml").write_text("extends: ../top.yml\nseed: 4")
    (tmp_path / "top.yml").write_text("seed: 5\nextends: small/tiny/base.yaml")
    expected = [{"seed": seed} for seed in (1, 2, 3, 4, 5)]
    assert read_layers(tmp_path / "top.yml") == expected == read_layers(tmp_path / "top.yml")
    (tmp_path / "base.yaml").write_text("seed: 6")
    assert read_layers(tmp_path / "top.yml") == [{"seed": 6}, *expected[1:]]
    (tmp_path / "base.yaml").write_text("extends: small/../top.yml")
    with pytest.raises(RecipeError, match=r"base\.yaml: extends: 'small/\.\./top\.yml' extends itself, directly or"):
        read_layers(tmp_path / "small" / ".." / "top.yml")
