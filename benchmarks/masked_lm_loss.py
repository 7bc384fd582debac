"""The masked LM's loss over a vocabulary, with its gradient: time and memory of chunks beside logits that are kept.

    python -m benchmarks.masked_lm_loss
    python -m benchmarks.masked_lm_loss --device cuda

    kept      a linear layer, cross-entropy and the arg-max for the accuracy, as models of transformers compute them
    chunks    `train.model.chunked_cross_entropy`, without padding
    padded    the same, the vocabulary padded to a multiple of 64, as on CUDA by default
    torch     `torch.nn.functional.linear_cross_entropy` in chunks (torch 2.13), without an accuracy

Each contender runs in a process of its own, because freed memory can stay with the process. Memory is the peak beyond
the inputs: of the device's allocator on CUDA, of the resident size on a CPU. bf16 is by autocast.
"""

import argparse
import multiprocessing
import resource
import statistics
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.report import (
    command,
    finish,
    machine,
    option,
    precisions_option,
    resolved_precisions,
    tabulated,
    timed,
)
from benchmarks.synthetic import wait_for
from clearspan.train.model.chunked_cross_entropy import IGNORED, cross_entropy

MIB = 1 << 20
SIZES = {"cpu": {"rows": 1000, "hidden": 256}, "cuda": {"rows": 3400, "hidden": 768}}
"""By device: masked tokens of a step, and the encoder's width. On CUDA those of DeCLUTR-base with 32 documents."""


def kept(states: Tensor, decoder: nn.Linear, labels: Tensor) -> Tensor:
    logits = decoder(states)
    (logits.detach().argmax(1) == labels).sum()
    return F.cross_entropy(logits.float(), labels, ignore_index=IGNORED, reduction="sum")


def by_torch(states: Tensor, decoder: nn.Linear, labels: Tensor) -> Tensor:
    dtype = torch.get_autocast_dtype(states.device.type)
    dtype = dtype if torch.is_autocast_enabled(states.device.type) else states.dtype
    given = states.to(dtype), decoder.weight.to(dtype), labels
    options = torch.nn.LinearCrossEntropyOptions()
    bias = decoder.bias.to(dtype)
    return F.linear_cross_entropy(
        *given, linear_bias=bias, ignore_index=IGNORED, reduction="sum", options=options
    ).float()


CONTENDERS: dict[str, Callable[[Tensor, nn.Linear, Tensor], Tensor]] = {
    "kept": kept,
    "chunks": lambda *given: cross_entropy(*given, True, 1)[0],
    "padded": lambda *given: cross_entropy(*given, True, 64)[0],
    "torch": by_torch,
}


def contender(name: str, sizes: dict[str, int], device: str, bf16: bool, rounds: int, threads: int) -> dict[str, Any]:
    """Return the figures of a contender; runs in a process of its own."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    place = torch.device(device)
    decoder = nn.Linear(sizes["hidden"], sizes["vocabulary"], device=place)
    states = torch.randn(sizes["rows"], sizes["hidden"], device=place, requires_grad=True)
    labels = torch.randint(0, sizes["vocabulary"], (sizes["rows"],), device=place)

    def step() -> Tensor:
        decoder.zero_grad()
        states.grad = None
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            loss = CONTENDERS[name](states, decoder, labels)
        (loss / sizes["rows"]).backward()
        return loss.detach()

    before = held(place)
    loss = step().item()
    peak = (torch.cuda.max_memory_allocated() if device == "cuda" else held(place)) - before
    spent = [timed(step, lambda: wait_for(place))[0] for _ in range(rounds)]
    seconds, processor_s = (statistics.median(each) for each in zip(*spent, strict=True))
    return {"seconds": seconds, "processor_s": processor_s, "peak_mib": peak / MIB, "loss": loss}


def held(device: torch.device) -> int:
    """Return the bytes that are allocated on CUDA, or the peak resident size of this process."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    sizes = {**SIZES[arguments.device], "vocabulary": arguments.vocabulary}
    sizes |= {name: value for name in ("rows", "hidden") if (value := getattr(arguments, name))}
    names = [name for name in CONTENDERS if name != "torch" or hasattr(F, "linear_cross_entropy")]
    context, rows = multiprocessing.get_context("spawn"), {}
    for precision in resolved_precisions(arguments.precisions, arguments.device):
        for name in names:
            with context.Pool(1) as pool:
                given = name, sizes, arguments.device, precision == "bf16", arguments.rounds, torch.get_num_threads()
                rows[f"{name} {precision}"] = pool.apply(contender, given)
    versions = {"torch": torch.__version__, "threads": torch.get_num_threads(), "rounds": arguments.rounds}
    device = torch.cuda.get_device_name() if arguments.device == "cuda" else "cpu"
    sizes["masked"] = sizes.pop("rows")
    return {"machine": machine(), "device": device, **versions, **sizes, "rows": rows}


def table(result: dict[str, Any]) -> str:
    """Return the text that is printed."""
    sizes = f"{result['masked']:,} masked tokens of {result['hidden']} dimensions, {result['vocabulary']:,} ids"
    title = f"{result['device']}, {result['threads']} threads; {sizes}; medians of {result['rounds']} steps"
    figures = {
        "seconds": ("seconds", ".4f"),
        "on processors": ("processor_s", ".4f"),
        "peak MiB": ("peak_mib", ",.0f"),
        "loss": ("loss", ",.3f"),
    }
    return f"{title}\n{tabulated('', result['rows'], figures)}"


def main() -> None:
    parser = command(__doc__, "masked_lm_loss")
    parser.add_argument("--device", default="cpu", choices=list(SIZES))
    option(parser, "rows", 0, "masked tokens; 0: as many as the device is given")
    option(parser, "hidden", 0, "dimensions; 0: as many as the device is given")
    option(parser, "vocabulary", 50265, "ids")
    option(parser, "rounds", 5, "steps that are timed")
    precisions_option(parser, "fp32")
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
