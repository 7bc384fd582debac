"""Texts to vectors: `clearspan embed`, and a loop of `SentenceTransformer.encode` that writes Parquet.

    python -m benchmarks.embed --model all-MiniLM-L6-v2 --text wiki1m.txt --texts 50000 --many 500000
    python -m benchmarks.embed --model tokenizer.json --text TEXTS --batch 1024 --workers 0 --many 0 --rounds 3

Both read the same .jsonl file and write float32 vectors with ids and texts. Each is a whole command, whose time
includes imports and loading the model: this pipeline with two processes of one thread, the loop as the library comes,
with all cores, batches of 32 and 10,000 texts a call. The texts are the lines of a file, repeated with a number in
front, so that all differ. The vectors must agree to 1e-5. Figures are medians over alternating rounds. Memory is the
peak resident size of the command's first process and of any other process, also with --many texts. With a tokenizer in
place of a model, a static model of 1,024 dimensions with random vectors is written. Do not set OMP_NUM_THREADS.
"""

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from joblib import cpu_count

from benchmarks.processes import MEMORY, NUM_PROCESSES, Process, contender, main, pipeline, progress
from benchmarks.report import alternating, command, machine, median_ratio, option, tabulated

CALL = 10_000
"""Number of texts of a call of `encode` in the loop."""
TOLERANCE = 1e-5
STATIC_DIM = 1024
ALL_CORES = {"TOKENIZERS_PARALLELISM": "true", "RAYON_NUM_THREADS": str(cpu_count())}
"""Tokenization by all cores in a process that computes alone."""


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


def static_model(tokenizer: Path, folder: Path) -> Path:
    """Write a static model with a tokenizer.json and random vectors of unit length on average; return its folder."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    tokens = Tokenizer.from_file(str(tokenizer))
    tokens.no_truncation()
    table = torch.randn(tokens.get_vocab_size(), STATIC_DIM, generator=torch.Generator().manual_seed(0))
    modules = [StaticEmbedding(tokens, table / STATIC_DIM**0.5)]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(folder))
    return folder


def encode_loop(output: Path, corpus: str, model: str, batch: str) -> float:
    """Embed a file with the library and write Parquet; return the seconds after the imports."""
    import pyarrow as pa
    from sentence_transformers import SentenceTransformer

    start = time.perf_counter()
    encoder = SentenceTransformer(model, device="cpu")
    fields = [("id", pa.int64()), ("vector", pa.list_(pa.float32(), encoder.get_embedding_dimension()))]
    schema = pa.schema([*fields, ("text", pa.string())])
    with Path(corpus).open("rb") as file, pq.ParquetWriter(output / "vectors.parquet", schema) as writer:
        texts = (json.loads(line)["text"] for line in file)
        for first in itertools.count(0, CALL):
            if not (call := list(itertools.islice(texts, CALL))):
                break
            rows = encoder.encode(call, batch_size=int(batch), show_progress_bar=False)
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
            writer.write_table(pa.table([pa.array(range(first, first + len(call))), vectors, call], schema=schema))
    return time.perf_counter() - start


CONTENDERS = {"encode_loop": encode_loop}


def row(num_texts: int, processes: list[Process]) -> dict[str, float]:
    seconds = statistics.median(process.seconds for process in processes)
    return {
        "texts": num_texts,
        "seconds": round(seconds, 1),
        "texts_per_s": round(num_texts / seconds, 1),
        "texts_per_cpu_s": round(num_texts / statistics.median(process.cpu_seconds for process in processes), 1),
        **processes[-1].memory(),
    }


def difference(ours: Path, theirs: Path) -> float:
    """Return the largest difference of the vectors of a dataset from those of the loop, in the same order."""
    from clearspan.shards import Dataset, vectors

    made = np.concatenate([vectors.decoded(batch) for batch in Dataset(ours)])
    column = pq.read_table(theirs / "vectors.parquet")["vector"].combine_chunks()
    return float(np.abs(made - column.flatten().to_numpy().reshape(len(column), -1)).max())


def measure(arguments: argparse.Namespace, work: Path) -> dict[str, Any]:
    start = time.perf_counter()
    model = arguments.model.resolve()
    if model.is_file():
        model = static_model(model, work / "model")
    corpus = work / "corpus.jsonl"
    write_corpus(arguments.text, corpus, arguments.texts)

    def ours(num_texts: int, folder: Path) -> tuple[Process, dict[str, Any]]:
        progress(start, f"this pipeline, {num_texts:,} texts")
        options = "--model", str(folder), "--device", "cpu", "--keep-text"
        workers = arguments.workers or None
        return pipeline("embed", [corpus], work / "output", *options, workers=workers, variables=ALL_CORES)

    def theirs() -> tuple[Process, dict[str, Any]]:
        progress(start, f"encode and a loop, {arguments.texts:,} texts")
        process, _ = contender(
            "embed", "encode_loop", work / "loop", corpus, model, str(arguments.batch), variables=ALL_CORES
        )
        return process, {}

    runs = alternating({"ours": lambda: ours(arguments.texts, model), "loop": theirs}, arguments.rounds)
    mine, loop = ([process for process, _ in runs[name]] for name in ("ours", "loop"))
    rows = {f"clearspan, {arguments.texts:,}": row(arguments.texts, mine), "encode_loop": row(arguments.texts, loop)}
    apart = difference(work / "output", work / "loop")
    if not apart < TOLERANCE:
        raise SystemExit(f"benchmark: the vectors of {arguments.texts:,} texts differ by {apart}")
    if arguments.many:
        write_corpus(arguments.text, corpus, arguments.many)
        process, _ = ours(arguments.many, (arguments.memory_model or model).resolve())
        rows[f"clearspan, {arguments.many:,}"] = row(arguments.many, [process])
    return {
        "machine": machine(),
        "processes": arguments.workers,
        "batch": arguments.batch,
        "rounds": arguments.rounds,
        "rows": rows,
        "times": median_ratio([each.seconds for each in loop], [each.seconds for each in mine]),
        "times_per_cpu_second": median_ratio([each.cpu_seconds for each in loop], [each.cpu_seconds for each in mine]),
        "apart": apart,
    }


def table(result: dict[str, Any]) -> str:
    """Return the text that is printed."""
    figures = {"texts": ("texts", ",.0f"), "seconds": ("seconds", ",.1f"), "texts/s": ("texts_per_s", ",.1f")}
    figures |= {"texts/CPU s": ("texts_per_cpu_s", ",.1f"), **MEMORY}
    ours = f"{result['processes'] or 'its own choice of'} processes"
    lines = [
        f"{result['machine']['cores']} cores of {result['machine']['cpu']}, {ours} (the loop: one, "
        f"batches of {result['batch']}), {result['rounds']} rounds",
        tabulated("", result["rows"], figures),
        f"{result['times']} x the texts/s of the loop, {result['times_per_cpu_second']} x per processor second; "
        f"vectors differ by {result['apart']:.1e}",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    parser = command(__doc__, "embed")
    parser.add_argument(
        "--model", type=Path, metavar="PATH", help="a sentence-transformers folder, or a tokenizer.json"
    )
    parser.add_argument("--text", type=Path, metavar="FILE", help="a file with a text on each line")
    option(parser, "texts", 50_000, "texts")
    option(parser, "many", 500_000, "texts of the run for memory; 0: none")
    option(parser, "batch", 32, "batch size of the loop, 32 being the library's default")
    option(parser, "workers", NUM_PROCESSES, "processes of the pipeline; 0: the command's own choice")
    option(parser, "rounds", 1, "rounds")
    smaller = "a smaller model for the run for memory, which then takes less time (default: --model)"
    parser.add_argument("--memory-model", type=Path, metavar="DIR", help=smaller)
    main(parser, CONTENDERS, measure, table, ("model", "text"))
