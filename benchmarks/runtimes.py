"""One model in safetensors, ONNX and OpenVINO, in fp32 and int8: sizes, texts per second, differences, MRR.

    python -m benchmarks.runtimes --model all-MiniLM-L6-v2 --output benchmarks/results/runtimes.json

The texts are docstrings of installed packages: summary lines are queries, and each must find the rest of its docstring
among the rests of all. safetensors run as in this package, packed, and as in sentence-transformers, with padding in
batches of 32, as it comes. The runtimes take batches of 16 of similar length, without any layer in another process.
Speeds are medians over alternating rounds. Needs the extras onnx and openvino.
"""

import argparse
import functools
import hashlib
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.docstrings import PYTHON, modules, summary_and_body
from benchmarks.report import alternating, columns, command, finish, machine, option, timed

PACKED, LIBRARY = "safetensors, packed", "safetensors, sentence-transformers"
READ = (PYTHON, "numpy", "sklearn")
TIMED = 4
"""One of this many texts is embedded again in each round."""


def pairs(number: int) -> list[tuple[str, str]]:
    """Return the summary line and the rest of docstrings of held-out modules, chosen by a hash."""
    docstrings = (docstring for module in modules(READ) if module.held_out for docstring in module.docstrings)
    found = dict(filter(None, map(summary_and_body, docstrings)))
    return sorted(found.items(), key=lambda row: hashlib.sha256(row[0].encode()).hexdigest())[:number]


def mrr(queries: np.ndarray, documents: np.ndarray) -> float:
    """Return the mean reciprocal rank, in percent, of document n for query n, by cosine."""
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (queries, documents)]
    scores = unit[0] @ unit[1].T
    ranks = 1 + (scores > np.diag(scores)[:, None]).sum(axis=1)
    return float(100 * (1 / ranks).mean())


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of each format."""
    from clearspan.common.encoder.folder import load_folder
    from clearspan.common.encoder.library import load_with_library
    from clearspan.train.export import export_folder
    from clearspan.train.runtimes import Formats, cosine_distances, embed, runner

    rows = pairs(arguments.pairs)
    texts = [text for pair in rows for text in pair]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        formats = Formats(onnx=True, openvino=True, int8=True)
        export_folder(arguments.model, folder, formats)
        library = load_with_library(folder).modules
        encoders: dict[str, Callable[[list[str]], np.ndarray]] = {
            PACKED: load_folder(folder).encode,
            LIBRARY: library.encode,
            **{name: functools.partial(embed, list(library), runner(folder / name)) for name in formats.files},
        }
        weights = {name: "model.safetensors" if name in (PACKED, LIBRARY) else name for name in encoders}
        parts = {name: (folder / file).parent.glob(f"{Path(file).stem}.*") for name, file in weights.items()}
        sizes = {name: sum(path.stat().st_size for path in paths) for name, paths in parts.items()}
        vectors = {name: encode(texts) for name, encode in encoders.items()}
        some = texts[::TIMED]
        work = {name: functools.partial(timed, functools.partial(encode, some)) for name, encode in encoders.items()}
        seconds = {name: [each[0] for each in every] for name, every in alternating(work, arguments.rounds).items()}
    found = {}
    for name in encoders:
        distances = cosine_distances(vectors[name], vectors[PACKED])
        found[name] = {
            "mb": round(sizes[name] / 1e6, 1),
            "texts_per_s": round(len(some) / statistics.median(each.clock for each in seconds[name]), 2),
            "texts_per_cpu_s": round(len(some) / statistics.median(each.processor for each in seconds[name]), 2),
            "max_distance": float(f"{distances.max():.2g}"),
            "mean_distance": float(f"{distances.mean():.2g}"),
            "mrr": round(mrr(vectors[name][::2], vectors[name][1::2]), 2),
        }
    shape = {"pairs": len(rows), "mean_characters": round(statistics.mean(map(len, texts)))}
    load = round(os.getloadavg()[0], 1)
    return {"machine": machine(), "load": load, "model": arguments.model.name, **shape, "formats": found}


def table(result: dict[str, Any]) -> str:
    heading = f"{result['model']}, {result['pairs']:,} pairs, load {result['load']}"
    headings = [heading, "MB", "texts/s", "texts/CPU s", "distance, max", "mean", "MRR"]
    rows = [
        [
            name,
            f"{each['mb']:.1f}",
            f"{each['texts_per_s']:.1f}",
            f"{each['texts_per_cpu_s']:.1f}",
            f"{each['max_distance']:.1e}",
            f"{each['mean_distance']:.1e}",
            f"{each['mrr']:.1f}",
        ]
        for name, each in result["formats"].items()
    ]
    return columns(headings, rows)


def main() -> None:
    parser = command(__doc__, "runtimes")
    parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="folder of a model")
    option(parser, "pairs", 300, "pairs of a summary and the rest of its docstring")
    option(parser, "rounds", 3, "times that a part of the texts is embedded again")
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
