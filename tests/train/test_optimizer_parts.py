"""Parts of a model with an optimizer's options of their own, and frozen parts."""

import os
import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from clearspan.train.config.options import Recipe, RecipeError
from clearspan.train.engine.optimization import optimizer_groups
from clearspan.train.run import main
from clearspan.train.step.learner import Learner
from tests.train import runs
from tests.train.conftest import TINY_MODEL
from tests.train.ranks import run_on_ranks, train_alone, train_on_ranks
from tests.train.test_gradient_caching import Trained, made

FIGURES = ("loss", "spans/loss", "mlm/loss", "spans/grad_norm", "mlm/grad_norm", "grad_norm", "learning_rate")
STEP = [
    "optimizer.eps=0.01",
    "optimizer.learning_rate=0.01",
    "optimizer.schedule=constant",
    "optimizer.max_grad_norm=0.1",
]
PARTS = [
    "optimizer.embeddings.learning_rate=0.1",
    "optimizer.embeddings.weight_decay=0",
    "optimizer.heads.learning_rate=0.03",
]
LAST = ["model.train=last-1", "optimizer.heads.learning_rate=0.03", "training.activation_checkpointing=true"]
PORT = 27300 + os.getpid() % 300


@pytest.fixture(scope="module")
def pretrained(tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Overrides that begin with the weights of a folder, a masked-LM head among them."""
    folder = tmp_path_factory.mktemp("model")
    learner, _, recipe = made(tiny)
    learner.encoder.model.save_pretrained(folder)
    for file in (Path(recipe.data["text"].path) / "tokenizer").iterdir():
        shutil.copy(file, folder)
    return [*(o for o in tiny if o not in TINY_MODEL), "model.config=null", f"model.path={folder}"]


def groups_of(learner: Learner, recipe: Recipe) -> list[tuple[float, float, set[str]]]:
    """Return each group's (learning rate, weight decay, names of parameters)."""
    names = {parameter: name for name, parameter in learner.named_parameters()}
    groups = optimizer_groups(learner.parameters_of("all"), recipe.optimizer, learner.parts())
    return [(g["lr"], g["weight_decay"], {names[parameter] for parameter in g["params"]}) for g in groups]


def test_without_parts_there_are_two_groups_as_ever(tiny: list[str]) -> None:
    """So that checkpoints fit that were saved before there were parts."""
    learner, _, recipe = made(tiny)
    trained, decay = list(learner.parameters()), recipe.optimizer.weight_decay
    groups = optimizer_groups(learner.parameters_of("all"), recipe.optimizer, learner.parts())
    for group, expected in zip(
        groups, ([p for p in trained if p.ndim > 1], [p for p in trained if p.ndim < 2]), strict=True
    ):
        assert list(map(id, group["params"])) == list(map(id, expected))
    assert [group["weight_decay"] for group in groups] == [decay, 0.0]
    assert {group["lr"] for group in groups} == {recipe.optimizer.learning_rate}


def test_each_part_has_its_groups_behind_those_of_the_rest(tiny: list[str]) -> None:
    """The head's decoder is tied to the token embeddings; those of positions belong to the rest."""
    learner, _, recipe = made([*tiny, *PARTS, "objectives.spans.head=relu", "model.head=tanh"])
    layers, vectors, table, heads, biases = groups_of(learner, recipe)
    rate, decay = recipe.optimizer.learning_rate, recipe.optimizer.weight_decay
    assert [group[:2] for group in (layers, vectors)] == [(rate, decay), (rate, 0.0)]
    assert table == (0.1, 0.0, {"encoder.model.roberta.embeddings.word_embeddings.weight"})
    assert [group[:2] for group in (heads, biases)] == [(0.03, decay), (0.03, 0.0)]
    assert "encoder.model.roberta.embeddings.position_embeddings.weight" in layers[2]
    assert {"encoder.model.lm_head.dense.weight", "encoder.head.0.linear.weight"} < heads[2]
    assert any(name.startswith("objectives.0.") for name in heads[2]) and "encoder.model.lm_head.bias" in biases[2]
    assert not [name for name in layers[2] | vectors[2] if not name.startswith("encoder.model.roberta.")]
    assert sum(len(group[2]) for group in (layers, vectors, table, heads, biases)) == len(list(learner.parameters()))


@pytest.mark.parametrize(
    ("train", "inside"),
    [
        ("last-1", "encoder.model.roberta.encoder.layer.1."),
        ("last-2", "encoder.model.roberta.encoder.layer."),
        ("embeddings", "encoder.model.roberta.embeddings.word_embeddings."),
    ],
)
def test_a_part_of_the_base_model_trains_and_all_heads(pretrained: list[str], train: str, inside: str) -> None:
    learner, *_ = made([*pretrained, f"model.train={train}", "objectives.spans.head=relu"])
    names = {name for name, parameter in learner.named_parameters() if parameter.requires_grad}
    assert names == {
        n for n, _ in learner.named_parameters() if n.startswith(inside) or "encoder.model.roberta" not in n
    }
    assert any("lm_head" in name for name in names) and any("objectives.0" in name for name in names)
    assert {id(p) for p in learner.parameters() if p.requires_grad} == set(map(id, learner.parameters_of("all")))


def plain_steps(overrides: list[str], rates: dict[str, tuple[float, float]], unfrozen: str) -> dict[str, Tensor]:
    """Return the weights after two steps by torch's own AdamW, an instance a part.

    Args:
        rates: (learning rate, weight decay) of parameters by the beginning of their name; the first that fits.
        unfrozen: the beginning of the name of those of the base model that train.
    """
    learner, feed, _ = made(overrides)
    trained = {n: p for n, p in learner.named_parameters() if n.startswith(unfrozen) or ".roberta." not in n}
    by_rate: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in trained.items():
        rate, decay = next(pair for beginning, pair in rates.items() if name.startswith(beginning))
        by_rate.setdefault((rate, decay if parameter.ndim > 1 else 0.0), []).append(parameter)
    optimizers = [torch.optim.AdamW(p, lr=r, weight_decay=d, eps=0.01) for (r, d), p in by_rate.items()]
    columns = {name: learner.columns(name) for name in feed.streams}
    batches = feed.prefetched(feed.start(), columns, learner.collate)
    for _ in range(2):
        learner.zero_grad()
        learner(next(batches)[0])[0].backward()
        nn.utils.clip_grad_norm_(list(trained.values()), 0.1)
        for optimizer in optimizers:
            optimizer.step()
    batches.close()
    return {name: parameter.detach() for name, parameter in learner.named_parameters()}


@pytest.mark.exhaustive
def test_steps_are_those_of_a_plain_optimizer_for_each_part_at_every_zero_stage(pretrained: list[str]) -> None:
    """On two ranks, with gradient caching and with activations that are computed again."""
    plain = [*pretrained, *STEP, "data.text.batch_size=16", "objectives.spans.head=relu"]
    caching = ["training.gradient_accumulation_steps=2", "training.gradient_caching=true"]
    cases, decay = {"parts": PARTS, "frozen": LAST, "table": ["model.train=embeddings"]}, 0.01
    ways = {
        f"{case} {stage}": [*plain, *more, *caching, f"training.zero_stage={stage}", f"optimizer.weight_decay={decay}"]
        for case, more in cases.items()
        for stage in range(3)
    }
    found = run_on_ranks(Trained(ways), 2)
    base, table = "encoder.model.roberta.", "encoder.model.roberta.embeddings.word_embeddings."
    expected = {
        "parts": plain_steps(plain, {table: (0.1, 0.0), base: (0.01, decay), "": (0.03, decay)}, base),
        "frozen": plain_steps(plain, {base: (0.01, decay), "": (0.03, decay)}, f"{base}encoder.layer.1."),
        "table": plain_steps(plain, {"": (0.01, decay)}, table),
    }
    before = {name: parameter.detach() for name, parameter in made(plain)[0].named_parameters()}
    for way in ways:
        case = way.split()[0]
        unchanged = {name for name, weights in expected[case].items() if torch.equal(weights, before[name])}
        assert bool(unchanged) == (case != "parts")
        for rank in found:
            for name, weights in rank[way][2].items():
                torch.testing.assert_close(weights, expected[case][name], atol=2e-5, rtol=1e-4, msg=f"{way}: {name}")
                assert torch.equal(weights, before[name]) == (name in unchanged), f"{way}: {name}"
            assert [step["learning_rate"].item() for step in rank[way][:2]] == pytest.approx([0.01] * 2)


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", [PARTS, ["model.train=last-1", "optimizer.heads.weight_decay=0.5"]])
def test_a_run_with_parts_resumes_bit_for_bit_and_on_other_ranks_and_stages(
    pretrained: list[str], tmp_path: Path, options: list[str]
) -> None:
    words = [*pretrained, *options, "training.gradient_norms=true", "training.gradient_accumulation_steps=2"]
    words += ["objectives.spans.head=relu", "objectives.spans.head_dim=15"]
    train_alone(*words, f"output={tmp_path / 'whole'}")
    stopped = train_alone(*words, f"output={tmp_path / 'same'}", script="tests/train/terminated_at.py", at=3, code=130)
    assert "stopped and saved at step 3 of 6" in stopped.stderr, stopped.stderr
    runs.copied(tmp_path / "same", tmp_path / "other")
    train_alone(*words, f"output={tmp_path / 'same'}", "--resume")
    assert runs.metrics(tmp_path / "same", FIGURES) == runs.metrics(tmp_path / "whole", FIGURES)
    assert runs.same_weights(tmp_path / "same", tmp_path / "whole")
    other = [*words, f"output={tmp_path / 'other'}", "training.zero_stage=2", "--resume"]
    train_on_ranks(2, *other, port=PORT + len(options))
    for line, expected in zip(*(runs.metrics(tmp_path / name, FIGURES) for name in ("other", "whole")), strict=True):
        assert line == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_a_dry_run_tells_of_each_part(
    pretrained: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--recipe", "demo", *pretrained, *LAST, "optimizer.learning_rate=0.002", f"output={tmp_path / 'run'}"]
    assert main([*words, "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    learner, *_ = made([*pretrained, *LAST])
    sizes = {part: sum(p.numel() for p, of in learner.parts().items() if of == part) for part in ("layers", "heads")}
    trained = sum(p.numel() for p in learner.encoder.base.parameters() if p.requires_grad)
    assert f"  embeddings    {1500 * 32:,}, frozen" in lines
    assert f"  layers        {sizes['layers']:,}, {trained:,} of them trained, learning rate at most 0.002" in lines
    assert f"  heads         {sizes['heads']:,}, trained, learning rate at most 0.03" in lines


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["model.train=last-3"], "model.train last-3: the encoder has 2 layers: take at most last-2"),
        (
            ["model.train=heads"],
            "objectives.spans: model.train heads freezes every part of the exported model that this",
        ),
        (
            ["model.train=heads", "model.head=tanh"],
            "objectives.mlm: model.train heads freezes every part of the exported model that this objective could",
        ),
        (
            ["model.train=last-1", "optimizer.embeddings.learning_rate=1"],
            "optimizer.embeddings has no effect: model.train last-1 freezes them",
        ),
        (
            ["objectives.mlm=null", "optimizer.heads.weight_decay=1"],
            "optimizer.heads has no effect: no such part trains",
        ),
        (
            ["model.train=embeddings", "objectives.mlm=null", "optimizer.embeddings.learning_rate=1"],
            "optimizer.embeddings: nothing else trains, so that optimizer.learning_rate",
        ),
    ],
)
def test_what_has_no_effect_or_nothing_to_train_is_refused(
    pretrained: list[str], options: list[str], message: str
) -> None:
    with pytest.raises(RecipeError, match=message.replace(".", r"\.")) as raised:
        made([*pretrained, *options])
    assert "\n" not in str(raised.value)


def test_fresh_weights_are_not_frozen(tiny: list[str]) -> None:
    with pytest.raises(
        RecipeError, match=r"model\.train last-1 freezes a part of the encoder, whose weights model\.config"
    ):
        made([*tiny, "model.train=last-1"])


def test_new_tokens_need_embeddings_that_train(
    pretrained: list[str], tiny_clear: list[str], del_tokenizer_folder: Path
) -> None:
    """The shards' tokenizer has [DEL], the model's has not."""
    path = next(o for o in pretrained if o.startswith("model.path="))
    given = [*(o for o in tiny_clear if o not in TINY_MODEL), "model.config=null", path]
    with pytest.raises(
        RecipeError, match=r"model\.train last-1 freezes the token embeddings, and the shards' tokenizer"
    ):
        made([*given, "model.train=last-1"])
    assert made([*given, "model.train=embeddings"])[0].encoder.config.vocab_size == 1501
