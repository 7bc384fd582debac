"""SentEval's classifiers: seconds a task, ours beside the original's algorithm one classifier at a time, in one run.

    python -m benchmarks.senteval --data DATA --model MODEL

Protocol `full`, after embedding. The original's algorithm is written out here with torch autograd and torch's Adam, as
SentEval trains a classifier; where a task has more fits than --peer-fits, so many spread over them are run and the
time is scaled to all. At more dimensions than the model has (--dims), embeddings are repeated and turned by one fixed
random rotation, which spreads what they say over all of them.
"""

import argparse
import copy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.report import command, finish, machine
from clearspan.eval.fit.classifiers import Fits, Fold, Settings
from clearspan.eval.fit.features import Features, padded
from clearspan.eval.fit.folds import Scheme
from clearspan.eval.fit.protocols import L2, PROTOCOLS, Problem, Trainer, run_scheme
from clearspan.eval.models.embed import Embedder
from clearspan.eval.models.load import load
from clearspan.eval.tasks import transfer
from clearspan.eval.tasks.classification import ClassificationTask
from clearspan.eval.tasks.task import Run

TASKS = ("MR", "SUBJ", "SST2", "TREC", "MRPC", "SICKEntailment")


def one_at_a_time(x: torch.Tensor, y: torch.Tensor, fold: Fold, l2: float, num_classes: int, settings: Settings) -> int:
    """One classifier as the original trains it; the number of steps."""
    np.random.seed(1111)
    torch.manual_seed(1111)
    model = nn.Sequential(nn.Linear(x.shape[1], num_classes))
    optimizer = torch.optim.Adam(model.parameters(), weight_decay=l2)
    loss = nn.CrossEntropyLoss()
    train, dev = fold.train, fold.dev
    if dev is None:
        order, held = np.random.permutation(len(train)), int(0.05 * len(train))
        dev, train = train[order[:held]], train[order[held:]]
    train_x, train_y, dev_x, dev_y = x[train], y[train], x[dev], y[dev]
    passes, best, stalls, steps, stop = 0, -1.0, 0, 0, False
    while not stop and passes <= settings.max_epoch:
        for _ in range(settings.epoch_size):
            order = np.random.permutation(len(train))
            for start in range(0, len(order), settings.batch_size):
                rows = torch.from_numpy(order[start : start + settings.batch_size])
                cost = loss(model(train_x[rows]), train_y[rows])
                optimizer.zero_grad()
                cost.backward()
                optimizer.step()
                steps += 1
        passes += settings.epoch_size
        with torch.no_grad():
            parts = zip(dev_x.split(settings.batch_size), dev_y.split(settings.batch_size), strict=True)
            accuracy = sum(int((model(a).argmax(1) == b).sum()) for a, b in parts) / len(dev_y)
        if accuracy > best:
            best = accuracy
            copy.deepcopy(model)
        else:
            stop = stalls >= settings.tenacity
            stalls += 1
    return steps


class Asked(Trainer):
    """A trainer that remembers what it was asked to fit."""

    def fit(self, folds: Any, l2: Any) -> Fits:
        self.__dict__.setdefault("asked", []).extend(
            (fold, float(value)) for fold, row in zip(folds, l2, strict=True) for value in row
        )
        return super().fit(folds, l2)


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    found = work()
    return time.perf_counter() - start, found


def rows_of(features: Features) -> torch.Tensor:
    values = torch.empty(len(features), padded(features.dim))
    return features.take(torch.arange(len(features)), values)[:, : features.dim].contiguous()


def measure_task(problem: Problem, scheme: Scheme, peer_fits: int) -> dict[str, Any]:
    trainer = Asked(problem, PROTOCOLS["full"], 1111)
    ours, outcome = seconds(lambda: run_scheme(trainer, scheme, L2))
    fits = trainer.__dict__["asked"]
    num_fits = len(fits) + (scheme == "split")  # the original fits the chosen one again
    chosen = fits[:: -(-len(fits) // peer_fits)]
    x, y = rows_of(problem.features), torch.from_numpy(problem.labels)
    settings = PROTOCOLS["full"].settings
    taken, steps = seconds(
        lambda: sum(one_at_a_time(x, y, fold, l2, problem.num_classes, settings) for fold, l2 in chosen)
    )
    theirs = taken / len(chosen) * num_fits
    return {
        "acc": round(outcome.accuracy, 2),
        "devacc": round(outcome.dev_accuracy, 2),
        "fits": num_fits,
        "seconds": round(ours, 2),
        "one_at_a_time_seconds": round(theirs, 1),
        "one_at_a_time_fits_run": len(chosen),
        "one_at_a_time_us_per_step": round(1e6 * taken / steps, 1),
        "times": round(theirs / ours, 1),
    }


def widened(encode: Any, dim: int) -> Any:
    """The encoder at `dim` dimensions."""

    def at_dim(texts: Any) -> Any:
        found = encode(texts)
        if dim == found.shape[1]:
            return found
        repeated = np.tile(found, (1, -(-dim // found.shape[1])))[:, :dim]
        rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(dim, dim)))[0]
        return (repeated @ rotation).astype(np.float32)

    return at_dim


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    model = load(str(arguments.model))
    known = Embedder(lambda texts: model.encode(texts, progress=True))
    rows = {}
    for dim in arguments.dims:
        embedder = Embedder(widened(known.embed, dim))
        for task in transfer.load(arguments.data).tasks:
            if isinstance(task, ClassificationTask) and task.name in arguments.tasks:
                row = measure_task(task.problem(Run(embedder)), task.scheme, arguments.peer_fits)
                rows[f"{task.name} {dim}"] = row
                print(f"{task.name} {dim}: {row['seconds']} s, {row['times']} x", flush=True)
    versions = {"torch": torch.__version__, "numpy": np.__version__}
    totals = {
        str(dim): round(sum(v["seconds"] for k, v in rows.items() if k.endswith(f" {dim}")), 1)
        for dim in arguments.dims
    }
    return {
        "machine": machine(),
        "versions": versions,
        "threads": torch.get_num_threads(),
        "rows": rows,
        "seconds": totals,
    }


def table(result: dict[str, Any]) -> str:
    """What is printed, and quoted in the README."""
    lines = [
        f"{result['threads']} threads of {result['machine']['cpu']}, protocol full, after embedding",
        f"{'task, dimensions':<22} {'fits':>5} {'acc':>6} {'seconds':>8} "
        f"{'one at a time':>14} {'of fits':>8} {'times':>6}",
    ]
    for name, row in result["rows"].items():
        lines.append(
            f"{name:<22} {row['fits']:>5} {row['acc']:>6.2f} {row['seconds']:>8.1f} "
            f"{row['one_at_a_time_seconds']:>14.1f} {row['one_at_a_time_fits_run']:>8} {row['times']:>6.1f}"
        )
    lines += [f"all tasks at {dim} dimensions: {total:.0f} s" for dim, total in result["seconds"].items()]
    return "\n".join([*lines, "one at a time: the fits that were run, scaled to all"])


def main() -> None:
    parser = command(__doc__, "senteval")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="a SentEval data folder")
    parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="what is embedded with")
    parser.add_argument("--dims", type=int, nargs="+", default=[384, 768], metavar="N", help="default 384 768")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), metavar="TASK", help=f"default {' '.join(TASKS)}")
    parser.add_argument("--peer-fits", type=int, default=4, metavar="N", help="one at a time, a task (default 4)")
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
