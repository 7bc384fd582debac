"""Documents to token shards: this pipeline, `datasets`, `datatrove` and a bare loop; memory, and linearity of the time.

    python -m benchmarks.pipelines --text CORPORA --tokenizer roberta-base --switch=--dedup --switch='--exclude STS.txt'

One run on one machine and one input: the .jsonl files of CORPORA, repeated up to --megabytes. Every contender is a
command of its own with two processes (the bare loop: one) that keeps documents from 2,048 tokens on, by RoBERTa's
tokenizer (datatrove has no such filter and writes all). This pipeline's time is that of its whole command, including
imports, planning, re-reading and publishing; the peers' time starts after their imports, and is for the first
--peer-megabytes of the same input. Memory is the peak resident size of the command's first process and of any other
process. Needs the extra `benchmarks`.
"""

import argparse
import itertools
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from benchmarks.processes import COLUMNS, NUM_PROCESSES, Process, contender, imported, main, pipeline, progress
from benchmarks.report import columns, command, machine, option

MIN_TOKENS = 2048
OPTIONS = ("--unit-bytes", "50000000", "--min-tokens", str(MIN_TOKENS))
TIMES = 10
"""The run for memory and linearity has this many copies of the input."""


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


def bare_loop(output: Path, path: str, tokenizer: str) -> float:
    """Do the minimum: parse, drop short texts, encode, drop short documents, write. Return the seconds."""
    import gigatoken
    import numpy as np
    import pyarrow as pa
    from tokenizers import Tokenizer

    from clearspan.shards import ShardWriter
    from clearspan.shards.schema import schema

    fast = gigatoken.Tokenizer(Tokenizer.from_file(str(Path(tokenizer) / "tokenizer.json")))
    fields = schema("documents", pa.uint16())
    writer = ShardWriter(output, "documents", 0)
    imported()
    start = time.perf_counter()
    group: list[str] = []
    documents: list[Any] = []
    group_bytes = num_tokens = 0

    def flush() -> None:
        offsets = np.zeros(len(documents) + 1, dtype=np.int32)
        np.cumsum([len(tokens) for tokens in documents], out=offsets[1:])
        tokens = pa.ListArray.from_arrays(offsets, np.concatenate(documents), type=fields.field("tokens").type)
        ids = pa.array(range(len(documents)), pa.int64())
        writer.write(pa.record_batch([ids, tokens, pa.array([""] * len(documents))], schema=fields))
        documents.clear()

    def encode() -> None:
        nonlocal num_tokens
        layout = fast.encode_batch(group, parallel=False).layout
        flat, ends = layout.content.data.astype(np.uint16), layout.offsets.data
        for first, last in itertools.pairwise(ends):
            if last - first >= MIN_TOKENS:
                documents.append(flat[first:last])
                num_tokens += last - first
        group.clear()
        if num_tokens >= 1 << 19:
            flush()
            num_tokens = 0

    with Path(path).open("rb", buffering=1 << 20) as file:
        for line in file:
            text = orjson.loads(line)["text"]
            if len(line) < MIN_TOKENS or len(text.encode()) < MIN_TOKENS:
                continue
            group.append(text)
            group_bytes += len(line)
            if group_bytes >= 1 << 20:
                encode()
                group_bytes = 0
    encode()
    if documents:
        flush()
    writer.close()
    return time.perf_counter() - start


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


CONTENDERS = {"bare_loop": bare_loop, "datasets": with_datasets, "datatrove": with_datatrove}


def row(num_bytes: int, seconds: float, cpu_seconds: float, process: Process) -> dict[str, float]:
    return {
        "input_mb": round(num_bytes / 1e6, 1),
        "seconds": round(seconds, 2),
        "mb_per_s": round(num_bytes / 1e6 / seconds, 1),
        "cpu_seconds": round(cpu_seconds, 2),
        "mb_per_cpu_s": round(num_bytes / 1e6 / cpu_seconds, 1),
        **process.memory(),
    }


def measure(arguments: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Run everything in turn, with a line of progress each."""
    start = time.perf_counter()
    tokenizer = arguments.tokenizer.resolve()
    corpus, part, tiny, copies = work / "corpus.jsonl", work / "part.jsonl", work / "tiny.jsonl", work / "copies"
    size = write_corpus(arguments.text, corpus, arguments.megabytes * 1_000_000)
    part_size = write_corpus(arguments.text, part, arguments.peer_megabytes * 1_000_000)
    write_corpus(arguments.text, tiny, 200_000)
    copies.mkdir()
    for number in range(TIMES):
        shutil.copyfile(corpus, copies / f"{number:02d}.jsonl")
    rows: dict[str, dict[str, float]] = {}

    def ours(title: str, inputs: list[Path], *options: str) -> tuple[Process, dict[str, Any]]:
        progress(start, f"this pipeline, {title}")
        words = ["--tokenizer", str(tokenizer), *OPTIONS, *options]
        return pipeline("documents", inputs, work / "output", *words)

    start_up, _ = ours("start-up", [tiny], "--min-tokens", "1", "--unit-bytes", "100000")
    once, summary = ours(f"{size / 1e6:,.0f} MB", [corpus])
    rows["clearspan"] = row(size, once.seconds, once.cpu_seconds, once)
    many, _ = ours(f"{TIMES} x as much", sorted(copies.iterdir()))
    rows[f"clearspan, {TIMES} x"] = row(TIMES * size, many.seconds, many.cpu_seconds, many)
    switches: dict[str, float] = {}
    for words in arguments.switch:
        switched, _ = ours(words, [corpus], *words.split())
        switches[words.split()[0]] = round(switched.seconds - once.seconds, 2)
    for name in CONTENDERS:
        path, num_bytes = (corpus, size) if name == "bare_loop" else (part, part_size)
        progress(start, f"{name}, {num_bytes / 1e6:,.0f} MB")
        process, seconds, cpu_seconds = contender("pipelines", name, work / name, path, tokenizer)
        rows[name] = row(num_bytes, seconds, cpu_seconds if name == "bare_loop" else process.cpu_seconds, process)
    steady = TIMES * size / 1e6 / (many.seconds - start_up.seconds)
    steady_cpu = TIMES * size / 1e6 / (many.cpu_seconds - start_up.cpu_seconds)
    own = rows[f"clearspan, {TIMES} x"]["mb_per_s"]
    return {
        "machine": machine(),
        "processes": NUM_PROCESSES,
        "documents": summary["read"],
        "rows": rows,
        "start_up_seconds": round(start_up.seconds, 2),
        "times_datasets": round(own / rows["datasets"]["mb_per_s"], 1),
        "times_datatrove": round(own / rows["datatrove"]["mb_per_s"], 1),
        **{f"times_{name}_per_cpu_second": times_per_cpu_second(rows, name) for name in ("datasets", "datatrove")},
        "steady_mb_per_s": round(steady, 1),
        "share_of_bare_loop_per_process": round(steady / NUM_PROCESSES / rows["bare_loop"]["mb_per_s"], 3),
        "share_of_bare_loop_per_cpu_second": round(steady_cpu / rows["bare_loop"]["mb_per_cpu_s"], 3),
        "time_ratio_past_start_up": round((many.seconds - start_up.seconds) / (once.seconds - start_up.seconds), 2),
        "switches_extra_seconds": switches,
    }


def times_per_cpu_second(rows: dict[str, dict[str, float]], name: str) -> float:
    """Return the ratio of this pipeline's MB per processor second to a peer's, which other load does not affect."""
    ours, peer = (values["input_mb"] / values["cpu_seconds"] for values in (rows[f"clearspan, {TIMES} x"], rows[name]))
    return round(ours / peer, 1)


def table(result: dict[str, Any]) -> str:
    """Return the text that is printed."""
    keys = {"input_mb": ".1f", "seconds": ".2f", "mb_per_s": ".1f", "mb_per_cpu_s": ".1f"}
    keys |= {"first_process_mb": ".0f", "other_process_mb": ".0f"}
    rows = [[name, *(f"{row[key]:,{form}}" for key, form in keys.items())] for name, row in result["rows"].items()]
    lines = [
        f"{result['machine']['cores']} cores of {result['machine']['cpu']}, {NUM_PROCESSES} processes (bare loop: one)",
        columns(["", "input MB", "seconds", "MB/s", "MB/CPU s", *COLUMNS], rows),
        f"at {TIMES} x: {result['times_datasets']} x the MB/s of datasets, {result['times_datatrove']} x of datatrove; "
        f"per processor second: {result['times_datasets_per_cpu_second']} x and "
        f"{result['times_datatrove_per_cpu_second']} x",
        f"after {result['start_up_seconds']} s of start-up: {result['steady_mb_per_s']} MB/s, per process "
        f"{result['share_of_bare_loop_per_process']:.0%} of the bare loop by elapsed time, and "
        f"{result['share_of_bare_loop_per_cpu_second']:.0%} per processor second; {TIMES} x the input takes "
        f"{result['time_ratio_past_start_up']} x the time",
        *(f"{name}: {seconds:+.2f} s" for name, seconds in result["switches_extra_seconds"].items()),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    parser = command(__doc__, "pipelines")
    parser.add_argument("--text", type=Path, help="a folder of .jsonl files with texts")
    parser.add_argument("--tokenizer", type=Path, help="the folder of a byte-level BPE tokenizer")
    option(parser, "megabytes", 400, "MB of input")
    option(parser, "peer-megabytes", 60, "MB of the peers' input")
    parser.add_argument("--switch", action="append", default=[], metavar="OPTIONS", help="a run with more options")
    main(parser, CONTENDERS, measure, table, ("text", "tokenizer"))
