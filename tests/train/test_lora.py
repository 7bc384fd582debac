"""LoRA by peft: what trains, what a checkpoint holds, and the export, merged and beside it."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from clearspan.common.encoder.packing import pack_ids
from clearspan.common.model_folder import EncoderError
from clearspan.train.config.options import RecipeError
from clearspan.train.engine.checkpoint import safe_load
from clearspan.train.engine.tracking import backward_shares
from clearspan.train.export import main as export
from clearspan.train.model.encoder import TrainableEncoder
from tests.conftest import ROOT
from tests.train.families import CONFIGS, TEXTS, overrides, random_model
from tests.train.ranks import train_alone, train_on_ranks
from tests.train.runs import last_weights, metrics, same_weights, without_its_last_checkpoint
from tests.train.test_encoder import sequences
from tests.train.test_learner import learner_and_batch

peft = pytest.importorskip("peft")
SEQUENCES = [row[:100] for row in sequences()]
OPTIONS = {"rank": 4, "alpha": 8.0, "dropout": 0.0, "targets": []}
LORA = ["model.train=lora", "model.lora.rank=4", "optimizer.learning_rate=0.01", "model.lora.dropout=0.1"]
CACHED = ["training.gradient_accumulation_steps=2", "training.gradient_caching=true"]


def adapted(name: str, moved: bool = True) -> TrainableEncoder:
    """An encoder with an adapter, whose weights are not those of the start."""
    encoder = TrainableEncoder(random_model(CONFIGS[name])).eval()
    encoder.drop_mlm_head()
    encoder.add_adapter(OPTIONS, Path("unused"))
    if moved:
        torch.manual_seed(3)
        with torch.no_grad():
            for parameter in encoder.parameters():
                if parameter.requires_grad:
                    parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return encoder


@pytest.mark.guarantee("encoders-of-any-class")
@pytest.mark.parametrize("name", CONFIGS)
def test_an_adapter_begins_as_the_model_trains_alone_and_is_merged_with_the_same_states(name: str) -> None:
    plain, ids = TrainableEncoder(random_model(CONFIGS[name])).eval(), pack_ids(SEQUENCES)
    plain.drop_mlm_head()
    torch.testing.assert_close(adapted(name, moved=False)(ids), plain(ids), atol=1e-5, rtol=1e-5)
    encoder = adapted(name)
    states = encoder(ids)
    assert not torch.allclose(states, plain(ids), atol=1e-2)
    states.square().sum().backward()
    reached = {key for key, parameter in encoder.base.named_parameters() if parameter.grad is not None}
    assert reached and all(".lora_" in key for key in reached)
    assert reached == {key for key, parameter in encoder.base.named_parameters() if parameter.requires_grad}
    assert encoder.adapter is not None
    names = list(plain.base.state_dict())
    with encoder.adapter.merged():
        torch.testing.assert_close(encoder(ids), states, atol=2e-5, rtol=1e-4)
        assert list(encoder.base.state_dict()) == names
    assert torch.equal(encoder(ids), states)
    frozen = encoder.frozen_by_adapter()
    assert {key for key in encoder.state_dict() if key not in frozen and key.startswith("model.")} == {
        key for key, parameter in encoder.named_parameters() if parameter.requires_grad
    }


@pytest.mark.guarantee("encoders-of-any-class")
@pytest.mark.parametrize("name", ["t5", "qwen3"])
def test_checkpointed_layers_give_the_adapter_the_same_gradients(name: str) -> None:
    gradients = []
    for checkpoints in (False, True):
        encoder = adapted(name).train()
        if checkpoints:
            encoder.checkpoint_activations()
        encoder(pack_ids(SEQUENCES)).square().sum().backward()
        gradients.append([p.grad for p in encoder.base.parameters() if p.requires_grad])
    torch.testing.assert_close(gradients[1], gradients[0])
    assert all(gradient is not None for gradient in gradients[0])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["model.lora.targets=[owl]"], r"model.train lora: targets \['owl'\]: Target modules \{?.*owl.* not found"),
        (["model.lora.targets=[q,valeu]"], "no layer is called 'valeu'"),
        (["model.lora.targets=[word_embeddings]"], "word_embeddings is no linear layer"),
        (["model.train=all"], "model.lora has no effect with model.train all: leave it out"),
        (["model.lora.rank=0"], "model.lora.rank"),
    ],
)
@pytest.mark.parametrize("name", ["mpnet"])
@pytest.mark.slow
def test_keys_that_cannot_work_are_refused_in_one_line(
    name: str,
    more: list[str],
    message: str,
    family_folder: Path,
    family_pairs: Path,
) -> None:
    with pytest.raises(RecipeError, match=message) as raised:
        learner_and_batch(overrides(family_folder, family_pairs, *LORA, *more), recipe="pairs")
    assert "\n" not in str(raised.value)


def test_without_peft_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearspan.common.errors.importlib.util.find_spec", lambda name: None)
    encoder = TrainableEncoder(random_model(CONFIGS["qwen3"]))
    with pytest.raises(EncoderError, match=r"model.train lora needs peft: .*pip install .*\[lora\]"):
        encoder.add_adapter(OPTIONS, Path("unused"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen3"])
def test_the_estimate_counts_what_trains(name: str, family_folder: Path, family_pairs: Path) -> None:
    """The backward pass goes through all layers, and gives few weights gradients."""
    learner, _, _ = learner_and_batch(overrides(family_folder, family_pairs, *LORA), recipe="pairs")
    weights, inputs = backward_shares(learner)
    assert 0 < weights < 0.2 and inputs == 1.0
    trained = learner.parameters_of("all")
    assert sum(p.numel() for p in trained) < sum(p.numel() for p in learner.parameters()) / 10


@pytest.mark.exhaustive
@pytest.mark.guarantee("encoders-of-any-class")
@pytest.mark.guarantee("bit-equal-resume")
@pytest.mark.parametrize("name", ["mpnet", "gemma2", "qwen3"])
def test_a_run_resumes_bit_for_bit_from_what_trains_alone_and_its_adapter_loads_in_peft(
    name: str,
    family_folder: Path,
    family_pairs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    start = Path(os.path.relpath(family_folder, ROOT))  # as a user writes it; the export runs in another folder
    words = overrides(start, family_pairs, *LORA, *CACHED, "training.save_steps=2")
    train_alone(*words, f"output={run}", recipe="pairs")
    states = safe_load(next(iter(sorted((run / "checkpoints").iterdir()))) / "states.pt")
    assert states["module"] and all(".lora_" in key for key in states["module"])
    assert len(states["optimizer"]["all"]["state"]) == len(states["module"])
    without_its_last_checkpoint(run, other)
    train_alone(*words, f"output={other}", "--resume", recipe="pairs")
    assert same_weights(run, other) and metrics(run, ["loss"])[-1] == metrics(other, ["loss"])[-1]
    theirs = SentenceTransformer(str(run / "model"), device="cpu", local_files_only=True)
    expected = theirs.encode(TEXTS)
    assert not np.allclose(expected, SentenceTransformer(str(family_folder), device="cpu").encode(TEXTS), atol=1e-3)
    plain = transformers.AutoModel.from_pretrained(family_folder)
    loaded = peft.PeftModel.from_pretrained(plain, run / "model" / "adapter").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(run / "model")
    alone = [loaded(**tokenizer(text, truncation=True, return_tensors="pt")).last_hidden_state[0] for text in TEXTS]
    np.testing.assert_allclose(torch.stack([each.mean(0) for each in alone]).detach(), expected, atol=1e-5)
    monkeypatch.chdir(tmp_path)
    assert export([str(run), str(tmp_path / "again")]) == 0
    merged, again = (load_file(each / "model.safetensors") for each in (run / "model", tmp_path / "again"))
    assert all(torch.equal(again[key], weight) for key, weight in merged.items())
    (family_folder / "model.safetensors").unlink()
    capsys.readouterr()
    assert export([str(run), str(tmp_path / "without")]) != 0
    assert "missing or changed since" in capsys.readouterr().err


@pytest.mark.exhaustive
@pytest.mark.guarantee("encoders-of-any-class")
@pytest.mark.parametrize(("ranks", "stage"), [(1, 1), (1, 2), (2, 0), (2, 1)])
@pytest.mark.parametrize("name", ["qwen3"])
def test_zero_and_two_ranks_train_the_adapter_as_one_rank_does(
    name: str,
    ranks: int,
    stage: int,
    family_folder: Path,
    family_pairs: Path,
    tmp_path: Path,
) -> None:
    words = [*overrides(family_folder, family_pairs, *LORA[:3]), "training.save_steps=2"]
    train_alone(*words, f"output={tmp_path / 'one'}", recipe="pairs")
    words += [f"output={tmp_path / 'other'}", f"training.zero_stage={stage}"]
    if ranks == 1:
        train_alone(*words, recipe="pairs")
    else:
        train_on_ranks(ranks, *words, recipe="pairs", port=26610 + 10 * stage + os.getpid() % 300)
    one, other = last_weights(tmp_path / "one"), last_weights(tmp_path / "other")
    assert one.keys() == other.keys()
    for key, weight in one.items():
        torch.testing.assert_close(other[key], weight, atol=1e-5, rtol=1e-4)
