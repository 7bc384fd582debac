"""A training step of DeCLUTR, packed, beside plain transformers with padding and sentence-transformers' trainer.

    python -m benchmarks.train_step
    python -m benchmarks.train_step --device cuda

All contenders share one encoder (RoBERTa's layers, with dropout) and one draw of DeCLUTR's spans of 32 to 512 tokens
from random documents. A step is forward pass, backward pass, clipping and AdamW; ours includes sampling, packing and
masking, which the others have done beforehand. DeepSpeed is left out; on a CPU the trainer's allocator settings are
included. The contenders take turns in one process, and ratios are medians over rounds:

    packed         DeCLUTR's objectives (A = 2, P = 2, masked anchors), as in the trainer; on CUDA with a static budget,
                   compiled layers, and batches copied ahead from pinned memory
    padded         the same with transformers: anchors padded to the longest, with its own masked-LM head and loss on
                   all their positions; padded positives; NT-Xent of the means; nothing to copy
    padded whole   that, with the head on the positives too, as DeCLUTR's published code calls transformers' model
    packed pairs   anchors and one positive each, NT-Xent only
    trainer        the same pairs in sentence-transformers' own trainer (`benchmarks.peer_trainer`), unpadded if
                   flash-attn is installed; needs the package datasets

First, packed and padded are checked to give the same loss without dropout. Rates count real tokens only, and so does
MFU, which covers the layers' weights and attention but not the masked-LM head.
"""

import argparse
import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from benchmarks import peer_trainer
from benchmarks.report import (
    Seconds,
    alternating,
    command,
    finish,
    machine,
    median_ratio,
    option,
    resolved_precisions,
    tabulated,
    timed,
)
from benchmarks.span_step import Batches, Padded, budget, build, documents, moved, padded, padded_loss, plain
from benchmarks.synthetic import SPECIAL, wait_for
from clearspan.common.allocator import keep_tensors
from clearspan.train.config.optimizer import OptimizerConfig
from clearspan.train.config.options import ALL
from clearspan.train.data.ahead import copied_ahead
from clearspan.train.engine.optimization import build_optimizer
from clearspan.train.engine.tracking import flops_per_token, peak_flops
from clearspan.train.objectives import spans
from clearspan.train.step.learner import Learner

MAX_GRAD_NORM = 1.0
GIB = 1 << 30
PAIRS = {"packed": ("padded", "padded whole"), "packed pairs": ("trainer",)}
"""Our contenders, and the peers that each is compared with."""
SIZES = {
    "cpu": {"layers": 4, "hidden": 256, "documents": 4, "batches": 1, "steps": 1},
    "cuda": {"layers": 12, "hidden": 768, "documents": 32, "batches": 4, "steps": 10},
}
"""By device: layers and hidden size of the encoder, documents of a step, different micro-batches, steps of a round. On
CUDA it is RoBERTa-base with enough documents for a GPU."""
PRECISIONS = {"cpu": ["fp32", "auto"], "cuda": ["auto"]}
DROPOUT = 0.1
CHECKED = 4
"""Documents whose loss is compared: fp32 takes several times the memory of a step."""


class Loop:
    """A bare training loop with its own optimizer.

    Args:
        ours: whether to reuse freed host memory, as the trainer does.
    """

    def __init__(self, module: nn.Module, loss: Callable[[], Tensor], device: torch.device, ours: bool = False) -> None:
        self.module, self.loss, self.device, self.ours = module.train(), loss, device, ours
        self.optimizer = build_optimizer(list(module.parameters()), OptimizerConfig())

    def parameters(self) -> Iterator[nn.Parameter]:
        return self.module.parameters()

    def step(self, bf16: bool) -> None:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=bf16):
            loss = self.loss()
        loss.backward()
        nn.utils.clip_grad_norm_(self.module.parameters(), MAX_GRAD_NORM)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def seconds(self, steps: int, bf16: bool) -> Seconds:
        if self.ours:
            keep_tensors()
            self.step(bf16)  # allocates the memory that later steps reuse
        total, _ = timed(lambda: [self.step(bf16) for _ in range(steps)], lambda: wait_for(self.device))
        keep_tensors(False)
        return Seconds(total.clock / steps, total.processor / steps)


def ahead(host: list[Batches], device: torch.device) -> Iterator[tuple[Batches, Any]]:
    """Yield the host's micro-batches on the device, in turn and without end, copied as the trainer copies them."""
    if device.type == "cuda":
        host = [{name: batch.pin() for name, batch in batches.items()} for batches in host]
    return copied_ahead(((batches, {}) for batches in itertools.cycle(host)), device)


def packed_loss(learner: Learner, batches: Iterator[tuple[Batches, Any]]) -> Callable[[], Tensor]:
    """Return a function that computes the loss of the next micro-batch, as in a step that is not logged."""
    return lambda: learner(next(batches)[0], measured=False)[0]


class Bench:
    """The contenders by name, and the padded inputs of each of ours.

    Attributes:
        note: how sentence-transformers' trainer runs, or why it does not.
        peaks: the largest GPU memory of a step by contender, bytes: its weights, gradients, AdamW's state and
            activations. infinite if there was not enough.
    """

    def __init__(self, sizes: Mapping[str, int], device: str, dropout: float = DROPOUT) -> None:
        self.device, self.count, self.steps = torch.device(device), sizes["documents"], sizes["steps"]
        self.host = [documents(self.count, number) for number in range(sizes["batches"])]
        self.learners: dict[str, Learner] = {}
        self.inputs: dict[str, list[Padded]] = {}
        for name in PAIRS:
            learner = self.learners[name] = build(sizes["layers"], sizes["hidden"], dropout, name == "packed pairs")
            learner.to(self.device)
            self.inputs[name] = [padded(learner, moved(each, self.device)) for each in self.host]
        temperature = spans.SpansConfig().temperature
        self.contenders: dict[str, Loop | peer_trainer.PeerTrainer] = {
            "packed": self.packed("packed"),
            "padded": self.padded(temperature, whole=False),
            "padded whole": self.padded(temperature, whole=True),
            "packed pairs": self.packed("packed pairs"),
        }
        reason = peer_trainer.why_not()
        self.note = f"sentence-transformers' trainer is not measured: {reason}"
        self.peaks: dict[str, float] = {}
        if not reason:
            self.contenders["trainer"] = self.trainer(temperature)

    def packed(self, name: str) -> Loop:
        """Return one of our contenders, over the host's micro-batches."""
        learner = self.learners[name]
        return Loop(learner, packed_loss(learner, ahead(self.host, self.device)), self.device, ours=True)

    def padded(self, temperature: float, whole: bool) -> Loop:
        """Return transformers' own model over the same spans."""
        model, inputs = plain(self.learners["packed"]), itertools.cycle(self.inputs["packed"])
        return Loop(model, lambda: padded_loss(model, next(inputs), temperature, whole), self.device)

    def trainer(self, temperature: float) -> peer_trainer.PeerTrainer:
        learner = self.learners["packed pairs"]
        model = peer_trainer.sentence_transformer(plain(learner), SPECIAL.pad, self.device.type)
        pairs: list[Any] = [
            tuple({key: value.cpu() for key, value in side.items()} for side in (inputs.anchors, inputs.positives))
            for inputs in self.inputs["packed pairs"]
        ]
        unpads = peer_trainer.unpads(model)
        if unpads:
            first = learner.encoder.first_position
            pairs = [tuple(peer_trainer.flattened(model, side, first) for side in pair) for pair in pairs]
        reason = "it does not exist for a CPU" if self.device.type == "cpu" else "flash-attn is not installed"
        self.note = f"sentence-transformers' unpadding: {'on' if unpads else f'off, {reason}'}"
        optimizer, wait = build_optimizer(list(model.parameters()), OptimizerConfig()), lambda: wait_for(self.device)
        return peer_trainer.PeerTrainer(model, pairs, optimizer, temperature, MAX_GRAD_NORM, wait)

    @torch.no_grad()
    def check(self) -> None:
        """Check that packed and padded give the same loss in fp32 for a few documents, without dropout."""
        ours, peer = self.learners["packed"].eval(), self.contenders["padded"].module.eval()
        for number in range(len(self.host)):
            batches = moved(documents(min(self.count, CHECKED), number), self.device)
            packed = ours(batches)[0].item()
            expected = padded_loss(peer, padded(ours, batches), spans.SpansConfig().temperature).item()
            if abs(packed - expected) > 1e-4 * expected:
                raise SystemExit(f"benchmark: packed gives a loss of {packed}, padded {expected}")
        ours.train(), peer.train()

    def compile(self) -> None:
        """Give ours a fixed shape and compile its layers; refuse a shape that would cut tokens."""
        for learner in self.learners.values():
            learner.budgets = {ALL: budget(learner, self.count)}
            for batches in self.host:
                counts = learner.prepare(moved(batches, self.device)).counts()  # without a forward
                if counts["tokens_cut"] or counts.get("masks_cut", 0):
                    raise SystemExit("benchmark: a micro-batch overflows its budget: set --documents to another number")
            learner.encoder.compile_static()

    def mfu(self, name: str, seconds: float) -> float | None:
        """Return the share of the device's peak FLOP/s that a step attains with real tokens."""
        peak = peak_flops(self.device)
        if not peak:
            return None
        tokens, sequences, _ = self.sizes(name)
        return flops_per_token(self.learners["packed"], tokens / sequences) * tokens / seconds / peak

    def sizes(self, name: str) -> tuple[float, ...]:
        """Return the mean (real tokens, sequences, padded rows) of a step."""
        inputs = self.inputs["packed" if name in ("packed", *PAIRS["packed"]) else "packed pairs"]
        return tuple(statistics.mean(getattr(each, key) for each in inputs) for key in ("tokens", "sequences", "rows"))

    def row(self, name: str, rounds: list[Seconds]) -> dict[str, float | None]:
        """Return the figures of a contender."""
        seconds, tokens = statistics.median(each.clock for each in rounds), self.sizes(name)[0]
        peak = self.peaks[name] / GIB if name in self.peaks else None
        return {"seconds": seconds, "tokens_per_s": tokens / seconds, "mfu": self.mfu(name, seconds), "peak_gib": peak}

    def warm_up(self, bf16: bool) -> None:
        """Run each contender once on every micro-batch, and measure its memory; leave out a peer for which the GPU has
        too little.
        """
        for name, contender in list(self.contenders.items()):
            before = 0
            if self.device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated() - sum(p.nbytes for p in contender.parameters())
            try:
                contender.seconds(len(self.host), bf16)
            except torch.OutOfMemoryError:
                if name in PAIRS:
                    raise
                self.peaks[name] = math.inf
                self.note += f"; {name}: out of memory"
                del self.contenders[name], contender
                torch.cuda.empty_cache()
                continue
            if self.device.type == "cuda":
                self.peaks.setdefault(name, torch.cuda.max_memory_allocated() - before)

    def measure(self, num_rounds: int, bf16: bool) -> dict[str, Any]:
        """Return the figures of all contenders, and the ratios of each peer's time to ours, in one precision."""
        self.warm_up(bf16)
        rounds = alternating(
            {name: lambda each=each: each.seconds(self.steps, bf16) for name, each in self.contenders.items()},
            num_rounds,
        )
        rows = {name: self.row(name, results) for name, results in rounds.items()}
        times = {
            f"{ours} / {peer}": {
                key: median_ratio(*((each[at] for each in rounds[name]) for name in (peer, ours)))
                for at, key in enumerate(("times", "times_by_processor"))
            }
            for ours, peers in PAIRS.items()
            for peer in peers
            if peer in rounds
        }
        return {"rows": rows, "times": times}


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    device = arguments.device
    sizes = {**SIZES[device], **({"documents": arguments.documents} if arguments.documents else {})}
    bench = Bench(sizes, device)
    bench.check()
    if device == "cuda":
        bench.compile()
    precisions = {
        precision: bench.measure(arguments.rounds, precision == "bf16")
        for precision in resolved_precisions(PRECISIONS[device], device)
    }
    return {
        "machine": machine(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        **sizes,
        "dropout": DROPOUT,
        "rounds": arguments.rounds,
        "inputs": {
            ours: dict(zip(("tokens", "sequences", "padded_rows"), bench.sizes(ours), strict=True)) for ours in PAIRS
        },
        "note": bench.note,
        "precisions": precisions,
    }


def table(result: dict[str, Any]) -> str:
    """Return the text that is printed."""
    threads = "" if result["device"] != "cpu" else f", {result['threads']} threads, {result['machine']['cpu']}"
    lines = [
        f"{result['device']}{threads}; {result['layers']} layers of {result['hidden']}, {result['documents']} "
        f"documents; medians of {result['rounds']} rounds of {result['steps']}",
        result["note"],
    ]
    for name, sizes in result["inputs"].items():
        lines.append(f"{name}: {sizes['tokens']:,.0f} tokens, {sizes['padded_rows']:,.0f} rows if padded")
    for precision, measured in result["precisions"].items():
        figures = {"seconds": ("seconds", ".4f"), "tokens/s": ("tokens_per_s", ",.0f"), "MFU": ("mfu", ".1%")}
        figures |= {"peak GiB": ("peak_gib", ".1f")} if result["device"] != "cpu" else {}
        lines += ["", tabulated(precision, measured["rows"], figures)]
        for pair, times in measured["times"].items():
            lines.append(f"{pair}: {times['times']:.2f}x, by processor time {times['times_by_processor']:.2f}x")
    return "\n".join(lines)


def main() -> None:
    parser = command(__doc__, "train_step")
    parser.add_argument("--device", default="cpu", choices=list(SIZES))
    parser.add_argument("--documents", type=int, metavar="N", help="documents a step (default 4 on cpu, 32 on cuda)")
    option(parser, "rounds", 5, "rounds")
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
