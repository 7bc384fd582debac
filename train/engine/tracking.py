"""Metric writers of a run: metrics.jsonl and TensorBoard; on rank 0 only.

`train.engine.display` shows the metrics on the terminal.
"""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearspan.common.files import path_in_errors, write_text
from clearspan.train.curves import lines_up_to
from clearspan.train.engine.display import Display
from clearspan.train.learner import Learner

PEAK_FLOPS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12}
"""Dense bf16 FLOP/s by a part of the device's name, from NVIDIA's data sheets."""


def flops_per_token(learner: Learner, mean_length: float) -> float:
    """Return training FLOPs a token: 6 per layer weight, 12 L d s for attention (Chowdhery et al. 2022, app. B), of
    which a third is the forward pass, and less than the other two if layers are frozen.
    """
    encoder = learner.encoder
    whole = 6.0 * layer_weights(encoder) + 12.0 * encoder.num_layers * encoder.dim * mean_length
    return whole * (1 + sum(backward_shares(learner))) / 3


def layer_weights(encoder: Any) -> int:
    """Return the number of the encoder's parameters without its embeddings, which are looked up, not multiplied."""
    return sum(p.numel() for name, p in encoder.base.named_parameters() if "embeddings" not in name)


def backward_shares(learner: Learner) -> tuple[float, float]:
    """Return (share of the layers' weights whose gradients are computed, share of the layers that a backward pass goes
    through): (1, 1) if nothing is frozen.
    """
    base, table = learner.encoder.base, learner.encoder.token_table()
    trained = sum(p.numel() for name, p in base.named_parameters() if "embeddings" not in name and p.requires_grad)
    weights = trained / max(1, layer_weights(learner.encoder))
    through = any(p.requires_grad for p in (*table, *learner.embeddings.parameters()))
    return weights, 1.0 if through else weights


def peak_flops(device: torch.device) -> float | None:
    """Return the device's peak FLOP/s, or None if unknown (every CPU)."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((flops for part, flops in PEAK_FLOPS.items() if part in name), None)


class Clock:
    """Steps, tokens, seconds, and seconds of waiting for data since the last log, without evaluation and saving."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.tokens = torch.zeros((), dtype=torch.float64)
        self.steps, self.waited, self.start = 0, 0.0, time.perf_counter()

    def add(self, tokens: Tensor) -> None:
        """Count a step and its tokens."""
        self.steps, self.tokens = self.steps + 1, self.tokens.to(tokens.device) + tokens

    def seconds(self) -> float:
        return time.perf_counter() - self.start

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.waited += time.perf_counter() - start


class Tracker:
    """Writer of metrics by step. A resumed run keeps the lines up to the step that it resumes from.

    Args:
        display: shows the metrics too.

    Raises:
        OSError: (on writing and closing too) the disk is full or broken; the error names the file.
    """

    def __init__(self, run: Path, display: Display) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.path, self.events, step = run / "metrics.jsonl", run / "tensorboard", display.step
        write_text(self.path, "".join(line + "\n" for line in lines_up_to(self.path, step)))
        self.board = SummaryWriter(str(self.events), purge_step=step + 1)
        self.display = display

    def log(self, step: int, metrics: dict[str, Any]) -> None:
        """Write the metrics of a step, as a line of JSON and to TensorBoard, and show them."""
        with path_in_errors(self.path), self.path.open("a") as lines:
            lines.write(json.dumps({"step": step, **metrics}) + "\n")
        with path_in_errors(self.events):
            for name, value in metrics.items():
                self.board.add_scalar(name, value, step)
        self.display.show(step, metrics)

    def close(self) -> None:
        """End the display, and write what TensorBoard's writer holds."""
        self.display.close()
        with path_in_errors(self.events):
            self.board.close()
