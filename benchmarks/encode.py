"""Texts to embeddings on a CPU: the packed encoder beside sentence-transformers' `encode`, short texts and long ones.

    python -m benchmarks.encode --model all-MiniLM-L6-v2 --short sts-test.csv --long DOCUMENTS.jsonl

One sentence-transformers folder, tokenization included. Short texts are the distinct sentences of an STS-B file, long
ones the beginnings of documents. Rounds alternate; ratios are medians of those of each round, by the clock and by the
processor, which a busy machine disturbs least. That both give the same embeddings, to 1e-5 in fp32, is checked first.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

from benchmarks.report import command, finish, machine
from clearspan.train.model.attention import PACKED_ATTENTION
from clearspan.train.model.encoder import Encoder, encode_texts
from clearspan.train.model.source import read_source
from clearspan.train.model.tokenizer import load_tokenizer

LONG_CHARACTERS = 2000
"""Of a document's beginning: more than the 256 tokens that all-MiniLM-L6-v2 reads."""

APART = {"fp32": 1e-5, "bf16": 5e-3}
"""How far the embeddings may be from each other: bf16, by autocast for both, has 8 bits."""

Encode = Callable[[list[str]], np.ndarray]


def sentences(path: Path, count: int) -> list[str]:
    """The distinct sentences of an STS-B file, in its order."""
    rows = (line.split("\t") for line in path.read_text("utf-8").splitlines())
    return list(dict.fromkeys(text for row in rows for text in row[5:7]))[:count]


def beginnings(path: Path, count: int) -> list[str]:
    with path.open("rb") as file:
        return [orjson.loads(line)["text"][:LONG_CHARACTERS] for line in itertools.islice(file, count)]


def packed(folder: Path) -> Encode:
    source = read_source(folder)
    model = AutoModel.from_pretrained(source.weights, attn_implementation=PACKED_ATTENTION)
    encoder = Encoder(model, source.pooling or "mean", head=source.head, inference=source.inference)
    tokenizer = load_tokenizer(source.weights)
    return lambda texts: encode_texts(encoder, tokenizer, texts)


def seconds(encode: Encode, texts: list[str]) -> tuple[float, float]:
    """Of the clock and of all processors."""
    clock, processor = time.perf_counter(), time.process_time()
    encode(texts)
    return time.perf_counter() - clock, time.process_time() - processor


def compare(ours: Encode, theirs: Encode, texts: list[str], num_rounds: int, tolerance: float) -> dict[str, Any]:
    """Both on the same texts, in turn."""
    apart = float(np.abs(ours(texts) - theirs(texts)).max())
    if not apart < tolerance:
        raise SystemExit(f"benchmark: embeddings of the {len(texts)} texts are {apart} apart")
    rounds = [(seconds(ours, texts), seconds(theirs, texts)) for _ in range(num_rounds)]
    return {
        "texts": len(texts),
        "texts_per_s": round(len(texts) / statistics.median(mine[0] for mine, _ in rounds), 1),
        "peer_texts_per_s": round(len(texts) / statistics.median(other[0] for _, other in rounds), 1),
        "times": round(statistics.median(other[0] / mine[0] for mine, other in rounds), 2),
        "times_by_processor": round(statistics.median(other[1] / mine[1] for mine, other in rounds), 2),
        "apart": apart,
    }


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    ours, model = packed(arguments.model), SentenceTransformer(str(arguments.model), device="cpu")

    def theirs(texts: list[str]) -> np.ndarray:
        return np.asarray(model.encode(texts, batch_size=arguments.batch, show_progress_bar=False))

    inputs = {
        "short": sentences(arguments.short, arguments.texts),
        "long": beginnings(arguments.long, arguments.long_texts),
    }
    rows = {}
    for precision, (name, texts) in itertools.product(arguments.precisions, inputs.items()):
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            rows[f"{name} {precision}"] = compare(ours, theirs, texts, arguments.rounds, APART[precision])
    versions = {"torch": torch.__version__, "threads": torch.get_num_threads(), "rounds": arguments.rounds}
    return {"machine": machine(), **versions, "rows": rows}


def table(result: dict[str, Any]) -> str:
    """What is printed."""
    lines = [f"{result['threads']} threads, {result['machine']['cpu']}; medians of {result['rounds']} rounds"]
    lines.append(f"{'':<10} {'texts':>6} {'texts/s':>8} {'peer':>8} {'times':>7} {'by processor':>13}")
    for name, row in result["rows"].items():
        rates = f"{row['texts_per_s']:>8,.0f} {row['peer_texts_per_s']:>8,.0f}"
        lines.append(f"{name:<10} {row['texts']:>6,} {rates} {row['times']:>6.2f}x {row['times_by_processor']:>12.2f}x")
    return "\n".join(lines)


def main() -> None:
    parser = command(__doc__, "encode")
    parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="a sentence-transformers folder")
    parser.add_argument("--short", type=Path, required=True, metavar="FILE", help="STS-B in SentEval's layout")
    parser.add_argument("--long", type=Path, required=True, metavar="FILE", help="a .jsonl file of documents")
    parser.add_argument("--texts", type=int, default=2000, metavar="N", help="short ones (default 2000)")
    parser.add_argument("--long-texts", type=int, default=100, metavar="N", help="default 100")
    parser.add_argument("--batch", type=int, default=32, metavar="N", help="sentence-transformers' (its default, 32)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="default 5")
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"], choices=("fp32", "bf16"))
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
