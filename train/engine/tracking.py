"""What a run reports: metrics.jsonl, TensorBoard and a progress bar, on rank 0 only."""

import contextlib
import json
import math
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from shards import terminal
from shards.storage import naming_disk, publish_bytes

PEAK_FLOPS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12}
"""Dense bf16 FLOP/s from NVIDIA's data sheets, by a part of the device's name."""


def flops_per_token(num_parameters: int, layers: int, dim: int, mean_length: float) -> float:
    """Training FLOPs a token: 6 per weight of the layers, and attention's 12 L d s (Chowdhery et al. 2022, app. B)."""
    return 6.0 * num_parameters + 12.0 * layers * dim * mean_length


def peak_flops(device: torch.device) -> float | None:
    """The device's peak, or None where it is not known (every CPU)."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((flops for part, flops in PEAK_FLOPS.items() if part in name), None)


def lines_up_to(path: Path, step: int) -> list[str]:
    """The lines of a metrics.jsonl up to and including a step; what a kill left unreadable is dropped."""
    kept = []
    for line in path.read_text(errors="replace").splitlines() if path.is_file() else ():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line)
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return kept


@contextlib.contextmanager
def _silent_board() -> Iterator[None]:
    """Keeps TensorBoard's writer thread from printing its error: its next call raises that. Other threads' are told."""
    hook = threading.excepthook

    def tell(failed: threading.ExceptHookArgs) -> None:
        if not type(failed.thread).__module__.startswith("tensorboard."):
            hook(failed)

    threading.excepthook = tell
    try:
        yield
    finally:
        threading.excepthook = hook


class Clock:
    """Steps, tokens, seconds and seconds of waiting for data since the last log, leaving out evaluation and saving."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.tokens = torch.zeros((), dtype=torch.float64)
        self.steps, self.waited, self.start = 0, 0.0, time.perf_counter()

    def add(self, tokens: Tensor) -> None:
        """Counts a step of so many tokens."""
        self.steps, self.tokens = self.steps + 1, self.tokens.to(tokens.device) + tokens

    def seconds(self) -> float:
        return time.perf_counter() - self.start

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.waited += time.perf_counter() - start


class Tracker:
    """Writes metrics by step. A resumed run keeps the lines up to the step it resumes from.

    Raises:
        OSError: (on writing and closing too) the disk is full or broken; it names the file.
    """

    def __init__(self, run: Path, total: int, step: int, quiet: bool) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.path, self.events = run / "metrics.jsonl", run / "tensorboard"
        publish_bytes("".join(line + "\n" for line in lines_up_to(self.path, step)).encode(), str(self.path))
        hidden = True if quiet else None
        with contextlib.ExitStack() as opened:
            opened.enter_context(_silent_board())
            self.lines = self.path.open("a", buffering=1)
            opened.callback(self._close_lines)
            self.board = SummaryWriter(str(self.events), purge_step=step + 1)
            opened.callback(self._close_board)
            self.bar = tqdm(total=total, initial=step, unit="step", desc="train", dynamic_ncols=True, disable=hidden)
            opened.callback(self.bar.close)
            self._opened = opened.pop_all()

    def log(self, step: int, metrics: dict[str, Any]) -> None:
        """Records the metrics of a step, a line of JSON in the order given."""
        with naming_disk(self.path):
            self.lines.write(json.dumps({"step": step, **metrics}) + "\n")
        with naming_disk(self.events):
            for name, value in metrics.items():
                self.board.add_scalar(name, value, step)
        shown: dict[str, object] = {
            name: f"{metrics[name]:.4g}" for name in ("loss", "tokens_per_s") if name in metrics
        }
        self.bar.set_postfix(shown)

    def tell(self, line: str) -> None:
        """Says something in a line of its own, above the bar where there is one."""
        with self.bar.external_write_mode():
            terminal.notice(line)

    def advance(self) -> None:
        self.bar.update(1)

    def close(self) -> None:
        """Closes all three, whichever of them fails."""
        self._opened.close()

    def _close_board(self) -> None:
        with naming_disk(self.events):
            self.board.close()

    def _close_lines(self) -> None:
        with naming_disk(self.path):
            self.lines.close()


def check_finite(metrics: dict[str, float], step: int) -> None:
    """Raises FloatingPointError naming the metric: a run whose loss is not a number does not mend itself."""
    for name, value in metrics.items():
        if (name.endswith("loss") or name.split("/")[0] in ("grad_norm", "weights_norm")) and not math.isfinite(value):
            raise FloatingPointError(
                f"{name} is {value} at step {step}: lower optimizer.learning_rate, or set training.bf16=false"
            )
