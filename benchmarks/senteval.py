"""SentEval's classifiers: seconds a task, ours beside the original's algorithm, which fits one classifier at a time.

    python -m benchmarks.senteval --data DATA --model MODEL

The protocol is `full`; embedding is not included. The original's algorithm is reimplemented here with torch autograd
and torch's Adam, as SentEval trains a classifier. If a task has more fits than --peer-fits, that many, evenly spread,
are run, and the time is scaled to all. For more dimensions than the model has (--dims), embeddings are repeated and
rotated by a fixed random rotation, which spreads their information over all dimensions.
"""

import argparse
import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.report import command, finish, machine, option, tabulated, timed
from clearspan.eval.fit.classifiers import ClassifierSettings, Fits, Fold, Problem
from clearspan.eval.fit.features import Features, padded
from clearspan.eval.fit.folds import Scheme
from clearspan.eval.fit.protocols import L2, PROTOCOLS, FitInputs, run_scheme
from clearspan.eval.models.embed import EmbeddingSimilarity
from clearspan.eval.models.load import load_encoder
from clearspan.eval.tasks import transfer
from clearspan.eval.tasks.classification import ClassificationTask
from clearspan.eval.tasks.task import TaskContext

TASKS = ("MR", "SUBJ", "SST2", "TREC", "MRPC", "SICKEntailment")


def one_at_a_time(
    x: torch.Tensor, y: torch.Tensor, fold: Fold, l2: float, num_classes: int, settings: ClassifierSettings
) -> None:
    """Train one classifier as the original does."""
    np.random.seed(1111)
    torch.manual_seed(1111)
    model = nn.Sequential(nn.Linear(x.shape[1], num_classes))
    optimizer = torch.optim.Adam(model.parameters(), weight_decay=l2)
    loss = nn.CrossEntropyLoss()
    train, dev = fold.train, fold.dev
    if dev is None:
        order, num_dev = np.random.permutation(len(train)), int(0.05 * len(train))
        dev, train = train[order[:num_dev]], train[order[num_dev:]]
    train_x, train_y, dev_x, dev_y = x[train], y[train], x[dev], y[dev]
    passes, best, stalls, stop = 0, -1.0, 0, False
    while not stop and passes <= settings.max_epoch:
        for _ in range(settings.epoch_size):
            order = np.random.permutation(len(train))
            for start in range(0, len(order), settings.batch_size):
                rows = torch.from_numpy(order[start : start + settings.batch_size])
                cost = loss(model(train_x[rows]), train_y[rows])
                optimizer.zero_grad()
                cost.backward()
                optimizer.step()
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


class RecordingTrainer(FitInputs):
    """A trainer that records every fit."""

    def fit(self, folds: Any, l2: Any) -> Fits:
        self.__dict__.setdefault("recorded", []).extend(
            (fold, float(value)) for fold, row in zip(folds, l2, strict=True) for value in row
        )
        return super().fit(folds, l2)


def rows_of(features: Features) -> torch.Tensor:
    values = torch.empty(len(features), padded(features.dim))
    return features.take(torch.arange(len(features)), values)[:, : features.dim].contiguous()


def measure_task(problem: Problem, scheme: Scheme, peer_fits: int) -> dict[str, Any]:
    trainer = RecordingTrainer(problem, PROTOCOLS["full"], 1111)
    ours, outcome = timed(lambda: run_scheme(trainer, scheme, L2))
    fits = trainer.__dict__["recorded"]
    num_fits = len(fits) + (scheme == "split")  # the original fits the chosen classifier again
    chosen = fits[:: -(-len(fits) // peer_fits)]
    x, y = rows_of(problem.features), torch.from_numpy(problem.labels)
    settings = PROTOCOLS["full"].settings
    taken, _ = timed(lambda: [one_at_a_time(x, y, fold, l2, problem.num_classes, settings) for fold, l2 in chosen])
    theirs = taken.clock / len(chosen) * num_fits
    return {
        "acc": round(outcome.accuracy, 2),
        "fits": num_fits,
        "seconds": round(ours.clock, 2),
        "one_at_a_time_seconds": round(theirs, 1),
        "times": round(theirs / ours.clock, 1),
    }


def widened(encode: Any, dim: int) -> Any:
    """Return the encoding function with `dim` dimensions."""

    def at_dim(texts: Any) -> Any:
        vectors = encode(texts)
        if dim == vectors.shape[1]:
            return vectors
        repeated = np.tile(vectors, (1, -(-dim // vectors.shape[1])))[:, :dim]
        rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(dim, dim)))[0]
        return (repeated @ rotation).astype(np.float32)

    return at_dim


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    model = load_encoder(str(arguments.model))
    cached = EmbeddingSimilarity(lambda texts: model.encode(texts, progress=True))
    rows = {}
    for dim in arguments.dims:
        embedder = EmbeddingSimilarity(widened(cached.embed, dim))
        for task in transfer.load(arguments.data).tasks:
            if isinstance(task, ClassificationTask) and task.name in arguments.tasks:
                row = measure_task(task.problem(TaskContext(embedder)), task.scheme, arguments.peer_fits)
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
    """Return the text that is printed."""
    figures = {"fits": ("fits", ""), "acc": ("acc", ".2f"), "seconds": ("seconds", ".1f")}
    figures |= {"one at a time": ("one_at_a_time_seconds", ".1f"), "times": ("times", ".1f")}
    lines = [
        f"{result['threads']} threads of {result['machine']['cpu']}, protocol full, without embedding",
        tabulated("task, dimensions", result["rows"], figures),
        *(f"all tasks at {dim} dimensions: {total:.0f} s" for dim, total in result["seconds"].items()),
        "one at a time: seconds of the fits that were run, scaled to all fits",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = command(__doc__, "senteval")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="a SentEval data folder")
    parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="the model that embeds the texts")
    dims = "dimensions of the embeddings (default 384 768)"
    parser.add_argument("--dims", type=int, nargs="+", default=[384, 768], metavar="N", help=dims)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), metavar="TASK", help=f"default {' '.join(TASKS)}")
    option(parser, "peer-fits", 4, "classifiers a task that are fitted one at a time")
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
