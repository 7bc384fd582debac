"""What CUDA does otherwise than a CPU. The CPU's turn shows that the tests themselves are sound."""

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.utils import counters

from benchmarks.span_step import Batches, budget, build, documents, moved
from benchmarks.synthetic import SPECIAL, random_encoder, setting, texts, weighted
from clearspan.common.encoder import flash3
from clearspan.common.encoder.attention import ScoreOptions, packed_attention, padded_attention
from clearspan.common.encoder.packing import pack_ids
from clearspan.train.config.optimizer import OptimizerConfig
from clearspan.train.config.options import ALL
from clearspan.train.data.ahead import copied_ahead
from clearspan.train.data.batch import Batch
from clearspan.train.engine.optimization import build_optimizer
from clearspan.train.modalities import audio, images
from clearspan.train.model import chunked_cross_entropy
from clearspan.train.model.packing import PackedBlocks
from clearspan.train.objectives import Objective, patches, simcse
from clearspan.train.step.learner import Learner

LENGTHS = [97, 3, 64, 64, 1, 200]
HEADS, DIM = 4, 64
CPU = torch.device("cpu")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.param)


@contextlib.contextmanager
def nothing_waits(device: torch.device) -> Iterator[None]:
    """Within it, whatever makes the host wait for the GPU raises."""
    if device.type != "cuda":
        yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def packed_on(device: torch.device) -> PackedBlocks:
    return pack_ids([[5] * length for length in LENGTHS], device)


def inputs(device: torch.device, dtype: torch.dtype) -> list[Tensor]:
    """Queries, keys and values (1, heads, T, d), the same on every device."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn((3, 1, HEADS, sum(LENGTHS), DIM), generator=generator)
    return [one.to(device, dtype).requires_grad_() for one in drawn]


def attended(device: torch.device, dtype: torch.dtype) -> list[Tensor]:
    """Outputs, and the gradients of queries, keys and values, through the packed attention."""
    given = inputs(device, dtype)
    out, _ = packed_attention(nn.Identity(), *given, None, packed=packed_on(device))
    return [out, *torch.autograd.grad(out.float().square().sum(), given)]


def expected() -> list[Tensor]:
    """The same through the padded one, in fp32 on the CPU."""
    given = inputs(CPU, torch.float32)
    out = padded_attention(*given, packed_on(CPU), 0.0, ScoreOptions())
    return [out, *torch.autograd.grad(out.square().sum(), given)]


def learner_on(device: torch.device, dropout: float, pairs: bool = False) -> Learner:
    """DeCLUTR's objectives, or its contrast alone, over two layers of 64, for two documents a step."""
    learner = build(2, 64, dropout, pairs).to(device)
    learner.budgets = {ALL: budget(learner, 2)}
    return learner


def backend(device: torch.device) -> str:
    """A CPU has the same graph, without a compiler."""
    return "inductor" if device.type == "cuda" else "eager"


def loss_of(learner: Learner, batches: Batches, device: torch.device) -> Tensor:
    with torch.autocast(device.type, torch.bfloat16):
        return learner(batches)[0]


def test_packed_attention_in_bf16_is_the_padded_one_in_fp32(device: torch.device) -> None:
    for found, right in zip(attended(device, torch.bfloat16), expected(), strict=True):
        torch.testing.assert_close(found.float().cpu(), right, atol=0.05 * right.abs().max().item(), rtol=0.05)


def test_packed_attention_in_fp32_is_the_cpus(device: torch.device) -> None:
    for found, right in zip(attended(device, torch.float32), expected(), strict=True):
        torch.testing.assert_close(found.cpu(), right, atol=1e-4, rtol=1e-4)


def test_attention_dropout_follows_its_seed_keeps_the_mean_and_has_a_gradient(device: torch.device) -> None:
    query, key, value = inputs(device, torch.bfloat16)
    ones = torch.ones_like(value).requires_grad_()

    def dropped(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return packed_attention(nn.Identity(), query, key, ones, None, dropout=0.1, packed=packed_on(device))[0]

    first, same, other = dropped(1), dropped(1), dropped(2)
    assert torch.equal(first, same) and not torch.equal(first, other)
    assert first.float().mean().item() == pytest.approx(1, abs=0.02) and first.float().std() > 0.01
    gradients = torch.autograd.grad(first.float().square().sum(), [query, key, ones])
    assert all(one.isfinite().all() and one.abs().max() > 0 for one in gradients)


@pytest.mark.exhaustive
def test_a_static_step_waits_for_nothing(device: torch.device) -> None:
    """Sampling, packing, masking, the losses and all metrics, backward, clipping, AdamW."""
    learner = learner_on(device, 0.1).train()
    optimizer = build_optimizer(list(learner.parameters()), OptimizerConfig())
    given = [moved(documents(2, number), device) for number in range(2)]

    def step(batches: Batches) -> None:
        loss_of(learner, batches, device).backward()
        nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    before = next(learner.parameters()).detach().clone()
    step(given[0])  # the first makes what later ones have
    with nothing_waits(device):
        step(given[1])
    assert not torch.equal(next(learner.parameters()), before)


@pytest.mark.exhaustive
def test_ten_steps_of_other_lengths_compile_once(device: torch.device) -> None:
    torch._dynamo.reset()
    counters.clear()
    learner = learner_on(device, 0.1, pairs=True).train()
    learner.encoder.compile_static(backend(device))
    lengths = set()
    with torch._dynamo.config.patch(error_on_recompile=True):
        for number in range(10):
            with torch.autocast(device.type, torch.bfloat16):
                loss, metrics = learner(moved(documents(2, number), device))
            loss.backward()
            lengths.add(int(metrics["tokens"]))
    assert counters["stats"]["unique_graphs"] == 1 and len(lengths) > 5


@pytest.mark.exhaustive
def test_compiled_layers_give_the_loss_and_gradient_of_plain_ones(device: torch.device) -> None:
    torch._dynamo.reset()
    learner, given = learner_on(device, 0.0).train(), moved(documents(2), device)

    def step() -> tuple[float, float]:
        learner.zero_grad()
        loss = loss_of(learner, given, device)
        loss.backward()
        norm = nn.utils.get_total_norm([one.grad for one in learner.parameters() if one.grad is not None])
        return loss.item(), norm.item()

    plain = step()
    learner.encoder.compile_static(backend(device))
    assert step() == pytest.approx(plain, rel=0.03)


@pytest.mark.exhaustive
def test_a_compiled_forward_without_gradient_drops_what_the_one_with_it_drops(device: torch.device) -> None:
    """Which gradient caching relies on: each has a graph of its own."""
    torch._dynamo.reset()
    learner, given = learner_on(device, 0.1).train(), moved(documents(2), device)
    learner.encoder.compile_static(backend(device))

    def loss(seed: int) -> float:
        torch.manual_seed(seed)
        return loss_of(learner, given, device).item()

    with torch.no_grad():
        first, other = loss(1), loss(2)
    assert loss(1) == pytest.approx(first, rel=1e-4) and other != pytest.approx(first, rel=1e-4)


def with_pictures_and_clips() -> tuple[Learner, Batches]:
    """SimCSE over sentences beside pictures and clips, with a micro-batch of random ones."""
    encoder, generator = random_encoder(1, 64, 0.0), np.random.default_rng(0)
    modalities = {
        "images": images.ImageModality(images.ImageConfig()),
        "audio": audio.AudioModality(audio.AudioConfig(), 0.0, 0.5),
    }
    text = simcse.SimCSE(simcse.SimcseConfig(head="tanh"), setting(encoder, "simcse", "sentences"), ["tokens"])
    objectives: list[Objective] = [weighted(text)]
    for name, modality in modalities.items():
        own = setting(encoder, name, name, modality)
        objectives.append(weighted(patches.PatchContrast(patches.PatchesConfig(loss="paper"), own, modality)))
    embeddings = {name: modality.embedding(64) for name, modality in modalities.items()}
    values = {
        "images": torch.from_numpy(generator.integers(0, 256, (4, 2, 224, 224, 3), np.uint8)),
        "audio": torch.from_numpy(generator.standard_normal((4, 1, 1024, 128)).astype(np.float16)),
    }
    numbers = torch.arange(4)
    columns: dict[str, Any] = {"sentences": {"simcse/tokens": texts(generator.integers(4, 32, 4), generator)}}
    for name, given in values.items():
        columns[name] = {f"{name}/values": given, f"{name}/labels": numbers // 2}
    batches = {name: Batch(each, numbers, 0 * numbers) for name, each in columns.items()}
    return Learner(encoder, objectives, SPECIAL, embeddings), batches


@pytest.mark.exhaustive
def test_pictures_clips_and_texts_share_one_forward(device: torch.device) -> None:
    learner, given = with_pictures_and_clips()
    alone = learner(given)[0].item()
    learner.to(device)
    loss = loss_of(learner, moved(given, device), device)
    loss.backward()
    assert loss.item() == pytest.approx(alone, rel=0.03)
    assert all(one.grad.isfinite().all() for one in learner.parameters() if one.grad is not None)


def test_batches_that_are_copied_ahead_are_those_that_were_given(device: torch.device) -> None:
    host = [documents(2, number) for number in range(3)]
    pinned = [{name: one.pin() for name, one in batch.items()} for batch in host] if device.type == "cuda" else host
    ahead = copied_ahead(((batch, {}) for batch in itertools.cycle(pinned)), device)
    for right, (found, _) in zip(host * 2, ahead, strict=False):
        own, copied = right["documents"], found["documents"]
        assert copied.ids.device.type == device.type and torch.equal(copied.ids.cpu(), own.ids)
        assert torch.equal(copied.lists("spans/tokens").values.cpu(), own.lists("spans/tokens").values)
    ahead.close()


@pytest.mark.parametrize("window", [None, 16])
@pytest.mark.parametrize("dropout", [0.0, 1e-6])
def test_causal_attention_is_that_of_a_cpu(device: torch.device, window: int | None, dropout: float) -> None:
    """Both kernels, with heads of keys that are shared; a dropout this rare changes no number that counts."""
    module = nn.Identity()
    module.is_causal = True
    query, key, value = inputs(CPU, torch.bfloat16)

    def attended(on: torch.device, rare: float) -> Tensor:
        states = (query.to(on), key[:, :2].to(on), value[:, :2].to(on))
        return packed_attention(module, *states, None, rare, None, window, packed=packed_on(on))[0].float().cpu()

    torch.testing.assert_close(attended(device, dropout), attended(CPU, 0.0), atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("size", [1500, 1499])
def test_the_loss_over_the_vocabulary_is_that_of_plain_logits(device: torch.device, size: int) -> None:
    """Of an odd number of ids too, in bf16, in several chunks."""
    torch.manual_seed(0)
    decoder, states, labels = nn.Linear(DIM, size), torch.randn(3000, DIM), torch.randint(0, size, (3000,))
    labels[::7] = chunked_cross_entropy.IGNORED

    def found(on: torch.device, loss_of: Callable[..., Tensor]) -> list[Tensor]:
        layer, given = copy.deepcopy(decoder).to(on), states.to(on).requires_grad_()
        loss = loss_of(given, layer, labels.to(on))
        loss.backward()
        assert layer.weight.grad is not None and given.grad is not None
        return [loss.detach().float().cpu(), given.grad.cpu(), layer.weight.grad.cpu()]

    def fused(given: Tensor, layer: nn.Linear, right: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16), nothing_waits(device):
            return chunked_cross_entropy.cross_entropy(given, layer, right, True)[0]

    def plain(given: Tensor, layer: nn.Linear, right: Tensor) -> Tensor:
        return F.cross_entropy(layer(given), right, ignore_index=chunked_cross_entropy.IGNORED, reduction="sum")

    for ours, theirs in zip(found(device, fused), found(CPU, plain), strict=True):
        torch.testing.assert_close(ours, theirs, atol=0.03 * theirs.abs().max().item(), rtol=0.03)


@pytest.mark.cuda
def test_flash_attention_3_gives_what_the_padded_attention_gives() -> None:
    """Outputs and gradients; then torch's own kernels are back."""
    line = flash3.activate(torch.device("cuda"), 0.0)
    if not line:
        pytest.skip("no H100 or H200, or the package flash_attn_3 is not installed")
    try:
        assert line == "attention without dropout: by FlashAttention 3"
        test_packed_attention_in_bf16_is_the_padded_one_in_fp32(torch.device("cuda"))
    finally:
        torch.nn.attention.restore_flash_attention_impl()
