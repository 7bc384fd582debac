"""Which runs a grid is, and what they are called."""

from pathlib import Path

import pytest

from clearspan.train.config.recipe import load
from clearspan.train.options import RecipeError
from clearspan.train.sweeps import grid
from clearspan.train.sweeps.grid import Grid, parse_axis

ANCHORS, POSITIVES = "objectives.spans.sampler.num_anchors", "objectives.spans.sampler.num_positives"


def made(*axes: str, recipe: str = "demo") -> Grid:
    return Grid(recipe, tuple(map(parse_axis, axes)))


def test_runs_are_all_combinations_the_last_axis_first() -> None:
    runs = made(f"{ANCHORS}=1,2", f"{POSITIVES}=1,2,4").runs()
    assert [tuple(run.settings.values()) for run in runs] == [("demo", a, p) for a in "12" for p in "124"]
    assert runs[1].name == "num_anchors=1,num_positives=2"
    assert runs[1].overrides() == [f"{ANCHORS}=1", f"{POSITIVES}=2"]


def test_keys_beside_each_other_vary_together() -> None:
    """The control of the paper's Figure 2: with one anchor twice the epochs and twice the minibatch."""
    runs = made(f"{ANCHORS}=1,2;training.epochs=2,1;data.text.batch_size=32,16").runs()
    assert [run.overrides() for run in runs] == [
        [f"{ANCHORS}=1", "training.epochs=2", "data.text.batch_size=32"],
        [f"{ANCHORS}=2", "training.epochs=1", "data.text.batch_size=16"],
    ]


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


def test_a_name_too_long_for_a_folder_is_cut() -> None:
    runs = made(*(f"model.config.{'long' * 10}{number}=1,2" for number in range(8))).runs()
    assert len({run.name for run in runs}) == len(runs) == 256 and max(len(run.name) for run in runs) <= 200


def test_labels_tell_the_points_of_an_axis_apart() -> None:
    assert parse_axis("a.head=none,relu,relu;a.dim=0,128,256").labels == ["none-0", "relu-128", "relu-256"]
    assert parse_axis("a.anchors=1,2;training.epochs=2,1").labels == ["1", "2"]


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        (["learning_rate"], "is not KEY=VALUE"),
        (["a=1,2;b=1"], "as many values each, found 2 of a, 1 of b"),
        (["a=1,,2"], "a has an empty value"),
        (["a=1,1.0,0.1e1"], "the same value twice"),
        (["a=1;a=2"], "a stands twice"),
        (["a=1", "b=1;a=2"], "a stands in two axes"),
        (["a=[1,2"], "a: "),
        ([], "a key that varies"),
    ],
)
def test_a_grid_that_cannot_be_is_one_line(axes: list[str], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        made(*axes)


def test_a_sweep_needs_a_recipe() -> None:
    with pytest.raises(RecipeError, match="give --recipe"):
        made("a=1", recipe="")


def test_an_axis_takes_the_place_of_the_one_of_its_first_key() -> None:
    """And leaves the others where they are: a named sweep is narrowed, or widened."""
    found = grid.read("declutr-figure-2").with_axes([parse_axis(f"{POSITIVES}=1,2"), parse_axis("training.seed=1,2")])
    keys = [axis.keys[0].split(".")[-1] for axis in found.axes]
    assert keys == ["num_anchors", "num_positives", "positives", "temperature", "learning_rate", "seed"]
    assert len(found.runs()) == 2 * 2 * 3 * 3 * 2 * 2


@pytest.mark.parametrize("name", grid.names())
def test_every_run_of_a_named_sweep_has_a_recipe_that_loads(name: str) -> None:
    left_open = ["data.text.path=shards", "output=unused"]
    runs = grid.read(name).runs()
    for run in runs if len(runs) < 20 else runs[::7]:
        start = run.settings["recipe"]
        clear = start.startswith("clear")
        recipe = load(start, [*left_open, *([] if clear else ["model.path=model"]), *run.overrides()])
        assert recipe.objectives


def test_the_papers_figure_2_is_its_grid_and_its_control() -> None:
    """Section 5.2 of DeCLUTR: A, P, temperature and learning rate; A = 1 for two epochs of twice the minibatch."""
    runs = grid.read("declutr-figure-2").runs()
    assert len(runs) == 2 * 3 * 3 * 3 * 2
    for run in runs[::7]:
        recipe = load(run.settings["recipe"], ["data.text.path=x", "output=x", "model.path=x", *run.overrides()])
        anchors = recipe.objectives["spans"].sampler.num_anchors
        assert (recipe.training.epochs * anchors, recipe.data["text"].batch_size * anchors) == (2.0, 32)
    assert {run.settings["objectives.spans.temperature"] for run in runs} == {"0.005", "0.01", "0.05"}


def test_figure_3_trains_each_objective_on_shares_of_the_documents() -> None:
    runs = grid.read("declutr-figure-3").runs()
    objectives = {}
    for run in runs:
        recipe = load(run.settings["recipe"], ["data.text.path=x", "output=x", "model.path=x", *run.overrides()])
        objectives[run.settings["recipe"]] = list(recipe.objectives)
    assert objectives == {"declutr-base": ["spans", "mlm"], "contrastive-only": ["spans"], "mlm-only": ["mlm"]}
    assert {run.settings["data.text.share"] for run in runs} == {"0.1", "0.4", "0.7", "1"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("grid: 3", "grid: 3 should be a valid list"),
        ("grid: [{a: 3}]", "grid.0.a: 3 should be a valid list"),
        ("grid: [{a: []}]", "axis 1: keys .* found 0 of a"),
        ("grid: [{a: [1]}]\ngird: 1", "unknown key 'gird'"),
        ("grid: [{a: [1]}]\nrecipe: demo\nby: [b]", "figure's 'b' is not the first key of an axis: a"),
        ("grid: [{a: [1]}]\nrecipe: demo\nscore: sts_simcse", "score sts_simcse needs tasks"),
        ("[", "line 1"),
    ],
)
def test_a_file_that_is_no_sweep_is_one_line(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "own.yaml").write_text(content)
    with pytest.raises(RecipeError, match=f"own.yaml.*{said}|{said}"):
        grid.read(str(tmp_path / "own.yaml"))


def test_an_unknown_sweep_lists_the_known() -> None:
    with pytest.raises(RecipeError, match=r"no sweep 'figure-2'.*declutr-figure-2"):
        grid.read("figure-2")


def test_an_axis_is_in_the_order_of_its_numbers_where_all_are() -> None:
    points = parse_axis("optimizer.learning_rate=1e-4,5e-6,1e-5;training.seed=3,1,2").in_order().points
    assert points == (("5e-06", "1"), ("1e-05", "2"), ("0.0001", "3"))
    for words in ("training.bf16=true,false", "training.max_steps=3,null,1"):
        assert parse_axis(words).in_order() == parse_axis(words)
