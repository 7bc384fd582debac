"""Progress display of a run: a bar with its figures on a terminal, elsewhere a plain line at every log.

    forwarded, advance -> estimates of the remaining time, after the first steps
    show               -> loss (by objective), learning rate, tokens/s, documents/s, MFU, data wait, remaining time;
                          in a narrow terminal the bar omits the least important figures

Nothing is shown with `--quiet`. `train.engine.tracking` writes the figures to files.
"""

import os
import time
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from tqdm import tqdm

from clearspan.common import terminal

SLOW_S = 30.0
"""If the first step, or the first forward pass of several micro-batches, takes longer, its time is shown at once."""
WARM_STEPS = 3
"""The number of steps, including the first, which is not counted, after which the time of a step is shown."""
BACKWARD = 2
"""A backward pass costs about this many forward passes."""
BAR = "{l_bar}{n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"
"""tqdm's format, with the figures in place of the bar."""
OMITTED = ("data wait", "examples", "lr", "MFU", "scores", "losses")
"""Figures that the bar omits, in this order, until the rest fits on its line."""
UNITS = (("years", 365.25 * 86400), ("days", 86400.0), ("h", 3600.0), ("min", 60.0))


def duration(seconds: float) -> str:
    """Return a time as text, in the largest unit of which it has at least two, e.g. `238 days`."""
    for name, size in UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {name}" if seconds < 10 * size else f"{seconds / size:,.0f} {name}"
    return f"{seconds:.3g} s"


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
    """

    def __init__(
        self, total: int, step: int, quiet: bool, units: Mapping[str, str] | None = None, device: str = ""
    ) -> None:
        self.total, self.first, self.quiet, self.units, self.device = total, step, quiet, dict(units or {}), device
        self.step, self.marks = step, [time.perf_counter()]
        self.scores = ""
        self.bar = Bar(
            total=total, initial=step, desc="train", dynamic_ncols=True, bar_format=BAR, disable=True if quiet else None
        )
        self.lines = not quiet and self.bar.disable

    def tell(self, line: str) -> None:
        """Print a line, above the bar if there is one."""
        with self.bar.external_write_mode():
            terminal.notice(line)

    def begin(self) -> None:
        """Print the device and the number of steps, and start measuring the time."""
        self.marks = [time.perf_counter()]
        if not self.quiet and self.device:
            self.tell(f"training on {self.device}: {self.total - self.step:,} steps")

    def forwarded(self, number: int, count: int, cached: bool = False) -> None:
        """Record the forward pass of the `number`-th of `count` micro-batches; if the first is slow, print an estimate.

        Args:
            cached: whether a forward pass without gradients over all micro-batches preceded it
                (`train.gradient_caching`).
        """
        seconds = time.perf_counter() - self.marks[0]
        if self.step == self.first and number == 1 < count and seconds > SLOW_S and not self.quiet:
            before = count if cached else 0
            each = seconds / (before + 1)
            rest = each * (before + count * (1 + BACKWARD)) * (self.total - self.step)
            self.tell(
                f"{duration(each)} for the forward pass of one of {count} micro-batches: about {duration(rest)} to go"
            )

    def advance(self) -> None:
        """Record a step; after the first ones, print the time of a step."""
        self.step += 1
        self.marks = [*self.marks[:2], time.perf_counter()]
        self.bar.update(1)
        done = self.step - self.first
        slow = done == 1 and self.marks[1] - self.marks[0] > SLOW_S
        if (slow or done == WARM_STEPS) and self.step < self.total and not self.quiet:
            self.tell(f"{duration(self.seconds_a_step)} a step on {self.device or 'this device'}: {self.to_go} to go")

    @property
    def seconds_a_step(self) -> float:
        """The mean time of all steps so far except the first, including evaluation and saving."""
        done = self.step - self.first
        if done < 2:
            return self.marks[-1] - self.marks[0]
        return (self.marks[-1] - self.marks[1]) / (done - 1)

    @property
    def to_go(self) -> str:
        return duration(self.seconds_a_step * (self.total - self.step))

    def show(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Show the figures of a logged step."""
        texts = figures(metrics, self.units)
        if not texts:
            return
        self.bar.texts = {**texts, "scores": self.scores} if self.scores else texts
        self.bar.refresh()
        if self.lines:
            rest = [f"{self.to_go} to go"] if step < self.total else []
            terminal.notice(f"step {step:,}/{self.total:,}: {listed([*texts.values(), *rest])}")

    def score(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Show the scores of an evaluation."""
        self.scores = ", ".join(f"{name.replace('_', ' ').replace('/', ' ')} {v:.4g}" for name, v in scores.items())
        if not self.quiet:
            when = f"after step {step:,}" if step else "before the first step"
            self.tell(f"{when}: {self.scores}{', the best so far' if best and step else ''}")

    def close(self) -> None:
        self.bar.close()
