"""The time of a training step on 1 to 256 GPUs, on paper; the same formulas checked on two gloo ranks of this machine.

    python -m benchmarks.scaling                      # the tables, from the constants; then the check, half a minute
    python -m benchmarks.scaling --efficiency 0.45 --network 12.5 --no-check

    step = max(compute + contrast + gather + reduce, loader)

    compute   the encoder's forward and backward of a rank's own documents, at a share of the device's peak
    contrast  the similarities of a rank's vectors with those of all ranks: three products of fp32
    gather    their all-gather, and its like in the backward; N - 1 messages each
    reduce    one all-reduce of all gradients in fp32, which ZeRO stage 0 does after the backward, not beside it
    loader    a rank's documents from shards to the device; it runs ahead, and counts only where it takes longest

The model is DeCLUTR's: RoBERTa-base, two anchors and two positives a document. Every constant says where it comes from;
no GPU was measured for this. The check measures this machine's speed of messages of other sizes, and of the compute of
the slower rank without messages, and predicts from them what a whole step of a tiny model on two ranks takes.
"""

import dataclasses
import functools
import math
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F

from benchmarks.report import command, machine, tell
from clearspan.train.engine.tracking import PEAK_FLOPS, flops_per_token
from clearspan.train.span_sampler import SpanConfig

RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
NODE = 8
TERMS = ("compute", "contrast", "gather", "reduce", "loader")
LAYERS, DIM, INNER, VOCABULARY = 12, 768, 3072, 50265
LAYER_WEIGHTS = LAYERS * (4 * DIM * (DIM + 1) + 2 * DIM * INNER + INNER + DIM + 4 * DIM)
WEIGHTS = LAYER_WEIGHTS + (VOCABULARY + 514 + 1 + 2) * DIM + DIM * (DIM + 1) + 2 * DIM + VOCABULARY
SPECIAL = 2


@dataclasses.dataclass(frozen=True)
class Constants:
    """What the formulas stand on; `SOURCES` says where each comes from."""

    peak: float = PEAK_FLOPS["H100"]
    efficiency: float = 0.35
    fp32: float = 67e12
    link: float = 450e9
    network: float = 50e9
    attained: float = 0.8
    latency: float = 5e-6
    network_latency: float = 15e-6
    loader: float = 7100.0


SOURCES = {
    "peak": "FLOP/s of bf16, dense: NVIDIA's data sheet of the H100 SXM",
    "efficiency": "share of it that real tokens attain (MFU): the goal set for the trainer; an assumption",
    "fp32": "FLOP/s of fp32 outside tensor cores: the same data sheet",
    "link": "bytes/s of a GPU to the others of its machine, one way: NVLink 4, the same data sheet",
    "network": "bytes/s of a GPU to other machines, one way: a port of 400 Gbit/s each, NDR InfiniBand's data sheet",
    "attained": "share of those that collectives attain; an assumption",
    "latency": "s a message within a machine; an assumption",
    "network_latency": "s a message between machines; an assumption",
    "loader": "documents/s of one thread, 64 a step, span sampling and packing on the CPU included, as measured by "
    "python -m benchmarks.loader; a GPU samples and packs itself, so that its loader does less",
}


def document() -> tuple[int, float]:
    """(sequences, tokens on average with special tokens) that a document gives."""
    sampler = SpanConfig()
    sequences = sampler.num_anchors * (1 + sampler.num_positives)
    return sequences, sampler.length_moments()[0] + SPECIAL * sequences


def seconds_of_messages(ranks: int, sent: float, messages: float, constants: Constants) -> float:
    """A collective in which each rank sends so many bytes in so many messages, one after the other."""
    within = ranks <= NODE
    rate = constants.link if within else min(constants.link, constants.network * NODE)
    latency = constants.latency if within else constants.network_latency
    return messages * latency + sent / (rate * constants.attained)


def terms(ranks: int, documents: float, constants: Constants) -> dict[str, float]:
    """The seconds of each term of a step, with so many documents a rank.

    Between machines a ring crosses each machine's edge once, over all of its ports: `NODE` times a GPU's own.
    """
    sequences, tokens = document()
    each = flops_per_token(LAYER_WEIGHTS, LAYERS, DIM, tokens / sequences)
    pairs = documents * SpanConfig().num_anchors
    points = 2 * pairs
    alone = ranks == 1
    vectors = 4.0 * points * DIM
    gathered = seconds_of_messages(ranks, (ranks - 1) * vectors, ranks - 1, constants)
    share = 2 * (ranks - 1) / ranks
    reduced = seconds_of_messages(ranks, share * 4.0 * WEIGHTS, 2 * math.ceil(math.log2(ranks)), constants)
    return {
        "compute": documents * tokens * each / (constants.peak * constants.efficiency),
        "contrast": 3 * 2.0 * points * points * ranks * DIM / constants.fp32,
        "gather": 0.0 if alone else 2 * gathered,
        "reduce": 0.0 if alone else reduced,
        "loader": documents / constants.loader,
    }


def step(found: dict[str, float]) -> float:
    """A step's seconds of its terms'."""
    return max(sum(value for name, value in found.items() if name != "loader"), found["loader"])


def largest(found: dict[str, float]) -> str:
    """The term that a step waits for most."""
    if found["loader"] >= step(found):
        return "loader"
    return max((name for name in TERMS if name != "loader"), key=lambda name: found[name])


def table(title: str, documents: Callable[[int], float], constants: Constants) -> str:
    """A row a number of GPUs, which have so many documents each."""
    lines = [title, f"{'GPUs':>6}{'documents':>11}" + "".join(f"{name + ' ms':>13}" for name in TERMS)]
    lines[1] += f"{'step ms':>10}{'documents/s':>13}{'of linear':>11}  most"
    single = documents(1) / step(terms(1, documents(1), constants))
    for ranks in RANKS:
        found = terms(ranks, documents(ranks), constants)
        total, speed = step(found), ranks * documents(ranks) / step(found)
        cells = "".join(f"{1000 * found[name]:>13.2f}" for name in TERMS)
        row = f"{ranks:>6}{documents(ranks):>11,.0f}{cells}{1000 * total:>10.1f}{speed:>13,.0f}"
        lines.append(f"{row}{speed / single / ranks:>10.0%}   {largest(found)}")
    return "\n".join(lines)


def even(name: str, ranks: int, constants: Constants) -> float:
    """The documents a GPU at which a term takes as long as the compute: with fewer it takes longer. inf: always."""
    low, high = 1e-3, 1e7

    def over(documents: float) -> bool:
        found = terms(ranks, documents, constants)
        return found[name] > found["compute"]

    if over(high):
        return math.inf
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if over(middle) else (low, middle)
    return high


def overtaken(name: str, other: str, documents: float, constants: Constants) -> int | None:
    """The fewest GPUs, in powers of two, at which one term takes longer than another; None: up to a million none."""
    for power in range(1, 21):
        found = terms(1 << power, documents, constants)
        if found[name] > found[other]:
            return 1 << power
    return None


def points(documents: float, constants: Constants) -> list[str]:
    """Where each term begins to matter, a line each."""
    said = [
        f"reduce takes as long as compute below {even('reduce', ranks, constants):.1f} documents a GPU on {ranks} GPUs"
        for ranks in (8, 16, 256)
    ]
    for name, other in (("gather", "reduce"), ("contrast", "reduce"), ("gather", "compute"), ("contrast", "compute")):
        at = overtaken(name, other, documents, constants)
        where = f"from {at:,} GPUs on" if at else "on no number of GPUs up to a million"
        said.append(f"{name} takes longer than {other}, with {documents:,.0f} documents a GPU, {where}")
    found = terms(1, documents, constants)
    return [*said, f"the loader is waited for below {documents / found['compute']:,.0f} documents/s a GPU"]


# The check: two ranks of this machine.

TINY = {"layers": 2, "dim": 128, "vocabulary": 32768, "pairs": 4, "tokens": 16}
"""Few tokens and many embeddings, so that messages are a good part of the step."""
PROBES = (1 << 12, 1 << 16, 1 << 20, 1 << 22, 1 << 24)
"""Bytes of the messages that the speed is found with; none is of a size that the step sends."""


def medians(rounds: int, *works: Callable[[], Any]) -> list[float]:
    """The seconds of each piece of work, in turn, so that what else the machine does meets all of them; the ranks begin
    each at once.
    """
    found: list[list[float]] = [[] for _ in works]
    for number in range(rounds + 2):
        for work, seconds in zip(works, found, strict=True):
            dist.barrier()
            begun = time.perf_counter()
            work()
            if number > 1:
                seconds.append(time.perf_counter() - begun)
    return [statistics.median(seconds) for seconds in found]


def fitted(sizes: list[float], seconds: list[float]) -> tuple[float, float]:
    """(latency, bytes/s) of seconds = latency + bytes / rate: least squares of relative errors, none negative."""
    weights = torch.tensor(seconds, dtype=torch.float64)
    rows = torch.stack([1 / weights, torch.tensor(sizes, dtype=torch.float64) / weights], dim=1)
    latency, slope = torch.linalg.lstsq(rows, torch.ones(len(sizes), 1, dtype=torch.float64)).solution[:, 0].tolist()
    return max(0.0, latency), 1 / max(slope, 1e-15)


def tiny() -> tuple[Any, Any]:
    """(encoder, packed batch) of the check: pairs of sequences of random tokens."""
    from transformers import RobertaConfig, RobertaModel

    from clearspan.train.model.attention import PACKED_ATTENTION
    from clearspan.train.model.encoder import Encoder
    from clearspan.train.model.packing import pack_ids

    torch.manual_seed(0)
    config = RobertaConfig(
        vocab_size=TINY["vocabulary"],
        hidden_size=TINY["dim"],
        num_hidden_layers=TINY["layers"],
        num_attention_heads=2,
        intermediate_size=4 * TINY["dim"],
        max_position_embeddings=130,
    )
    model = RobertaModel._from_config(config, attn_implementation=PACKED_ATTENTION, add_pooling_layer=False)
    ids = torch.randint(5, TINY["vocabulary"], (2 * TINY["pairs"], TINY["tokens"])).tolist()
    return Encoder(model), pack_ids(ids)


def own_contrast(anchors: Any, positives: Any, temperature: float) -> Any:
    """What `nt_xent` asks of a rank with no others."""
    vectors = F.normalize(torch.cat([anchors, positives]), dim=1)
    logits = (vectors @ vectors.T / temperature).fill_diagonal_(-torch.inf)
    return F.cross_entropy(logits, torch.arange(len(vectors)).roll(len(anchors)))


def check_rank(rank: int, ranks: int, folder: str, rounds: int) -> None:
    """Measures one rank's part; the first keeps it."""
    from clearspan.train.losses import nt_xent

    warnings.filterwarnings("ignore", category=FutureWarning)
    torch.set_num_threads(1)
    encoder, packed = tiny()
    parameters = list(encoder.parameters())

    def gradients(contrast: Callable[..., Any]) -> torch.Tensor:
        encoder.zero_grad()
        anchors, positives = encoder.pool(encoder(packed), packed).split(TINY["pairs"])
        contrast(anchors, positives, 0.05).backward()
        return torch.cat([parameter.grad.flatten() for parameter in parameters if parameter.grad is not None])

    def alone() -> None:
        gradients(own_contrast)
        dist.barrier()  # a step takes as long as the slowest rank's

    def whole() -> None:
        dist.all_reduce(gradients(nt_xent))

    dist.init_process_group("gloo", f"file://{folder}/group", rank=rank, world_size=ranks)
    buffers = [torch.zeros(size // 4) for size in PROBES]
    into = [[torch.empty_like(buffer) for _ in range(ranks)] for buffer in buffers]
    compute, total, *messages = medians(
        rounds,
        alone,
        whole,
        *(functools.partial(dist.all_reduce, buffer) for buffer in buffers),
        *(functools.partial(dist.all_gather, *pair) for pair in zip(into, buffers, strict=True)),
    )
    size = 4.0 * sum(parameter.numel() for parameter in parameters if parameter.grad is not None)
    reduces, gathers = messages[: len(PROBES)], messages[len(PROBES) :]
    if rank == 0:
        result = {"compute": compute, "reduces": reduces, "gathers": gathers, "whole": total, "bytes": size}
        torch.save(result, Path(folder) / "result.pt")
    dist.barrier()
    os._exit(0)  # gloo's threads now and then abort an interpreter that shuts down


def check(rounds: int, ranks: int = 2) -> dict[str, Any]:
    """What a step on gloo ranks was predicted to take, and took."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(check_rank, (ranks, folder, rounds), nprocs=ranks)
        found = torch.load(Path(folder) / "result.pt", weights_only=True)
    sizes = [float(size) for size in PROBES]
    (reduce_latency, reduce_rate), (gather_latency, gather_rate) = (
        fitted(sizes, found[name]) for name in ("reduces", "gathers")
    )
    vectors = 4.0 * TINY["pairs"] * TINY["dim"]  # of the anchors, and as many of the positives
    predicted = {
        "compute": found["compute"],
        "gather": 2 * 2 * (gather_latency + vectors / gather_rate),
        "reduce": reduce_latency + found["bytes"] / reduce_rate,
    }
    total = sum(predicted.values())
    return {
        "ranks": ranks,
        "predicted": predicted,
        "predicted_step": total,
        "measured_step": found["whole"],
        "error": found["whole"] / total - 1,
        "gradient_bytes": found["bytes"],
        "all_reduce": {"latency_s": reduce_latency, "bytes_per_s": reduce_rate},
        "all_gather": {"latency_s": gather_latency, "bytes_per_s": gather_rate},
    }


def check_text(found: dict[str, Any]) -> str:
    parts = ", ".join(f"{name} {1000 * value:.1f}" for name, value in found["predicted"].items())
    return (
        f"\ncheck, {found['ranks']} gloo ranks here, a thread each: predicted {1000 * found['predicted_step']:.1f} ms "
        f"({parts}), measured {1000 * found['measured_step']:.1f} ms: {found['error']:+.0%}"
    )


def main() -> None:
    parser = command(__doc__, "scaling")
    defaults = Constants()
    for name, source in SOURCES.items():
        value = getattr(defaults, name)
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=float, default=value, metavar="X", help=f"default {value:g}: {source}")
    parser.add_argument("--documents", type=float, default=128, metavar="N", help="a GPU, of the first table (128)")
    parser.add_argument("--batch", type=float, default=4096, metavar="N", help="of all GPUs, of the second (4096)")
    parser.add_argument("--no-check", action="store_true", help="tables only")
    parser.add_argument("--rounds", type=int, default=15, metavar="N", help="of the check (15)")
    options = parser.parse_args()
    constants = Constants(**{name: getattr(options, name) for name in SOURCES})
    weak, strong = (lambda ranks: options.documents), (lambda ranks: options.batch / ranks)
    sequences, tokens = document()
    print(f"RoBERTa-base: {WEIGHTS:,} weights; a document gives {sequences} sequences of {tokens:,.0f} tokens in all\n")
    for name, source in SOURCES.items():
        print(f"{name:<16}{getattr(constants, name):>10.3g}  {source}")
    print(f"\n{table(f'{options.documents:,.0f} documents a GPU:', weak, constants)}")
    print(f"\n{table(f'{options.batch:,.0f} documents in all:', strong, constants)}\n")
    print("\n".join(points(options.documents, constants)))
    if not options.no_check:
        record = {"machine": machine(), "torch": torch.__version__, "tiny": TINY, "rounds": options.rounds}
        tell(record | check(options.rounds), check_text, options.output)


if __name__ == "__main__":
    main()
