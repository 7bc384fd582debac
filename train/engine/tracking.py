"""Loggers of a run, on rank 0 only: metrics.jsonl, TensorBoard, and the user's own (`training.loggers`).

    metrics of a step ──> Tracker ──> JsonLines, TensorBoard, my_module:MyLogger ... and `train.engine.display`

A user's logger is a class, or a function that returns an object, with the methods of `Logger`. It is called with three
arguments: the run's folder, the recipe as a nested dictionary, and the step at which training begins (0, or the last
step of the run that is resumed).
"""

import contextlib
import dataclasses
import functools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from clearspan.common import plugins, terminal
from clearspan.common.files import path_in_errors, write_text
from clearspan.train.config.keys import naming
from clearspan.train.config.options import Recipe
from clearspan.train.curves import lines_up_to
from clearspan.train.engine.display import Display
from clearspan.train.run_folder import METRICS
from clearspan.train.step.learner import Learner

PEAK_FLOPS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12}
"""Peak bf16 FLOP/s without sparsity, from NVIDIA's data sheets; a key is a part of the device's name."""


def flops_per_token(learner: Learner, mean_length: float) -> float:
    """Return the number of floating-point operations per token in training (Chowdhery et al. 2022, appendix B).

    It is 6 for each weight of the layers, and 12 L d s for attention: L is the number of layers, d their width, and s
    the mean length. A third is for the forward pass, two thirds for the backward pass; frozen layers reduce the latter.

    Args:
        learner: the module that is trained.
        mean_length: the mean number of tokens of a sequence.
    """
    encoder = learner.encoder
    whole = 6.0 * layer_weights(encoder) + 12.0 * encoder.num_layers * encoder.dim * mean_length
    return whole * (1 + sum(backward_shares(learner))) / 3


def layer_weights(encoder: Any) -> int:
    """Return the number of the encoder's weights without its embeddings, which are looked up and not multiplied.

    Args:
        encoder: the encoder, a `TrainableEncoder`.
    """
    return sum(p.numel() for name, p in encoder.base.named_parameters() if "embeddings" not in name)


def backward_shares(learner: Learner) -> tuple[float, float]:
    """Return which fractions of the two halves of a backward pass are computed; both are 1 if nothing is frozen.

    One half computes the gradients of the layers' weights, the other half those of the layers' inputs.

    Returns:
        (fraction of the layers' weights that get gradients, fraction of the layers whose inputs get gradients). The
        second fraction is 1 if token or patch embeddings or an adapter are trained, because the backward pass then goes
        through all layers; otherwise the first fraction is used as an estimate.
    """
    base, table = learner.encoder.base, learner.encoder.token_table()
    trained = sum(p.numel() for name, p in base.named_parameters() if "embeddings" not in name and p.requires_grad)
    weights = trained / max(1, layer_weights(learner.encoder))
    through = any(p.requires_grad for p in (*table, *learner.embeddings.parameters()))
    return weights, 1.0 if through or learner.encoder.adapter is not None else weights


def peak_flops(device: torch.device) -> float | None:
    """Return the peak speed of a device in bf16, in FLOP/s; None for a CPU or an unknown GPU."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((flops for part, flops in PEAK_FLOPS.items() if part in name), None)


class Clock:
    """Counter of steps, of tokens, of seconds, and of the seconds spent waiting for data.

    The trainer restarts it after each log, evaluation and save, so that the time of evaluation and saving does not
    count.

    Attributes:
        tokens: the number of this rank's tokens and patches since the restart, a scalar, float64.
        steps: the number of steps since the restart.
        waited: the seconds since the restart that were spent in the context `waiting`.
        start: the value of `time.perf_counter` at the restart, in seconds.
    """

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.tokens = torch.zeros((), dtype=torch.float64)
        self.steps, self.waited, self.start = 0, 0.0, time.perf_counter()

    def add(self, tokens: Tensor) -> None:
        """Count a step and its tokens.

        Args:
            tokens: the number of this rank's tokens and patches in the step, a scalar on any device.
        """
        self.steps, self.tokens = self.steps + 1, self.tokens.to(tokens.device) + tokens

    def seconds(self) -> float:
        return time.perf_counter() - self.start

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.waited += time.perf_counter() - start


class Logger(Protocol):
    """The interface of a logger, which writes the metrics of a run. It is called on rank 0 only."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the metrics of a step.

        Args:
            step: the number of steps that the run has made.
            metrics: name of a metric -> its value.
        """

    def close(self) -> None:
        """Write what is still buffered: the run has ended, or was stopped."""


class JsonLines:
    """The logger that writes metrics.jsonl, one line for each call of `log`.

    If a run is resumed, the lines of steps after `step`, which will be made again, are deleted first.

    Args:
        run: the run's folder.
        recipe: the recipe as a dictionary; not used, but every logger is created with it.
        step: the step at which training begins: 0, or the last step of the checkpoint that the run resumes from.

    Raises:
        OSError: the disk is full or broken; the error names the file. `log` raises it too.
    """

    def __init__(self, run: Path, recipe: Mapping[str, Any], step: int) -> None:
        self.path = run / METRICS
        write_text(self.path, "".join(line + "\n" for line in lines_up_to(self.path, step)))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        with path_in_errors(self.path), self.path.open("a") as lines:
            lines.write(json.dumps({"step": step, **metrics}) + "\n")

    def close(self) -> None:
        """Do nothing: each line is written at once."""


class TensorBoard:
    """The logger that writes TensorBoard's events.

    If a run is resumed, TensorBoard no longer shows the old events of steps after `step`, which will be made again.

    Args:
        run: the run's folder.
        recipe: the recipe as a dictionary; not used, but every logger is created with it.
        step: the step at which training begins: 0, or the last step of the checkpoint that the run resumes from.

    Raises:
        OSError: the disk is full or broken; the error names the folder. `log` and `close` raise it too.
    """

    def __init__(self, run: Path, recipe: Mapping[str, Any], step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.folder = run / "tensorboard"
        self.board = SummaryWriter(str(self.folder), purge_step=step + 1)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        with path_in_errors(self.folder):
            for name, value in metrics.items():
                self.board.add_scalar(name, value, step)

    def close(self) -> None:
        with path_in_errors(self.folder):
            self.board.close()


class Tracker:
    """All loggers of a run, and its progress display, behind one interface. It is used on rank 0 only.

    Args:
        recipe: the recipe of the run, which names the user's loggers (`training.loggers`).
        display: the progress display, which shows the metrics too.

    Raises:
        RecipeError: a user's logger cannot be created, or lacks `log` or `close`.
        OSError: the disk is full or broken; the error names the file. `log` and `close` raise it too.
    """

    def __init__(self, recipe: Recipe, display: Display) -> None:
        self.display = display
        run, content = Path(recipe.output), dataclasses.asdict(recipe)
        self.loggers: list[Logger] = [JsonLines(run, content, display.step), TensorBoard(run, content, display.step)]
        self.own: dict[str, Logger] = {}
        for spec in recipe.training.loggers:
            with naming("training.loggers"):
                create = functools.partial(plugins.load_function(spec, "a logger"), run, content, display.step)
                logger = plugins.call(spec, create, "with the run's folder, its recipe and a step")
                self.own[spec] = plugins.check_object(logger, spec, Logger, "a logger")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the metrics of a step with all loggers, and show them.

        If a user's logger fails, print a warning and call this logger no more; the run goes on.

        Args:
            step: the number of steps that the run has made.
            metrics: name of a metric -> its value.
        """
        for logger in self.loggers:
            logger.log(step, metrics)
        for spec, logger in [*self.own.items()]:
            self._guarded(spec, functools.partial(logger.log, step, metrics))
        self.display.show(step, dict(metrics))

    def close(self) -> None:
        """End the display, and close all loggers, even if one of them fails to close."""
        with contextlib.ExitStack() as stack:
            for logger in reversed(self.loggers):
                stack.callback(logger.close)
            self.display.close()
            for spec, logger in [*self.own.items()]:
                self._guarded(spec, logger.close)

    def _guarded(self, spec: str, call: Callable[[], None]) -> None:
        """Call a method of a user's logger; if it fails, print a warning and remove the logger.

        Args:
            spec: the logger as `training.loggers` names it, `module:name`.
            call: the method, with its arguments bound.
        """
        try:
            call()
        except (Exception, SystemExit) as error:  # the user's own code
            del self.own[spec]
            terminal.warn(f"training.loggers: {spec} failed, and is called no more: {plugins.cause(error)}")
