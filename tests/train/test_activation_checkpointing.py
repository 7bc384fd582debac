"""Activation checkpointing: the same gradients to the bit, dropout and all, in less memory; beside gradient caching."""

import pytest
import torch
from torch import Tensor
from transformers import AutoModel, AutoModelForMaskedLM, BertConfig

from clearspan.common.encoder.attention import PACKED_ATTENTION
from clearspan.common.encoder.packing import pack_ids
from clearspan.train.model.encoder import TrainableEncoder
from clearspan.train.model.packing import Budget, Sequences, SpecialTokens, TokenSlices, pack
from tests.train.test_encoder import CONFIGS, sequences
from tests.train.test_gradient_caching import CACHING, made, micro_batches


@pytest.mark.parametrize("architecture", [name for name in CONFIGS if name != "mpnet"])
def test_gradients_are_the_same_with_dropout_replayed(architecture: str) -> None:
    config = type(CONFIGS[architecture])(**CONFIGS[architecture].to_diff_dict())
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout", "mlp_dropout"):
        if hasattr(config, name):
            setattr(config, name, 0.2)
    found = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        model = AutoModelForMaskedLM.from_config(config, attn_implementation=PACKED_ATTENTION)
        encoder = TrainableEncoder(model).train()
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
def test_a_compiled_layer_is_recomputed_with_the_same_dropout() -> None:
    """By torch's partitioner, which inductor uses too; it keeps the random state of each operator that it repeats."""
    config = BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.2
    slices = TokenSlices(torch.arange(60) % 59 + 5, torch.tensor([0, 10, 30]), torch.tensor([10, 20, 30]))
    packed = pack([Sequences(slices, torch.arange(3))], SpecialTokens([0], [2], 1, 4), Budget(128, 2, 64))
    gradients = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        encoder = TrainableEncoder(AutoModel.from_config(config, attn_implementation=PACKED_ATTENTION)).train()
        if checkpointing:
            encoder.checkpoint_activations()
        encoder.compile_static("aot_eager_decomp_partition")
        torch.manual_seed(1)
        encoder.pool(encoder(packed), packed).square().sum().backward()
        gradients.append([p.grad for p in encoder.parameters() if p.grad is not None])
    assert len(gradients[0]) >= 20
    assert all(map(torch.equal, *gradients))


def kept_bytes(overrides: list[str]) -> int:
    """The most bytes that a forward keeps for its backward, without the weights."""
    learner, feed, recipe = made(overrides)
    batches = micro_batches(learner, feed, recipe.training.gradient_accumulation_steps)
    weights = {parameter.untyped_storage().data_ptr() for parameter in learner.parameters()}
    most = 0
    for batch, cached in zip(batches, learner.cache(iter(batches)) if len(batches) > 1 else [None], strict=True):
        kept: dict[int, int] = {}

        def keep(tensor: Tensor, kept: dict[int, int] = kept) -> Tensor:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            learner(batch, cached=cached)
        most = max(most, sum(size for storage, size in kept.items() if storage not in weights))
    return most


@pytest.mark.slow
def test_a_forward_keeps_less_with_each_and_least_with_both(tiny: list[str]) -> None:
    given = [*tiny, "objectives.mlm=null", "data.text.batch_size=64"]
    checkpointing = [*given, "training.activation_checkpointing=true"]
    plain, recomputed = kept_bytes(given), kept_bytes(checkpointing)
    cached, both = kept_bytes([*given, *CACHING]), kept_bytes([*checkpointing, *CACHING])
    assert recomputed < 0.6 * plain and cached < 0.4 * plain
    assert both < min(recomputed, cached)
