"""Peak memory of a contrastive step: plain, with activation checkpointing, with gradient caching, with both.

    python -m benchmarks.size --sentences 256 --micro-batches 8 --layers 4 --hidden 256

A step is SimCSE over two passes of sentences of 28 random tokens each, through RoBERTa's layers with dropout. First,
all variants are checked to give the same loss without dropout. Memory is the peak of what the step allocates, without
the weights and anything else from before: on CUDA according to the allocator, on a CPU by tracking the outputs of every
operation.
"""

import argparse
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import RobertaModel

from benchmarks.report import columns, command, finish, machine, option, timed
from benchmarks.synthetic import SPECIAL, config_of, setting, wait_for, weighted
from clearspan.train.data.batch import Batch, TokenLists
from clearspan.train.learner import Learner
from clearspan.train.model.attention import PACKED_ATTENTION
from clearspan.train.model.encoder import Encoder
from clearspan.train.objectives import simcse

VOCABULARY = 2048
"""Small, so that the gradient of the embeddings, which all variants have, stays small."""
TOKENS = 28
"""The mean length of a sentence of wiki1m."""


class Allocated(TorchDispatchMode):
    """Tracks the bytes of every storage that an operation inside it allocates, as long as the storage lives.

    Attributes:
        peak: the most bytes that were alive at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.current = self.peak = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = {id(each.untyped_storage()) for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)}
        output = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(output):
            if isinstance(tensor, Tensor) and id(tensor.untyped_storage()) not in inputs:
                self._add(tensor.untyped_storage())
        return output

    def _add(self, storage: torch.UntypedStorage) -> None:
        if id(storage) in self.known:
            return
        self.known.add(id(storage))
        self.current += storage.nbytes()
        self.peak = max(self.peak, self.current)
        weakref.finalize(storage, self._remove, id(storage), storage.nbytes())

    def _remove(self, storage: int, size: int) -> None:
        self.known.discard(storage)
        self.current -= size


def peak(work: Callable[[], Any], device: torch.device) -> int:
    """Return the peak of the bytes that some work allocates; see the module's docstring."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        return torch.cuda.max_memory_allocated() - before
    with Allocated() as allocated:
        work()
    return allocated.peak


def build(layers: int, hidden: int, checkpointing: bool) -> Learner:
    """Return SimCSE over a random encoder."""
    torch.manual_seed(0)
    config = config_of(layers, hidden, dropout=0.1, vocab_size=VOCABULARY)
    encoder = Encoder(RobertaModel._from_config(config, attn_implementation=PACKED_ATTENTION, add_pooling_layer=False))
    if checkpointing:
        encoder.checkpoint_activations()
    own = setting(encoder, "simcse", "text", vocab_size=VOCABULARY)
    return Learner(encoder, [weighted(simcse.SimCSE(simcse.Config(), own, ["tokens"]))], SPECIAL)


def batch_of(first: int, last: int, device: torch.device) -> dict[str, Batch]:
    """Return the batch of sentences `first` to `last`, which do not depend on how they are batched."""
    drawn = torch.randint(5, VOCABULARY, (last, TOKENS), generator=torch.Generator().manual_seed(0)).int()
    tokens = TokenLists(drawn[first:].flatten(), TOKENS * torch.arange(last - first + 1))
    ids = torch.arange(first, last)
    return {"text": Batch({"simcse/tokens": tokens}, ids, torch.zeros_like(ids)).to(device)}


def step(learner: Learner, sentences: int, micro_batches: int, device: torch.device) -> float:
    """Make a forward and backward pass, of one batch or with gradient caching of several; return the loss."""
    size = sentences // micro_batches
    batches = [batch_of(at, at + size, device) for at in range(0, sentences, size)]
    learner.zero_grad()
    if micro_batches == 1:
        loss, _ = learner(batches[0])
        loss.backward()
        return float(loss.detach())

    def seeded() -> Any:
        for number, batch in enumerate(batches):
            torch.manual_seed(number)
            yield batch

    losses = []
    for batch, cached in zip(seeded(), learner.cache(seeded()), strict=True):
        loss, _ = learner(batch, cached=cached)
        (loss / micro_batches).backward()
        losses.append(float(loss.detach()))
    return sum(losses) / micro_batches


def measure(sentences: int, micro_batches: int, layers: int, hidden: int) -> dict[str, dict[str, float]]:
    """Return for each variant the peak of a step in MiB, its seconds, and its loss without dropout."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    variants: dict[str, dict[str, float]] = {}
    for checkpointing in (False, True):
        learner = build(layers, hidden, checkpointing).to(device)
        for parts in (1, micro_batches):
            name = "plain" if parts == 1 else "gradient caching"
            if checkpointing:
                name = "activation checkpointing" if parts == 1 else "both"

            def work(learner: Learner = learner, parts: int = parts) -> float:
                return step(learner, sentences, parts, device)

            learner.eval()
            loss = work()
            learner.train()
            seconds, _ = timed(work, lambda: wait_for(device))
            variants[name] = {"peak_mib": peak(work, device) / 2**20, "seconds": seconds.clock, "loss": loss}
    return variants


def checked(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the result, after checking that all variants give the same loss."""
    options = {key: value for key, value in vars(arguments).items() if key != "output"}
    variants = measure(**options)
    losses = [figures["loss"] for figures in variants.values()]
    if max(losses) - min(losses) > 1e-4:
        raise SystemExit(f"benchmark: the variants give different losses: {losses}")
    return {"machine": machine(), "torch": torch.__version__, **options, "rows": variants}


def table(variants: dict[str, dict[str, float]]) -> str:
    """Return the text that is printed."""
    rows = [[name, f"{v['peak_mib']:,.1f}", f"{v['seconds']:.2f}", f"{v['loss']:.5f}"] for name, v in variants.items()]
    return columns(["", "peak MiB", "seconds", "loss"], rows)


def main() -> None:
    parser = command(__doc__, "size")
    option(parser, "sentences", 256, "sentences that are contrasted with each other")
    option(parser, "micro-batches", 8, "micro-batches of gradient caching")
    option(parser, "layers", 4, "layers of the encoder")
    option(parser, "hidden", 256, "hidden size of the encoder, with heads of 64")
    finish(parser, checked, lambda result: table(result["rows"]))


if __name__ == "__main__":
    main()
