"""The layers of a packed forward pass as they are, compiled, and with one product for queries, keys and values.

    python -m benchmarks.encode_layers --device cuda
    python -m benchmarks.encode_layers --device cpu --layers 2 --hidden 64 --tokens 2048

An encoder of RoBERTa's layers with random weights embeds batches of one size, as full batches of `encode` are. The ways
take turns, and give the same states. `first` is the time of the first batch, with compilation; `pays off` is the number
of tokens after which compilation has saved as much time as it took.
"""

import argparse
import functools
import math
import statistics
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import RobertaModel

from benchmarks.report import (
    alternating,
    command,
    finish,
    machine,
    option,
    precisions_option,
    resolved_precisions,
    tabulated,
    timed,
)
from benchmarks.synthetic import config_of, wait_for
from clearspan.common.encoder.attention import PACKED_ATTENTION
from clearspan.common.encoder.forward import states
from clearspan.common.encoder.packing import Packed, pack

SHORTEST, LONGEST = 8, 40
"""Lengths of the texts in tokens."""
LARGEST_DIFFERENCE = {"fp32": 1e-4, "bf16": 0.05}
"""Of the states of two ways, relative to the largest one, by precision."""


class Joined(nn.Module):
    """One of several linear layers with the same input, which the first of them computes for all.

    Args:
        layers: the layers.
        results: the outputs that are not yet asked for, shared by all of them.
        place: the number of this layer.
    """

    def __init__(self, layers: list[nn.Linear], results: dict[int, Tensor], place: int) -> None:
        super().__init__()
        self.place, self._results = place, results
        if place == 0:
            self.weight = nn.Parameter(torch.cat([layer.weight for layer in layers]))
            self.bias = nn.Parameter(torch.cat([layer.bias for layer in layers]))
            self._sizes = [layer.out_features for layer in layers]

    def forward(self, x: Tensor) -> Tensor:
        if self.place == 0:
            parts = nn.functional.linear(x, self.weight, self.bias).split(self._sizes, -1)
            self._results.update(enumerate(parts))
        return self._results.pop(self.place)


def join(model: Any) -> None:
    """Let each layer of a model compute its queries, keys and values by one product."""
    for layer in model.encoder.layer:
        attention, results = layer.attention.self, dict[int, Tensor]()
        names = ("query", "key", "value")
        layers = [getattr(attention, name) for name in names]
        for place, name in enumerate(names):
            setattr(attention, name, Joined(layers, results, place))


def compile_layers(model: Any) -> None:
    """Compile each layer of a model; one graph serves all layers."""
    for layer in model.encoder.layer:
        layer.compile(fullgraph=True, dynamic=False)


WAYS: Mapping[str, Callable[[Any], None]] = {
    "as it is": lambda model: None,
    "one product": join,
    "compiled": compile_layers,
}


def batch(arguments: argparse.Namespace) -> Packed:
    """Return texts of random tokens that fill a batch."""
    generator = np.random.default_rng(0)
    lengths = generator.integers(SHORTEST, LONGEST, arguments.tokens // SHORTEST)
    lengths = np.sort(lengths[: np.searchsorted(lengths.cumsum(), arguments.tokens, "right")])[::-1]
    lengths = np.append(lengths, np.full(1, arguments.tokens - lengths.sum()))  # the last text fills the batch up
    ids = torch.from_numpy(generator.integers(5, 50_000, arguments.tokens)).to(arguments.device)
    return pack(ids, lengths[lengths > 0])


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the seconds of a batch, by precision and way.

    Raises:
        ValueError: two ways give other states.
    """
    device, packed = torch.device(arguments.device), batch(arguments)
    config = config_of(arguments.layers, arguments.hidden, 0.0)
    rows: dict[str, Any] = {}
    for precision in resolved_precisions(arguments.precisions, arguments.device):
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        runs: dict[str, Callable[[], Tensor]] = {}
        for name, change in WAYS.items():
            torch.manual_seed(0)
            model = RobertaModel._from_config(config, attn_implementation=PACKED_ATTENTION, add_pooling_layer=False)
            model = model.eval().to(device, dtype)
            change(model)
            runs[name] = functools.partial(states, model, packed, packed.positions[None] + config.pad_token_id + 1)
        wait = functools.partial(wait_for, device)
        with torch.inference_mode():
            first = {name: timed(run, wait) for name, run in runs.items()}
            check({name: made for name, (_, made) in first.items()}, LARGEST_DIFFERENCE[precision])
            turns = {name: functools.partial(timed, run, wait) for name, run in runs.items()}
            spent = alternating({name: lambda turn=turn: turn()[0].clock for name, turn in turns.items()}, 10)
        plain = statistics.median(spent["as it is"])
        for name, seconds in spent.items():
            median, first_s = statistics.median(seconds), first[name][0].clock
            saved = plain - median
            rows[f"{name}, {precision}"] = {
                "ms": 1000 * median,
                "tokens_per_s": arguments.tokens / median,
                "times": plain / median,
                "first_s": first_s,
                "pays_off": arguments.tokens * first_s / saved if name == "compiled" and saved > 0 else None,
            }
    gpu = torch.cuda.get_device_name() if device.type == "cuda" else None
    size = {"layers": arguments.layers, "hidden": arguments.hidden, "tokens": arguments.tokens}
    return {"machine": machine(), "gpu": gpu, "torch": torch.__version__, **size, "rows": rows}


def check(made: Mapping[str, Tensor], most: float) -> None:
    """Raise ValueError if the states of a way differ from those of the base model by more than `most`."""
    plain = made["as it is"].float()
    for name, values in made.items():
        difference = float((values.float() - plain).abs().max() / plain.abs().max())
        if not difference <= most or math.isnan(difference):
            raise ValueError(f"{name}: the states differ by {difference:.2g} of the largest")


def table(result: dict[str, Any]) -> str:
    """Return the text that is printed."""
    figures = {
        "ms": ("ms", ".1f"),
        "tokens/s": ("tokens_per_s", ",.0f"),
        "times": ("times", ".2f"),
        "first, s": ("first_s", ".1f"),
        "pays off": ("pays_off", ",.0f"),
    }
    device = result["gpu"] or result["machine"]["cpu"]
    title = f"{result['layers']} layers of {result['hidden']}, {result['tokens']:,} tokens a batch, {device}"
    return f"{title}\n{tabulated('', result['rows'], figures)}"


def main() -> None:
    parser = command(__doc__, "encode_layers")
    parser.add_argument("--device", default="cuda", help="device to use (default cuda)")
    precisions_option(parser, "bf16")
    option(parser, "layers", 12, "layers")
    option(parser, "hidden", 768, "width of the states")
    option(parser, "tokens", 65536, "tokens of a batch")
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
