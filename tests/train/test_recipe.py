"""Recipes: the papers' numbers, overrides, and errors that name the key."""

import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.conftest import ROOT
from train import recipe as recipes
from train.learner import build_learner
from train.recipe import RecipeError, load, to_yaml
from train.schedule import slanted_triangular

GIVEN = ["data.path=d", "output=o", "model.path=m"]


def test_the_recipes_of_this_version_are_all_there() -> None:
    published = {"declutr-small", "declutr-base", "declutr-v1", "contrastive-only", "mlm-only"}
    assert set(recipes.names()) == {*published, "demo"}


@pytest.mark.parametrize("name", ["declutr-small", "declutr-base", "declutr-v1", "contrastive-only", "mlm-only"])
def test_published_recipes_hold_the_papers_numbers(name: str) -> None:
    """DeCLUTR, ACL 2021, sections 3.2 and 4.1; version 1 differs in the anchors' distance."""
    loaded = load(name, GIVEN)
    assert (loaded.training.batch_size, loaded.training.epochs) == (16, 1.0)
    optimizer = loaded.optimizer
    assert (optimizer.learning_rate, optimizer.weight_decay, optimizer.max_grad_norm) == (5e-5, 0.1, 1.0)
    assert (optimizer.schedule, optimizer.cut_fraction) == ("slanted_triangular", 0.1)
    assert set(loaded.objectives) == {"contrastive-only": {"spans"}, "mlm-only": {"mlm"}}.get(name, {"spans", "mlm"})
    for options in loaded.objectives.values():
        assert options.weight == 1.0
    (spans,) = recipes.span_configs(loaded)
    assert (spans.num_anchors, spans.min_span, spans.max_span, spans.anchor_beta) == (2, 32, 512, [4.0, 2.0])
    assert spans.min_distance == (512 if name == "declutr-v1" else 1024)
    assert spans.required_tokens == (1536 if name == "declutr-v1" else 2048)
    if "spans" in loaded.objectives:
        assert (spans.num_positives, spans.positive_beta, spans.positives) == (2, [2.0, 4.0], "any")
        assert loaded.objectives["spans"].temperature == 0.05


def test_the_resolved_recipe_reads_back_as_itself(tmp_path: Path) -> None:
    first = load("declutr-small", [*GIVEN, "training.batch_size=32", "objectives.mlm=null"])
    (tmp_path / "saved.yaml").write_text(to_yaml(first))
    assert load(str(tmp_path / "saved.yaml")) == first
    assert first.training.batch_size == 32 and set(first.objectives) == {"spans"}


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["training.batchsize=4"], "unknown key 'training.batchsize'"),
        (["objectives.spans.temprature=1"], "temprature"),
        (["objectives.spans.spans.max_spam=1"], "max_spam"),
        (["objectives.nope.weight=1"], "no objective 'nope'"),
        (["training.batch_size=many"], "training.batch_size"),
        (["training.batch_size=0"], "training.batch_size"),
        (["optimizer.schedule=cosine-nope"], "optimizer.schedule"),
        (["optimizer.betas=[0.9]"], "optimizer.betas"),
        (["optimizer.ratio=0"], "optimizer.ratio"),
        (["optimizer.weight_decay=-1"], "optimizer.weight_decay"),
        (["training.eval_steps=-1"], "training.eval_steps"),
        (["objectives=5"], "objectives: expected a mapping"),
        (["objectives.spans=5"], "objectives: expected a mapping"),
        (["objectives.mlm.weight=-1"], "objectives.mlm.weight"),
        (["training.zero_stage=3"], "zero_stage"),
        (["training.eval_steps=5"], "eval_data"),
        (["data.short_documents=drop"], "short_documents"),
        (["objectives.spans.temperature=0"], "objectives.spans: temperature"),
        (["objectives.spans.spans.min_span=600"], "objectives.spans: min_span"),
        (["objectives.mlm.input=both"], "objectives.mlm: input"),
        (["objectives.mlm.input=separate"], "objectives.mlm: spans"),
        (["objectives=null"], "objectives"),
        (["model.config.model_type=bert"], "model.path or model.config"),
        (["model.path=null"], "model.path or model.config"),
        (["data.path=null"], "data.path"),
        (["training.max_steps", "7"], "'training.max_steps' is not key=value"),
        (["=5"], "is not key=value"),
        (["training.max_step="], "training.max_step"),
        (["optimizer.learning_rate=nan"], "optimizer.learning_rate"),
        (["training.epochs=inf"], "epochs"),
        (["objectives.spans.spans.anchor_beta=[nan,1]"], "anchor_beta"),
        (["optimizer.cut_fraction=1.5"], "cut_fraction"),
    ],
)
def test_a_wrong_override_is_one_line_that_names_the_key(overrides: list[str], named: str) -> None:
    with pytest.raises(RecipeError) as raised:
        load("declutr-small", [*GIVEN, *overrides])
    assert named in str(raised.value) and "\n" not in str(raised.value)


def test_an_unknown_recipe_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="declutr-base"):
        load("declutr-large")
    broken = tmp_path / "broken.yaml"
    broken.write_text("training: [")
    with pytest.raises(RecipeError, match=r"broken\.yaml: line 1"):
        load(str(broken))
    broken.write_text("- a list")
    with pytest.raises(RecipeError, match="mapping"):
        load(str(broken))


def test_a_key_that_must_be_given_is_named() -> None:
    with pytest.raises(RecipeError, match=r"data\.path=VALUE"):
        load("declutr-small", ["model.path=m", "output=o", "data.path=???"])


def test_slanted_triangular_is_the_formula_of_howard_and_ruder() -> None:
    """Eq. 3 with T = 1000, cut_frac = 0.1, ratio = 32."""
    cut = 100
    for t in (0, 1, 50, 99, 100, 101, 550, 999):
        p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / 0.1 - 1))
        assert slanted_triangular(t, 1000, 0.1, 32) == pytest.approx((1 + p * 31) / 32)


def test_no_file_of_train_hides_another_module() -> None:
    """`deepspeed train/run.py` puts train/ first on sys.path."""
    taken = set(sys.stdlib_module_names) | set(packages_distributions()) - {"train", "eval", "shards", "pipelines"}
    ours = {path.stem for path in (ROOT / "train").iterdir() if path.suffix == ".py" or path.is_dir()} - {"__init__"}
    assert not ours & taken


def test_imports_go_one_way_through_the_house() -> None:
    """DESIGN: pipelines and train import shards, eval imports train.encoder, run.py alone of train imports eval."""
    import ast

    allowed = {"shards": set(), "pipelines": {"shards"}, "train": {"shards"}, "eval": {"train"}}
    for package, others in allowed.items():
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
                for name in names:
                    house = name.split(".")[0]
                    if house not in allowed or house == package or house in others:
                        assert house != "train" or package != "eval" or name == "train.encoder", f"{path}: {name}"
                        continue
                    assert path == ROOT / "train" / "run.py" and house == "eval", f"{path} imports {name}"


def test_the_papers_step_has_the_size_the_paper_implies(tiny: list[str]) -> None:
    """16 documents, 2 anchors, 2 positives each: 96 spans and 16 x 1,472 tokens, special tokens apart."""
    from shards import Dataset

    model = [o for o in tiny if o.startswith("data.path")]
    config = [
        "model_type=roberta",
        "hidden_size=8",
        "num_attention_heads=1",
        "num_hidden_layers=1",
        "intermediate_size=8",
    ]
    config += ["max_position_embeddings=514"]
    overrides = [*model, "output=o", *(f"model.config.{key}" for key in config)]
    loaded = load("declutr-small", overrides)
    _, _, size = build_learner(loaded, Dataset(loaded.data.path), 1, True)
    assert (size.sequences, size.mean_tokens) == (96, 16 * 1472 + 96 * 2)
