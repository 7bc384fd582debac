"""What a run reports: metrics.jsonl, TensorBoard and a progress bar, on rank 0 only."""

import json
import math
import threading
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

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


class Tracker:
    """Writes figures by step. A resumed run keeps the lines up to the step it resumes from.

    Raises:
        OSError: (on writing and closing too) the disk is full or broken; it names the file.
    """

    def __init__(self, run: Path, total: int, step: int, quiet: bool) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.path, self.events = run / "metrics.jsonl", run / "tensorboard"
        publish_bytes("".join(line + "\n" for line in lines_up_to(self.path, step)).encode(), str(self.path))
        self.lines = self.path.open("a", buffering=1)
        self.hook, threading.excepthook = threading.excepthook, lambda _: None  # what TensorBoard's thread meets is
        self.board = SummaryWriter(str(self.events), purge_step=step + 1)  # raised again by its next call
        self.bar = tqdm(
            total=total, initial=step, unit="step", desc="train", dynamic_ncols=True, disable=True if quiet else None
        )

    def log(self, step: int, figures: dict[str, Any]) -> None:
        """Records the figures of a step, a line of JSON in the order given."""
        with naming_disk(self.path):
            self.lines.write(json.dumps({"step": step, **figures}) + "\n")
        with naming_disk(self.events):
            for name, value in figures.items():
                self.board.add_scalar(name, value, step)
        shown: dict[str, object] = {
            name: f"{figures[name]:.4g}" for name in ("loss", "tokens_per_s") if name in figures
        }
        self.bar.set_postfix(shown)

    def advance(self) -> None:
        self.bar.update(1)

    def close(self) -> None:
        self.bar.close()
        with naming_disk(self.events):
            self.board.close()
        threading.excepthook = self.hook
        with naming_disk(self.path):
            self.lines.close()


def check_finite(figures: dict[str, float], step: int) -> None:
    """Raises FloatingPointError naming the figure: a run whose loss is not a number does not mend itself."""
    for name, value in figures.items():
        if (name.endswith("loss") or name in ("grad_norm", "weights_norm")) and not math.isfinite(value):
            raise FloatingPointError(
                f"{name} is {value} at step {step}: lower optimizer.learning_rate, or set training.bf16=false"
            )
