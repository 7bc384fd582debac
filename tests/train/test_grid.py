"""Which runs a grid is, and what they are called."""

from pathlib import Path

import pytest

from clearspan.train.config.options import RecipeError
from clearspan.train.recipe import load_recipe
from clearspan.train.sweeps import grid
from clearspan.train.sweeps.grid import Grid, parse_axis

ANCHORS, POSITIVES = "objectives.spans.sampler.num_anchors", "objectives.spans.sampler.num_positives"


def made(*axes: str, recipe: str = "demo") -> Grid:
    return Grid(list(map(parse_axis, axes)), recipe)


def test_runs_are_all_combinations_the_last_axis_first() -> None:
    runs = made(f"{ANCHORS}=1,2", f"{POSITIVES}=1,2,4").runs()
    assert [tuple(run.settings.values()) for run in runs] == [("demo", a, p) for a in "12" for p in "124"]
    assert runs[1].name == "num_anchors=1,num_positives=2"
    assert runs[1].overrides() == [f"{ANCHORS}=1", f"{POSITIVES}=2"]


def test_keys_that_end_alike_are_told_apart_in_names() -> None:
    (run,) = made("data.text.batch_size=8", "data.others.batch_size=4", "training.seed=1").runs()
    assert run.name == "data.text.batch_size=8,data.others.batch_size=4,seed=1"


def test_one_value_has_one_name_however_it_is_written() -> None:
    names = {made(f"optimizer.learning_rate={text}").runs()[0].name for text in ("5e-5", "0.00005", "5.0e-05")}
    assert names == {"learning_rate=5e-05"}


def test_a_path_is_named_by_its_end_and_a_hash() -> None:
    first, second = made("model.path=/models/a/roberta,/models/b/roberta").runs()
    assert first.name != second.name and first.name.startswith("path=roberta-") and "/" not in first.name
    assert first.settings["model.path"] == "/models/a/roberta"


def test_a_list_is_one_value() -> None:
    first, second = made("optimizer.betas=[0.9,0.98],[0.9,0.999]").runs()
    assert first.overrides() == ["optimizer.betas=[0.9,0.98]"] and second.settings["optimizer.betas"] == "[0.9,0.999]"


def test_the_key_recipe_names_the_runs_recipe() -> None:
    runs = made("recipe=declutr-base,mlm-only", recipe="").runs()
    assert [(run.name, run.settings, run.overrides()) for run in runs] == [
        (f"recipe={name}", {"recipe": name}, []) for name in ("declutr-base", "mlm-only")
    ]


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        (["learning_rate"], "is not KEY=VALUE"),
        (["a=1,2;b=1"], "the same number of values, found 2 of a, 1 of b"),
        (["a=1,,2"], "not YAML"),
        (["a="], "found 0 of a"),
        (["a=1,1.0,0.1e1"], "has the run a=1 twice"),
        (["a=1;a=2"], "a stands twice"),
        (["a=1", "b=1;a=2"], "a stands in two axes"),
        ([], "a key that varies"),
        ([f"{name}=0,1,2,3,4,5,6,7,8,9" for name in "abcdefgh"], "the grid has 100,000,000 runs, more than 10,000"),
    ],
)
def test_a_grid_that_cannot_be_is_one_line(axes: list[str], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        made(*axes).runs()


def test_a_sweep_needs_a_recipe() -> None:
    with pytest.raises(RecipeError, match="give `recipe`"):
        made("a=1", recipe="").runs()
    with pytest.raises(RecipeError, match="`recipe` demo has no effect: the grid varies recipe"):
        made("recipe=demo,declutr-base").runs()


def test_an_axis_takes_the_place_of_the_one_of_its_first_key() -> None:
    """And leaves the others where they are: a named sweep is narrowed, or widened."""
    found = grid.read("declutr-figure-2").with_axes([parse_axis(f"{POSITIVES}=1,2"), parse_axis("training.seed=1,2")])
    keys = [next(iter(axis)).split(".")[-1] for axis in found.grid]
    assert keys == ["num_anchors", "num_positives", "positives", "temperature", "learning_rate", "seed"]
    assert len(found.runs()) == 2 * 2 * 3 * 3 * 2 * 2


@pytest.mark.parametrize("name", grid.names())
def test_every_run_of_a_named_sweep_has_a_recipe_that_loads(name: str) -> None:
    left_open = ["data.text.path=shards", "output=unused"]
    runs = grid.read(name).runs()
    for run in runs if len(runs) < 20 else runs[::7]:
        start = run.settings["recipe"]
        clear = start.startswith("clear")
        recipe = load_recipe(start, [*left_open, *([] if clear else ["model.path=model"]), *run.overrides()])
        assert recipe.objectives


def test_the_papers_figure_2_is_its_grid_and_its_control() -> None:
    """Section 5.2 of DeCLUTR: A, P, temperature and learning rate; A = 1 for two epochs of twice the minibatch."""
    runs = grid.read("declutr-figure-2").runs()
    assert len(runs) == 2 * 3 * 3 * 3 * 2
    for run in runs[::7]:
        recipe = load_recipe(run.settings["recipe"], ["data.text.path=x", "output=x", "model.path=x", *run.overrides()])
        anchors = recipe.objectives["spans"].sampler.num_anchors
        assert (recipe.training.epochs * anchors, recipe.data["text"].batch_size * anchors) == (2.0, 32)
    assert {run.settings["objectives.spans.temperature"] for run in runs} == {"0.005", "0.01", "0.05"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("grid: 3", "grid must be a list, not 3"),
        ("grid: [{a: 3}]", "grid.0.a must be a list"),
        ("grid: [{a: [1]}]\ngird: 1", "unknown key 'gird'"),
        ("[", "line 1"),
    ],
)
def test_a_file_that_is_no_sweep_is_one_line(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "own.yaml").write_text(content)
    with pytest.raises(RecipeError, match=f"own.yaml.*{said}|{said}"):
        grid.read(str(tmp_path / "own.yaml"))
