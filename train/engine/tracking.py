"""What a run keeps of its figures: metrics.jsonl, TensorBoard and, where a recipe asks, wandb; on rank 0 only.

What is shown of them is `train.engine.display`'s.
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
from clearspan.train.options import RecipeError

PEAK_FLOPS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12}
"""Dense bf16 FLOP/s from NVIDIA's data sheets, by a part of the device's name."""
WANDB_ID = "wandb-id.txt"
"""The file of a run's folder that says which of wandb's runs it is."""


def flops_per_token(num_parameters: int, layers: int, dim: int, mean_length: float) -> float:
    """Training FLOPs a token: 6 per weight of the layers, and attention's 12 L d s (Chowdhery et al. 2022, app. B)."""
    return 6.0 * num_parameters + 12.0 * layers * dim * mean_length


def layer_weights(encoder: Any) -> int:
    """The encoder's parameters but for its embeddings, which no matrix product reads whole."""
    embeddings = sum(p.numel() for name, p in encoder.base.named_parameters() if "embeddings" in name)
    return sum(p.numel() for p in encoder.base.parameters()) - embeddings


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

    Args:
        display: what shows them too; None: a bar of its own.
        wandb: the project that they go to as well, and what to say there of the run; None: none.

    Raises:
        OSError: (on writing and closing too) the disk is full or broken; it names the file.
        RecipeError: wandb takes no run.
    """

    def __init__(
        self,
        run: Path,
        total: int,
        step: int,
        quiet: bool,
        display: Display | None = None,
        wandb: tuple[str, dict[str, Any]] | None = None,
    ) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.path, self.events = run / "metrics.jsonl", run / "tensorboard"
        write_text(self.path, "".join(line + "\n" for line in lines_up_to(self.path, step)))
        with contextlib.ExitStack() as opened:
            opened.enter_context(_silent_board())
            self.lines = self.path.open("a", buffering=1)
            opened.callback(self._close_lines)
            self.board = SummaryWriter(str(self.events), purge_step=step + 1)
            opened.callback(self._close_board)
            self.online = online_run(run, *wandb, quiet) if wandb else None
            if self.online is not None:
                opened.callback(self.online.finish)
            self.display = display or Display(total, step, quiet)
            opened.callback(self.display.close)
            self._opened = opened.pop_all()

    def log(self, step: int, metrics: dict[str, Any]) -> None:
        """Records the metrics of a step, a line of JSON in the order given, and shows them."""
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
        self.tell(line)

    def tell(self, line: str) -> None:
        """Says something in a line of its own, above the bar where there is one."""
        self.display.tell(line)

    def close(self) -> None:
        """Closes all, whichever of them fails."""
        self._opened.close()

    def _close_board(self) -> None:
        with path_in_errors(self.events):
            self.board.close()

    def _close_lines(self) -> None:
        with path_in_errors(self.path):
            self.lines.close()


def check_wandb(project: str) -> None:
    """Raises RecipeError where a project is named and the package is not there."""
    if project and importlib.util.find_spec("wandb") is None:
        raise RecipeError(
            f"training.wandb {project}: the package wandb is not installed: `pip install wandb`, or leave the key out"
        )


def online_run(run: Path, project: str, recipe: dict[str, Any], quiet: bool) -> Any:
    """wandb's run of a run's folder: a new one, or where the folder holds the id of one, that.

    With `quiet` wandb prints none of its own page of figures.

    Raises:
        RecipeError: wandb takes none; it tells why.
    """
    import wandb  # type: ignore[import-not-found]

    known = run / WANDB_ID
    before = known.read_text().strip() if known.is_file() else None
    try:
        found = wandb.init(
            project=project,
            name=run.name,
            dir=str(run),
            config=recipe,
            id=before,
            resume="allow" if before else None,
            settings={"silent": quiet},
        )
    except wandb.Error as error:
        raise RecipeError(f"training.wandb {project}: {terminal.one_line(error)}") from None
    write_text(known, f"{found.id}\n")
    return found
