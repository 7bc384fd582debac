"""Peak memory of a contrastive step: plain, with activation checkpointing, with gradient caching, with both.

    python -m benchmarks.size --sentences 256 --micro-batches 8 --layers 4 --hidden 256

A step is SimCSE over pairs of passes of 28 tokens each, ids random, RoBERTa's layers with their dropout. All ways are
checked to give one loss first, without dropout. Memory is the most that the step has allocated at once beside the
weights and what was there before it: on CUDA by its allocator, on a CPU by a look at the outputs of every operation.
"""

import time
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import RobertaModel

from benchmarks.fresh import SPECIAL, config_of
from benchmarks.report import command, machine, tell
from clearspan.train.data.batch import Batch, TokenLists
from clearspan.train.learner import Learner
from clearspan.train.model.attention import PACKED_ATTENTION
from clearspan.train.model.encoder import Encoder
from clearspan.train.objectives import Setting, simcse

VOCABULARY = 2048
"""Few: the gradient of the embeddings, which every way has, hides nothing."""
TOKENS = 28
"""Of a sentence, in the mean of wiki1m."""


class Allocated(TorchDispatchMode):
    """Counts the bytes of every storage that an operation makes within it, as long as it lives.

    Attributes:
        most: how many were alive at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {id(one.untyped_storage()) for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)}
        made = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor) and id(tensor.untyped_storage()) not in given:
                self._add(tensor.untyped_storage())
        return made

    def _add(self, storage: torch.UntypedStorage) -> None:
        if id(storage) in self.known:
            return
        self.known.add(id(storage))
        self.now += storage.nbytes()
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._gone, id(storage), storage.nbytes())

    def _gone(self, storage: int, size: int) -> None:
        self.known.discard(storage)
        self.now -= size


def peak(work: Callable[[], Any], device: torch.device) -> int:
    """Bytes: see the module's docstring."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        return torch.cuda.max_memory_allocated() - before
    with Allocated() as allocated:
        work()
    return allocated.most


def build(layers: int, hidden: int, checkpointing: bool) -> Learner:
    """SimCSE over a fresh encoder."""
    torch.manual_seed(0)
    config = config_of(layers, hidden, dropout=0.1, vocab_size=VOCABULARY)
    encoder = Encoder(RobertaModel._from_config(config, attn_implementation=PACKED_ATTENTION, add_pooling_layer=False))
    if checkpointing:
        encoder.checkpoint_activations()
    dataset: Any = SimpleNamespace(manifest=SimpleNamespace(lengths={}))
    setting = Setting("simcse", "text", 0, encoder.max_tokens - 2, VOCABULARY, hidden, SPECIAL, dataset)
    objective = simcse.SimCSE(simcse.Config(), setting, ["tokens"])
    objective.name, objective.data, objective.weight = "simcse", "text", 1.0
    return Learner(encoder, [objective], SPECIAL)


def batch_of(first: int, last: int, device: torch.device) -> dict[str, Batch]:
    """Those of the sentences, which are the same however they are cut."""
    drawn = torch.randint(5, VOCABULARY, (last, TOKENS), generator=torch.Generator().manual_seed(0)).int()
    tokens = TokenLists(drawn[first:].flatten(), TOKENS * torch.arange(last - first + 1))
    ids = torch.arange(first, last)
    return {"text": Batch({"simcse/tokens": tokens}, ids, torch.zeros_like(ids)).to(device)}


def step(learner: Learner, sentences: int, micro_batches: int, device: torch.device) -> float:
    """A forward and a backward, in one batch or by gradient caching in several; the loss."""
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
    """By way: the peak of a step in MiB, its seconds, and its loss without dropout."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found: dict[str, dict[str, float]] = {}
    for checkpointing in (False, True):
        learner = build(layers, hidden, checkpointing).to(device)
        for parts in (1, micro_batches):
            way = "plain" if parts == 1 else "gradient caching"
            if checkpointing:
                way = "activation checkpointing" if parts == 1 else "both"
            without = step(learner.eval(), sentences, parts, device)
            learner.train()
            clock = time.perf_counter()
            step(learner, sentences, parts, device)
            seconds = time.perf_counter() - clock
            bytes_ = peak(lambda parts=parts, learner=learner: step(learner, sentences, parts, device), device)
            found[way] = {"peak_mib": bytes_ / 2**20, "seconds": seconds, "loss": without}
    return found


def table(ways: dict[str, dict[str, float]]) -> str:
    """What is printed."""
    header = f"{'':<26} {'peak MiB':>9} {'seconds':>8} {'loss':>9}"
    lines = [f"{way:<26} {v['peak_mib']:>9,.1f} {v['seconds']:>8.2f} {v['loss']:>9.5f}" for way, v in ways.items()]
    return "\n".join([header, *lines])


def main() -> None:
    parser = command(__doc__, "size")
    for name, value in (("sentences", 256), ("micro-batches", 8), ("layers", 4), ("hidden", 256)):
        parser.add_argument(f"--{name}", type=int, default=value)
    arguments = parser.parse_args()
    options = {key: value for key, value in vars(arguments).items() if key != "output"}
    ways = measure(**options)
    losses = [one["loss"] for one in ways.values()]
    if max(losses) - min(losses) > 1e-4:
        raise SystemExit(f"benchmark: the ways give other losses: {losses}")
    result = {"machine": machine(), "torch": torch.__version__, **options, "rows": ways}
    tell(result, lambda found: table(found["rows"]), arguments.output)


if __name__ == "__main__":
    main()
