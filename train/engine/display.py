"""Progress display of a run: a bar with metrics on a terminal, elsewhere a plain line for each logged step.

    metrics -> loss (also by objective), tokens/s, learning rate, MFU, fraction of time spent waiting for data
    scores of an evaluation -> a line

The bar and the line for a logged step also show the remaining time. With `--quiet`, nothing is shown.
`train.engine.tracking` writes the metrics to files.
"""

import os
import sys
import time
from collections.abc import Mapping
from typing import Any

import torch

from clearspan.common import terminal
from clearspan.common.progress import ProgressBar, duration

BAR = "{l_bar}{n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"
"""tqdm's format, with the metrics in place of the bar; text that does not fit on the line is cut."""


def device_name(device: torch.device, ranks: int) -> str:
    """Return the name and number of a run's devices, e.g. `CPU, 2 of 2 threads` or `2 x NVIDIA H100 80GB HBM3`.

    Args:
        device: the device of this rank.
        ranks: the number of ranks; each has a device.
    """
    if device.type == "cuda":
        return f"{f'{ranks} x ' if ranks > 1 else ''}{torch.cuda.get_device_name(device)}"
    threads = f"{torch.get_num_threads()} of {os.cpu_count()} threads"
    return f"CPU, {threads}{f' a rank, {ranks} ranks' if ranks > 1 else ''}"


def figures(metrics: Mapping[str, float]) -> str:
    """Return a text with the main metrics of a logged step; "" if there are none.

    These are the loss, tokens per second, the learning rate, the MFU (model FLOPs utilization), and the fraction of
    time spent waiting for data. Those that are not in `metrics` are left out.
    """
    texts = []
    if "loss" in metrics:
        losses = {n.split("/")[0]: loss for n, loss in metrics.items() if n.endswith("/loss") and n.count("/") == 1}
        each = f" ({', '.join(f'{name} {loss:.4g}' for name, loss in losses.items())})" if len(losses) > 1 else ""
        texts.append(f"loss {metrics['loss']:.4g}{each}")
    if "tokens_per_s" in metrics:
        texts.append(f"{metrics['tokens_per_s']:,.0f} tokens/s")
    turns = {name.partition("/")[2]: v for name, v in metrics.items() if name.split("/")[0] == "learning_rate"}
    texts += [f"lr {turn} {rate:.2g}".replace("  ", " ") for turn, rate in turns.items()]
    texts += [f"MFU {metrics['mfu']:.0%}"] if "mfu" in metrics else []
    texts += [f"{metrics['data_wait']:.1%} data wait"] if "data_wait" in metrics else []
    return ", ".join(texts)


class Display:
    """Progress display of a run: a bar on a terminal, lines elsewhere.

    Args:
        total: the number of steps of the run.
        step: the step at which this process begins: 0, or the last step of the run that is resumed.
        quiet: True to show nothing.
    """

    def __init__(self, total: int, step: int, quiet: bool) -> None:
        self.total, self.first, self.quiet = total, step, quiet
        self.step = step
        self.warm = time.perf_counter()
        """The time at the end of the first step. That step includes start-up, so it does not count for the remaining
        time.
        """
        is_hidden = quiet or not sys.stderr.isatty()
        self.bar = ProgressBar(total, "train", is_hidden, initial=step, dynamic_ncols=True, bar_format=BAR)

    def tell(self, line: str) -> None:
        """Print a line, above the bar if there is one, unless the run is quiet."""
        if not self.quiet:
            with self.bar.external_write_mode():
                terminal.notice(line)

    def advance(self) -> None:
        """Advance the progress bar by one step."""
        self.step += 1
        if self.step == self.first + 1:
            self.warm = time.perf_counter()
        self.bar.update(1)

    def show(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Show the metrics of a logged step, in the bar or, if there is no bar, as a line.

        Args:
            step: the number of steps that the run has made.
            metrics: name of a metric -> its value.
        """
        if not (text := figures(metrics)):
            return
        self.bar.set_postfix_str(text)
        if self.bar.disable:
            done, left = self.step - self.first - 1, self.total - step
            seconds = (time.perf_counter() - self.warm) / max(1, done) * left
            self.tell(f"step {step:,}/{self.total:,}: {text}{f', {duration(seconds)} to go' if done and left else ''}")

    def score(self, step: int | None, scores: Mapping[str, float], best: bool) -> None:
        """Show the result of an evaluation as a line.

        Args:
            step: the step after which the weights were evaluated; None for the unchanged model that training starts
                from.
            scores: the name of a score or a held-out loss -> its value.
            best: whether the weights are the best so far.
        """
        texts = ", ".join(f"{name.replace('_', ' ').replace('/', ' ')} {v:.4g}" for name, v in scores.items())
        when = f"after step {step:,}" if step else "before the first step" if step == 0 else "the model as given"
        self.tell(f"{when}: {texts}{', the best so far' if best and step else ''}")

    def close(self) -> None:
        self.bar.close()
