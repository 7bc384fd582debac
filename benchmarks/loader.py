"""The input side of a step: from shards to a sampled, packed and masked batch, beside tokenization on the fly.

    python -m benchmarks.loader --text DOCUMENTS.jsonl --tokenizer roberta-base

The input is the documents of one file that have 2,048 tokens or more; one thread samples DeCLUTR's spans (A = 2,
P = 2). Figures are medians of processor time, which other load affects least, over alternating rounds. Contenders:

    shards      the recipe declutr-base up to the encoder: shards read and decoded, documents shuffled, spans sampled,
                packed, anchors masked. The time of the pipeline, which tokenized them, is not included
    on the fly  a torch DataLoader that processes each document like DeCLUTR's reader: the whole text is tokenized,
                spans are sampled, and each is decoded and tokenized again; transformers' collator pads and masks

Shards are measured with each of --batches documents a step.
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

from benchmarks.report import alternating, command, machine, option, publish, tabulated
from benchmarks.synthetic import config_of
from clearspan.shards import Dataset
from clearspan.train.data.feed import Feed
from clearspan.train.data.span_sampler import SpanConfig
from clearspan.train.model.packing import PackedBlocks
from clearspan.train.recipe import load_recipe
from clearspan.train.start.build_learner import build_learner
from clearspan.train.start.build_streams import build_feed
from clearspan.train.step.learner import Learner

SPANS = SpanConfig()
LAYERS, HIDDEN = 4, 256
MIN_TOKENS = SPANS.required_tokens


class OnTheFly(IterableDataset):
    """Anchors and positives, as lists of ids, of each sufficiently long document of a .jsonl file."""

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
        generator, width = self.generator, SPANS.max_span - SPANS.min_span
        anchors, positives = [], []
        half = len(pieces) // SPANS.num_anchors
        for number in range(SPANS.num_anchors):
            length = SPANS.min_span + int(generator.beta(*SPANS.anchor_beta) * width)
            start = number * half + int(generator.integers(half - length + 1))
            anchors.append(self.retokenized(pieces[start : start + length]))
            for _ in range(SPANS.num_positives):
                size = SPANS.min_span + int(generator.beta(*SPANS.positive_beta) * width)
                first = int(generator.integers(max(0, start - size), min(start + length, len(pieces) - size) + 1))
                positives.append(self.retokenized(pieces[first : first + size]))
        return anchors, positives

    def retokenized(self, pieces: list[str]) -> list[int]:
        text = self.tokenizer.convert_tokens_to_string(pieces)
        return self.tokenizer(text, truncation=True, max_length=SPANS.max_span)["input_ids"]


def padded(tokenizer: Any) -> Callable[[list[Any]], Any]:
    """Return a collator that pads the spans of documents and masks the anchors."""
    masking = DataCollatorForLanguageModeling(tokenizer)

    def collate(documents: list[Any]) -> Any:
        anchors = [{"input_ids": ids} for spans, _ in documents for ids in spans]
        positives = [{"input_ids": ids} for _, spans in documents for ids in spans]
        return masking(anchors), tokenizer.pad(positives, return_tensors="pt")

    return collate


class Ready(Exception):  # noqa: N818 (not an error)
    """Carries the encoder's input out of a forward pass."""

    def __init__(self, packed: PackedBlocks) -> None:
        self.packed = packed


class Ours:
    """The recipe over a folder of shards, with this number of documents a step."""

    def __init__(self, folder: str, documents: int) -> None:
        names = ("model_type", "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
        names += ("max_position_embeddings", "type_vocab_size")
        sizes = config_of(LAYERS, HIDDEN, 0.1)
        config = {name: getattr(sizes, name) for name in names}
        changes = [f"model.config.{key}={value}" for key, value in config.items()]
        paths = [f"data.text.path={folder}", f"data.text.batch_size={documents}", "output=unused"]
        recipe = load_recipe("declutr-base", ["model.path=null", "model.config=null", *changes, *paths])
        datasets = {"text": Dataset(folder)}
        self.learner: Learner = build_learner(recipe, datasets, 1, static=False)[0]
        self.feed: Feed = build_feed(recipe, datasets, self.learner, 0, 1)

    def batches(self) -> Iterator[dict[str, Any]]:
        stream = self.feed.streams["text"]
        for batch, _ in stream.batches(self.feed.start()["text"], self.learner.columns("text"), self.learner.collate):
            yield {"text": batch}

    def packed(self) -> Iterator[PackedBlocks]:
        """Yield the encoder's input, step by step, without calling the encoder."""

        def stop(packed: PackedBlocks, _: Any) -> None:
            raise Ready(packed)

        for batch in self.batches():
            self.learner.encoder.forward = stop  # type: ignore[method-assign]
            try:
                self.learner(batch)
            except Ready as ready:
                packed = ready.packed
            del self.learner.encoder.forward
            yield packed


def rate(batches: Iterator[tuple[int, int]], documents: int) -> tuple[float, float]:
    """Return (documents, tokens) a processor second.

    Args:
        batches: (documents, tokens) of each batch, without end.
        documents: the number to measure.
    """
    start, seen, tokens = time.process_time(), 0, 0
    while seen < documents:
        size, length = next(batches)
        seen, tokens = seen + size, tokens + length
    taken = time.process_time() - start
    return seen / taken, tokens / taken


def measure(arguments: argparse.Namespace, folder: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(arguments.tokenizer)
    ours = {size: Ours(folder, size) for size in arguments.batches}

    def theirs() -> Iterator[tuple[int, int]]:
        text = OnTheFly(arguments.text, tokenizer)
        while True:
            for anchors, positives in DataLoader(text, batch_size=4, collate_fn=padded(tokenizer), drop_last=True):
                yield 4, int(anchors["attention_mask"].sum() + positives["attention_mask"].sum())

    def packed(size: int) -> Iterator[tuple[int, int]]:
        return ((size, len(each.ids)) for each in ours[size].packed())

    contenders: dict[str, tuple[Iterator[tuple[int, int]], int]] = {"on the fly": (theirs(), arguments.peer_documents)}
    contenders |= {f"shards, {size} a step": (packed(size), arguments.documents) for size in ours}
    for batches, _ in contenders.values():
        next(batches)
    rates = alternating({name: lambda each=each: rate(*each) for name, each in contenders.items()}, arguments.rounds)
    rows = {}
    for name, results in rates.items():
        documents, tokens = (statistics.median(each[i] for each in results) for i in (0, 1))
        times = statistics.median(a / b for (a, _), (b, _) in zip(results, rates["on the fly"], strict=True))
        rows[name] = {"documents_per_s": round(documents, 1), "tokens_per_s": round(tokens), "times": round(times, 1)}
    return {
        "machine": machine(),
        "torch": torch.__version__,
        "text": arguments.text.name,
        "rounds": arguments.rounds,
        "rows": rows,
    }


def table(result: dict[str, Any]) -> str:
    """Return the text that is printed."""
    figures = {"documents/s": ("documents_per_s", ",.0f"), "tokens/s": ("tokens_per_s", ","), "times": ("times", ".1f")}
    title = f"one thread of {result['machine']['cpu']}, {result['text']}, medians of {result['rounds']} rounds"
    return f"{title}\n{tabulated('', result['rows'], figures)}"


def main() -> None:
    parser = command(__doc__, "loader")
    parser.add_argument("--text", type=Path, required=True, metavar="FILE", help="a .jsonl file of documents")
    parser.add_argument("--tokenizer", type=Path, required=True, metavar="DIR")
    sizes = "documents a step (default 4 16 64)"
    parser.add_argument("--batches", type=int, nargs="+", default=[4, 16, 64], metavar="N", help=sizes)
    option(parser, "documents", 640, "documents a round, from shards")
    option(parser, "peer-documents", 32, "documents a round, on the fly")
    option(parser, "rounds", 5, "rounds")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        options = ["--input", arguments.text, "--output", f"{folder}/shards", "--tokenizer", arguments.tokenizer]
        words = [sys.executable, "-m", "pipelines", "documents", *map(str, options), "--quiet"]
        subprocess.run([*words, "--min-tokens", str(MIN_TOKENS)], check=True)
        result = measure(arguments, f"{folder}/shards")
    publish(result, table, arguments.output)


if __name__ == "__main__":
    main()
