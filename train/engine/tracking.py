"""Metric writers of a run: metrics.jsonl, TensorBoard and, if the recipe asks for it, wandb; on rank 0 only.

`train.engine.display` shows the metrics on the terminal.
"""

import contextlib
import importlib.util
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearspan.common import terminal
from clearspan.common.files import path_in_errors, write_text
from clearspan.train.engine.display import Display
from clearspan.train.learner import Learner
from clearspan.train.options import RecipeError

PEAK_FLOPS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12}
"""Dense bf16 FLOP/s by a part of the device's name, from NVIDIA's data sheets."""
WANDB_ID = "wandb-id.txt"
"""The file in a run's folder that holds the id of its wandb run."""


def flops_per_token(num_parameters: int, layers: int, dim: int, mean_length: float) -> float:
    """Return training FLOPs a token: 6 per layer weight, 12 L d s for attention (Chowdhery et al. 2022, app. B)."""
    return 6.0 * num_parameters + 12.0 * layers * dim * mean_length


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


def lines_up_to(path: Path, step: int) -> list[str]:
    """Return the lines of a metrics.jsonl up to and including a step; drop lines that a kill left unreadable."""
    lines = []
    for line in path.read_text(errors="replace").splitlines() if path.is_file() else ():
        try:
            if json.loads(line)["step"] <= step:
                lines.append(line)
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return lines


@contextlib.contextmanager
def _silent_board() -> Iterator[None]:
    """Keep TensorBoard's writer thread from printing its error, which its next call raises; other threads print."""
    hook = threading.excepthook

    def filtered(failure: threading.ExceptHookArgs) -> None:
        if not type(failure.thread).__module__.startswith("tensorboard."):
            hook(failure)

    threading.excepthook = filtered
    try:
        yield
    finally:
        threading.excepthook = hook


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
        wandb: (project, configuration) of the run on wandb; None: do not use wandb.

    Raises:
        OSError: (on writing and closing too) the disk is full or broken; the error names the file.
        RecipeError: wandb refuses the run.
    """

    def __init__(self, run: Path, display: Display, wandb: tuple[str, dict[str, Any]] | None = None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.path, self.events, step = run / "metrics.jsonl", run / "tensorboard", display.step
        write_text(self.path, "".join(line + "\n" for line in lines_up_to(self.path, step)))
        with contextlib.ExitStack() as opened:
            opened.enter_context(_silent_board())
            self.lines = self.path.open("a", buffering=1)
            opened.callback(self._close_lines)
            self.board = SummaryWriter(str(self.events), purge_step=step + 1)
            opened.callback(self._close_board)
            self.online = online_run(run, *wandb, display.quiet) if wandb else None
            if self.online is not None:
                opened.callback(self.online.finish)
            self.display = display
            opened.callback(self.display.close)
            self._opened = opened.pop_all()

    def log(self, step: int, metrics: dict[str, Any]) -> None:
        """Write the metrics of a step, as a line of JSON and to TensorBoard and wandb, and show them."""
        with path_in_errors(self.path):
            self.lines.write(json.dumps({"step": step, **metrics}) + "\n")
        with path_in_errors(self.events):
            for name, value in metrics.items():
                self.board.add_scalar(name, value, step)
        if self.online is not None:
            self.online.log(metrics, step=step)
        self.display.show(step, metrics)

    def warn(self, step: int, line: str) -> None:
        """Write a warning about a step's figures to metrics.jsonl, as a line of its own, and print it."""
        with path_in_errors(self.path):
            self.lines.write(json.dumps({"step": step, "warning": line}) + "\n")
        with path_in_errors(self.events):
            self.board.add_text("warning", line, step)
        self.display.warn(line)

    def close(self) -> None:
        """Close all writers, even if one of them fails."""
        self._opened.close()

    def _close_board(self) -> None:
        with path_in_errors(self.events):
            self.board.close()

    def _close_lines(self) -> None:
        with path_in_errors(self.path):
            self.lines.close()


def check_wandb(project: str) -> None:
    """Raise RecipeError if a project is named but the package wandb is not installed."""
    if project and importlib.util.find_spec("wandb") is None:
        raise RecipeError(
            f"training.wandb {project}: the package wandb is not installed: run `pip install wandb`, or remove the key"
        )


def online_run(run: Path, project: str, recipe: dict[str, Any], quiet: bool) -> Any:
    """Return the wandb run of a run's folder: the one whose id the folder holds, or a new one.

    Args:
        recipe: the configuration to record with it.
        quiet: keep wandb from printing its summary.

    Raises:
        RecipeError: wandb refuses the run; the message says why.
    """
    import wandb  # type: ignore[import-not-found]

    id_file = run / WANDB_ID
    previous = id_file.read_text().strip() if id_file.is_file() else None
    try:
        online = wandb.init(
            project=project,
            name=run.name,
            dir=str(run),
            config=recipe,
            id=previous,
            resume="allow" if previous else None,
            settings={"silent": quiet},
        )
    except wandb.Error as error:
        raise RecipeError(f"training.wandb {project}: {terminal.one_line(error)}") from None
    write_text(id_file, f"{online.id}\n")
    return online
