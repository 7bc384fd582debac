"""Texts to embeddings on a CPU: `load_model(...).encode` beside sentence-transformers', on short and long texts.

    python -m benchmarks.encode --model all-MiniLM-L6-v2 --short sts-train.csv sts-test.csv --long DOCUMENTS.jsonl

Both encode with the same sentence-transformers folder, including tokenization; in bf16, both round its weights. Short
texts are the distinct sentences of STS-B's files, long ones the beginnings of documents. Ratios are medians over
alternating rounds, of elapsed and of processor time; other load affects the latter least. First, both are checked to
give the same embeddings, to 1e-5 in fp32. The same follows for a static model of random vectors with the same
tokenizer; the last rows are its speed beside the model's, both by sentence-transformers. `benchmarks.encode_host`
measures everything but the model.
"""

import argparse
import itertools
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from transformers import AutoTokenizer

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
from clearspan.common.encoder.folder import load_folder

LONG_CHARACTERS = 2000
"""The characters of a document's beginning: more than the 256 tokens that all-MiniLM-L6-v2 reads."""
STATIC_DIM = 512
TOLERANCE = {"fp32": 1e-5, "bf16": 5e-3}
"""The largest difference of embeddings. In bf16, numbers have 8 significant bits."""

Encode = Callable[[list[str]], np.ndarray]


def sentences(paths: list[Path], count: int) -> list[str]:
    """Return the distinct sentences of STS-B files, in order."""
    rows = (line.split("\t") for path in paths for line in path.read_text("utf-8").splitlines())
    return list(dict.fromkeys(text for row in rows for text in row[5:7]))[:count]


def beginnings(path: Path, count: int) -> list[str]:
    """Return the beginnings of the first documents of a .jsonl file."""
    with path.open("rb") as file:
        return [orjson.loads(line)["text"][:LONG_CHARACTERS] for line in itertools.islice(file, count)]


def ours_of(folder: Path, precision: str = "fp32") -> Encode:
    """Return our encoding function of a model folder."""
    return load_folder(folder, precision=precision).encode


def theirs_of(folder: Path, batch: int, precision: str = "fp32") -> Encode:
    """Return the library's encoding function of a model folder."""
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    model = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": dtype})
    return lambda texts: np.asarray(model.encode(texts, batch_size=batch, show_progress_bar=False), np.float32)


def write_static(model: Path, folder: Path) -> None:
    """Write a static model of random vectors with the tokenizer of another model."""
    tokenizer = AutoTokenizer.from_pretrained(model).backend_tokenizer
    tokenizer.no_truncation()
    tokenizer.no_padding()
    table = torch.randn((tokenizer.get_vocab_size(), STATIC_DIM), generator=torch.Generator().manual_seed(0))
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, table)], device="cpu").save_pretrained(str(folder))


def compare(ours: Encode, theirs: Encode, texts: list[str], num_rounds: int, tolerance: float) -> dict[str, Any]:
    """Return the rates of both on the same texts, and by how much their embeddings differ."""
    apart = float(np.abs(ours(texts) - theirs(texts)).max())
    if not apart < tolerance:
        raise SystemExit(f"benchmark: the embeddings of {len(texts)} texts differ by {apart}")
    return {**rates(ours, theirs, texts, num_rounds), "apart": apart}


def rates(ours: Encode, theirs: Encode, texts: list[str], num_rounds: int) -> dict[str, Any]:
    """Return the rates of both on the same texts; our first round may fill caches."""
    rounds = alternating(
        {"ours": lambda: timed(lambda: ours(texts))[0], "peer": lambda: timed(lambda: theirs(texts))[0]}, num_rounds
    )
    clock, processor = ([[each[at] for each in rounds[name]] for name in ("peer", "ours")] for at in (0, 1))
    return {
        "texts": len(texts),
        "first_texts_per_s": round(len(texts) / clock[1][0], 1),
        "texts_per_s": round(len(texts) / statistics.median(clock[1]), 1),
        "peer_texts_per_s": round(len(texts) / statistics.median(clock[0]), 1),
        "times": median_ratio(*clock),
        "times_by_processor": median_ratio(*processor),
    }


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    inputs = {
        "short": sentences(arguments.short, arguments.texts),
        "long": beginnings(arguments.long, arguments.long_texts),
    }
    rows = {}
    for precision in resolved_precisions(arguments.precisions, "cpu"):
        ours, theirs = ours_of(arguments.model, precision), theirs_of(arguments.model, arguments.batch, precision)
        for name, texts in inputs.items():
            rows[f"{name} {precision}"] = compare(ours, theirs, texts, arguments.rounds, TOLERANCE[precision])
    with tempfile.TemporaryDirectory() as folder:
        write_static(arguments.model, Path(folder))
        table, peer = ours_of(Path(folder)), theirs_of(Path(folder), arguments.batch)
    for name, texts in inputs.items():
        rows[f"{name} static"] = compare(table, peer, texts, arguments.rounds, TOLERANCE["fp32"])
    theirs = theirs_of(arguments.model, arguments.batch)
    for name, texts in inputs.items():
        rows[f"{name} static, beside the model"] = rates(peer, theirs, texts, arguments.rounds)
    versions = {"torch": torch.__version__, "threads": torch.get_num_threads(), "rounds": arguments.rounds}
    return {"machine": machine(), **versions, "rows": rows}


def table(result: dict[str, Any]) -> str:
    """Return the text that is printed."""
    figures = {"texts": ("texts", ","), "texts/s": ("texts_per_s", ",.0f"), "peer": ("peer_texts_per_s", ",.0f")}
    figures |= {"times": ("times", ".2f"), "by processor": ("times_by_processor", ".2f")}
    title = f"{result['threads']} threads, {result['machine']['cpu']}; medians of {result['rounds']} rounds"
    return f"{title}\n{tabulated('', result['rows'], figures)}"


def main() -> None:
    parser = command(__doc__, "encode")
    parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="a sentence-transformers folder")
    parser.add_argument(
        "--short", type=Path, nargs="+", required=True, metavar="FILE", help="STS-B in SentEval's layout"
    )
    parser.add_argument("--long", type=Path, required=True, metavar="FILE", help="a .jsonl file of documents")
    option(parser, "texts", 2000, "short texts")
    option(parser, "long-texts", 100, "long texts")
    option(parser, "batch", 32, "batch size of sentence-transformers, 32 being its own default")
    option(parser, "rounds", 5, "rounds")
    precisions_option(parser, "fp32", "auto")
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
