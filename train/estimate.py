"""A run's cost before it starts: the lines that `--dry-run` prints after the recipe.

    recipe, learner, feed -> parameters, device, examples used and left out, tokens in a forward pass, memory, time

The time is a lower bound: the floating-point operations of all steps, at the speed of plain matrix products that is
measured on this device. Training also samples, normalizes, sums over ranks and saves.
"""

import time

import torch

from clearspan.common.progress import duration
from clearspan.train.build import ForwardSize
from clearspan.train.data.feed import Feed
from clearspan.train.data.stream import ExampleStream
from clearspan.train.engine.display import device_name
from clearspan.train.engine.tracking import backward_shares, flops_per_token, layer_weights
from clearspan.train.learner import Learner
from clearspan.train.options import Recipe
from clearspan.train.schedules import LAYERS
from clearspan.train.selection.validation import HeldOut

GIB = 1 << 30
LAYER_INPUT = 4
"""Bytes per token and dimension of a layer's input."""
TABLE_OUTPUT = 12
"""Bytes per sequence and dimension of a static encoder: sum, mean and gradient. It stores nothing per token."""
ROWS = 1024
MEASURED_S = 0.2
"""Seconds that the measured products must take."""


def matrix_rate(dim: int, bf16: bool, device: torch.device) -> float:
    """Return the FLOP/s of products of (ROWS, dim) with (dim, 4 dim), the shapes of a layer, on one device."""
    dtype = torch.bfloat16 if bf16 else torch.float32
    left, right = (torch.ones(*shape, dtype=dtype, device=device) for shape in ((ROWS, dim), (dim, 4 * dim)))

    def seconds(products: int) -> float:
        begun = time.perf_counter()
        for _ in range(products):
            result = left @ right
        float(result[0, 0])  # waits for the device
        return time.perf_counter() - begun

    seconds(2)
    products, spent = 1, 0.0
    while spent < MEASURED_S:
        products *= 2
        spent = seconds(products)
    return products * 2.0 * ROWS * dim * 4 * dim / spent


def step_flops(recipe: Recipe, learner: Learner, sizes: dict[str, ForwardSize], ranks: int) -> float:
    """Return the FLOP of one step on all ranks: the encoder's layers and attention, without the masked-LM head."""
    encoder, total = learner.encoder, 0.0
    for size in sizes.values():
        rows = size.mean_tokens + size.patches
        each = flops_per_token(layer_weights(encoder), encoder.num_layers, encoder.dim, rows / max(1, size.sequences))
        total += rows * each
    training = recipe.training
    weights, layers = backward_shares(learner)
    # A backward pass costs about two forward passes, one of them for the gradients of weights; each of the two options
    # adds one forward pass.
    forwards = (1 + weights + layers + training.gradient_caching + training.activation_checkpointing * layers) / 3
    return total * ranks * training.gradient_accumulation_steps * forwards


def used(key: str, stream: ExampleStream) -> list[str]:
    """Return lines with the number of a dataset's examples that are used, and those that are left out."""
    line = f"{key:<15} {stream.num_examples:,} {stream.dataset.manifest.kind} ({stream.dataset.folder})"
    return [line, *(f"{'':<15} {reason}" for reason in stream.left_out())]


def parts(recipe: Recipe, learner: Learner) -> list[str]:
    """Return a line for each part of the model: parameters, those that train, and the peak of their learning rate."""
    lines, part_of = [], learner.parts()
    for part in dict.fromkeys(part_of.values()):
        members = [parameter for parameter in part_of if part_of[parameter] == part]
        size, trained = (sum(p.numel() for p in each) for each in (members, [p for p in members if p.requires_grad]))
        rates = {
            turn: f"{options.parts().get(part, options.parts()[LAYERS])[0]:g}"
            for turn, options in recipe.optimizers().items()
            if any(part_of[parameter] == part for parameter in learner.parameters_of(turn))
        }
        if len(set(rates.values())) > 1:
            rates = {turn: f"{rate} in turn {turn}" for turn, rate in rates.items()}
        state = "trained" if trained == size else f"{trained:,} of them trained" if trained else "frozen"
        peak = f", learning rate at most {', '.join(dict.fromkeys(rates.values()))}" if trained else ""
        lines.append(f"  {part:<13} {size:,}, {state}{peak}")
    return lines


def describe(
    recipe: Recipe,
    learner: Learner,
    sizes: dict[str, ForwardSize],
    feed: Feed,
    held_out: HeldOut | None,
    total: int,
    ranks: int,
) -> str:
    """Return one line for each thing that a run needs or uses."""
    parameters = sum(p.numel() for p in learner.parameters())
    encoder = learner.encoder
    bf16 = recipe.training.bf16 is True
    width = 34 if bf16 else 68
    largest = max(size.rows for size in sizes.values())
    layers, stored, each = encoder.num_layers, width, "token, layer and dimension"
    if not encoder.attends:
        largest = max(size.sequences for size in sizes.values())
        layers, stored, each = 1, TABLE_OUTPUT, "sequence and dimension"
    if recipe.training.activation_checkpointing:
        stored = LAYER_INPUT + -(-width // layers)  # and one whole layer, while its backward pass is computed
    activations = stored * encoder.dim * layers * largest * backward_shares(learner)[1]
    trained = sum(p.numel() for p in learner.parameters() if p.requires_grad)
    states = 4 * parameters + 4 * trained + 8 * sum(p.numel() for turn in sizes for p in learner.parameters_of(turn))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    lines = [
        f"parameters      {parameters:,}",
        *parts(recipe, learner),
        f"device          {device_name(device, ranks)}",
        f"ranks           {ranks}",
        f"steps           {total:,}",
        f"micro-batches   {recipe.training.gradient_accumulation_steps} a step",
    ]
    for name, stream in feed.streams.items():
        lines += used(f"data.{name}", stream)
    for stream in (held_out.streams if held_out else {}).values():
        lines += used("  held out", stream)
    for turn, size in sizes.items():
        prefix = f"of turn {turn}, " if len(sizes) > 1 else ""
        patches = f" and {size.patches:,} patches" if size.patches else ""
        tokens = f"{size.mean_tokens:,.0f} tokens on average{patches}"
        lines.append(f"a rank's part   {prefix}{size.sequences:,} sequences, {tokens} in a forward")
        if size.budget:
            lines.append(f"token budget    {prefix}{size.budget.tokens:,} (mean + 4 standard deviations)")
    lines.append(
        f"memory estimate {states / GIB:.2f} GiB weights, gradients, AdamW + {activations / GIB:.2f} GiB activations "
        f"({stored} bytes a {each})"
    )
    if not encoder.attends:  # it multiplies no matrices
        return "\n".join(lines)
    flops, rate = step_flops(recipe, learner, sizes, ranks), matrix_rate(encoder.dim, bf16, device)
    seconds = flops / (rate * ranks)
    lines.append(
        f"time estimate   at least {duration(seconds * total)}, {duration(seconds)} a step: {flops:.2g} FLOP at the "
        f"{rate / 1e9:,.0f} GFLOP/s of plain matrix products here"
    )
    return "\n".join(lines)
