"""Documents to token shards: this pipeline, `datasets` and `datatrove`, and their memory.

    python -m benchmarks.pipelines --text CORPORA --tokenizer roberta-base

One run on one machine and one input: the .jsonl files of CORPORA, repeated up to --megabytes. Every contender is a
command of its own with two processes that keeps documents of 2,048 or more of the tokenizer's tokens (datatrove has no
such filter and writes all). This pipeline's time is that of its whole command, including
imports, planning, re-reading and publishing; the peers' time starts after their imports, and is for the first
--peer-megabytes of the same input. Memory is the peak resident size of the command's first process and of any other
process. Needs the extra `benchmarks`.
"""

import argparse
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from benchmarks.processes import MEMORY, NUM_PROCESSES, Process, contender, main, pipeline, progress
from benchmarks.report import command, machine, option, tabulated

MIN_TOKENS = 2048
OPTIONS = ("--unit-bytes", "50000000", "--min-tokens", str(MIN_TOKENS))
TIMES = 10
"""The run for memory has this many copies of the input."""
MANY = f"clearspan, {TIMES} x"


def lines(text: Path) -> Iterator[bytes]:
    """Yield the texts of a folder's .jsonl files without end, each as a line with no other field."""
    while True:
        for path in sorted(text.glob("*.jsonl")):
            with path.open("rb") as file:
                for line in file:
                    yield orjson.dumps({"text": orjson.loads(line)["text"]}) + b"\n"


def write_corpus(text: Path, path: Path, num_bytes: int) -> int:
    """Write at least `num_bytes` of records; return the number of bytes written."""
    size = 0
    with path.open("wb") as file:
        for line in lines(text):
            size += file.write(line)
            if size >= num_bytes:
                break
    return size


def with_datasets(output: Path, path: str, tokenizer: str) -> float:
    """Load, map in batches, filter by length and save with `datasets`, all caches empty. Return the seconds."""
    import datasets
    from transformers import AutoTokenizer

    datasets.disable_progress_bars()
    encoder = AutoTokenizer.from_pretrained(tokenizer)
    start = time.perf_counter()
    data = datasets.load_dataset("json", data_files=path, split="train", cache_dir=str(output / "cache"))
    data = data.select_columns(["text"])
    data = data.map(
        lambda rows: {"input_ids": encoder(rows["text"], add_special_tokens=False)["input_ids"]},
        batched=True,
        num_proc=NUM_PROCESSES,
        remove_columns=["text"],
    )
    data = data.filter(
        lambda rows: [len(ids) >= MIN_TOKENS for ids in rows["input_ids"]], batched=True, num_proc=NUM_PROCESSES
    )
    data.save_to_disk(str(output / "saved"), num_proc=NUM_PROCESSES)
    return time.perf_counter() - start


def with_datatrove(output: Path, path: str, tokenizer: str) -> float:
    """Read and tokenize with `datatrove`, one file a task. Return the seconds."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    parts = output / "input"
    parts.mkdir(parents=True)
    with Path(path).open("rb") as file:
        data = file.readlines()
    for number in range(NUM_PROCESSES):
        (parts / f"{number}.jsonl").write_bytes(b"".join(data[number::NUM_PROCESSES]))
    del data
    start = time.perf_counter()
    LocalPipelineExecutor(
        pipeline=[
            JsonlReader(str(parts), glob_pattern="*.jsonl"),
            DocumentTokenizer(str(output / "tokens"), tokenizer_name_or_path=str(Path(tokenizer) / "tokenizer.json")),
        ],
        tasks=NUM_PROCESSES,
        workers=NUM_PROCESSES,
        logging_dir=str(output / "logs"),
        skip_completed=False,
    ).run()
    return time.perf_counter() - start


CONTENDERS = {"datasets": with_datasets, "datatrove": with_datatrove}


def row(num_bytes: int, seconds: float, process: Process) -> dict[str, float]:
    return {
        "input_mb": round(num_bytes / 1e6, 1),
        "seconds": round(seconds, 2),
        "mb_per_s": round(num_bytes / 1e6 / seconds, 1),
        "mb_per_cpu_s": round(num_bytes / 1e6 / process.cpu_seconds, 1),
        **process.memory(),
    }


def measure(arguments: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Run everything in turn, with a line of progress each."""
    start = time.perf_counter()
    tokenizer = arguments.tokenizer.resolve()
    corpus, part, copies = work / "corpus.jsonl", work / "part.jsonl", work / "copies"
    size = write_corpus(arguments.text, corpus, arguments.megabytes * 1_000_000)
    part_size = write_corpus(arguments.text, part, arguments.peer_megabytes * 1_000_000)
    copies.mkdir()
    for number in range(TIMES):
        shutil.copyfile(corpus, copies / f"{number:02d}.jsonl")
    rows: dict[str, dict[str, float]] = {}

    for name, inputs in {"clearspan": [corpus], MANY: sorted(copies.iterdir())}.items():
        progress(start, name)
        words = ["--tokenizer", str(tokenizer), *OPTIONS]
        process, _ = pipeline("documents", inputs, work / "output", *words)
        rows[name] = row(len(inputs) * size, process.seconds, process)
    for name in CONTENDERS:
        progress(start, name)
        process, seconds = contender("pipelines", name, work / name, part, tokenizer)
        rows[name] = row(part_size, seconds, process)
    return {
        "machine": machine(),
        "processes": NUM_PROCESSES,
        "rows": rows,
        "times": {
            name: {key: round(rows[MANY][key] / rows[name][key], 1) for key in ("mb_per_s", "mb_per_cpu_s")}
            for name in ("datasets", "datatrove")
        },
    }


def table(result: dict[str, Any]) -> str:
    """Return the text that is printed."""
    figures = {"input MB": ("input_mb", ",.1f"), "seconds": ("seconds", ",.2f"), "MB/s": ("mb_per_s", ",.1f")}
    figures |= {"MB/CPU s": ("mb_per_cpu_s", ",.1f"), **MEMORY}
    lines = [
        f"{result['machine']['cores']} cores of {result['machine']['cpu']}, {NUM_PROCESSES} processes",
        tabulated("", result["rows"], figures),
        *(
            f"{TIMES} x the input: {times['mb_per_s']} x the MB/s of {name}, per processor second "
            f"{times['mb_per_cpu_s']} x"
            for name, times in result["times"].items()
        ),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    parser = command(__doc__, "pipelines")
    parser.add_argument("--text", type=Path, help="a folder of .jsonl files with texts")
    parser.add_argument("--tokenizer", type=Path, help="the folder of a byte-level BPE tokenizer")
    option(parser, "megabytes", 400, "MB of input")
    option(parser, "peer-megabytes", 60, "MB of the peers' input")
    main(parser, CONTENDERS, measure, table, ("text", "tokenizer"))
