"""Texts to vectors: `clearspan embed`, and a loop of `SentenceTransformer.encode` that writes Parquet.

    python -m benchmarks.embed --model all-MiniLM-L6-v2 --text wiki1m.txt --texts 50000 --many 500000

Both read the same .jsonl file and write float32 vectors with ids and texts. Each is a whole command, whose time
includes imports and loading the model: this pipeline with two processes of one thread, the loop as the library comes,
with all cores, batches of 32 and 10,000 texts a call. The texts are the lines of a file, repeated with a number in
front, so that all differ. The vectors must agree to 1e-5. Memory is the peak resident size of the command's first
process and of any other process, also with --many texts. Do not set OMP_NUM_THREADS.
"""

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.processes import COLUMNS, NUM_PROCESSES, Process, contender, imported, main, pipeline, progress, shares
from benchmarks.report import columns, command, machine, option

CALL = 10_000
"""Number of texts of a call of `encode` in the loop."""
TOLERANCE = 1e-5


def texts_of(path: Path) -> Iterator[str]:
    """Yield the lines of a file without end, each a text of its own."""
    lines = [line.strip() for line in path.read_text("utf-8").split("\n") if line.strip()]
    yield from lines
    for number in itertools.count(2):
        yield from (f"{number} {line}" for line in lines)


def write_corpus(text: Path, path: Path, num_texts: int) -> None:
    """Write this many texts as JSON lines."""
    with path.open("w", encoding="utf-8") as file:
        for line in itertools.islice(texts_of(text), num_texts):
            file.write(json.dumps({"text": line}) + "\n")


def encode_loop(output: Path, corpus: str, model: str) -> float:
    """Embed a file with the library and write Parquet; return the seconds after the imports."""
    import pyarrow as pa
    from sentence_transformers import SentenceTransformer

    imported()
    start = time.perf_counter()
    encoder = SentenceTransformer(model, device="cpu")
    fields = [("id", pa.int64()), ("vector", pa.list_(pa.float32(), encoder.get_embedding_dimension()))]
    schema = pa.schema([*fields, ("text", pa.string())])
    with Path(corpus).open("rb") as file, pq.ParquetWriter(output / "vectors.parquet", schema) as writer:
        texts = (json.loads(line)["text"] for line in file)
        for first in itertools.count(0, CALL):
            if not (call := list(itertools.islice(texts, CALL))):
                break
            rows = encoder.encode(call, show_progress_bar=False)
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
            writer.write_table(pa.table([pa.array(range(first, first + len(call))), vectors, call], schema=schema))
    return time.perf_counter() - start


CONTENDERS = {"encode_loop": encode_loop}


def row(num_texts: int, process: Process) -> dict[str, float]:
    return {
        "texts": num_texts,
        "seconds": round(process.seconds, 1),
        "texts_per_s": round(num_texts / process.seconds, 1),
        "texts_per_cpu_s": round(num_texts / process.cpu_seconds, 1),
        **process.memory(),
    }


def difference(ours: Path, theirs: Path) -> float:
    """Return the largest difference of the vectors of a dataset from those of the loop, in the same order."""
    from clearspan.shards import Dataset, vectors

    made = np.concatenate([vectors.decoded(batch) for batch in Dataset(ours)])
    column = pq.read_table(theirs / "vectors.parquet")["vector"].combine_chunks()
    return float(np.abs(made - column.flatten().to_numpy().reshape(len(column), -1)).max())


def measure(arguments: argparse.Namespace, work: Path) -> dict[str, Any]:
    start = time.perf_counter()
    model = str(arguments.model.resolve())
    corpus = work / "corpus.jsonl"
    write_corpus(arguments.text, corpus, arguments.texts)
    rows = {}

    def ours(num_texts: int, folder: Path) -> dict[str, Any]:
        progress(start, f"this pipeline, {num_texts:,} texts")
        options = "--model", str(folder), "--device", "cpu", "--keep-text"
        process, summary = pipeline("embed", [corpus], work / "output", *options)
        rows[f"clearspan, {num_texts:,}"] = row(num_texts, process)
        return summary

    summary = ours(arguments.texts, arguments.model.resolve())
    progress(start, f"encode and a loop, {arguments.texts:,} texts")
    process, _, _ = contender("embed", "encode_loop", work / "loop", corpus, model)
    rows["encode_loop"] = row(arguments.texts, process)
    apart = difference(work / "output", work / "loop")
    if not apart < TOLERANCE:
        raise SystemExit(f"benchmark: the vectors of {arguments.texts:,} texts differ by {apart}")
    mine, loop = rows[f"clearspan, {arguments.texts:,}"], rows["encode_loop"]
    if arguments.many:
        write_corpus(arguments.text, corpus, arguments.many)
        ours(arguments.many, (arguments.memory_model or arguments.model).resolve())
    return {
        "machine": machine(),
        "processes": NUM_PROCESSES,
        "rows": rows,
        "times": round(mine["texts_per_s"] / loop["texts_per_s"], 2),
        "times_per_cpu_second": round(mine["texts_per_cpu_s"] / loop["texts_per_cpu_s"], 2),
        "apart": apart,
        "worker_seconds": summary["run"]["worker_seconds"],
    }


def table(result: dict[str, Any]) -> str:
    """Return the text that is printed."""
    keys = {"texts": ".0f", "seconds": ".1f", "texts_per_s": ".1f", "texts_per_cpu_s": ".1f"}
    keys |= {"first_process_mb": ".0f", "other_process_mb": ".0f"}
    rows = [[name, *(f"{row[key]:,{form}}" for key, form in keys.items())] for name, row in result["rows"].items()]
    lines = [
        f"{result['machine']['cores']} cores of {result['machine']['cpu']}, {NUM_PROCESSES} processes (the loop: one)",
        columns(["", "texts", "seconds", "texts/s", "texts/CPU s", *COLUMNS], rows),
        f"{result['times']} x the texts/s of the loop, {result['times_per_cpu_second']} x per processor second; "
        f"vectors differ by {result['apart']:.1e}",
        f"worker time: {shares(result['worker_seconds'])}",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    parser = command(__doc__, "embed")
    parser.add_argument("--model", type=Path, metavar="DIR", help="a sentence-transformers folder")
    parser.add_argument("--text", type=Path, metavar="FILE", help="a file with a text on each line")
    option(parser, "texts", 50_000, "texts")
    option(parser, "many", 500_000, "texts of the run for memory; 0: none")
    smaller = "a smaller model for the run for memory, which then takes less time (default: --model)"
    parser.add_argument("--memory-model", type=Path, metavar="DIR", help=smaller)
    main(parser, CONTENDERS, measure, table, ("model", "text"))
