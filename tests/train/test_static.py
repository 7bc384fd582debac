"""A step at a static token budget: one compiled graph, and nothing that waits for the device.

What runs here is the trainer's own step, with all objectives, on a CPU, where one padded attention or a stand-in is in
the place of CUDA's variable-length kernel. Under fake tensors, which have no values, whatever wants one on the host
raises.
"""

import argparse
import copy
import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeCopyMode, FakeTensorMode

from clearspan.shards import Dataset
from clearspan.train import build, run
from clearspan.train.build import build_feed
from clearspan.train.data.feed import MicroBatch
from clearspan.train.engine.gradients import gradient_norms
from clearspan.train.learner import Learner
from clearspan.train.model import attention
from clearspan.train.model.encoder import Encoder
from clearspan.train.model.memory_bank import Memory
from clearspan.train.model.packing import Packed
from clearspan.train.options import ALL, Recipe
from tests.train.test_learner import learner_and_batch
from tests.train.test_mixed import ALL as EVERY
from tests.train.test_mixed import folders, recipe_of
from tests.train.test_packing import NothingFromTheHost

__all__ = ["folders", "recipe_of"]
DROPOUT = ["model.config.hidden_dropout_prob=0.1", "model.config.attention_probs_dropout_prob=0.1"]


def faked(learner: Learner, batches: MicroBatch, mode: FakeTensorMode) -> tuple[Learner, MicroBatch]:
    """The same without values."""
    with FakeCopyMode(mode):
        return copy.deepcopy(learner), {name: batch._map(mode.from_tensor) for name, batch in batches.items()}


def update(learner: Learner, batches: MicroBatch) -> dict[str, Tensor]:
    """The trainer's step of all objectives: forward, backward, clipping, AdamW as it runs on CUDA."""
    optimizer = torch.optim.AdamW(learner.parameters(), fused=True)
    with NothingFromTheHost():
        loss, metrics = learner(batches)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
    optimizer.step()
    return {**metrics, "grad_norm": norm}


@pytest.mark.slow
def test_nothing_in_a_step_waits_for_the_device(recipe_of: Callable[..., list[str]]) -> None:
    """Sampling, packing, masking, every loss and metric, backward, clipping, AdamW."""
    learner, batches, _ = learner_and_batch(recipe_of(EVERY, [*DROPOUT, "objectives.spans.memory=16"]), static=True)
    mode = FakeTensorMode()
    fake, given = faked(learner, batches, mode)
    with mode:
        metrics = update(fake, given)
    assert {"loss", "tokens", "tokens_cut", "masks_cut", "grad_norm"} < metrics.keys()
    assert {f"{name}/accuracy" for name in EVERY} < metrics.keys()


def test_without_a_budget_a_step_waits(recipe_of: Callable[..., list[str]]) -> None:
    learner, batches, _ = learner_and_batch(recipe_of(EVERY))
    mode = FakeTensorMode()
    fake, given = faked(learner, batches, mode)
    with mode, pytest.raises(DataDependentOutputException):
        update(fake, given)


def test_metrics_that_nobody_looks_at_are_not_computed(recipe_of: Callable[..., list[str]]) -> None:
    learner, batches, _ = learner_and_batch(recipe_of(EVERY))
    loss, metrics = learner(batches)
    same, fewer = learner(batches, measured=False)
    counts = {"loss", "tokens", *(f"{name}/loss" for name in EVERY)}
    assert torch.equal(loss, same) and fewer.keys() == counts and len(metrics) > 2 * len(counts)
    assert all(torch.equal(value, metrics[name]) for name, value in fewer.items())


def heads_first(cu: Tensor, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Each sequence's part of tensors (T, heads, d), as (heads, L, d)."""
    parts = (x.float().transpose(0, 1).split(cu.diff().tolist(), dim=1) for x in tensors)
    return zip(*parts, strict=True)


@torch.library.custom_op("clearspan_tests::varlen", mutates_args=())
def varlen(q: Tensor, k: Tensor, v: Tensor, cu: Tensor, longest: int) -> Tensor:
    """Attention by cumulative lengths as one operator that a compiler cannot look into: (T, heads, d)."""
    assert cu.diff().max() <= longest
    out = [F.scaled_dot_product_attention(*one).transpose(0, 1) for one in heads_first(cu, q, k, v)]
    return torch.cat(out).to(q.dtype)


@varlen.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, cu: Tensor, longest: int) -> Tensor:
    return torch.empty_like(q)


@torch.library.custom_op("clearspan_tests::varlen_backward", mutates_args=())
def varlen_backward(gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, cu: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    found = []
    for g, q_, k_, v_ in heads_first(cu, gradient, q, k, v):
        scale = q_.shape[-1] ** -0.5
        weights = (scale * q_ @ k_.mT).softmax(-1)
        inner = g @ v_.mT
        scores = scale * weights * (inner - (inner * weights).sum(-1, keepdim=True))
        found.append([x.transpose(0, 1) for x in (scores @ k_, scores.mT @ q_, weights.mT @ g)])
    first, second, third = (torch.cat(parts).to(q.dtype) for parts in zip(*found, strict=True))
    return first, second, third


@varlen_backward.register_fake
def _(gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, cu: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:4])


def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    return *varlen_backward(gradient, *ctx.saved_tensors), None, None


varlen.register_autograd(backward, setup_context=keep)


@pytest.fixture
def one_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in for the variable-length kernel."""

    def attention_by_it(query: Tensor, key: Tensor, value: Tensor, packed: Packed, *_: Any) -> Tensor:
        q, k, v = (x[0].transpose(0, 1).contiguous() for x in (query, key, value))
        return varlen(q, k, v, packed.cu_seqlens, packed.longest)[None]

    monkeypatch.setattr(attention, "padded_attention", attention_by_it)


@pytest.fixture
def anew() -> Iterator[None]:
    """No graph is of another test, and a second one is an error."""
    torch._dynamo.reset()
    counters.clear()
    with torch._dynamo.config.patch(error_on_recompile=True):
        yield
    torch._dynamo.reset()


def micro_batches(learner: Learner, recipe: Recipe, count: int) -> Iterator[MicroBatch]:
    """The first ones of a run."""
    feed = build_feed(recipe, {name: Dataset(data.path) for name, data in recipe.data.items()}, learner, 0, 1)
    columns = {name: learner.columns(name) for name in feed.streams}
    batches = feed.prefetched(feed.start(), columns, learner.collate)
    yield from (batch for batch, _ in itertools.islice(batches, count))
    batches.close()


CHECKPOINTED = ["training.activation_checkpointing=true"]


@pytest.mark.slow
@pytest.mark.usefixtures("anew", "one_operator")
@pytest.mark.parametrize("model, more", [("roberta", []), ("modernbert", CHECKPOINTED)])
def test_ten_steps_are_one_graph_and_the_same_numbers(
    recipe_of: Callable[..., list[str]], model: str, more: list[str]
) -> None:
    """Tokens, patches, lengths of their own in every step; under bf16's autocast, as DeepSpeed has it."""
    learner, _, recipe = learner_and_batch(recipe_of(EVERY, more, model=model), static=True)
    plain = copy.deepcopy(learner)
    learner.encoder.compile_static("eager")
    seen = set()
    for batches in micro_batches(learner, recipe, 10):
        for one in (learner, plain):
            one.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss, metrics = one(batches)
            loss.backward()
        seen.add(int(metrics["tokens"]))
        pairs = zip(learner.parameters(), plain.parameters(), strict=True)
        assert all(torch.equal(a.grad, b.grad) for a, b in pairs if b.grad is not None)
    assert len(seen) > 5, "every step has other lengths"
    assert counters["stats"]["unique_graphs"] == 1 and not counters["graph_break"]


@pytest.fixture
def restored() -> Iterator[None]:
    """No graph is of another test, and what compiling sets for the process is as before."""
    torch._dynamo.reset()
    counters.clear()
    with torch._dynamo.config.patch(recompile_limit=8), torch._functorch.config.patch(donated_buffer=True):
        yield
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.usefixtures("restored")
def test_each_turn_has_a_graph_for_every_pass_however_many_turns_there_are(recipe_of: Callable[..., list[str]]) -> None:
    learner, batches, _ = learner_and_batch(recipe_of(EVERY, ["optimization=alternate"]), static=True)
    learner.encoder.compile_static("eager")
    for _ in range(2):
        for turn in learner.turns:
            given = {one.data: batches[one.data] for one in learner.of_turn(turn)}
            first_pass = learner.cache([given], turn)[0]
            learner(given, turn, first_pass)[0].backward()
            with torch.no_grad():
                learner.eval()(given, turn)
            learner.train()
    of_texts = sum(budget is not None for budget in learner.budgets.values())
    assert counters["stats"]["unique_graphs"] == 3 * of_texts > 8


@pytest.mark.slow
@pytest.mark.usefixtures("restored")
def test_a_compiled_forward_tells_every_objectives_gradient_after_steps_that_did_not(
    recipe_of: Callable[..., list[str]],
) -> None:
    learner, batches, _ = learner_and_batch(recipe_of(["spans", "mlm"]), static=True)
    parameters = list(learner.parameters())
    plain = norms_of(learner, batches, parameters)
    learner.encoder.compile_static("aot_eager", repeats=True)
    learner(batches)[0].backward()
    assert norms_of(learner, batches, parameters) == pytest.approx(plain, rel=1e-4)


def test_looking_at_gradients_leaves_what_is_remembered(recipe_of: Callable[..., list[str]]) -> None:
    """A cross-batch memory is filled by training's own forward, once."""
    learner, batches, _ = learner_and_batch(recipe_of(["spans", "mlm"], ["objectives.spans.memory=16"]))
    (memory,) = (one for one in learner.modules() if isinstance(one, Memory) and len(one.vectors))
    norms_of(learner, batches, list(learner.parameters()))
    assert not memory.vectors.any()
    learner(batches)
    assert memory.vectors.any()


def norms_of(learner: Learner, batches: MicroBatch, parameters: list[nn.Parameter]) -> dict[str, float]:
    """By objective, through an engine that does nothing besides."""
    engine = SimpleNamespace(module=learner, device=torch.device("cpu"), torch_autocast_enabled=lambda: False)
    return {name: float(norm) for name, norm in gradient_norms(engine, batches, ALL, parameters).items()}


BF16 = torch.bfloat16


@pytest.mark.parametrize(
    "dtype, head_dim, dropout, private, taken",
    [
        (BF16, 64, 0.0, True, True),
        (BF16, 64, 0.1, True, True),
        (BF16, 64, 0.1, False, False),
        (BF16, 64, 0.0, False, True),
        (torch.float16, 128, 0.1, True, True),
        (torch.float32, 64, 0.0, True, False),
        (BF16, 12, 0.0, True, False),
        (BF16, 512, 0.0, True, False),
    ],
)
def test_the_kernel_takes_what_it_can_and_padding_the_rest(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, head_dim: int, dropout: float, private: bool, taken: bool
) -> None:
    monkeypatch.setattr(attention, "VARLEN_DROPOUT", private)
    assert attention.varlen_takes(dtype, head_dim, dropout) == taken


@pytest.mark.parametrize("window", [-1, 16])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_torchs_kernel_takes_the_call_that_is_made(dropout: float, window: int) -> None:
    """Its arguments and what it gives; without values, as there is no CUDA here."""
    assert attention.VARLEN_DROPOUT
    with FakeTensorMode(), torch.no_grad():
        q, k, v = (torch.empty(60, 4, 64, dtype=BF16, device="cuda") for _ in range(3))
        cu = torch.empty(5, dtype=torch.int32, device="cuda")
        out = attention._varlen(q, k, v, cu, 30, dropout, 0.125, window)
    assert (out.shape, out.dtype, out.device.type) == ((60, 4, 64), BF16, "cuda")


@pytest.mark.parametrize("other", ["_no_such_call", "_flash_attention_backward"])
def test_a_private_call_that_is_gone_or_takes_other_arguments_is_not_used(
    monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    monkeypatch.setattr(attention, "PRIVATE", other)
    assert not attention._takes_dropout()


def test_what_a_torch_without_dropout_in_its_kernel_means_is_said(
    recipe_of: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, _, recipe = learner_and_batch(recipe_of(EVERY, DROPOUT), static=True)
    feed = build_feed(recipe, {name: Dataset(data.path) for name, data in recipe.data.items()}, learner, 0, 1)
    assert not any("variable-length" in line for line in run.notes(recipe, learner, feed, None, 6))
    monkeypatch.setattr(attention, "VARLEN_DROPOUT", False)
    assert any(
        "no variable-length attention with dropout" in line for line in run.notes(recipe, learner, feed, None, 6)
    )


def test_a_gpu_without_bfloat16_is_refused(
    tiny: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    code = run.main(["--recipe", "demo", *tiny, "output=unused", "training.bf16=true", "--dry-run"])
    assert (code, capsys.readouterr().err) == (
        2,
        "train: training.bf16: Tesla T4 has no bfloat16: set training.bf16=false\n",
    )


@pytest.mark.parametrize(("said", "bf16", "calls"), [("true", "true", 1), ("false", "true", 0), ("true", "false", 0)])
def test_the_encoder_is_compiled_on_cuda_in_bf16_unless_the_recipe_says_no(
    tiny: list[str], monkeypatch: pytest.MonkeyPatch, said: str, bf16: str, calls: int
) -> None:
    class Built(Exception):  # noqa: N818 (it is no error)
        """What comes after the encoder wants a GPU."""

    def built(*_: Any) -> None:
        raise Built

    compiled = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    monkeypatch.setattr(Encoder, "compile_static", lambda encoder, **_: compiled.append(encoder))
    monkeypatch.setattr(build, "build_feed", built)
    options = [*tiny, "output=unused", f"training.bf16={bf16}", f"training.compile={said}", "--dry-run"]
    with pytest.raises(Built):
        run.train(run.parser().parse_args(["--recipe", "demo", *options]))
    assert len(compiled) == calls


@pytest.mark.parametrize(
    "error, said, mend",
    [
        (
            torch._dynamo.exc.Unsupported("a call that\nno graph holds", "a break"),
            "cannot be compiled as one graph (a call that",
            "set training.compile=false",
        ),
        (torch.OutOfMemoryError("CUDA out of memory."), "not enough memory for a step", "see docs/training.md"),
    ],
)
def test_what_ends_a_step_on_a_gpu_is_told_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, said: str, mend: str
) -> None:
    def broken(_: Any) -> None:
        raise error

    monkeypatch.setattr(run, "train", broken)
    assert run.work(argparse.Namespace()) == 1
    printed = capsys.readouterr().err
    assert said in printed and printed.endswith(f"{mend}\n")
    assert printed.count("\n") == 1
