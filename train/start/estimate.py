"""Estimate a run's cost before it starts, in the lines that `--dry-run` prints after the recipe.

    recipe, learner, feed -> parameters, device, examples used, tokens in a forward pass, memory

The memory is an estimate of weights, gradients, optimizer state and activations.
"""

from collections.abc import Mapping

import torch

from clearspan.train.config.optimizer import LAYERS
from clearspan.train.config.options import Recipe
from clearspan.train.data.stream import ExampleStream
from clearspan.train.engine.display import device_name
from clearspan.train.engine.tracking import backward_shares
from clearspan.train.start.forward_size import ForwardSize
from clearspan.train.step.learner import Learner

GIB = 1 << 30
LAYER_INPUT = 4
"""The size of a layer's input, in bytes per token and dimension."""
TABLE_OUTPUT = 12
"""The memory of a static encoder's sum, mean and gradient, in bytes per sequence and dimension. Nothing is stored per
token.
"""


def parts(recipe: Recipe, learner: Learner) -> list[str]:
    """Return a line for each part of the model: embeddings, layers and heads.

    A line states the number of parameters, how many of them are trained, and the peak learning rate.
    """
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


def memory(recipe: Recipe, learner: Learner, sizes: Mapping[str, ForwardSize], padding: float = 0.0) -> str:
    """Return a line that estimates the memory of one device: weights, gradients, AdamW's state and activations.

    Attention scores are a part of the activations if each layer stores them, because they have a bias or because the
    sequences are padded.

    Args:
        recipe: the recipe of the run.
        learner: the model and the objectives.
        sizes: name of a turn -> the size of its forward pass on one rank. A turn is one of the weight updates of a
            step.
        padding: the fraction of padding among the tokens that the encoder computes (`train.start.padding`).
    """
    encoder = learner.encoder
    width = 34 if recipe.training.bf16 is True else 68
    largest = max(size.rows for size in sizes.values())
    layers, stored, each = encoder.num_layers, width, "token, layer and dimension"
    if not encoder.attends:
        largest = max(size.sequences for size in sizes.values())
        layers, stored, each = 1, TABLE_OUTPUT, "sequence and dimension"
    if recipe.training.activation_checkpointing:
        stored = LAYER_INPUT + -(-width // layers)  # and one whole layer, while its backward pass is computed
    through = backward_shares(learner)[1]
    activations = stored * encoder.dim * layers * largest / (1 - padding) * through
    scores = 0.0
    if encoder.has_position_bias or encoder.padded_because:
        stored_layers = 1 if recipe.training.activation_checkpointing else layers
        number = max(size.sequences * size.budget.longest**2 for size in sizes.values() if size.budget)
        scores = (2 if recipe.training.bf16 is True else 4) * encoder.num_heads * number * stored_layers * through
    every = sum(p.numel() for p in learner.parameters())
    trained = sum(p.numel() for p in learner.parameters() if p.requires_grad)
    states = 4 * every + 4 * trained + 8 * sum(p.numel() for turn in sizes for p in learner.parameters_of(turn))
    return (
        f"memory estimate {states / GIB:.2f} GiB weights, gradients, AdamW + {activations / GIB:.2f} GiB activations "
        f"({stored} bytes a {each})" + (f" + {scores / GIB:.2f} GiB attention scores" if scores else "")
    )


def describe(
    recipe: Recipe,
    learner: Learner,
    sizes: Mapping[str, ForwardSize],
    streams: Mapping[str, ExampleStream],
    total: int,
    ranks: int,
    padding: float = 0.0,
) -> str:
    """Return the lines of the estimate: parameters, device, steps, examples, tokens and memory.

    Args:
        recipe: the recipe of the run.
        learner: the model and the objectives.
        sizes: name of a turn -> the size of its forward pass on one rank. A turn is one of the weight updates of a
            step.
        streams: the label to print before a dataset's number of examples -> the stream of these examples.
        total: the number of steps of the run.
        ranks: the number of ranks.
        padding: the fraction of padding among the tokens that the encoder computes (`train.start.padding`).
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    lines = [
        f"parameters      {sum(p.numel() for p in learner.parameters()):,}",
        *parts(recipe, learner),
        f"device          {device_name(device, ranks)}",
        f"steps           {total:,}",
    ]
    for name, stream in streams.items():
        lines.append(f"{name:<15} {stream.num_examples:,} {stream.dataset.manifest.kind} ({stream.dataset.folder})")
    for turn, size in sizes.items():
        prefix = f"of turn {turn}, " if len(sizes) > 1 else ""
        patches = f" and {size.patches:,} patches" if size.patches else ""
        tokens = f"{size.mean_tokens:,.0f} tokens on average{patches}"
        lines.append(f"a rank's part   {prefix}{size.sequences:,} sequences, {tokens} in a forward")
        if size.budget:
            lines.append(f"token budget    {prefix}{size.budget.tokens:,} (mean + 4 standard deviations)")
    return "\n".join([*lines, memory(recipe, learner, sizes, padding)])
