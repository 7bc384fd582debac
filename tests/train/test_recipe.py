"""Recipes: the papers' numbers, overrides, and errors that name the key."""

import dataclasses
import re
import sys
from fnmatch import fnmatch
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from omegaconf import OmegaConf

from tests.conftest import ROOT
from train import modalities
from train import recipe as recipes
from train.build import build_learner
from train.engine.resuming import flat
from train.options import ALL, Recipe, RecipeError
from train.recipe import load, to_yaml
from train.schedules import OptimizerConfig, cosine, linear, slanted_triangular, whole

GIVEN = ["data.text.path=d", "output=o", "model.path=m"]
CLEAR = {
    "clear-del-word": "del-word",
    "clear-del-span": "del-span",
    "clear-subs+del-word": "subs+del-word",
    "clear-subs+del-span": "subs+del-span",
    "clear-del-word+reorder": "del-word+reorder",
    "clear-del-span+reorder": "del-span+reorder",
    "clear-subs+del-word+reorder": "subs+del-word+reorder",
    "clear-roberta-base": "",
    "clear-double-mlm": "",
    "clear-double-batch": "",
}
"""The recipes of CLEAR's tables 1 to 3, with their augmentations."""


SIMCSE = {
    "simcse-unsup-bert-base": (64, 3e-5, 1.0),
    "simcse-unsup-roberta-base": (512, 1e-5, 1.0),
    "simcse-unsup-roberta-large": (512, 3e-5, 1.0),
    "simcse-sup-bert-base": (512, 5e-5, 3.0),
    "simcse-sup-roberta-base": (512, 5e-5, 3.0),
    "simcse-sup-roberta-large": (512, 1e-5, 3.0),
}
"""SimCSE, appendix A and its code's README: batch, learning rate, epochs."""
TABLE_C1 = {
    "visualcse-bert-base": (64, 3e-5, 48, 1e-6),
    "audiocse-bert-base": (64, 3e-5, 48, 2e-7),
    "visualcse-roberta-base": (128, 2e-5, 48, 5e-7),
    "audiocse-roberta-base": (128, 2e-5, 48, 2e-7),
    "visualcse-roberta-large": (256, 1e-5, 48, 5e-7),
    "audiocse-roberta-large": (256, 1e-5, 48, 5e-6),
}
"""NonLing-CSE, Table C.1: batch and learning rate of text, then of images or audio."""
VARIANTS = {
    "audiocse-bert-base-published": "audiocse-bert-base",
    "visualcse-sup-bert-base": "visualcse-bert-base",
    "audiocse-sup-bert-base": "audiocse-bert-base",
    **{
        f"{kind}cse-simclr-{lm}-base": f"{kind}cse-{lm}-base"
        for kind in ("visual", "audio")
        for lm in ("bert", "roberta")
    },
    **{f"visualcse-cifar-{lm}-base": f"visualcse-{lm}-base" for lm in ("bert", "roberta")},
    **{f"simcse-{language}": "simcse-unsup-bert-base" for language in ("german", "french", "russian", "chinese")},
    **{f"visualcse-{language}": "visualcse-bert-base" for language in ("german", "french", "russian", "chinese")},
}
"""The other recipes of NonLing-CSE's tables, each with the one that it departs from."""


def test_the_recipes_of_this_version_are_all_there() -> None:
    declutr = {"declutr-small", "declutr-base", "declutr-v1", "contrastive-only", "mlm-only"}
    found = {name for name in recipes.names() if not name.endswith("demo")}
    assert found == {*declutr, *CLEAR, *SIMCSE, *TABLE_C1, *VARIANTS, "combined"}
    assert "demo" in recipes.names()


def written(name: str) -> dict[str, Any]:
    """What a recipe's file and those that it extends say, together."""
    merged = OmegaConf.merge(*(OmegaConf.create(one) for one in recipes._ancestry(recipes.FOLDER / f"{name}.yaml")))
    return OmegaConf.to_container(merged)  # type: ignore[return-value]


def left_open(content: dict[str, Any], within: str = "") -> list[str]:
    """The keys that must be given."""
    found = []
    for key, value in content.items():
        if isinstance(value, dict):
            found += left_open(value, f"{within}{key}.")
        elif value == "???" or (value == "" and key in ("path", "eval_data")):
            found.append(f"{within}{key}")
    return found


def filled(name: str, *overrides: str) -> Recipe:
    """A recipe with a value for all that it leaves open."""
    return load(name, [*(f"{key}=given" for key in left_open(written(name))), *overrides])


@pytest.mark.parametrize("name", recipes.names())
def test_every_recipe_loads_with_what_it_leaves_open_filled_in(name: str, tmp_path: Path) -> None:
    """And reads back as itself."""
    loaded = filled(name)
    (tmp_path / "saved.yaml").write_text(to_yaml(loaded))
    assert load(str(tmp_path / "saved.yaml")) == loaded


@pytest.mark.parametrize("name", recipes.names())
def test_every_option_of_a_modality_is_one_that_it_has(name: str) -> None:
    for data, options in written(name)["data"].items():
        if "modality" in options:
            given = {key: "given" if value == "???" else value for key, value in options["modality"].items()}
            recipes._over_defaults(modalities.config_class(data), given, f"data.{data}.modality.").check()


@pytest.mark.parametrize("name", SIMCSE)
def test_simcse_recipes_hold_the_papers_numbers(name: str) -> None:
    """SimCSE, section 6.3 and appendix A; what it does not give is its code's."""
    loaded = filled(name)
    assert (loaded.data["text"].batch_size, loaded.optimizer.learning_rate, loaded.training.epochs) == SIMCSE[name]
    simcse = loaded.objectives["simcse"]
    assert (simcse.temperature, simcse.max_tokens, simcse.hard_negative_weight, simcse.weight) == (0.05, 32, 0, 1)
    assert loaded.model.pooling == "cls"
    assert (loaded.model.head, simcse.head) == (("tanh", "none") if "-sup-" in name else ("", "tanh"))
    optimizer = loaded.optimizer
    assert (optimizer.betas, optimizer.eps, optimizer.weight_decay) == ([0.9, 0.999], 1e-8, 0)
    assert (optimizer.max_grad_norm, optimizer.schedule, optimizer.warmup_steps) == (1.0, "linear", 0)
    assert (loaded.training.seed, loaded.training.eval_steps, loaded.training.max_steps) == (42, 125, 0)


@pytest.mark.parametrize("name", TABLE_C1)
def test_visualcse_and_audiocse_recipes_hold_the_papers_numbers(name: str) -> None:
    """NonLing-CSE, Table C.1, Algorithm 1 and section 3.3."""
    loaded = filled(name)
    kind = "images" if name.startswith("visual") else "audio"
    turns, other = loaded.optimizers(), loaded.objectives[kind]
    assert list(turns) == ["simcse", kind]
    sizes = [loaded.data[data].batch_size for data in ("text", kind)]
    rates = [turns[turn].learning_rate for turn in ("simcse", kind)]
    assert (sizes[0], rates[0], sizes[1], rates[1]) == TABLE_C1[name]
    assert (turns["simcse"].schedule, turns[kind].schedule, turns[kind].warmup_steps) == ("linear", "cosine", 0)
    assert (turns[kind].weight_decay, turns[kind].eps, turns[kind].max_grad_norm) == (0, 1e-8, 1.0)
    assert (other.type, other.loss, other.temperature, other.head) == ("patches", "paper", 0.07, "tanh")
    assert (loaded.training.primary, loaded.training.epochs, loaded.training.eval_steps) == ("text", 1.0, 125)
    simcse = loaded.objectives["simcse"]
    assert (simcse.head, loaded.model.head, simcse.temperature, simcse.max_tokens) == ("tanh", "", 0.05, 32)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_departs_from_its_recipe_in_what_its_table_varies(name: str) -> None:
    ours, theirs = flat(written(name)), flat(written(VARIANTS[name]))
    keys = {key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key)}
    assert keys == {
        "audiocse-bert-base-published": {
            *(f"data.audio.modality.{key}" for key in ("positions", "normalize", "freq_mask", "time_mask", "mixup")),
            "data.audio.modality.mixup_alpha",
            "objectives.audio.loss",
        },
        "visualcse-sup-bert-base": supervised("images"),
        "audiocse-sup-bert-base": supervised("audio"),
        **{f"visualcse-simclr-{lm}-base": {"objectives.images.loss"} for lm in ("bert", "roberta")},
        **{f"audiocse-simclr-{lm}-base": {"objectives.audio.loss"} for lm in ("bert", "roberta")},
    }.get(name, set())


def supervised(kind: str) -> set[str]:
    """What the supervised setting changes (section 4.6)."""
    simcse = {"objectives.simcse.head", "objectives.simcse.hard_negative_weight", "model.head", "data.text.batch_size"}
    return {*simcse, f"objectives.{kind}.weight", f"turns.{kind}.learning_rate", "training.epochs"}


def test_the_combined_recipe_has_every_objective_in_one_update() -> None:
    loaded = filled("combined")
    assert list(loaded.optimizers()) == [ALL]
    assert {name: options.data for name, options in loaded.objectives.items()} == {
        "spans": "documents",
        "mlm": "documents",
        "clear": "sentences",
        "simcse": "sentences",
        "images": "images",
        "audio": "audio",
    }
    assert loaded.training.primary == "documents"
    papers = {"spans": "declutr-base", "mlm": "declutr-base", "clear": "clear-subs+del-span"}
    for own, name in {**papers, "simcse": "simcse-unsup-bert-base"}.items():
        found = loaded.objectives[own]
        assert found == dataclasses.replace(filled(name).objectives[own], data=found.data)


def test_the_combined_recipe_does_without_what_is_left_out() -> None:
    without = [f"{section}.{kind}=null" for section in ("objectives", "data") for kind in ("images", "audio")]
    given = [f"{key}=given" for key in ("model.path", "data.documents.path", "data.sentences.path", "output")]
    loaded = load("combined", [*given, *without, "training.eval_steps=0"])
    assert set(loaded.objectives) == {"spans", "mlm", "clear", "simcse"}
    assert set(loaded.data) == {"documents", "sentences"}


@pytest.mark.parametrize("name", ["declutr-small", "declutr-base", "declutr-v1", "contrastive-only", "mlm-only"])
def test_published_recipes_hold_the_papers_numbers(name: str) -> None:
    """DeCLUTR, ACL 2021, sections 3.2 and 4.1; the code of version 1 is the same."""
    loaded = load(name, GIVEN)
    assert (loaded.data["text"].batch_size, loaded.training.epochs) == (16, 1.0)
    optimizer = loaded.optimizer
    assert (optimizer.betas, optimizer.eps) == ([0.9, 0.999], 1e-6)
    assert (optimizer.learning_rate, optimizer.weight_decay, optimizer.max_grad_norm) == (5e-5, 0.1, 1.0)
    assert (optimizer.schedule, optimizer.cut_fraction) == ("slanted_triangular", 0.1)
    assert set(loaded.objectives) == {"contrastive-only": {"spans"}, "mlm-only": {"mlm"}}.get(name, {"spans", "mlm"})
    for options in loaded.objectives.values():
        assert options.weight == 1.0
    (spans,) = (o.sampler for o in loaded.objectives.values() if o.sampler is not None)
    assert (spans.num_anchors, spans.min_span, spans.max_span, spans.anchor_beta) == (2, 32, 512, [4.0, 2.0])
    assert (spans.placement, spans.distance) == ("grid", 512)
    assert spans.required_tokens == 2048
    if "spans" in loaded.objectives:
        assert (spans.num_positives, spans.positive_beta, spans.positives) == (2, [2.0, 4.0], "any")
        assert loaded.objectives["spans"].temperature == 0.05


@pytest.mark.parametrize("name", CLEAR)
def test_clear_recipes_hold_the_papers_numbers(name: str) -> None:
    """CLEAR, sections 4.1 and 5.1; what it does not give is RoBERTa's (Table 9) and SimCLR's."""
    loaded = load(name, ["data.text.path=d", "output=o"])
    config, optimizer, training = loaded.model.config, loaded.optimizer, loaded.training
    sizes = ("num_hidden_layers", "num_attention_heads", "hidden_size", "intermediate_size", "max_position_embeddings")
    assert [config[key] for key in sizes] == [12, 12, 768, 3072, 514] and config["type_vocab_size"] == 1
    assert config["layer_norm_eps"] == 1e-5
    assert config["hidden_dropout_prob"] == config["attention_probs_dropout_prob"] == 0.1
    assert loaded.model.pooling == "cls"
    assert (optimizer.learning_rate, optimizer.schedule, optimizer.warmup_steps) == (6e-4, "linear", 24000)
    assert (optimizer.betas, optimizer.eps, optimizer.weight_decay) == ([0.9, 0.98], 1e-6, 0.01)
    assert optimizer.max_grad_norm == 0
    batch_size = 16384 if name == "clear-double-batch" else 8192
    assert (loaded.data["text"].batch_size, training.max_steps) == (batch_size, 500_000)
    assert batch_size // training.gradient_accumulation_steps == 256
    mlm = loaded.objectives["mlm"]
    assert (mlm.input, mlm.probability) == ("sentence", 0.15)
    assert (mlm.copies, mlm.weight) == ((2, 2.0) if name == "clear-double-mlm" else (1, 1.0))
    assert set(loaded.objectives) == ({"clear", "mlm"} if CLEAR[name] else {"mlm"})
    if clear := loaded.objectives.get("clear"):
        assert (clear.weight, clear.augment, clear.unit) == (1.0, CLEAR[name], "token")
        assert (clear.del_word, clear.del_spans, clear.del_span, clear.subs) == (0.7, 5, 0.05, 0.3)
        assert (clear.reorder_pairs, clear.reorder_span) == (5, 0.05)
        assert (clear.temperature, clear.head_dim) == (0.1, 128)


def stated(name: str, *keys: str) -> Any:
    """A key as the recipe's file has it, or the one that it extends; None: it is left to a default."""
    content = yaml.safe_load((recipes.FOLDER / f"{name}.yaml").read_text())
    found = content
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return stated(content["extends"], *keys) if found is None and "extends" in content else found


@pytest.mark.parametrize("name", recipes.names())
def test_every_recipe_states_what_the_docs_say_of_it(name: str) -> None:
    """AdamW's betas and eps, and LayerNorm's for a RoBERTa from scratch, whose default is another."""
    docs = (ROOT / "docs" / "papers.md").read_text()
    betas = [0.9, 0.98] if name in CLEAR else [0.9, 0.999]
    eps = "1e-8" if name in {*SIMCSE, *TABLE_C1, *VARIANTS} else "1e-6"
    assert (stated(name, "optimizer", "betas"), stated(name, "optimizer", "eps")) == (betas, float(eps))
    assert f"({betas[0]}, {betas[1]})" in docs and f"eps {eps}" in docs
    if stated(name, "model", "config", "model_type") == "roberta":
        assert stated(name, "model", "config", "layer_norm_eps") == 1e-5 and "eps 1e-5" in docs
    if not name.endswith("demo"):
        for page in (docs, (ROOT / "docs" / "recipes.md").read_text()):
            assert any(fnmatch(name, pattern) for pattern in re.findall(r"`([\w*+-]+)`", page) if pattern != "*")


@pytest.mark.parametrize("name", [name for name in recipes.names() if not name.endswith("demo")])
def test_every_number_of_a_published_recipe_has_its_source(name: str) -> None:
    lines = (recipes.FOLDER / f"{name}.yaml").read_text().splitlines()
    numbers = [line for line in lines if re.match(r"\s*\w+: \[?[\d.]", line)]
    assert [line for line in numbers if "#" not in line] == []


def test_a_recipe_extends_another_by_name_or_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: demo\ndata: {text: {batch_size: 7}}\nobjectives: {mlm: null}")
    (tmp_path / "again.yaml").write_text("extends: mine.yaml\noptimizer: {eps: 0.5}")
    given = ["data.text.path=d", "output=o"]
    loaded, demo = load(str(tmp_path / "again.yaml"), given), load("demo", given)
    assert (loaded.data["text"].batch_size, loaded.optimizer.eps, set(loaded.objectives)) == (7, 0.5, {"spans"})
    assert loaded.model == demo.model and loaded.objectives["spans"] == demo.objectives["spans"]


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("extends: nope", "no recipe 'nope'"),
        ("extends: [demo]", "no recipe"),
        ("extends: itself.yaml", "comes back to itself"),
        ("extends: parent.yaml", "comes back to itself"),
    ],
)
def test_what_cannot_be_extended_is_named(tmp_path: Path, content: str, named: str) -> None:
    (tmp_path / "itself.yaml").write_text(content)
    (tmp_path / "parent.yaml").write_text("extends: itself.yaml")
    with pytest.raises(RecipeError) as raised:
        load(str(tmp_path / "itself.yaml"), ["data.text.path=d", "output=o"])
    assert named in str(raised.value) and "extends: " in str(raised.value) and "\n" not in str(raised.value)
    (tmp_path / "itself.yaml").write_text("a: [")
    with pytest.raises(RecipeError, match=r"itself\.yaml: line 1"):
        load(str(tmp_path / "parent.yaml"), ["data.text.path=d", "output=o"])


def test_the_resolved_recipe_reads_back_as_itself(tmp_path: Path) -> None:
    first = load("declutr-small", [*GIVEN, "data.text.batch_size=32", "objectives.mlm=null"])
    (tmp_path / "saved.yaml").write_text(to_yaml(first))
    assert load(str(tmp_path / "saved.yaml")) == first
    assert first.data["text"].batch_size == 32 and set(first.objectives) == {"spans"}


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["training.batchsize=4"], "unknown key 'training.batchsize'"),
        (["objectives.spans.temprature=1"], "unknown key 'objectives.spans.temprature'"),
        (["objectives.spans.sampler.max_spam=1"], "max_spam"),
        (["objectives.nope.weight=1"], "objectives.nope: no type 'nope'"),
        (["objectives.epoch.type=mlm"], "objectives.epoch: metrics begin with that name already"),
        (["data.text.batch_size=many"], "data.text.batch_size"),
        (["data.text.batch_size=0"], "data.text.batch_size"),
        (["optimizer.schedule=cosine-nope"], "optimizer.schedule"),
        (["training.eval_data=senteval"], "training.eval_data has no effect with training.eval_steps 0"),
        (["optimizer.warmup_steps=5"], "optimizer.warmup_steps has no effect with schedule slanted_triangular"),
        (["optimizer.betas=[0.9]"], "optimizer.betas"),
        (["optimizer.ratio=0"], "optimizer.ratio"),
        (["optimizer.weight_decay=-1"], "optimizer.weight_decay"),
        (["training.eval_steps=-1"], "training.eval_steps"),
        (["training.primary=more"], "training.primary 'more' is not one of text"),
        (["objectives=5"], "objectives: expected a mapping"),
        (["objectives.spans=5"], "objectives.spans: expected a mapping"),
        (["objectives.mlm.weight=-1"], "objectives.mlm.weight"),
        (["training.zero_stage=3"], "zero_stage"),
        (
            ["training.eval_steps=5"],
            "training.eval_data is not set: give SentEval's folder, or set training.eval_steps=0",
        ),
        (["data.text.short_documents=drop"], "short_documents"),
        (["objectives.spans.temperature=0"], "objectives.spans: temperature"),
        (["objectives.spans.sampler.min_span=600"], "objectives.spans: min_span"),
        (["objectives.mlm.input=both"], "objectives.mlm: input"),
        (["objectives.mlm.input=separate"], "objectives.mlm: sampler must"),
        (["objectives=null"], "objectives"),
        (["model.config.model_type=bert"], "model.path or model.config"),
        (["model.path=null"], "model.path or model.config"),
        (["data.text.path=null"], "data.text.path"),
        (["data.path=d"], "data.path: say data.NAME.path"),
        (["data.text=d"], "data.text: expected a mapping of options"),
        (["training.batch_size=4"], "unknown key 'training.batch_size'; say data.NAME.batch_size"),
        (["objectives.spans.spans.max_span=9"], "unknown key 'objectives.spans.spans'; say objectives.spans.sampler"),
        (["objectives=[]"], "'objectives=[]': "),
        (["optimization=alternate", "objectives.mlm.turn=a/b"], "objectives.mlm.turn a/b: a name is of letters"),
        (["data.more.path=d"], "data.more: no objective reads it, and the recipe has text"),
        (["objectives.spans.data=more"], "objectives.spans.data 'more' is not one of text"),
        (
            ["data.more.path=d", "objectives.spans.data=text", "objectives.mlm.data=text"],
            "data.more: no objective reads it",
        ),
        (["optimization=both"], "optimization 'both' is not sum or alternate"),
        (["objectives.mlm.turn=a"], "objectives.mlm.turn has no effect with optimization: sum"),
        (["turns.mlm.learning_rate=1"], "turns.mlm has no effect with optimization: sum"),
        (["optimization=alternate", "training.zero_stage=1"], "optimization: alternate needs training.zero_stage=0"),
        (["optimization=alternate", "turns.other.eps=1"], "turns.other: no objective is of that turn"),
        (["optimization=alternate", "turns.mlm.esp=1"], "unknown key 'turns.mlm.esp'"),
        (["optimization=alternate", "turns.mlm.eps=0"], "turns.mlm.eps must be positive"),
        (["optimization=alternate", "objectives.mlm.turn=spans"], "all objectives are of the turn spans"),
        (["training.max_steps", "7"], "'training.max_steps' is not key=value"),
        (["=5"], "is not key=value"),
        (["training.max_step="], "training.max_step"),
        (["optimizer.learning_rate=nan"], "optimizer.learning_rate"),
        (["training.epochs=inf"], "epochs"),
        (["objectives.spans.sampler.anchor_beta=[nan,1]"], "anchor_beta"),
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
    with pytest.raises(RecipeError, match=r"broken\.yaml: line 1: not YAML: "):
        load(str(broken))
    broken.write_text("- a list")
    with pytest.raises(RecipeError, match="mapping"):
        load(str(broken))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            "extends: demo\ntraining:\n  seed: 1\n  bf16: false\n  seed: 2\n",
            "line 5: the key 'seed' is given",
        ),
        (
            "extends: demo\ntraining: {seed: 1}\n'training': {seed: 2}\n",
            "line 3: the key 'training' is given",
        ),
        ("a: &a [x, x]\nb: [*a, *a]\n", "line 2: the alias *a"),
        ("a: &a\n  b: 1\nc:\n  <<: *a\n", "line 4: the alias *a"),
        ("a: &a [*a]\n", "the alias *a"),
        ("[" * 5000, "nested too deeply"),
        ("{a: " * 150 + "1" + "}" * 150, "nested too deeply"),
        ("training: {seed: " + "9" * 5000 + "}", "limit"),
        ("training: {seed: 2026-99-99}", "month"),
        ("#" * (2 << 20), "1,048,576 bytes"),
        ("\0", "special characters"),
        ("extends: demo\nobjectives: {1: {type: spans}}", "objectives.1: a name is text: put 1 in quotes"),
        ("extends: demo\ndata: {1: {path: d}}", "data.1: a name is text: put 1 in quotes"),
        ("extends: demo\nobjectives: [spans]", "incompatible container types"),
        ('extends: demo\noutput: "a\\0b"', "null character"),
    ],
)
def test_a_file_that_says_two_things_or_has_no_end_is_named(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(content)
    with pytest.raises(RecipeError) as raised:
        load(str(path), [GIVEN[0], "model.config=null", "model.path=m"])
    assert f": {said}" in str(raised.value) or ("line" not in said and said in str(raised.value))
    assert str(path) in str(raised.value) or "output:" in str(raised.value)


@pytest.mark.parametrize(
    "override", ["a." * 2000 + "b=1", "training.seed=" + "9" * 5000, "training.seed=" + "[" * 3000]
)
def test_an_override_without_end_is_one_line(override: str) -> None:
    with pytest.raises(RecipeError) as raised:
        load("declutr-small", [*GIVEN, override])
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 300


def test_of_an_override_given_twice_the_last_counts() -> None:
    assert load("declutr-small", [*GIVEN, "training.seed=1", "training.seed=2"]).training.seed == 2


def test_a_key_that_must_be_given_is_named() -> None:
    with pytest.raises(RecipeError, match=r"data\.text\.path=VALUE"):
        load("declutr-small", ["model.path=m", "output=o", "data.text.path=???"])


def test_slanted_triangular_is_the_formula_of_howard_and_ruder() -> None:
    """Eq. 3 with T = 1000, cut_frac = 0.1, ratio = 32."""
    cut = 100
    options = OptimizerConfig(cut_fraction=0.1, ratio=32)
    for t in (0, 1, 50, 99, 100, 101, 550, 999):
        p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / 0.1 - 1))
        assert slanted_triangular(t, 1000, options) == pytest.approx((1 + p * 31) / 32)


def test_whole_steps_of_a_share_are_not_one_too_few() -> None:
    assert 0.57 * 100 < 57 and whole(0.57 * 100) == 57 and whole(56.9) == 56
    options = OptimizerConfig(cut_fraction=0.57, ratio=32)
    assert slanted_triangular(57, 100, options) == 1.0


def test_linear_is_transformers_own_schedule_but_for_its_first_step() -> None:
    """Up to the peak, to 0 after the last step; without warm-up from the peak."""
    from transformers import get_linear_schedule_with_warmup

    for warmup in (0, 30):
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
        theirs = get_linear_schedule_with_warmup(optimizer, warmup, 100)
        for step in range(100):
            if step or not warmup:
                assert linear(step, 100, OptimizerConfig(warmup_steps=warmup)) == pytest.approx(theirs.get_last_lr()[0])
            optimizer.step()
            theirs.step()
    assert linear(0, 100, OptimizerConfig(warmup_steps=30)) == linear(1, 100, OptimizerConfig(warmup_steps=30)) > 0


@pytest.mark.parametrize("warmup", [0, 30])
def test_cosine_is_transformers_own_schedule_but_for_its_first_step(warmup: int) -> None:
    """Up to the peak as linearly, then half a cosine down to 0."""
    from transformers import get_cosine_schedule_with_warmup

    options = OptimizerConfig(schedule="cosine", warmup_steps=warmup)
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    theirs = get_cosine_schedule_with_warmup(optimizer, warmup, 100)
    for step in range(100):
        if step or not warmup:
            assert cosine(step, 100, options) == pytest.approx(theirs.get_last_lr()[0])
        optimizer.step()
        theirs.step()
    assert cosine(0, 100, options) == (1 / 30 if warmup else 1)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_schedules_that_rise_take_warm_up_steps(schedule: str) -> None:
    given = [*GIVEN, f"optimizer.schedule={schedule}", "optimizer.warmup_steps=5"]
    assert load("declutr-small", given).optimizer.warmup_steps == 5


def test_no_file_of_train_hides_another_module() -> None:
    """`deepspeed train/run.py` puts train/ first on sys.path."""
    taken = set(sys.stdlib_module_names) | set(packages_distributions()) - {"train", "eval", "shards", "pipelines"}
    ours = {path.stem for path in (ROOT / "train").iterdir() if path.suffix == ".py" or path.is_dir()} - {"__init__"}
    assert not ours & taken


def test_the_papers_step_has_the_size_the_paper_implies(tiny: list[str]) -> None:
    """16 documents, 2 anchors, 2 positives each: 96 spans and 16 x 1,472 tokens, special tokens apart."""
    from shards import Dataset

    model = [o for o in tiny if o.startswith("data.text.path")]
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
    _, _, sizes = build_learner(loaded, {"text": Dataset(loaded.data["text"].path)}, 1, True)
    size = sizes[ALL]
    assert (size.sequences, size.mean_tokens) == (96, 16 * 1472 + 96 * 2)
