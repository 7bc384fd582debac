"""A model of the time of a training step on 1 to 256 GPUs; its formulas are checked on two gloo ranks of this machine.

    python -m benchmarks.scaling                      # tables from the constants; then the check, half a minute
    python -m benchmarks.scaling --efficiency 0.45 --network 12.5e9 --no-check

    step = max(compute + contrast + gather + reduce, loader)

    compute   the encoder's forward and backward pass over a rank's documents, at a share of the device's peak
    contrast  the similarities of a rank's vectors with those of all ranks: three products in fp32
    gather    the all-gather of these vectors, and its counterpart in the backward pass; N - 1 messages each
    reduce    one all-reduce of all gradients in fp32, which ZeRO stage 0 does after the backward pass, not during it
    loader    a rank's documents from shards to the device; it runs ahead, and counts only if it takes longest

The training is DeCLUTR's: RoBERTa-base, two anchors and two positives a document. `SOURCES` names the source of every
constant; no GPU was measured. The check measures this machine's rate of messages of different sizes, and the compute
of the slower rank without messages. From these it predicts the time of a step of a tiny model on two ranks, and
measures it.
"""

import dataclasses
import functools
import math
import os
import statistics
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F

from benchmarks.report import alternating, columns, command, machine, option, publish, timed
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
    """The constants of the formulas; `SOURCES` names the source of each."""

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
    "efficiency": "share of the peak that real tokens attain (MFU): the goal for the trainer; an assumption",
    "fp32": "FLOP/s of fp32 outside tensor cores: the same data sheet",
    "link": "bytes/s of a GPU to the others of its machine, one way: NVLink 4, the same data sheet",
    "network": "bytes/s of a GPU to other machines, one way: a port of 400 Gbit/s each, NDR InfiniBand's data sheet",
    "attained": "share of both that collectives attain; an assumption",
    "latency": "s a message within a machine; an assumption",
    "network_latency": "s a message between machines; an assumption",
    "loader": "documents/s of one thread, 64 a step, span sampling and packing on the CPU included, as measured by "
    "python -m benchmarks.loader; with a GPU, sampling and packing are done on the GPU",
}


def document() -> tuple[int, float]:
    """Return (sequences, mean number of tokens including special tokens) of a document."""
    sampler = SpanConfig()
    sequences = sampler.num_anchors * (1 + sampler.num_positives)
    return sequences, sampler.length_moments()[0] + SPECIAL * sequences


def seconds_of_messages(ranks: int, sent: float, messages: float, constants: Constants) -> float:
    """Return the time of a collective in which each rank sends `sent` bytes in consecutive messages."""
    within = ranks <= NODE
    rate = constants.link if within else min(constants.link, constants.network * NODE)
    latency = constants.latency if within else constants.network_latency
    return messages * latency + sent / (rate * constants.attained)


def terms(ranks: int, documents: float, constants: Constants) -> dict[str, float]:
    """Return the seconds of each term of a step.

    Between machines, a ring enters and leaves each machine once, over all of its ports: `NODE` times those of a GPU.

    Args:
        documents: documents a rank.
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


def step(seconds: dict[str, float]) -> float:
    """Return the seconds of a step from those of its terms."""
    return max(sum(value for name, value in seconds.items() if name != "loader"), seconds["loader"])


def largest(seconds: dict[str, float]) -> str:
    """Return the term that a step waits for most."""
    if seconds["loader"] >= step(seconds):
        return "loader"
    return max((name for name in TERMS if name != "loader"), key=lambda name: seconds[name])


def table(title: str, documents: Callable[[int], float], constants: Constants) -> str:
    """Return a table with a row for each number of GPUs.

    Args:
        documents: number of GPUs -> documents a GPU.
    """
    single = documents(1) / step(terms(1, documents(1), constants))
    rows = []
    for ranks in RANKS:
        seconds = terms(ranks, documents(ranks), constants)
        total, rate = step(seconds), ranks * documents(ranks) / step(seconds)
        times = [f"{1000 * seconds[name]:.2f}" for name in TERMS]
        ends = f"{1000 * total:.1f}", f"{rate:,.0f}", f"{rate / single / ranks:.0%}", largest(seconds)
        rows.append([f"{ranks}", f"{documents(ranks):,.0f}", *times, *ends])
    headings = [*(f"{name} ms" for name in TERMS), "step ms", "documents/s", "of linear", "largest"]
    return f"{title}\n{columns(['GPUs', 'documents', *headings], rows)}"


def even(name: str, ranks: int, constants: Constants) -> float:
    """Return the documents a GPU below which a term takes longer than the compute; inf: it always does."""
    low, high = 1e-3, 1e7

    def over(documents: float) -> bool:
        seconds = terms(ranks, documents, constants)
        return seconds[name] > seconds["compute"]

    if over(high):
        return math.inf
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if over(middle) else (low, middle)
    return high


def overtaken(name: str, other: str, documents: float, constants: Constants) -> int | None:
    """Return the smallest power of two of GPUs at which a term takes longer than another; None: above a million."""
    for power in range(1, 21):
        seconds = terms(1 << power, documents, constants)
        if seconds[name] > seconds[other]:
            return 1 << power
    return None


def points(documents: float, constants: Constants) -> list[str]:
    """Return a line for each point where one term starts to take longer than another."""
    lines = [
        f"reduce takes as long as compute below {even('reduce', ranks, constants):.1f} documents a GPU on {ranks} GPUs"
        for ranks in (8, 16, 256)
    ]
    for name, other in (("gather", "reduce"), ("contrast", "reduce"), ("gather", "compute"), ("contrast", "compute")):
        at = overtaken(name, other, documents, constants)
        where = f"from {at:,} GPUs on" if at else "on no number of GPUs up to a million"
        lines.append(f"{name} takes longer than {other}, with {documents:,.0f} documents a GPU, {where}")
    rate = documents / terms(1, documents, constants)["compute"]
    return [*lines, f"the loader limits the step below {rate:,.0f} documents/s a GPU"]


# The check: two ranks of this machine.

TINY = {"layers": 2, "dim": 128, "vocabulary": 32768, "pairs": 4, "tokens": 16}
"""A model with few tokens and many embeddings, so that messages are a large part of the step."""
PROBES = (1 << 12, 1 << 16, 1 << 20, 1 << 22, 1 << 24)
"""The sizes, in bytes, of the measured messages; the step sends messages of other sizes."""


def medians(rounds: int, *works: Callable[[], Any]) -> list[float]:
    """Return the median seconds of each piece of work, over alternating rounds; ranks start each together."""

    def seconds(work: Callable[[], Any]) -> float:
        dist.barrier()
        return timed(work)[0].clock

    results = alternating({f"{at}": lambda work=work: seconds(work) for at, work in enumerate(works)}, rounds + 2)
    return [statistics.median(each[2:]) for each in results.values()]  # the first two rounds warm up


def fitted(sizes: list[float], seconds: list[float]) -> tuple[float, float]:
    """Fit seconds = latency + bytes / rate, by least squares of relative errors; return (latency, rate), at least 0."""
    weights = torch.tensor(seconds, dtype=torch.float64)
    rows = torch.stack([1 / weights, torch.tensor(sizes, dtype=torch.float64) / weights], dim=1)
    latency, slope = torch.linalg.lstsq(rows, torch.ones(len(sizes), 1, dtype=torch.float64)).solution[:, 0].tolist()
    return max(0.0, latency), 1 / max(slope, 1e-15)


def tiny() -> tuple[Any, Any]:
    """Return (encoder, packed batch) of the check: pairs of sequences of random tokens."""
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
    """Return NT-Xent of a rank without others."""
    vectors = F.normalize(torch.cat([anchors, positives]), dim=1)
    logits = (vectors @ vectors.T / temperature).fill_diagonal_(-torch.inf)
    return F.cross_entropy(logits, torch.arange(len(vectors)).roll(len(anchors)))


def check_rank(rank: int, ranks: int, folder: str, rounds: int) -> None:
    """Measure on one rank; the first rank saves the result."""
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
        dist.barrier()  # a step takes as long as on the slowest rank

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
    """Return the predicted and the measured time of a step on gloo ranks."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(check_rank, (ranks, folder, rounds), nprocs=ranks)
        measured = torch.load(Path(folder) / "result.pt", weights_only=True)
    sizes = [float(size) for size in PROBES]
    (reduce_latency, reduce_rate), (gather_latency, gather_rate) = (
        fitted(sizes, measured[name]) for name in ("reduces", "gathers")
    )
    vectors = 4.0 * TINY["pairs"] * TINY["dim"]  # bytes of the anchors; the positives have as many
    predicted = {
        "compute": measured["compute"],
        "gather": 2 * 2 * (gather_latency + vectors / gather_rate),
        "reduce": reduce_latency + measured["bytes"] / reduce_rate,
    }
    total = sum(predicted.values())
    return {
        "ranks": ranks,
        "predicted": predicted,
        "predicted_step": total,
        "measured_step": measured["whole"],
        "error": measured["whole"] / total - 1,
        "gradient_bytes": measured["bytes"],
        "all_reduce": {"latency_s": reduce_latency, "bytes_per_s": reduce_rate},
        "all_gather": {"latency_s": gather_latency, "bytes_per_s": gather_rate},
    }


def check_text(result: dict[str, Any]) -> str:
    parts = ", ".join(f"{name} {1000 * value:.1f}" for name, value in result["predicted"].items())
    predicted, measured = (f"{1000 * result[key]:.1f} ms" for key in ("predicted_step", "measured_step"))
    setting = f"check, {result['ranks']} gloo ranks here, one thread each"
    return f"\n{setting}: predicted {predicted} ({parts}), measured {measured}: {result['error']:+.0%}"


def main() -> None:
    parser = command(__doc__, "scaling")
    defaults = Constants()
    for name, source in SOURCES.items():
        value = getattr(defaults, name)
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=float, default=value, metavar="X", help=f"default {value:g}: {source}")
    option(parser, "documents", 128.0, "documents a GPU in the first table")
    option(parser, "batch", 4096.0, "documents on all GPUs in the second table")
    parser.add_argument("--no-check", action="store_true", help="tables only")
    option(parser, "rounds", 15, "rounds of the check")
    options = parser.parse_args()
    constants = Constants(**{name: getattr(options, name) for name in SOURCES})
    weak, strong = (lambda ranks: options.documents), (lambda ranks: options.batch / ranks)
    sequences, tokens = document()
    print(
        f"RoBERTa-base: {WEIGHTS:,} weights; a document yields {sequences} sequences, {tokens:,.0f} tokens in total\n"
    )
    for name, source in SOURCES.items():
        print(f"{name:<16}{getattr(constants, name):>10.3g}  {source}")
    print(f"\n{table(f'{options.documents:,.0f} documents a GPU:', weak, constants)}")
    print(f"\n{table(f'{options.batch:,.0f} documents in total:', strong, constants)}\n")
    print("\n".join(points(options.documents, constants)))
    if not options.no_check:
        record = {"machine": machine(), "torch": torch.__version__, "tiny": TINY, "rounds": options.rounds}
        publish(record | check(options.rounds), check_text, options.output)


if __name__ == "__main__":
    main()
