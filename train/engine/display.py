"""What a run shows while it trains: a bar with its figures on a terminal, elsewhere a plain line at every log.

    forwarded, advance -> how long it will take, once the first steps say so
    show               -> loss (by objective), learning rate, tokens/s, documents/s, MFU, data wait, time to go;
                          in a narrow terminal the bar does without the least of them

Nothing is shown with `--quiet`. What is kept of a run's figures, and where, is `train.engine.tracking`'s.
"""

import os
import time
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from tqdm import tqdm

from clearspan.common import terminal

SLOW_S = 30.0
"""A first step, or a first forward of one of several micro-batches, that takes longer is told at once."""
WARM_STEPS = 3
"""The first step is left out of what a step takes, and so many tell it."""
BACKWARD = 2
"""A backward takes as long as so many forwards, about."""
BAR = "{l_bar}{n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"
"""tqdm's, with the figures in place of the bar."""
LEFT_OUT = ("data wait", "examples", "lr", "MFU", "scores", "losses")
"""Figures that a bar does without where they are too many for its line, in this order."""
UNITS = (("years", 365.25 * 86400), ("days", 86400.0), ("h", 3600.0), ("min", 60.0))


def duration(seconds: float) -> str:
    """A time in the largest unit of which it has two, e.g. 238 days."""
    for name, size in UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {name}" if seconds < 10 * size else f"{seconds / size:,.0f} {name}"
    return f"{seconds:.3g} s"


def device_name(device: torch.device, ranks: int) -> str:
    """The device of a run and how many there are, e.g. `CPU, 2 threads` or `2 x NVIDIA H100 80GB HBM3`."""
    if device.type == "cuda":
        return f"{f'{ranks} x ' if ranks > 1 else ''}{torch.cuda.get_device_name(device)}"
    threads = f"{torch.get_num_threads()} of {os.cpu_count()} threads"
    return f"CPU, {threads}{f' a rank, {ranks} ranks' if ranks > 1 else ''}"


def figures(metrics: Mapping[str, float], units: Mapping[str, str]) -> dict[str, str]:
    """What a log says of a step, a text for each figure, for `listed`.

    Args:
        units: what the examples of each dataset are called.
    """
    found = {}
    if "loss" in metrics:
        own = {name.split("/")[0]: v for name, v in metrics.items() if name.endswith("/loss") and name.count("/") == 1}
        found["loss"] = f"loss {metrics['loss']:.4g}"
        if len(own) > 1:
            found["losses"] = f" ({', '.join(f'{name} {value:.4g}' for name, value in own.items())})"
    turns = {name.partition("/")[2]: v for name, v in metrics.items() if name.split("/")[0] == "learning_rate"}
    if turns:
        found["lr"] = "lr " + ", ".join(f"{turn} {rate:.2g}".strip() for turn, rate in turns.items())
    if "tokens_per_s" in metrics:
        found["tokens"] = f"{metrics['tokens_per_s']:,.0f} tokens/s"
    rates = {unit: metrics[f"examples_per_s/{n}"] for n, unit in units.items() if f"examples_per_s/{n}" in metrics}
    if rates:
        found["examples"] = ", ".join(f"{rate:,.3g} {unit}/s" for unit, rate in rates.items())
    if "mfu" in metrics:
        found["MFU"] = f"MFU {metrics['mfu']:.0%}"
    if "data_wait" in metrics:
        found["data wait"] = f"{metrics['data_wait']:.1%} data wait"
    return found


def listed(texts: Iterable[str]) -> str:
    """Texts with commas between; those that begin with a space belong to what is before them."""
    return "".join(text if text.startswith(" ") else f", {text}" for text in texts).removeprefix(", ")


def fitting(said: Mapping[str, str], width: int) -> str:
    """Figures, `listed`, without as many of those in LEFT_OUT as it takes to be no longer than a width."""
    kept = dict(said)
    for name in LEFT_OUT:
        if len(listed(kept.values())) > width:
            kept.pop(name, None)
    return listed(kept.values())


class Bar(tqdm):
    """tqdm's, with as many figures as its line has room for whenever it is drawn.

    Args:
        said: what it shows, as `figures` gives it.
    """

    said: Mapping[str, str] = {}

    @property
    def format_dict(self) -> Any:
        shown = super().format_dict
        if self.said and shown["ncols"]:
            bare = self.format_meter(**{**shown, "ncols": None, "postfix": None})
            shown["postfix"] = fitting(self.said, shown["ncols"] - len(f"{bare}, "))
        return shown


class Display:
    """One run's bar, or its lines.

    Args:
        total: its steps. step: those done before.
        units: what the examples of each dataset are called.
        device: what it runs on, in words.
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
        """Says something in a line of its own, above the bar where there is one."""
        with self.bar.external_write_mode():
            terminal.notice(line)

    def begin(self) -> None:
        """Says on what the run begins; its time counts from here."""
        self.marks = [time.perf_counter()]
        if not self.quiet and self.device:
            self.tell(f"training on {self.device}: {self.total - self.step:,} steps")

    def forwarded(self, number: int, of: int, cached: bool = False) -> None:
        """Takes note of the forward of the `number`-th of so many micro-batches: where the first takes long, what that
        comes to.

        Args:
            cached: whether a forward without gradient of each went before (`train.gradient_caching`).
        """
        seconds = time.perf_counter() - self.marks[0]
        if self.step == self.first and number == 1 < of and seconds > SLOW_S and not self.quiet:
            before = of if cached else 0
            each = seconds / (before + 1)
            whole = each * (before + of * (1 + BACKWARD)) * (self.total - self.step)
            self.tell(f"{duration(each)} a forward of one of {of} micro-batches: some {duration(whole)} to go")

    def advance(self) -> None:
        """Takes note of a step."""
        self.step += 1
        self.marks = [*self.marks[:2], time.perf_counter()]
        self.bar.update(1)
        done = self.step - self.first
        slow = done == 1 and self.marks[1] - self.marks[0] > SLOW_S
        if (slow or done == WARM_STEPS) and self.step < self.total and not self.quiet:
            self.tell(f"{duration(self.seconds_a_step)} a step on {self.device or 'this device'}: {self.to_go} to go")

    @property
    def seconds_a_step(self) -> float:
        """Of all steps so far but the first, with evaluation and saving."""
        done = self.step - self.first
        if done < 2:
            return self.marks[-1] - self.marks[0]
        return (self.marks[-1] - self.marks[1]) / (done - 1)

    @property
    def to_go(self) -> str:
        return duration(self.seconds_a_step * (self.total - self.step))

    def show(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Shows a log's figures."""
        said = figures(metrics, self.units)
        if not said:
            return
        self.bar.said = {**said, "scores": self.scores} if self.scores else said
        self.bar.refresh()
        if self.lines:
            left = [f"{self.to_go} to go"] if step < self.total else []
            terminal.notice(f"step {step:,}/{self.total:,}: {listed([*said.values(), *left])}")

    def score(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Says how an evaluation ended."""
        self.scores = ", ".join(f"{name.replace('_', ' ').replace('/', ' ')} {v:.4g}" for name, v in scores.items())
        if not self.quiet:
            when = f"after step {step:,}" if step else "before the first step"
            self.tell(f"{when}: {self.scores}{', the best so far' if best and step else ''}")

    def close(self) -> None:
        self.bar.close()
