"""Hybrid search: the cost of searching many texts by a model and BM25 together.

    python -m benchmarks.hybrid --model DIR --text LINES.txt --texts 1000000 --work DIR

The lines of a file, repeated with a number in front, are embedded with their texts; a first search builds the index of
words, a second finds it, a third has many queries. Times are of whole commands, memory the peak of one. The hits of
some queries must be those of scores that are computed for all texts at once, in memory.
"""

import argparse
import json
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.embed import write_corpus
from benchmarks.report import columns, command, finish, machine, option
from clearspan.common.commands import run_module
from clearspan.common.encoder.folder import load
from clearspan.common.ranking import BM25, HYBRID_WEIGHT, first, scale_and_shift
from clearspan.shards import Dataset
from clearspan.shards.vectors import decoded

QUERIES, TOP = 100, 10
PEAK = "import resource, subprocess, sys; code = subprocess.call(sys.argv[1:]); " \
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr); sys.exit(code)"  # fmt: skip


def searched(vectors: Path, model: Path, queries: list[str], work: Path) -> tuple[float, float, list[list[float]]]:
    """Return the seconds and the peak memory in MB of a search command, and the scores of each query's hits."""
    (work / "queries.txt").write_text("\n".join(queries), "utf-8")
    line = ["-m", "clearspan", "search", vectors, "--model", model, "--queries", work / "queries.txt", "--hybrid"]
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", PEAK, sys.executable, *map(str, line), "--top", str(TOP), "--json", "--quiet"],
        capture_output=True,
        text=True,
        check=True,
    )
    seconds = time.perf_counter() - start
    hits = [[hit["score"] for hit in result["hits"]] for result in json.loads(done.stdout)["results"]]
    return seconds, int(done.stderr.split()[-1]) / 1024, hits


def exact(vectors: Path, model: Path, queries: list[str]) -> list[np.ndarray]:
    """Return the highest scores of each query, computed for all texts at once."""
    batches = [(decoded(batch), batch.column("text").to_pylist()) for batch in Dataset(str(vectors))]
    encoder = load(model)
    dense = encoder.similarity(encoder.encode(queries), np.concatenate([rows for rows, _ in batches]))
    index = BM25.of((text for _, texts in batches for text in texts), "float32")
    words = (BM25.counts(queries, index.vocabulary) @ index.weights.T).toarray()
    total = np.zeros(dense.shape)
    for scores, weight in ((dense, HYBRID_WEIGHT), (words, 1 - HYBRID_WEIGHT)):
        scale, shift = scale_and_shift(scores, weight)
        total += scores * scale[:, None] + shift[:, None]
    return [row[first(row, TOP, np.arange(len(row)))] for row in total]


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    work, model = arguments.work, arguments.model
    work.mkdir(parents=True, exist_ok=True)
    corpus, vectors = work / "corpus.jsonl", work / "vectors"
    write_corpus(arguments.text, corpus, arguments.texts)
    line = [f"--input={corpus}", f"--model={model}", f"--output={vectors}", "--keep-text", "--quiet"]
    start = time.perf_counter()
    run_module("clearspan.pipelines", ["embed", *line], "embed", quiet=True)
    embedded_s = time.perf_counter() - start
    with corpus.open("rb") as lines:
        texts = [" ".join(json.loads(row)["text"].split()[:12]) for row in islice(lines, QUERIES)]
    built, found, many = (searched(vectors, model, texts[:count], work) for count in (1, 1, QUERIES))
    expected = exact(vectors, model, texts[:TOP])
    differs = max(float(np.abs(np.array(row) - best).max()) for row, best in zip(many[2], expected, strict=False))
    search = {
        "texts": arguments.texts,
        "embed_s": embedded_s,
        "first_s": built[0],
        "first_mb": built[1],
        "again_s": found[0],
        "again_mb": found[1],
        "ms_a_query": 1000 * (many[0] - found[0]) / (QUERIES - 1),
        "largest_difference": differs,
    }
    return {"machine": machine(), "model": model.name, "search": search}


def table(result: dict[str, Any]) -> str:
    return columns(["hybrid search", ""], [[name, f"{value:,.6g}"] for name, value in result["search"].items()])


def main() -> None:
    parser = command(__doc__, "hybrid")
    parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="folder of a model")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="folder for corpus and vectors")
    parser.add_argument("--text", type=Path, required=True, metavar="FILE", help="lines of text")
    option(parser, "texts", 1_000_000, "texts to search")
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
