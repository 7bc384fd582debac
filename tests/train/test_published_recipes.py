"""The recipes that come along: the papers' numbers, each with its source, as the documentation states them."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from clearspan.train import modalities
from clearspan.train.config import layers
from clearspan.train.config.keys import typed
from clearspan.train.config.options import ALL, Recipe
from clearspan.train.recipe import load_recipe, to_yaml
from tests.conftest import ROOT
from tests.train.test_recipe import GIVEN

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
    "simcse-unsup-bert-large": (64, 1e-5, 1.0),
    "simcse-unsup-roberta-base": (512, 1e-5, 1.0),
    "simcse-unsup-roberta-large": (512, 3e-5, 1.0),
    "simcse-sup-bert-base": (512, 5e-5, 3.0),
    "simcse-sup-bert-large": (512, 1e-5, 3.0),
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
PUBLISHED = {
    "visualcse-bert-base": (64, 3e-5, 48, 0.05, 1e-6, 0.07, 1.0),
    "visualcse-roberta-base": (128, 2e-5, 48, 0.2, 1e-7, 0.07, 1.0),
    "visualcse-roberta-large": (256, 1e-5, 48, 0.02, 1e-5, 0.07, 1.0),
    "visualcse-sup-bert-base": (128, 3e-5, 22, 0.5, 1e-7, 0.05, 5.0),
    "audiocse-bert-base": (64, 3e-5, 48, 0.01, 2e-7, 0.07, 1.0),
    "audiocse-roberta-base": (128, 2e-5, 48, 0.02, 2e-7, 0.07, 1.0),
    "audiocse-roberta-large": (256, 1e-5, 42, 0.05, 1e-7, 0.07, 1.0),
    "audiocse-sup-bert-base": (128, 3e-5, 28, 100, 3e-6, 0.05, 3.0),
}
"""NonLing-CSE's published logs, README and checkpoints: batch and learning rate of text; batch, weight, learning rate
and temperature of images or audio; epochs."""


LANGUAGES = ("chinese", "french", "german", "russian")
EXTENDED = {
    "declutr-small": ("declutr-base",),
    "declutr-v1": ("declutr-base",),
    **{f"simcse-{language}": ("simcse-unsup-bert-base",) for language in LANGUAGES},
    **{f"visualcse-{language}": ("visualcse-bert-base",) for language in LANGUAGES},
    **{f"visualcse-cifar-{model}": (f"visualcse-{model}",) for model in ("bert-base", "roberta-base")},
    **{
        f"{method}-simclr-{model}": (f"{method}-{model}", f"objectives.{kind}.loss=simclr")
        for method, kind in (("visualcse", "images"), ("audiocse", "audio"))
        for model in ("bert-base", "roberta-base")
    },
}
"""Recipes for which a paper gives no numbers but those of another, and what they change."""


OURS = {"crops", "crops-mlm", "demo", "combined-demo", "pairs", "static", "static-pairs"}
"""Recipes of no paper."""


def written(name: str) -> dict[str, Any]:
    """What a recipe's file and those that it extends say, together."""
    return layers.merge_layers(layers.read_layers(layers.FOLDER / f"{name}.yaml"))


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
    return load_recipe(name, [*(f"{key}=given" for key in left_open(written(name))), *overrides])


@pytest.mark.guarantee("paper-recipes")
@pytest.mark.parametrize("name", layers.names())
def test_every_recipe_loads_with_what_it_leaves_open_filled_in(name: str, tmp_path: Path) -> None:
    """And reads back as itself."""
    loaded = filled(name)
    (tmp_path / "saved.yaml").write_text(to_yaml(loaded))
    assert load_recipe(str(tmp_path / "saved.yaml")) == loaded


@pytest.mark.parametrize("name", layers.names())
def test_every_option_of_a_modality_is_one_that_it_has(name: str) -> None:
    for data, options in written(name)["data"].items():
        if "modality" in options:
            given = {key: "given" if value == "???" else value for key, value in options["modality"].items()}
            typed(modalities.config_class(data), given, f"data.{data}.modality.").check()


@pytest.mark.guarantee("paper-recipes")
@pytest.mark.parametrize("name", SIMCSE)
def test_simcse_recipes_hold_the_papers_numbers(name: str) -> None:
    """SimCSE, section 6.3 and appendix A; what it does not give is its code's."""
    loaded = filled(name)
    assert (loaded.data["text"].batch_size, loaded.optimizer.learning_rate, loaded.training.epochs) == SIMCSE[name]
    simcse = loaded.objectives["simcse"]
    assert (simcse.temperature, simcse.max_tokens, simcse.weight) == (0.05, 32, 1)
    assert simcse.hard_negative_weight == (0 if "-sup-" in name else None)  # a number asks for hard negatives
    assert loaded.model.pooling == "cls"
    assert (loaded.model.head, simcse.head) == (("tanh", "none") if "-sup-" in name else ("", "tanh"))
    optimizer = loaded.optimizer
    assert (optimizer.betas, optimizer.eps, optimizer.weight_decay) == ([0.9, 0.999], 1e-8, 0)
    assert (optimizer.max_grad_norm, optimizer.schedule, optimizer.warmup_steps) == (1.0, "linear", 0)
    assert (loaded.training.seed, loaded.training.eval_steps, loaded.training.max_steps) == (42, 125, 0)


@pytest.mark.guarantee("paper-recipes")
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


@pytest.mark.guarantee("paper-recipes")
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models_recipes_hold_the_numbers_of_logs_and_checkpoints(name: str) -> None:
    """And the published code's loss and clips; docs/papers.md lists the numbers with their sources."""
    loaded = filled(f"{name}-published")
    kind = "images" if name.startswith("visual") else "audio"
    text, other, turn = loaded.data["text"], loaded.objectives[kind], loaded.optimizers()[kind]
    numbers = (text.batch_size, loaded.optimizer.learning_rate, loaded.data[kind].batch_size, other.weight)
    assert (*numbers, turn.learning_rate, other.temperature, loaded.training.epochs) == PUBLISHED[name]
    assert (other.loss, turn.schedule, turn.weight_decay) == ("published-code", "cosine", 0)
    assert (loaded.model.head, loaded.objectives["simcse"].head) == (
        ("tanh", "none") if "-sup-" in name else ("", "tanh")
    )
    if kind == "audio":
        clips = loaded.data[kind].modality
        assert (clips["freq_mask"], clips["time_mask"], clips["mixup"], clips["views"]) == (48, 192, 0.5, 1)
        assert (clips["positions"], clips["normalize"]) == (False, False)
    method, model = name.replace("-sup", "").split("cse-")
    label = f"{method.title()}CSE-{model.replace('rob', 'Rob').replace('bert', 'BERT')}"
    rate = f"{turn.learning_rate:.0e}".replace("e-0", "e-")
    row = f"| {label}{', supervised' * ('-sup-' in name)} | {loaded.data[kind].batch_size}, {other.weight:g}, {rate}"
    assert row in (ROOT / "docs" / "papers.md").read_text()


@pytest.mark.guarantee("paper-recipes")
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


@pytest.mark.guarantee("paper-recipes")
@pytest.mark.parametrize("name", ["declutr-small", "declutr-base", "declutr-v1", "contrastive-only", "mlm-only"])
def test_published_recipes_hold_the_papers_numbers(name: str) -> None:
    """DeCLUTR, ACL 2021, sections 3.2 and 4.1; the code of version 1 is the same."""
    loaded = load_recipe(name, GIVEN)
    assert (loaded.data["text"].batch_size, loaded.training.epochs) == (16, 1.0)
    optimizer = loaded.optimizer
    assert (optimizer.betas, optimizer.eps) == ([0.9, 0.999], 1e-6)
    assert (optimizer.learning_rate, optimizer.weight_decay, optimizer.max_grad_norm) == (5e-5, 0.1, 1.0)
    assert (optimizer.schedule, optimizer.cut_fraction) == ("slanted_triangular", 0.1)
    assert set(loaded.objectives) == {"contrastive-only": {"spans"}, "mlm-only": {"mlm"}}.get(name, {"spans", "mlm"})
    assert (optimizer.ratio, loaded.model.pooling) == (32.0, "mean")
    for options in loaded.objectives.values():
        assert options.weight == 1.0
    if mlm := loaded.objectives.get("mlm"):
        assert (mlm.probability, mlm.input) == (0.15, "separate" if name == "mlm-only" else "anchor")
    (spans,) = (o.sampler for o in loaded.objectives.values() if o.sampler is not None)
    assert (spans.num_anchors, spans.min_span, spans.max_span, spans.anchor_beta) == (2, 32, 512, [4.0, 2.0])
    assert (spans.placement, spans.distance) == ("grid", 512)
    assert spans.required_tokens == 2048
    if "spans" in loaded.objectives:
        assert (spans.num_positives, spans.positive_beta, spans.positives) == (2, [2.0, 4.0], "any")
        assert loaded.objectives["spans"].temperature == 0.05


@pytest.mark.guarantee("paper-recipes")
@pytest.mark.parametrize("name", CLEAR)
def test_clear_recipes_hold_the_papers_numbers(name: str) -> None:
    """CLEAR, sections 4.1 and 5.1; what it does not give is RoBERTa's (Table 9) and SimCLR's."""
    loaded = load_recipe(name, ["data.text.path=d", "output=o"])
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


@pytest.mark.parametrize("name", [name for name in layers.names() if name not in OURS])
def test_every_number_of_a_published_recipe_has_its_source(name: str) -> None:
    lines = (layers.FOLDER / f"{name}.yaml").read_text().splitlines()
    numbers = [line for line in lines if re.match(r"\s*\w+: \[?[\d.]", line)]
    assert [line for line in numbers if "#" not in line] == []


@pytest.mark.guarantee("paper-recipes")
@pytest.mark.parametrize("name", EXTENDED)
def test_recipes_of_other_data_or_another_loss_have_all_other_numbers_of_their_paper(name: str) -> None:
    base, *changes = EXTENDED[name]
    assert filled(name) == filled(base, *changes)


@pytest.mark.guarantee("paper-recipes")
@pytest.mark.parametrize("method, kind", [("visualcse", "images"), ("audiocse", "audio")])
def test_supervised_recipes_hold_the_numbers_of_the_published_script(method: str, kind: str) -> None:
    """NonLing-CSE, section 4.6, and the code's `run_sup_example.sh`."""
    loaded = filled(f"{method}-sup-bert-base")
    simcse, other, turn = loaded.objectives["simcse"], loaded.objectives[kind], loaded.optimizers()[kind]
    assert (loaded.data["text"].batch_size, loaded.data[kind].batch_size, loaded.training.epochs) == (128, 48, 3)
    assert (simcse.head, loaded.model.head, simcse.hard_negative_weight) == ("none", "tanh", 0)
    assert (other.weight, other.temperature, turn.learning_rate) == (100, 0.07, 1e-7)
    assert loaded.optimizers()["simcse"].learning_rate == 3e-5


@pytest.mark.guarantee("paper-recipes")
def test_every_recipe_of_a_paper_is_compared_with_its_numbers() -> None:
    published = {f"{name}-published" for name in PUBLISHED}
    supervised = {"visualcse-sup-bert-base", "audiocse-sup-bert-base"}
    others = {"declutr-base", "contrastive-only", "mlm-only", "combined"}
    assert {*CLEAR, *SIMCSE, *TABLE_C1, *EXTENDED, *published, *supervised, *others} == {*layers.names()} - OURS
