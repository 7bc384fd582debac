"""Activation checkpointing: the same gradients to the bit, dropout and all, in less memory; beside gradient caching."""

import pytest
import torch
from transformers import AutoModelForMaskedLM

from benchmarks import size
from clearspan.train.model.attention import PACKED_ATTENTION
from clearspan.train.model.encoder import Encoder
from clearspan.train.model.packing import pack_ids
from clearspan.train.options import RecipeError
from tests.train.test_encoder import CONFIGS, sequences
from tests.train.test_learner import learner_and_batch


@pytest.mark.parametrize("architecture", CONFIGS)
def test_gradients_are_the_same_with_dropout_replayed(architecture: str) -> None:
    config = type(CONFIGS[architecture])(**CONFIGS[architecture].to_diff_dict())
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout", "mlp_dropout"):
        if hasattr(config, name):
            setattr(config, name, 0.2)
    found = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        model = AutoModelForMaskedLM.from_config(config, attn_implementation=PACKED_ATTENTION)
        encoder = Encoder(model).train()
        layers: list[int] = []
        if checkpointing:
            encoder.checkpoint_activations()
        for name, module in encoder.named_modules():
            if name.endswith((".1.attention", ".1.attn")):
                module.register_forward_hook(lambda *_, layers=layers: layers.append(1))
        torch.manual_seed(1)
        packed = pack_ids(sequences())
        encoder.pool(encoder(packed), packed).square().sum().backward()
        found.append([p.grad for p in encoder.parameters() if p.grad is not None])
        assert len(layers) == 1 + checkpointing, "a layer is computed again"
    assert len(found[0]) >= 20
    assert all(map(torch.equal, *found))


@pytest.mark.exhaustive
def test_the_peak_of_memory_falls_with_each_and_lowest_with_both(capsys: pytest.CaptureFixture[str]) -> None:
    """64 sentences in 8 micro-batches; the weights' gradients are what is left."""
    ways = size.measure(sentences=64, micro_batches=8, layers=4, hidden=64)
    with capsys.disabled():
        print(f"\n{size.table(ways)}")
    peaks = {way: one["peak_mib"] for way, one in ways.items()}
    assert peaks["activation checkpointing"] < 0.6 * peaks["plain"]
    assert peaks["gradient caching"] < 0.4 * peaks["plain"]
    assert peaks["both"] < peaks["gradient caching"] and peaks["both"] < peaks["activation checkpointing"]
    assert [one["loss"] for one in ways.values()] == pytest.approx([ways["plain"]["loss"]] * 4, rel=1e-5)


def test_an_architecture_without_it_is_refused(tiny: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    option = "training.activation_checkpointing=true"
    learner, *_ = learner_and_batch([*tiny, option])
    monkeypatch.setattr(type(learner.encoder.base), "supports_gradient_checkpointing", False)
    with pytest.raises(RecipeError, match="model type 'roberta' has no activation checkpointing: set training"):
        learner_and_batch([*tiny, option])
