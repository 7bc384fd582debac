"""Progress display of a run: a bar with its figures on a terminal, elsewhere a plain line at every log.

    forwarded, advance -> the time of the run, once the time of a step is known without its start-up
    show               -> loss (by objective), learning rate, tokens/s, documents/s, MFU, data wait, remaining time;
                          in a narrow terminal the bar omits the least important figures

With `--quiet` only warnings are shown. `train.engine.tracking` writes the figures to files.
"""

import os
import time
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from tqdm import tqdm

from clearspan.common import terminal
from clearspan.common.progress import LONG_S, about, duration

WARM_STEPS = 3
"""The number of steps after which the time of the run is shown. The first one includes start-up and is not counted."""
BACKWARD = 2
"""A backward pass costs about this many forward passes."""
BAR = "{l_bar}{n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"
"""tqdm's format, with the figures in place of the bar."""
OMITTED = ("data wait", "examples", "lr", "MFU", "scores", "losses")
"""Figures that the bar omits, in this order, until the rest fits on its line."""


def device_name(device: torch.device, ranks: int) -> str:
    """Return the name and number of a run's devices, e.g. `CPU, 2 of 2 threads` or `2 x NVIDIA H100 80GB HBM3`."""
    if device.type == "cuda":
        return f"{f'{ranks} x ' if ranks > 1 else ''}{torch.cuda.get_device_name(device)}"
    threads = f"{torch.get_num_threads()} of {os.cpu_count()} threads"
    return f"CPU, {threads}{f' a rank, {ranks} ranks' if ranks > 1 else ''}"


def figures(metrics: Mapping[str, float], units: Mapping[str, str]) -> dict[str, str]:
    """Return the text of each figure of a logged step, to be joined by `listed`.

    Args:
        units: the unit of each dataset's examples, e.g. `documents`.
    """
    texts = {}
    if "loss" in metrics:
        losses = {n.split("/")[0]: loss for n, loss in metrics.items() if n.endswith("/loss") and n.count("/") == 1}
        texts["loss"] = f"loss {metrics['loss']:.4g}"
        if len(losses) > 1:
            texts["losses"] = f" ({', '.join(f'{name} {loss:.4g}' for name, loss in losses.items())})"
    turns = {name.partition("/")[2]: v for name, v in metrics.items() if name.split("/")[0] == "learning_rate"}
    if turns:
        texts["lr"] = "lr " + ", ".join(f"{turn} {rate:.2g}".strip() for turn, rate in turns.items())
    if "tokens_per_s" in metrics:
        texts["tokens"] = f"{metrics['tokens_per_s']:,.0f} tokens/s"
    rates = {unit: metrics[f"examples_per_s/{n}"] for n, unit in units.items() if f"examples_per_s/{n}" in metrics}
    if rates:
        texts["examples"] = ", ".join(f"{rate:,.3g} {unit}/s" for unit, rate in rates.items())
    if "mfu" in metrics:
        texts["MFU"] = f"MFU {metrics['mfu']:.0%}"
    if "data_wait" in metrics:
        texts["data wait"] = f"{metrics['data_wait']:.1%} data wait"
    return texts


def listed(texts: Iterable[str]) -> str:
    """Return texts joined by commas; a text that begins with a space is appended to the one before it."""
    return "".join(text if text.startswith(" ") else f", {text}" for text in texts).removeprefix(", ")


def fitting(texts: Mapping[str, str], width: int) -> str:
    """Return the texts, `listed`, after omitting figures of OMITTED until they fit into a width."""
    shown = dict(texts)
    for name in OMITTED:
        if len(listed(shown.values())) > width:
            shown.pop(name, None)
    return listed(shown.values())


class Bar(tqdm):  # type: ignore[type-arg, unused-ignore]  # a generic class in its stubs only
    """tqdm's bar, with as many figures as fit on its line whenever it is drawn.

    Attributes:
        texts: the figures, as returned by `figures`.
    """

    texts: Mapping[str, str] = {}

    @property
    def format_dict(self) -> Any:
        shown = super().format_dict
        if self.texts and shown["ncols"]:
            bare = self.format_meter(**{**shown, "ncols": None, "postfix": None})
            shown["postfix"] = fitting(self.texts, shown["ncols"] - len(f"{bare}, "))
        return shown


class Display:
    """The progress bar of a run, or its lines.

    Args:
        total: the steps of the run.
        step: the steps done before it was resumed.
        units: the unit of each dataset's examples, e.g. `documents`.
        device: the name of the device.
        uncounted: what takes time besides the steps, after the time of a step.
    """

    def __init__(
        self,
        total: int,
        step: int,
        quiet: bool,
        units: Mapping[str, str] | None = None,
        device: str = "",
        uncounted: str = "",
    ) -> None:
        self.total, self.first, self.quiet, self.units = total, step, quiet, dict(units or {})
        self.device, self.uncounted = device, uncounted
        self.step, self.told = step, False
        self.start = self.second = self.last = self.forwards = 0.0
        self.scores = ""
        self.bar = Bar(
            total=total, initial=step, desc="train", dynamic_ncols=True, bar_format=BAR, disable=True if quiet else None
        )
        self.lines = not quiet and self.bar.disable

    def tell(self, line: str) -> None:
        """Print a line, above the bar if there is one, unless the run is quiet."""
        if not self.quiet:
            self.warn(line)

    def warn(self, line: str) -> None:
        """Print a line in any case, above the bar if there is one."""
        with self.bar.external_write_mode():
            terminal.notice(line)

    def begin(self) -> None:
        """Print the device and the number of steps, and start measuring the time."""
        self.start = time.perf_counter()
        if self.device:
            self.tell(f"training on {self.device}: {self.total - self.step:,} steps")

    def forwarded(self, number: int, count: int, cached: bool = False) -> None:
        """Record the forward pass of the `number`-th micro-batch of a turn, of `count` micro-batches of all turns.

        If a step takes long, the time of the run is shown in the first step, after the third micro-batch: the first
        one and its backward pass include start-up, such as compiling the encoder.

        Args:
            cached: whether a forward pass without gradients over all micro-batches preceded it
                (`train.gradient_caching`).
        """
        if self.step > self.first or number not in (2, 3):
            return
        before, self.forwards = self.forwards, time.perf_counter()
        a_step = (self.forwards - before) * count * (1 + (1 / (1 + BACKWARD) if cached else 0))
        if number == 3 and a_step > LONG_S:
            self._tell_time(a_step)

    def advance(self) -> None:
        """Record a step; after the first ones, print the time of the run."""
        self.step, self.last = self.step + 1, time.perf_counter()
        self.bar.update(1)
        done = self.step - self.first
        if done == 1:
            self.second = self.last
        if (each := self.seconds_a_step) and (done >= WARM_STEPS or each > LONG_S) and self.step < self.total:
            self._tell_time(each)

    def _tell_time(self, seconds_a_step: float) -> None:
        """Print the time of the run, once."""
        if not self.told:
            self.told, steps = True, self.total - self.first
            time_of_run = about(seconds_a_step * steps, f"{steps:,} steps")
            self.tell(f"{time_of_run}: {duration(seconds_a_step)} a step{self.uncounted}")

    @property
    def seconds_a_step(self) -> float | None:
        """The mean time of all steps so far except the first, including evaluation and saving; None after one step."""
        done = self.step - self.first
        return (self.last - self.second) / (done - 1) if done > 1 else None

    def show(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Show the figures of a logged step."""
        texts = figures(metrics, self.units)
        if not texts:
            return
        self.bar.texts = {**texts, "scores": self.scores} if self.scores else texts
        self.bar.refresh()
        if self.lines:
            each = self.seconds_a_step
            rest = [f"{duration(each * (self.total - step))} to go"] if each and step < self.total else []
            terminal.notice(f"step {step:,}/{self.total:,}: {listed([*texts.values(), *rest])}")

    def score(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Show the scores of an evaluation."""
        self.scores = ", ".join(f"{name.replace('_', ' ').replace('/', ' ')} {v:.4g}" for name, v in scores.items())
        when = f"after step {step:,}" if step else "before the first step"
        self.tell(f"{when}: {self.scores}{', the best so far' if best and step else ''}")

    def close(self) -> None:
        self.bar.close()
