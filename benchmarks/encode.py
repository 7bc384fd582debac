"""Texts to embeddings on a CPU: the packed encoder beside sentence-transformers' `encode`, on short and long texts.

    python -m benchmarks.encode --model all-MiniLM-L6-v2 --short sts-test.csv --long DOCUMENTS.jsonl
    python -m benchmarks.encode --host TOKENIZER ... --long DOCUMENTS.jsonl --texts 100000

Both encode with the same sentence-transformers folder, including tokenization. Short texts are the distinct sentences
of an STS-B file, long ones the beginnings of documents. Ratios are medians over alternating rounds, of elapsed and of
processor time; other load affects the latter least. First, both are checked to give the same embeddings, to 1e-5 in
fp32. The same follows for a fresh static model with the same tokenizer; the last rows are its speed beside the model's,
both by sentence-transformers.

With `--host`, a model that returns zeros takes the place of the model: the rates are those of everything else, with the
tokenizers of these folders, on distinct sentences of the documents.
"""

import argparse
import copy
import itertools
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from transformers import AutoModel

from benchmarks import encode_host
from benchmarks.report import (
    alternating,
    command,
    finish,
    machine,
    median_ratio,
    option,
    precisions_option,
    resolved_precisions,
    tabulated,
    timed,
)
from clearspan.common.encoder.attention import PACKED_ATTENTION
from clearspan.train.model.encoder import Encoder, encode_texts
from clearspan.train.model.source import read_source
from clearspan.train.model.static import StaticConfig, StaticModel
from clearspan.train.model.tokenizer import load_tokenizer

LONG_CHARACTERS = 2000
"""The characters of a document's beginning: more than the 256 tokens that all-MiniLM-L6-v2 reads."""
STATIC_DIM = 512
TOLERANCE = {"fp32": 1e-5, "bf16": 5e-3}
"""The largest difference of embeddings. In bf16, by autocast for both, numbers have 8 significant bits."""

Encode = Callable[[list[str]], np.ndarray]


def sentences(path: Path, count: int) -> list[str]:
    """Return the distinct sentences of an STS-B file, in order."""
    rows = (line.split("\t") for line in path.read_text("utf-8").splitlines())
    return list(dict.fromkeys(text for row in rows for text in row[5:7]))[:count]


def beginnings(path: Path, count: int) -> list[str]:
    """Return the beginnings of the first documents of a .jsonl file."""
    with path.open("rb") as file:
        return [orjson.loads(line)["text"][:LONG_CHARACTERS] for line in itertools.islice(file, count)]


def packed(folder: Path) -> Encode:
    """Return the encoding function of the packed encoder."""
    source = read_source(folder)
    model = AutoModel.from_pretrained(source.weights, attn_implementation=PACKED_ATTENTION)
    encoder = Encoder(model, source.pooling or "mean", head=source.head, inference=source.inference)
    tokenizer = load_tokenizer(source.weights)
    return lambda texts: encode_texts(encoder, tokenizer, texts)


def static(folder: Path) -> tuple[Encode, SentenceTransformer]:
    """Return the encoding function of a fresh static encoder with a folder's tokenizer, and the library's equal."""
    tokenizer = load_tokenizer(read_source(folder).weights)
    model = StaticModel(StaticConfig(vocab_size=len(tokenizer), hidden_size=STATIC_DIM))
    backend = copy.deepcopy(tokenizer.backend_tokenizer)
    backend.no_truncation()
    peer = SentenceTransformer(modules=[StaticEmbedding(backend, model.embeddings.folded())], device="cpu")
    encoder = Encoder(model)
    return lambda texts: encode_texts(encoder, tokenizer, texts), peer


def compare(ours: Encode, theirs: Encode, texts: list[str], num_rounds: int, tolerance: float) -> dict[str, Any]:
    """Return the rates of both on the same texts, and by how much their embeddings differ."""
    apart = float(np.abs(ours(texts) - theirs(texts)).max())
    if not apart < tolerance:
        raise SystemExit(f"benchmark: the embeddings of {len(texts)} texts differ by {apart}")
    return {**rates(ours, theirs, texts, num_rounds), "apart": apart}


def rates(ours: Encode, theirs: Encode, texts: list[str], num_rounds: int) -> dict[str, Any]:
    """Return the rates of both on the same texts."""
    rounds = alternating(
        {"ours": lambda: timed(lambda: ours(texts))[0], "peer": lambda: timed(lambda: theirs(texts))[0]}, num_rounds
    )
    clock, processor = ([[each[at] for each in rounds[name]] for name in ("peer", "ours")] for at in (0, 1))
    return {
        "texts": len(texts),
        "texts_per_s": round(len(texts) / statistics.median(clock[1]), 1),
        "peer_texts_per_s": round(len(texts) / statistics.median(clock[0]), 1),
        "times": median_ratio(*clock),
        "times_by_processor": median_ratio(*processor),
    }


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.host:
        return encode_host.measure(arguments)
    if arguments.model is None or arguments.short is None:
        raise SystemExit("benchmark: give --model and --short, or --host")

    def by_library(model: SentenceTransformer) -> Encode:
        return lambda texts: np.asarray(model.encode(texts, batch_size=arguments.batch, show_progress_bar=False))

    ours, theirs = packed(arguments.model), by_library(SentenceTransformer(str(arguments.model), device="cpu"))
    inputs = {
        "short": sentences(arguments.short, arguments.texts),
        "long": beginnings(arguments.long, arguments.long_texts),
    }
    rows = {}
    precisions = resolved_precisions(arguments.precisions, "cpu")
    for precision, (name, texts) in itertools.product(precisions, inputs.items()):
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            rows[f"{name} {precision}"] = compare(ours, theirs, texts, arguments.rounds, TOLERANCE[precision])
    table, peer = static(arguments.model)
    for name, texts in inputs.items():
        rows[f"{name} static"] = compare(table, by_library(peer), texts, arguments.rounds, TOLERANCE["fp32"])
    for name, texts in inputs.items():
        rows[f"{name} static, beside the model"] = rates(by_library(peer), theirs, texts, arguments.rounds)
    versions = {"torch": torch.__version__, "threads": torch.get_num_threads(), "rounds": arguments.rounds}
    return {"machine": machine(), **versions, "rows": rows}


def table(result: dict[str, Any]) -> str:
    """Return the text that is printed."""
    figures = {"texts": ("texts", ","), "texts/s": ("texts_per_s", ",.0f"), "peer": ("peer_texts_per_s", ",.0f")}
    if any("first_texts_per_s" in row for row in result["rows"].values()):
        figures |= {"first round": ("first_texts_per_s", ",.0f")}
    figures |= {"times": ("times", ".2f"), "by processor": ("times_by_processor", ".2f")}
    title = f"{result['threads']} threads, {result['machine']['cpu']}; medians of {result['rounds']} rounds"
    return f"{title}\n{tabulated('', result['rows'], figures)}"


def main() -> None:
    parser = command(__doc__, "encode")
    parser.add_argument("--model", type=Path, metavar="DIR", help="a sentence-transformers folder")
    parser.add_argument("--short", type=Path, metavar="FILE", help="STS-B in SentEval's layout")
    parser.add_argument("--long", type=Path, required=True, metavar="FILE", help="a .jsonl file of documents")
    parser.add_argument(
        "--host", type=Path, nargs="+", metavar="DIR", help="folders of tokenizers: the host's side alone"
    )
    option(parser, "texts", 2000, "short texts")
    option(parser, "long-texts", 100, "long texts")
    option(parser, "batch", 32, "batch size of sentence-transformers, 32 being its own default")
    option(parser, "batch-tokens", 16384, "with --host: tokens of our batches")
    option(parser, "rounds", 5, "rounds")
    precisions_option(parser, "fp32", "auto")
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
