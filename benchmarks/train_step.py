"""A whole training step of spans, packed, beside plain transformers with padding and sentence-transformers' trainer.

    python -m benchmarks.train_step
    python -m benchmarks.train_step --device cuda

One encoder, one draw of DeCLUTR's spans of 32 to 512 tokens of random documents, RoBERTa's layer with its dropout. A
step is forward, backward, clipping and AdamW; of ours, drawing, packing and masking too, which the others are spared.
DeepSpeed around ours is not in it, and on a CPU the trainer's use of the C library's memory is. Contenders, in one
process, in turn; ratios are medians of those of each round:

    packed         DeCLUTR's objectives (A = 2, P = 2, masked anchors): what the trainer does; on CUDA under a static
                   budget, its layers compiled, batches copied ahead from pinned memory
    padded         the same through transformers: anchors padded to their longest, with its own masked-LM head on all
                   their positions, which is its loss; positives padded to theirs; NT-Xent of the means; nothing to copy
    padded whole   that, and the head on the positives too, as DeCLUTR's published code calls transformers' model
    packed pairs   anchors and one positive each, NT-Xent alone
    trainer        the same pairs through sentence-transformers' own trainer (`benchmarks.peer_trainer`), unpadded where
                   flash-attn is installed. It needs the package datasets

That packed and padded give one loss is checked first, without dropout. Rates count real tokens only, and so does MFU,
of the layers' weights and of attention, without the masked-LM head.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
import transformers
from torch import Tensor, nn

from benchmarks import peer_trainer
from benchmarks.fresh import SPECIAL
from benchmarks.report import command, finish, machine
from benchmarks.span_step import Batches, budget, build, documents, moved, padded, padded_loss, plain
from clearspan.common.allocator import keep_tensors
from clearspan.train.data.ahead import copied_ahead
from clearspan.train.engine.optimization import adamw
from clearspan.train.engine.tracking import flops_per_token, layer_weights, peak_flops
from clearspan.train.learner import Learner
from clearspan.train.objectives import spans
from clearspan.train.options import ALL
from clearspan.train.schedules import OptimizerConfig

MAX_GRAD_NORM = 1.0
PAIRS = {"packed": ("padded", "padded whole"), "packed pairs": ("trainer",)}
"""Each of ours, and those it is set beside."""
DEFAULTS = {
    "cpu": {"layers": 4, "hidden": 256, "documents": 4, "batches": 1, "steps": 1, "precisions": ["fp32", "bf16"]},
    "cuda": {"layers": 12, "hidden": 768, "documents": 32, "batches": 4, "steps": 10, "precisions": ["bf16"]},
}
"""By device: on CUDA RoBERTa-base and a GPU's worth of documents."""


class Contender(Protocol):
    """A way to make a step."""

    @property
    def module(self) -> nn.Module:
        """What is trained."""

    def seconds(self, steps: int, bf16: bool) -> tuple[float, float]:
        """A step's, of the clock and of all processors, over so many."""


class Loop:
    """Steps in a bare loop: a loss, and an optimizer of its own. `ours`: with the host's memory kept, as in a run."""

    def __init__(self, module: nn.Module, loss: Callable[[], Tensor], device: torch.device, ours: bool = False) -> None:
        self.module, self.loss, self.device, self.ours = module.train(), loss, device, ours
        self.optimizer = adamw(list(module.parameters()), OptimizerConfig())

    def step(self, bf16: bool) -> None:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=bf16):
            loss = self.loss()
        loss.backward()
        nn.utils.clip_grad_norm_(self.module.parameters(), MAX_GRAD_NORM)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def seconds(self, steps: int, bf16: bool) -> tuple[float, float]:
        if self.ours:
            keep_tensors()
            self.step(bf16)  # which finds that memory
        wait(self.device)
        clock, processor = time.perf_counter(), time.process_time()
        for _ in range(steps):
            self.step(bf16)
        wait(self.device)
        taken = (time.perf_counter() - clock) / steps, (time.process_time() - processor) / steps
        keep_tensors(False)
        return taken


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def ahead(host: list[Batches], device: torch.device) -> Iterator[tuple[Batches, Any]]:
    """Micro-batches of the host on the device, in turn and without end, as the trainer copies them."""
    if device.type == "cuda":
        host = [{name: batch.pin() for name, batch in one.items()} for one in host]
    return copied_ahead(((one, {}) for one in itertools.cycle(host)), device)


def packed_loss(learner: Learner, batches: Iterator[tuple[Batches, Any]]) -> Callable[[], Tensor]:
    """That of a step that is not logged, of the next micro-batch."""
    return lambda: learner(next(batches)[0], measured=False)[0]


class Bench:
    """The contenders by name, and the padded inputs of each of ours.

    `note` says what became of sentence-transformers' trainer.
    """

    def __init__(self, layers: int, hidden: int, dropout: float, count: int, batches: int, device: str) -> None:
        self.device = where = torch.device(device)
        self.count, self.host = count, [documents(count, number) for number in range(batches)]
        self.learners = {name: build(layers, hidden, dropout, name == "packed pairs").to(where) for name in PAIRS}
        self.inputs = {
            name: [padded(learner, moved(one, where)) for one in self.host] for name, learner in self.learners.items()
        }
        temperature = spans.Config().temperature
        self.contenders: dict[str, Contender] = {
            "packed": self.packed("packed"),
            "padded": self.padded(temperature, whole=False),
            "padded whole": self.padded(temperature, whole=True),
            "packed pairs": self.packed("packed pairs"),
        }
        why = peer_trainer.why_not()
        self.note = f"sentence-transformers' trainer is not measured: {why}"
        if not why:
            self.contenders["trainer"] = self.trainer(temperature)

    def packed(self, name: str) -> Loop:
        """Ours, which draws from the host's micro-batches without end."""
        learner = self.learners[name]
        return Loop(learner, packed_loss(learner, ahead(self.host, self.device)), self.device, ours=True)

    def padded(self, temperature: float, whole: bool) -> Loop:
        """transformers' own model, on the same spans."""
        model, given = plain(self.learners["packed"]), itertools.cycle(self.inputs["packed"])
        return Loop(model, lambda: padded_loss(model, next(given), temperature, whole), self.device)

    def trainer(self, temperature: float) -> peer_trainer.PeerTrainer:
        learner = self.learners["packed pairs"]
        model = peer_trainer.sentence_transformer(plain(learner), SPECIAL.pad, self.device.type)
        pairs: list[Any] = [
            tuple({key: value.cpu() for key, value in one.items()} for one in (given.anchors, given.positives))
            for given in self.inputs["packed pairs"]
        ]
        unpads = peer_trainer.unpads(model)
        if unpads:
            first = learner.encoder.first_position
            pairs = [tuple(peer_trainer.flattened(model, one, first) for one in pair) for pair in pairs]
        why = "a CPU has none for it" if self.device.type == "cpu" else "flash-attn is not installed"
        self.note = f"sentence-transformers' unpadding: {'on' if unpads else f'off, {why}'}"
        optimizer = adamw(list(model.parameters()), OptimizerConfig())
        return peer_trainer.PeerTrainer(model, pairs, optimizer, temperature, MAX_GRAD_NORM, lambda: wait(self.device))

    @torch.no_grad()
    def check(self) -> None:
        """Without dropout, packed and padded give one loss of each micro-batch."""
        ours, other = self.learners["packed"].eval(), self.contenders["padded"].module.eval()
        for one, given in zip(self.host, self.inputs["packed"], strict=True):
            packed = ours(moved(one, self.device))[0].item()
            expected = padded_loss(other, given, spans.Config().temperature).item()
            if abs(packed - expected) > 1e-4 * expected:
                raise SystemExit(f"benchmark: packed gives a loss of {packed}, padded {expected}")
        ours.train(), other.train()

    def compile(self) -> None:
        """Gives ours a fixed shape, and one graph for the layers; what a budget cuts would be another step."""
        for learner in self.learners.values():
            learner.budgets = {ALL: budget(learner, self.count)}
            for one in self.host:
                metrics = learner(moved(one, self.device))[1]
                if metrics["tokens_cut"] or metrics.get("masks_cut", 0):
                    raise SystemExit("benchmark: a micro-batch overflows its budget: give --documents another number")
            learner.encoder.compile_static()

    def mfu(self, name: str, seconds: float) -> float | None:
        """The share of the device's peak that a step of so many seconds is, of real tokens."""
        peak, encoder = peak_flops(self.device), self.learners["packed"].encoder
        if not peak:
            return None
        tokens, sequences, _ = self.sizes(name)
        flops = flops_per_token(
            layer_weights(encoder), encoder.config.num_hidden_layers, encoder.dim, tokens / sequences
        )
        return flops * tokens / seconds / peak

    def sizes(self, name: str) -> tuple[float, float, float]:
        """(real tokens, sequences, padded rows) of a step, in the mean of the micro-batches."""
        given = self.inputs["packed" if name in ("packed", *PAIRS["packed"]) else "packed pairs"]
        return tuple(statistics.mean(getattr(one, key) for one in given) for key in ("tokens", "sequences", "rows"))

    def memory(self, name: str, bf16: bool) -> float | None:
        """GB that a step has allocated at most, beside weights, AdamW and the other contenders; of CUDA only."""
        if self.device.type != "cuda":
            return None
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        self.contenders[name].seconds(1, bf16)
        return (torch.cuda.max_memory_allocated() - before) / 1e9

    def row(self, name: str, found: list[tuple[float, float]], bf16: bool) -> dict[str, float | None]:
        """What is kept of a contender's rounds."""
        seconds, tokens = statistics.median(one[0] for one in found), self.sizes(name)[0]
        mfu, memory = self.mfu(name, seconds), self.memory(name, bf16)
        return {
            "seconds": round(seconds, 5),
            "tokens_per_s": round(tokens / seconds),
            "documents_per_s": round(self.count / seconds, 2),
            "mfu": mfu and round(mfu, 4),
            "memory_gb": memory and round(memory, 2),
        }


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    options = {key: getattr(arguments, key) for key in ("dropout", "rounds")}
    for key, value in DEFAULTS[arguments.device].items():
        given = getattr(arguments, key)
        options[key] = value if given is None else given
    shape = (options[key] for key in ("layers", "hidden", "dropout", "documents", "batches"))
    bench = Bench(*shape, arguments.device)
    bench.check()
    if arguments.device == "cuda":
        bench.compile()
    result: dict[str, Any] = {
        "machine": machine(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if arguments.device == "cuda" else arguments.device,
        **options,
        "note": bench.note,
        "inputs": {
            ours: dict(zip(("tokens", "sequences", "padded_rows"), bench.sizes(ours), strict=True)) for ours in PAIRS
        },
        "precisions": {},
    }
    for precision in options["precisions"]:
        bf16, steps = precision == "bf16", options["steps"]
        for one in bench.contenders.values():
            one.seconds(options["batches"], bf16)  # the first of each shape makes what later ones have
        rounds = [
            {name: one.seconds(steps, bf16) for name, one in bench.contenders.items()} for _ in range(options["rounds"])
        ]
        rows = {name: bench.row(name, [one[name] for one in rounds], bf16) for name in bench.contenders}
        times = {
            f"{ours} / {peer}": {
                what: round(statistics.median(one[peer][at] / one[ours][at] for one in rounds), 2)
                for at, what in enumerate(("times", "times_by_processor"))
            }
            for ours, peers in PAIRS.items()
            for peer in peers
            if peer in bench.contenders
        }
        result["precisions"][precision] = {"rows": rows, "times": times}
    return result


def table(result: dict[str, Any]) -> str:
    """What is printed."""
    threads = "" if result["device"] != "cpu" else f", {result['threads']} threads, {result['machine']['cpu']}"
    lines = [
        f"{result['device']}{threads}; {result['layers']} layers of {result['hidden']}, {result['documents']} "
        f"documents; medians of {result['rounds']} rounds of {result['steps']}",
        result["note"],
    ]
    for name, sizes in result["inputs"].items():
        lines.append(f"{name}: {sizes['tokens']:,.0f} tokens, {sizes['padded_rows']:,.0f} rows if padded")
    header = f"{'seconds':>9} {'tokens/s':>11} {'documents/s':>12} {'MFU':>7} {'GB':>7}"
    for precision, found in result["precisions"].items():
        lines += ["", f"{precision:<22} {header}"]
        for name, row in found["rows"].items():
            mfu = "" if row["mfu"] is None else f"{row['mfu']:.1%}"
            memory = "" if row["memory_gb"] is None else f"{row['memory_gb']:.1f}"
            lines.append(
                f"{name:<22} {row['seconds']:>9.4f} {row['tokens_per_s']:>11,} {row['documents_per_s']:>12,.1f} "
                f"{mfu:>7} {memory:>7}"
            )
        for pair, times in found["times"].items():
            lines.append(f"{pair:<22} {times['times']:>8.2f}x   by processor {times['times_by_processor']:.2f}x")
    return "\n".join(lines)


def main() -> None:
    parser = command(__doc__, "train_step")
    parser.add_argument("--device", default="cpu", choices=list(DEFAULTS))
    for name, what in (
        ("layers", "of the encoder"),
        ("hidden", "heads are of 64"),
        ("documents", "of a step"),
        ("batches", "different steps"),
        ("steps", "of a round"),
    ):
        told = ", ".join(f"{one[name]} on {device}" for device, one in DEFAULTS.items())
        parser.add_argument(f"--{name}", type=int, metavar="N", help=f"{what} (default {told})")
    parser.add_argument("--dropout", type=float, default=0.1, metavar="P", help="default 0.1")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="default 5")
    parser.add_argument("--precisions", nargs="+", choices=("fp32", "bf16"), help="default: both, on cuda bf16")
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
