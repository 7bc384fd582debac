"""Search of many texts: by a model alone, and by a model and BM25 together, beside numpy and faiss.

    python -m benchmarks.hybrid --model DIR --text LINES.txt --texts 1000000 --work DIR

The lines of a file, repeated with a number in front, are embedded with their texts. Whole commands: a first search
builds the index of words and the moments of the vectors, a second one finds them, a third has many queries; with the
peak of memory. In one process: a collection that stays open searches for many queries, alternating with numpy, which
sorts all scores of each query, and with faiss's flat index, both of vectors in memory. The hits must be those of scores
that are computed for all texts at once.
"""

import argparse
import functools
import json
import statistics
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import clearspan
from benchmarks.commands import run_module
from benchmarks.embed import write_corpus
from benchmarks.report import alternating, columns, command, finish, machine, median_ratio, option, timed
from clearspan.common.encoder.folder import load_folder
from clearspan.retrieval.bm25 import BM25
from clearspan.retrieval.hybrid import HYBRID_WEIGHT, Moments
from clearspan.retrieval.topk import top_indices
from clearspan.shards import Dataset
from clearspan.shards.vectors import decoded

QUERIES, TOP, SORTED = 1000, 10, 100
"""Numbers of queries, of hits of each, and of the queries that numpy sorts scores for."""
CHECKED = 10
"""Number of queries whose hits are compared with the scores of all texts."""
PEAK = "import resource, subprocess, sys; code = subprocess.call(sys.argv[1:]); " \
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr); sys.exit(code)"  # fmt: skip


def searched(
    vectors: Path, model: Path, queries: list[str], work: Path, weight: float
) -> tuple[float, float, list[list[float]]]:
    """Return the seconds and the peak memory in MB of a search command, and the scores of each query's hits."""
    (work / "queries.txt").write_text("\n".join(queries), "utf-8")
    line = [
        "-m",
        "clearspan",
        "search",
        vectors,
        "--model",
        model,
        "--queries",
        work / "queries.txt",
        "--hybrid",
        weight,
    ]
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
    encoder = load_folder(model)
    dense = encoder.similarity(encoder.encode(queries), np.concatenate([rows for rows, _ in batches]))
    scoring = clearspan.open_collection(vectors, model).scoring
    index = BM25.of((text for _, texts in batches for text in texts), scoring, "float32")
    words = index.scores(queries).array()
    total = np.zeros(dense.shape)
    for scores, weight in ((dense, HYBRID_WEIGHT), (words, 1 - HYBRID_WEIGHT)):
        scale, shift = Moments.of(scores).scale_and_shift(weight)
        total += scores * scale[:, None] + shift[:, None]
    return [row[top_indices(row, TOP, np.arange(len(row)))] for row in total]


def beside_peers(vectors: Path, model: Path, queries: list[str], rounds: int) -> dict[str, Any]:
    """Return the seconds of searches in one process, by contender, and ratios to those of the collection."""
    import faiss

    collection = clearspan.open_collection(vectors, model)
    of_queries = load_folder(model).encode_query(queries)
    of_queries /= np.maximum(np.linalg.norm(of_queries, axis=1, keepdims=True), 1e-12)
    rows = np.concatenate([decoded(batch) for batch in Dataset(str(vectors))])
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    flat = faiss.IndexFlatIP(rows.shape[1])
    flat.add(rows)

    def sorts() -> None:
        for query in of_queries[:SORTED]:
            np.argsort(-(rows @ query))[:TOP]

    ranked = functools.partial(collection.ranked, queries, TOP)
    contenders = {
        "model": lambda: timed(lambda: ranked(weight=1.0))[0].clock,
        "model + BM25": lambda: timed(lambda: ranked(weight=HYBRID_WEIGHT))[0].clock,
        "BM25": lambda: timed(lambda: ranked(weight=0.0))[0].clock,
        "faiss flat": lambda: timed(lambda: flat.search(of_queries, TOP))[0].clock,
        "numpy argsort": lambda: timed(sorts)[0].clock * len(queries) / SORTED,
    }
    ranked(weight=HYBRID_WEIGHT)  # reads what is kept
    times = alternating(contenders, rounds)
    seconds = {name: statistics.median(each) for name, each in times.items()}
    ratios = {name: median_ratio(each, times["model"]) for name, each in times.items()}
    return {"queries": len(queries), "dim": rows.shape[1], "seconds": seconds, "times_of_model": ratios}


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    work, model = arguments.work, arguments.model
    work.mkdir(parents=True, exist_ok=True)
    corpus, vectors = work / "corpus.jsonl", work / "vectors"
    write_corpus(arguments.text, corpus, arguments.texts)
    line = [f"--input={corpus}", f"--model={model}", f"--output={vectors}", "--keep-text", "--quiet"]
    start = time.perf_counter()
    run_module("clearspan.pipelines", ["embed", *line], quiet=True)
    embedded_s = time.perf_counter() - start
    with corpus.open("rb") as lines:
        texts = [" ".join(json.loads(row)["text"].split()[:12]) for row in islice(lines, QUERIES)]
    built, one, many = (searched(vectors, model, texts[:count], work, HYBRID_WEIGHT) for count in (1, 1, QUERIES))
    alone = searched(vectors, model, texts, work, 1.0)
    expected = exact(vectors, model, texts[:CHECKED])
    differs = max(float(np.abs(np.array(row) - best).max()) for row, best in zip(many[2], expected, strict=False))
    commands = {
        "embed_s": embedded_s,
        "first_s": built[0],
        "first_mb": built[1],
        "one_query_s": one[0],
        "one_query_mb": one[1],
        "many_queries_s": many[0],
        "many_queries_mb": many[1],
        "many_queries_model_alone_s": alone[0],
        "many_queries_model_alone_mb": alone[1],
        "largest_difference": differs,
    }
    opened = beside_peers(vectors, model, texts, arguments.rounds)
    return {"machine": machine(), "texts": arguments.texts, "commands": commands, "opened": opened}


def table(result: dict[str, Any]) -> str:
    commands = [[name, f"{value:,.6g}"] for name, value in result["commands"].items()]
    opened = result["opened"]
    rows = [[name, f"{s:,.2f}", f"{opened['times_of_model'][name]:g}"] for name, s in opened["seconds"].items()]
    heading = f"{opened['queries']:,} queries, {result['texts']:,} texts, {opened['dim']} dimensions"
    return "\n".join([columns(["whole commands", ""], commands), columns([heading, "s", "times of model"], rows)])


def main() -> None:
    parser = command(__doc__, "hybrid")
    parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="folder of a model")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="folder for corpus and vectors")
    parser.add_argument("--text", type=Path, required=True, metavar="FILE", help="lines of text")
    option(parser, "texts", 1_000_000, "texts to search")
    option(parser, "rounds", 3, "times that the searches of one process are repeated")
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
