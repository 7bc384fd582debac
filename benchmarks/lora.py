"""Training steps of a decoder of the size of Qwen3-0.6B, with random weights: all of it, and a LoRA adapter of it.

    python -m benchmarks.lora

Each contender trains in a process of its own, so that its peak memory is its own. A step is the packed forward pass
over pairs of texts, InfoNCE of their last tokens' states, the backward pass, clipping and AdamW:

    all             every weight
    lora            an adapter of rank 16 for queries and values, peft's choice for Qwen 3
    lora linear     an adapter of rank 16 for all linear layers
    lora recomputed the first adapter with activation checkpointing

A checkpoint holds the weights that train, and AdamW's two moments of each.
"""

import argparse
import multiprocessing
import resource
import statistics
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.report import command, finish, machine, option, precisions_option, resolved_precisions, tabulated, timed
from clearspan.common.allocator import keep_tensors
from clearspan.common.encoder.attention import PACKED_ATTENTION
from clearspan.common.encoder.packing import pack_ids
from clearspan.train.config.optimizer import OptimizerConfig
from clearspan.train.engine.optimization import build_optimizer
from clearspan.train.model.encoder import TrainableEncoder
from clearspan.train.model.losses import info_nce

QWEN3_06B = {
    "vocab_size": 151936,
    "hidden_size": 1024,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 3072,
}
"""The published sizes of Qwen3-0.6B."""
CONTENDERS: dict[str, tuple[list[str] | None, bool]] = {
    "all": (None, False),
    "lora": ([], False),
    "lora linear": (["all-linear"], False),
    "lora recomputed": ([], True),
}
"""Name of a contender -> (the adapter's targets, None without an adapter; whether activations are checkpointed)."""
TEMPERATURE = 0.05
GIB = 1 << 30


def contender(name: str, layers: int, pairs: int, tokens: int, bf16: bool, rounds: int, threads: int) -> dict[str, Any]:
    """Train a contender; return the seconds of a step, the peak memory and the numbers of weights."""
    from transformers import AutoModel, Qwen3Config

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    config = Qwen3Config(**{**QWEN3_06B, "num_hidden_layers": layers})
    encoder = TrainableEncoder(AutoModel.from_config(config, attn_implementation=PACKED_ATTENTION), "lasttoken").train()
    targets, recomputes = CONTENDERS[name]
    if targets is not None:
        encoder.add_adapter({"rank": 16, "alpha": 32.0, "dropout": 0.0, "targets": targets}, Path())
    if recomputes:
        encoder.checkpoint_activations()
    trained = [parameter for parameter in encoder.parameters() if parameter.requires_grad]
    optimizer = build_optimizer(trained, OptimizerConfig())
    drawn = torch.randint(5, config.vocab_size, (2 * pairs, tokens))
    packed = pack_ids(drawn.tolist())
    keep_tensors()

    def step() -> float:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            vectors = nn.functional.normalize(encoder.pool(encoder(packed), packed), dim=1)
        loss = info_nce(vectors[:pairs], vectors[pairs:], TEMPERATURE)
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.detach())

    first = step()
    spent = [timed(step)[0].clock for _ in range(rounds)]
    number = sum(parameter.numel() for parameter in trained)
    return {
        "seconds": statistics.median(spent),
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB,
        "weights": sum(parameter.numel() for parameter in encoder.parameters()),
        "trained": number,
        "checkpoint_gib": 12 * number / GIB,
        "loss": first,
    }


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    sizes = {name: getattr(arguments, name) for name in ("layers", "pairs", "tokens")}
    context, rows = multiprocessing.get_context("spawn"), {}
    threads = torch.get_num_threads()
    for precision in resolved_precisions(arguments.precisions, "cpu"):
        for name in CONTENDERS:
            with context.Pool(1) as pool:
                given = (name, *sizes.values(), precision == "bf16", arguments.rounds, threads)
                rows[f"{name} {precision}"] = pool.apply(contender, given)
    versions = {"torch": torch.__version__, "threads": threads, "rounds": arguments.rounds}
    return {"machine": machine(), **versions, **sizes, "rows": rows}


def table(result: dict[str, Any]) -> str:
    """Return the text that is printed."""
    sizes = f"{result['layers']} layers of Qwen3-0.6B, {result['pairs']} pairs of {result['tokens']} tokens"
    title = f"{result['machine']['cpu']}, {result['threads']} threads; {sizes}; medians of {result['rounds']} steps"
    figures = {
        "seconds": ("seconds", ".2f"),
        "peak GiB": ("peak_gib", ".2f"),
        "trained": ("trained", ",.0f"),
        "of": ("weights", ",.0f"),
        "checkpoint GiB": ("checkpoint_gib", ".3f"),
    }
    return f"{title}\n{tabulated('', result['rows'], figures)}"


def main() -> None:
    parser = command(__doc__, "lora")
    option(parser, "layers", 28, "layers")
    option(parser, "pairs", 8, "pairs of a step")
    option(parser, "tokens", 32, "tokens of a text")
    option(parser, "rounds", 3, "steps that are timed")
    precisions_option(parser, "auto")
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
