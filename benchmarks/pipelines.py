"""Documents to token shards: this pipeline, `datasets`, `datatrove` and a bare loop; memory; whether time is linear.

    python -m benchmarks.pipelines --text CORPORA --tokenizer roberta-base --switch=--dedup --switch='--exclude STS.txt'

One run on one machine and one input: the .jsonl files of CORPORA, repeated to --megabytes. Every contender is a command
of its own, two processes each (the bare loop: one), with RoBERTa-sized documents kept from 2,048 tokens on (datatrove
has no such filter: it writes all). This pipeline's time is its whole command's, imports, planning, re-reading and
publishing included; the peers' is from after their imports, on the first --peer-megabytes of the same input. Memory is
the largest resident size seen of the command's first process and of any other. Needs the extra `benchmarks`.
"""

import argparse
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import psutil

from benchmarks.report import command, machine, tell

MIN_TOKENS = 2048
PROCESSES = 2
UNIT_BYTES = 50_000_000
TIMES = 10
"""How much more input the run for memory and linearity has: as many copies of the file."""
IMPORTED: dict[str, float] = {}
"""The processor seconds a contender's process had used when its work began."""


def lines(text: Path) -> Iterator[bytes]:
    """The texts of a folder's .jsonl files, one a line and nothing beside it, for ever."""
    while True:
        for path in sorted(text.glob("*.jsonl")):
            with path.open("rb") as file:
                for line in file:
                    yield orjson.dumps({"text": orjson.loads(line)["text"]}) + b"\n"


def write_corpus(text: Path, path: Path, num_bytes: int) -> int:
    """Writes the records until they are `num_bytes`; returns how many bytes they are."""
    size = 0
    with path.open("wb") as file:
        for line in lines(text):
            size += file.write(line)
            if size >= num_bytes:
                return size
    raise AssertionError("endless")


class Watched:
    """A command, run to its end: its output, its seconds by the clock and of processors, and the peak resident bytes of
    its first and of any other process.
    """

    def __init__(self, *command: str) -> None:
        start = time.perf_counter()
        environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
            self.first_bytes = self.other_bytes = 0
            self._cpu: dict[int, float] = {}
            self._ended = threading.Event()
            watcher = threading.Thread(target=self._watch, args=(psutil.Process(process.pid),))
            watcher.start()
            self.output, _ = process.communicate()
            self.seconds = time.perf_counter() - start
            self._ended.set()
            watcher.join()
            self.cpu_seconds = sum(self._cpu.values())
            if process.returncode:
                errors.seek(0)
                raise SystemExit(f"benchmark: {' '.join(command[:4])} ... failed:\n{errors.read()[-3000:]}")

    def _watch(self, first: psutil.Process) -> None:
        while not self._ended.wait(0.1):
            with contextlib.suppress(psutil.Error):
                self.first_bytes = max(self.first_bytes, self._look(first))
                self.other_bytes = max(0, self.other_bytes, *map(self._look, first.children(recursive=True)))

    def _look(self, process: psutil.Process) -> int:
        times = process.cpu_times()
        self._cpu[process.pid] = times.user + times.system
        return process.memory_info().rss


def pipeline(inputs: list[Path], output: Path, tokenizer: Path, *options: str) -> tuple[Watched, dict[str, Any]]:
    """This project's command, on its own folder."""
    shutil.rmtree(output, ignore_errors=True)
    words = ["--input", *map(str, inputs), "--output", str(output), "--tokenizer", str(tokenizer), "--json", "--quiet"]
    sizes = ["--workers", str(PROCESSES), "--unit-bytes", str(UNIT_BYTES), "--min-tokens", str(MIN_TOKENS)]
    run = Watched(sys.executable, "-m", "pipelines", "documents", *words, *sizes, *options)
    return run, json.loads(run.output)


def bare_loop(path: Path, output: Path, tokenizer: Path) -> float:
    """The least that can be done: parse, leave out the short, encode, leave out the short, write. Returns seconds."""
    import gigatoken
    import numpy as np
    import pyarrow as pa
    from tokenizers import Tokenizer

    from clearspan.shards import ShardWriter
    from clearspan.shards.schema import schema

    fast = gigatoken.Tokenizer(Tokenizer.from_file(str(tokenizer / "tokenizer.json")))
    fields = schema("documents", pa.uint16())
    writer = ShardWriter(output, "documents", 0)
    IMPORTED["cpu"] = time.process_time()
    start = time.perf_counter()
    group: list[str] = []
    kept: list[Any] = []
    size = held = 0

    def flush() -> None:
        offsets = np.zeros(len(kept) + 1, dtype=np.int32)
        np.cumsum([len(tokens) for tokens in kept], out=offsets[1:])
        tokens = pa.ListArray.from_arrays(offsets, np.concatenate(kept), type=fields.field("tokens").type)
        ids = pa.array(range(len(kept)), pa.int64())
        writer.write(pa.record_batch([ids, tokens, pa.array([""] * len(kept))], schema=fields))
        kept.clear()

    def encode() -> None:
        nonlocal held
        layout = fast.encode_batch(group, parallel=False).layout
        flat, ends = layout.content.data.astype(np.uint16), layout.offsets.data
        for first, last in itertools.pairwise(ends):
            if last - first >= MIN_TOKENS:
                kept.append(flat[first:last])
                held += last - first
        group.clear()
        if held >= 1 << 19:
            flush()
            held = 0

    with path.open("rb", buffering=1 << 20) as file:
        for line in file:
            text = orjson.loads(line)["text"]
            if len(line) < MIN_TOKENS or len(text.encode()) < MIN_TOKENS:
                continue
            group.append(text)
            size += len(line)
            if size >= 1 << 20:
                encode()
                size = 0
    encode()
    if kept:
        flush()
    writer.close()
    return time.perf_counter() - start


def with_datasets(path: Path, output: Path, tokenizer: Path) -> float:
    """`datasets`: load, map in batches, filter by length, save. Returns seconds, all caches empty."""
    import datasets
    from transformers import AutoTokenizer

    datasets.disable_progress_bars()
    encoder = AutoTokenizer.from_pretrained(str(tokenizer))
    start = time.perf_counter()
    data = datasets.load_dataset("json", data_files=str(path), split="train", cache_dir=str(output / "cache"))
    data = data.select_columns(["text"])
    data = data.map(
        lambda rows: {"input_ids": encoder(rows["text"], add_special_tokens=False)["input_ids"]},
        batched=True,
        num_proc=PROCESSES,
        remove_columns=["text"],
    )
    data = data.filter(
        lambda rows: [len(ids) >= MIN_TOKENS for ids in rows["input_ids"]], batched=True, num_proc=PROCESSES
    )
    data.save_to_disk(str(output / "saved"), num_proc=PROCESSES)
    return time.perf_counter() - start


def with_datatrove(path: Path, output: Path, tokenizer: Path) -> float:
    """datatrove: one file a task, read and tokenized. Returns seconds."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    parts = output / "input"
    parts.mkdir(parents=True)
    with path.open("rb") as file:
        data = file.readlines()
    for number in range(PROCESSES):
        (parts / f"{number}.jsonl").write_bytes(b"".join(data[number::PROCESSES]))
    del data
    start = time.perf_counter()
    LocalPipelineExecutor(
        pipeline=[
            JsonlReader(str(parts), glob_pattern="*.jsonl"),
            DocumentTokenizer(str(output / "tokens"), tokenizer_name_or_path=str(tokenizer / "tokenizer.json")),
        ],
        tasks=PROCESSES,
        workers=PROCESSES,
        logging_dir=str(output / "logs"),
        skip_completed=False,
    ).run()
    return time.perf_counter() - start


CONTENDERS = {"bare_loop": bare_loop, "datasets": with_datasets, "datatrove": with_datatrove}


def contender(name: str, path: Path, output: Path, tokenizer: Path) -> tuple[Watched, float]:
    """One of them as a command of its own: (what was seen of it, its seconds). The bare loop tells its own of the
    processor too, so that no import is in them.
    """
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    run = Watched(
        sys.executable, "-m", "benchmarks.pipelines", "--contender", name, str(path), str(output), str(tokenizer)
    )
    seconds, cpu_seconds = map(float, run.output.split()[-2:])
    if name == "bare_loop":
        run.cpu_seconds = cpu_seconds
    return run, seconds


def row(num_bytes: int, seconds: float, run: Watched) -> dict[str, float]:
    return {
        "input_mb": round(num_bytes / 1e6, 1),
        "seconds": round(seconds, 2),
        "mb_per_s": round(num_bytes / 1e6 / seconds, 1),
        "cpu_seconds": round(run.cpu_seconds, 2),
        "mb_per_cpu_s": round(num_bytes / 1e6 / run.cpu_seconds, 1),
        "first_process_mb": round(run.first_bytes / 1e6),
        "other_process_mb": round(run.other_bytes / 1e6),
    }


def measure(arguments: argparse.Namespace, work: Path) -> dict[str, Any]:
    """All of it, in turn, a line of progress each."""

    def say(text: str) -> None:
        print(f"[{time.perf_counter() - began:5.0f} s] {text}", file=sys.stderr, flush=True)

    began = time.perf_counter()
    tokenizer = arguments.tokenizer.resolve()
    corpus, part, tiny = work / "corpus.jsonl", work / "part.jsonl", work / "tiny.jsonl"
    size = write_corpus(arguments.text, corpus, arguments.megabytes * 1_000_000)
    part_size = write_corpus(arguments.text, part, arguments.peer_megabytes * 1_000_000)
    write_corpus(arguments.text, tiny, 200_000)
    rows: dict[str, dict[str, float]] = {}

    say("start-up alone")
    start_up, _ = pipeline([tiny], work / "tiny", tokenizer, "--min-tokens", "1", "--unit-bytes", "100000")
    say(f"this pipeline, {size / 1e6:,.0f} MB")
    once, summary = pipeline([corpus], work / "once", tokenizer)
    rows["clearspan"] = row(size, once.seconds, once)
    copies = work / "copies"
    copies.mkdir()
    for number in range(TIMES):
        shutil.copyfile(corpus, copies / f"{number:02d}.jsonl")
    say(f"this pipeline, {TIMES} x as much")
    many, long_summary = pipeline(sorted(copies.iterdir()), work / "many", tokenizer)
    rows[f"clearspan, {TIMES} x"] = row(TIMES * size, many.seconds, many)
    switches: dict[str, float] = {}
    for name in arguments.switch:
        say(f"this pipeline, {name}")
        switched, _ = pipeline([corpus], work / "switched", tokenizer, *name.split())
        switches[name.split()[0]] = round(switched.seconds - once.seconds, 2)
    for name in CONTENDERS:
        path, num_bytes = (corpus, size) if name == "bare_loop" else (part, part_size)
        say(f"{name}, {num_bytes / 1e6:,.0f} MB")
        run, seconds = contender(name, path, work / name, tokenizer)
        rows[name] = row(num_bytes, seconds, run)
    steady = TIMES * size / 1e6 / (many.seconds - start_up.seconds)
    steady_cpu = TIMES * size / 1e6 / (many.cpu_seconds - start_up.cpu_seconds)
    own = rows[f"clearspan, {TIMES} x"]["mb_per_s"]
    return {
        "machine": machine(),
        "processes": PROCESSES,
        "documents": summary["read"],
        "rows": rows,
        "start_up_seconds": round(start_up.seconds, 2),
        "times_datasets": round(own / rows["datasets"]["mb_per_s"], 1),
        "times_datatrove": round(own / rows["datatrove"]["mb_per_s"], 1),
        **{f"times_{name}_per_cpu_second": times_per_cpu_second(rows, name) for name in ("datasets", "datatrove")},
        "steady_mb_per_s": round(steady, 1),
        "share_of_bare_loop_per_process": round(steady / PROCESSES / rows["bare_loop"]["mb_per_s"], 3),
        "share_of_bare_loop_per_cpu_second": round(steady_cpu / rows["bare_loop"]["mb_per_cpu_s"], 3),
        "time_ratio_past_start_up": round((many.seconds - start_up.seconds) / (once.seconds - start_up.seconds), 2),
        "worker_seconds": long_summary["run"]["worker_seconds"],
        "switches_extra_seconds": switches,
    }


def times_per_cpu_second(rows: dict[str, dict[str, float]], name: str) -> float:
    """How many times a peer's MB per processor second this pipeline's are, whatever else the machine did."""
    own, other = (values["input_mb"] / values["cpu_seconds"] for values in (rows[f"clearspan, {TIMES} x"], rows[name]))
    return round(own / other, 1)


def table(result: dict[str, Any]) -> str:
    """What is printed, and quoted in the README."""
    header = f"{'':<18} {'input MB':>9} {'seconds':>8} {'MB/s':>7} {'MB/CPU s':>11} {'first MB':>9} {'worker MB':>10}"
    body = [
        f"{name:<18} {v['input_mb']:>9,.1f} {v['seconds']:>8.2f} {v['mb_per_s']:>7.1f} {v['mb_per_cpu_s']:>11.1f} "
        f"{v['first_process_mb']:>9,.0f} {v['other_process_mb']:>10,.0f}"
        for name, v in result["rows"].items()
    ]
    total = sum(result["worker_seconds"].values()) or 1.0
    shares = ", ".join(f"{stage} {100 * seconds / total:.0f} %" for stage, seconds in result["worker_seconds"].items())
    lines = [
        f"{result['machine']['cores']} cores of {result['machine']['cpu']}, {PROCESSES} processes (the bare loop: one)",
        header,
        *body,
        f"at {TIMES} x: {result['times_datasets']} x the MB/s of datasets, {result['times_datatrove']} x of datatrove; "
        f"a processor second: {result['times_datasets_per_cpu_second']} x and "
        f"{result['times_datatrove_per_cpu_second']} x",
        f"past {result['start_up_seconds']} s of start-up: {result['steady_mb_per_s']} MB/s, a process "
        f"{result['share_of_bare_loop_per_process']:.0%} of the bare loop by the clock, and "
        f"{result['share_of_bare_loop_per_cpu_second']:.0%} a processor second; {TIMES} x the input takes "
        f"{result['time_ratio_past_start_up']} x the time",
        f"worker time: {shares}",
        *(f"{name}: {seconds:+.2f} s" for name, seconds in result["switches_extra_seconds"].items()),
    ]
    return "\n".join(lines)


def main() -> None:
    parser = command(__doc__, "pipelines")
    parser.add_argument("--text", type=Path, help="a folder of .jsonl files with texts")
    parser.add_argument("--tokenizer", type=Path, help="the folder of a byte-level BPE tokenizer")
    parser.add_argument("--megabytes", type=int, default=400, metavar="N", help="input (default 400)")
    parser.add_argument("--peer-megabytes", type=int, default=60, metavar="N", help="the peers' input (default 60)")
    parser.add_argument("--switch", action="append", default=[], metavar="OPTIONS", help="a run with more options")
    parser.add_argument("--work", type=Path, metavar="DIR", help="where to work (default: a temporary folder)")
    parser.add_argument("--contender", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contender:
        name, *paths = arguments.contender
        seconds = CONTENDERS[name](*map(Path, paths))
        print(seconds, time.process_time() - IMPORTED.get("cpu", 0.0))
        return
    if not (arguments.text and arguments.tokenizer):
        parser.error("--text and --tokenizer are required")
    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        result = measure(arguments, Path(work))
    tell(result, table, arguments.output)


if __name__ == "__main__":
    main()
