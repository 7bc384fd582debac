"""Whole commands on idle cores, and beside processes that keep every core busy: OpenMP threads that spin or sleep.

    python -m benchmarks.load --text peps.jsonl --tokenizer roberta-base --data SENTEVAL

The commands set OMP_WAIT_POLICY=PASSIVE, so torch's threads sleep while they wait for each other; GOMP_SPINCOUNT with
libgomp's default restores the spinning. Each round runs every command both ways, with and without the busy processes.
Times are medians over rounds, of whole commands with imports and start-up; ratios are medians of each round's ratio, of
elapsed time and of processor time, which other work on the machine affects less. Training is the recipe `demo`'s
transformer; its model embeds texts, and is scored on a task of SentEval. Do not set OMP_NUM_THREADS.
"""

import argparse
import contextlib
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.embed import write_corpus
from benchmarks.processes import Process, main, pipeline, progress
from benchmarks.report import columns, command, machine, median_ratio, option

SPINS = {"spin": {"GOMP_SPINCOUNT": "300000"}, "sleep": {}}
"""Variables of each way to wait. The number is libgomp's default if OMP_WAIT_POLICY is not set."""
LOADS = {"idle": 0, "busy": os.cpu_count() or 1}
"""Number of busy processes beside the command."""


BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
"""A program that keeps a core busy, and ends with the process that started it."""


@contextlib.contextmanager
def busy(number: int) -> Iterator[None]:
    """Keep this many cores busy with processes of one thread each."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def lines(text: Path, path: Path, num_texts: int) -> Path:
    """Write the lines of the texts of a .jsonl file, and of them as many texts as `num_texts`; return the file."""
    plain = path.with_suffix(".txt")
    with text.open("rb") as file, plain.open("w", encoding="utf-8") as out:
        for line in file:
            out.write(json.loads(line)["text"] + "\n")
    write_corpus(plain, path, num_texts)
    return path


def measure(arguments: argparse.Namespace, work: Path) -> dict[str, Any]:
    start = time.perf_counter()
    shards, run = work / "shards", work / "run"
    pipeline("documents", [arguments.text], shards, "--tokenizer", arguments.tokenizer, "--min-tokens", "512")
    recipe = [f"{key}={getattr(arguments, key)}" for key in ("data.text.batch_size", "training.max_steps")]
    train = ("train", "--recipe", "demo", f"data.text.path={shards}", f"output={run}", *recipe, "--quiet")
    texts = lines(arguments.text, work / "texts.jsonl", arguments.texts)
    model, vectors, scores = str(run / "model"), work / "vectors", work / "scores"
    data = work / "senteval" / "downstream" / arguments.task
    data.parent.mkdir(parents=True)
    data.symlink_to((arguments.data / "downstream" / arguments.task).resolve())
    embed = ("embed", "--input", str(texts), "--output", str(vectors), "--model", model, "--quiet")
    options = ("--tasks", "transfer", "--data", str(work / "senteval"), "--cache", "none", "--device", "cpu", "--quiet")
    evaluate = ("eval", "--model", model, "--output", str(scores), *options)
    commands = {"train": (train, run), "embed": (embed, vectors), "eval": (evaluate, scores)}
    runs: dict[tuple[str, str, str], list[Process]] = {}
    for number in range(arguments.rounds):
        for name, (words, output) in commands.items():
            for load, num_busy in LOADS.items():
                for wait, variables in SPINS.items():
                    shutil.rmtree(output, ignore_errors=True)
                    with busy(num_busy):
                        process = Process(sys.executable, "-m", "clearspan", *words, variables=variables)
                    runs.setdefault((name, load, wait), []).append(process)
                    progress(start, f"round {number + 1}: {name}, {load}, {wait}: {process.seconds:.1f} s")
    rows: dict[str, dict[str, dict[str, float]]] = {name: {} for name in commands}
    for name, load in itertools.product(commands, LOADS):
        pair = {wait: runs[name, load, wait] for wait in SPINS}
        row = {wait: round(statistics.median(each.seconds for each in pair[wait]), 2) for wait in SPINS}
        for measured in ("seconds", "cpu_seconds"):
            times = [[getattr(each, measured) for each in pair[wait]] for wait in ("sleep", "spin")]
            row[f"{measured}_ratio"] = median_ratio(*times)
        rows[name][load] = row
    names = ("data.text.batch_size", "training.max_steps", "texts", "task", "rounds")
    return {"machine": machine(), **{name: getattr(arguments, name) for name in names}, "rows": rows}


def table(result: dict[str, Any]) -> str:
    """Return the text that is printed."""
    rows = [
        [
            f"{name}, {load}",
            *(f"{row[wait]:.1f}" for wait in SPINS),
            *(f"{row[f'{each}_ratio']:.2f}" for each in ("seconds", "cpu_seconds")),
        ]
        for name, loads in result["rows"].items()
        for load, row in loads.items()
    ]
    cores = f"{result['machine']['cores']} cores of {result['machine']['cpu']}"
    return "\n".join(
        [
            f"{cores}; busy: {LOADS['busy']} processes beside the command; medians of {result['rounds']} rounds",
            columns(["", "spins, s", "sleeps, s", "ratio", "of processor time"], rows),
        ]
    )


if __name__ == "__main__":
    parser = command(__doc__, "load")
    parser.add_argument("--text", type=Path, metavar="FILE", help="a .jsonl file of documents")
    parser.add_argument("--tokenizer", metavar="DIR", help="a folder with a tokenizer")
    parser.add_argument("--data", type=Path, metavar="DIR", help="SentEval's data, which holds downstream/")
    parser.add_argument("--task", default="TREC", help="task of SentEval to score (default TREC)")
    option(parser, "data.text.batch_size", 16, "documents of a training step")
    option(parser, "training.max_steps", 10, "training steps")
    option(parser, "texts", 5000, "texts to embed")
    option(parser, "rounds", 5, "rounds")
    main(parser, {}, measure, table, ("text", "tokenizer", "data"))
