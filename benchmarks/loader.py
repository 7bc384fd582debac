"""What comes before the encoder: from shards to a sampled, packed and masked batch, beside tokenizing on the fly.

    python -m benchmarks.loader --text DOCUMENTS.jsonl --tokenizer roberta-base

One file, the documents of it that have 2,048 tokens or more, one thread, DeCLUTR's spans (A = 2, P = 2). Rounds
alternate, and the time is that of the processor, which a busy machine disturbs least. Contenders:

    shards      the recipe declutr-base up to the encoder: shards read and decoded, documents shuffled, spans drawn,
                packed, anchors masked. The pipeline has tokenized them before, whose time is not in this
    on the fly  a torch DataLoader that does for each document what DeCLUTR's reader does: the whole text to pieces,
                spans drawn, each decoded and tokenized again; then padded and masked by transformers' collator

Shards are asked for as many documents a step as each of --batches. What a step costs besides, forward and backward of
an encoder of --layers and --hidden, is measured with the first of them.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import torch
from torch.utils.data import DataLoader, IterableDataset
from transformers import AutoTokenizer, DataCollatorForLanguageModeling

from benchmarks.report import command, machine, tell
from clearspan.shards import Dataset
from clearspan.train.build import build_feed, build_learner
from clearspan.train.config.recipe import load
from clearspan.train.data.feed import Feed
from clearspan.train.learner import Learner
from clearspan.train.model.packing import Packed
from clearspan.train.span_sampler import SpanConfig

SPANS = SpanConfig()
MIN_TOKENS = SPANS.required_tokens


class OnTheFly(IterableDataset):
    """Anchors and positives of each document of a .jsonl file that is long enough, as lists of ids."""

    def __init__(self, text: Path, tokenizer: Any) -> None:
        self.text, self.tokenizer = text, tokenizer
        self.generator = np.random.default_rng(0)

    def __iter__(self) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
        with self.text.open("rb") as file:
            for line in file:
                pieces = self.tokenizer.tokenize(" " + " ".join(orjson.loads(line)["text"].split()))
                if len(pieces) >= MIN_TOKENS:
                    yield self.spans(pieces)

    def spans(self, pieces: list[str]) -> tuple[list[list[int]], list[list[int]]]:
        draw, width = self.generator, SPANS.max_span - SPANS.min_span
        anchors, positives = [], []
        half = len(pieces) // SPANS.num_anchors
        for number in range(SPANS.num_anchors):
            length = SPANS.min_span + int(draw.beta(*SPANS.anchor_beta) * width)
            start = number * half + int(draw.integers(half - length + 1))
            anchors.append(self.again(pieces[start : start + length]))
            for _ in range(SPANS.num_positives):
                more = SPANS.min_span + int(draw.beta(*SPANS.positive_beta) * width)
                first = int(draw.integers(max(0, start - more), min(start + length, len(pieces) - more) + 1))
                positives.append(self.again(pieces[first : first + more]))
        return anchors, positives

    def again(self, pieces: list[str]) -> list[int]:
        text = self.tokenizer.convert_tokens_to_string(pieces)
        return self.tokenizer(text, truncation=True, max_length=SPANS.max_span)["input_ids"]


def padded(tokenizer: Any) -> Callable[[list[Any]], Any]:
    """Makes a padded batch of documents' spans, the anchors masked."""
    masking = DataCollatorForLanguageModeling(tokenizer)

    def collate(documents: list[Any]) -> Any:
        anchors = [{"input_ids": ids} for spans, _ in documents for ids in spans]
        positives = [{"input_ids": ids} for _, spans in documents for ids in spans]
        return masking(anchors), tokenizer.pad(positives, return_tensors="pt")

    return collate


class Ready(Exception):  # noqa: N818 (it is no error)
    """Carries what the encoder would be given."""

    def __init__(self, packed: Packed) -> None:
        self.packed = packed


class Ours:
    """The recipe over a folder of shards, `documents` a step."""

    def __init__(self, folder: str, documents: int, layers: int, hidden: int) -> None:
        config = {
            "model_type": "roberta",
            "num_hidden_layers": layers,
            "hidden_size": hidden,
            "num_attention_heads": max(1, hidden // 64),
            "intermediate_size": 4 * hidden,
            "max_position_embeddings": 514,
            "type_vocab_size": 1,
        }
        changes = [f"model.config.{key}={value}" for key, value in config.items()]
        paths = [f"data.text.path={folder}", f"data.text.batch_size={documents}", "output=unused"]
        recipe = load("declutr-base", ["model.path=null", "model.config=null", *changes, *paths])
        datasets = {"text": Dataset(folder)}
        self.learner: Learner = build_learner(recipe, datasets, 1, static=False)[0]
        self.feed: Feed = build_feed(recipe, datasets, self.learner, 0, 1)

    def batches(self) -> Iterator[dict[str, Any]]:
        stream = self.feed.streams["text"]
        for batch, _ in stream.batches(self.feed.start()["text"], self.learner.columns("text"), self.learner.collate):
            yield {"text": batch}

    def packed(self) -> Iterator[Packed]:
        """What the encoder is given, step by step; it is not called."""

        def stop(packed: Packed, _: Any) -> None:
            raise Ready(packed)

        for batch in self.batches():
            self.learner.encoder.forward = stop  # type: ignore[method-assign]
            try:
                self.learner(batch)
            except Ready as ready:
                found = ready.packed
            del self.learner.encoder.forward
            yield found

    def step_s(self, rounds: int) -> float:
        """Processor seconds of a forward and a backward, all that comes before included but reading."""
        taken = []
        for batch, _ in zip(self.batches(), range(rounds + 1), strict=False):
            start = time.process_time()
            self.learner(batch)[0].backward()
            taken.append(time.process_time() - start)
        return statistics.median(taken[1:])  # the first makes what later ones have


def rate(batches: Iterator[tuple[int, int]], documents: int) -> tuple[float, float]:
    """(documents, tokens) a processor second, from (documents, tokens) of each batch, until there are so many."""
    start, seen, tokens = time.process_time(), 0, 0
    while seen < documents:
        more, length = next(batches)
        seen, tokens = seen + more, tokens + length
    taken = time.process_time() - start
    return seen / taken, tokens / taken


def measure(arguments: argparse.Namespace, folder: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(arguments.tokenizer)
    ours = {size: Ours(folder, size, arguments.layers, arguments.hidden) for size in arguments.batches}

    def theirs() -> Iterator[tuple[int, int]]:
        text = OnTheFly(arguments.text, tokenizer)
        while True:
            for anchors, positives in DataLoader(text, batch_size=4, collate_fn=padded(tokenizer), drop_last=True):
                yield 4, int(anchors["attention_mask"].sum() + positives["attention_mask"].sum())

    def packed(size: int) -> Iterator[tuple[int, int]]:
        return ((size, len(one.ids)) for one in ours[size].packed())

    contenders: dict[str, tuple[Iterator[tuple[int, int]], int]] = {"on the fly": (theirs(), arguments.peer_documents)}
    contenders |= {f"shards, {size} a step": (packed(size), arguments.documents) for size in ours}
    for batches, _ in contenders.values():
        next(batches)
    rounds = [
        {name: rate(batches, documents) for name, (batches, documents) in contenders.items()}
        for _ in range(arguments.rounds)
    ]
    rows = {}
    for name in contenders:
        documents, tokens = (statistics.median(one[name][i] for one in rounds) for i in (0, 1))
        times = statistics.median(one[name][0] / one["on the fly"][0] for one in rounds)
        rows[name] = {"documents_per_s": round(documents, 1), "tokens_per_s": round(tokens), "times": round(times, 1)}
    size = arguments.batches[0]
    step_s, loading_s = ours[size].step_s(2), size / rows[f"shards, {size} a step"]["documents_per_s"]
    return {
        "machine": machine(),
        "torch": torch.__version__,
        "text": arguments.text.name,
        "rounds": arguments.rounds,
        "rows": rows,
        "step": {
            "documents": size,
            "layers": arguments.layers,
            "hidden": arguments.hidden,
            "seconds": round(step_s, 3),
            "loading_seconds": round(loading_s, 5),
            "share": round(loading_s / step_s, 5),
        },
    }


def table(result: dict[str, Any]) -> str:
    """What is printed."""
    lines = [f"one thread of {result['machine']['cpu']}, {result['text']}, medians of {result['rounds']} rounds"]
    lines.append(f"{'':<22} {'documents/s':>12} {'tokens/s':>12} {'times':>7}")
    for name, row in result["rows"].items():
        figures = f"{row['documents_per_s']:>12,.0f} {row['tokens_per_s']:>12,} {row['times']:>6.1f}x"
        lines.append(f"{name:<22} {figures}")
    step = result["step"]
    lines.append(
        f"step of {step['documents']} documents, {step['layers']} layers of {step['hidden']}: {step['seconds']:.2f} s; "
        f"loading, sampling and packing are {100 * step['share']:.2f} % of it"
    )
    return "\n".join(lines)


def main() -> None:
    parser = command(__doc__, "loader")
    parser.add_argument("--text", type=Path, required=True, metavar="FILE", help="a .jsonl file of documents")
    parser.add_argument("--tokenizer", type=Path, required=True, metavar="DIR")
    parser.add_argument("--batches", type=int, nargs="+", default=[4, 16, 64], metavar="N", help="default 4 16 64")
    parser.add_argument("--documents", type=int, default=640, metavar="N", help="a round's, of shards (default 640)")
    parser.add_argument("--peer-documents", type=int, default=32, metavar="N", help="on the fly (default 32)")
    parser.add_argument("--layers", type=int, default=4, metavar="N", help="default 4")
    parser.add_argument("--hidden", type=int, default=256, metavar="N", help="default 256; heads are of 64")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="default 5")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        options = ["--input", arguments.text, "--output", f"{folder}/shards", "--tokenizer", arguments.tokenizer]
        words = [sys.executable, "-m", "pipelines", "documents", *map(str, options), "--quiet"]
        subprocess.run([*words, "--min-tokens", str(MIN_TOKENS)], check=True)
        result = measure(arguments, f"{folder}/shards")
    tell(result, table, arguments.output)


if __name__ == "__main__":
    main()
