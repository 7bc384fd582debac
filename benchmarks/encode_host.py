"""The host's side of embedding: everything but the model's forward, with a model that returns zeros.

    python -m benchmarks.encode_host TOKENIZER ... --documents DOCUMENTS.jsonl

Our stream (tokenization, windows, batches, rows in order) and the loop of sentence-transformers' `encode` read the same
texts with the same tokenizer: distinct sentences of documents. Both return zeros for each batch at once.

`held up` says how many times as long a thread takes to start small operations of torch, as a GPU's are started, while
another thread tokenizes: tokenization that keeps Python's lock leaves a GPU idle.
"""

import argparse
import itertools
import json
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Transformer
from torch import Tensor
from transformers import AutoTokenizer, BertConfig, BertModel

from benchmarks.encode import rates
from benchmarks.report import command, finish, machine, option, tabulated
from clearspan.common.encoder import ahead
from clearspan.common.encoder.reading import LibraryReader
from clearspan.common.encoder.stream import embed

DIM, LIMIT = 384, 256
"""Width of the vectors, and number of tokens that the model reads: those of all-MiniLM-L6-v2."""
SHORTEST, LONGEST = 20, 300
"""Characters of a sentence."""
SENTENCE_END = re.compile(r"(?<=[.!?]) +")


class Zeros:
    """A packed model that returns zeros."""

    dim, device = DIM, torch.device("cpu")

    def __init__(self, rows: int) -> None:
        self._zeros = torch.zeros((rows, DIM))

    def encode_ids(self, ids: Tensor, lengths: NDArray[np.int32], prompt_tokens: int = 0) -> Tensor:
        return self._zeros[: len(lengths)]


def sentences(path: Path) -> Iterator[str]:
    """Yield the distinct sentences of a .jsonl file of documents."""
    known = set()
    with path.open("rb") as file:
        for line in file:
            for sentence in SENTENCE_END.split(" ".join(orjson.loads(line)["text"].split())):
                if SHORTEST <= len(sentence) <= LONGEST and sentence not in known:
                    known.add(sentence)
                    yield sentence


def transformer(tokenizer: Path, folder: Path) -> Transformer:
    """Return a transformer with the tokenizer of a folder and as good as no model."""
    loaded = AutoTokenizer.from_pretrained(tokenizer, local_files_only=True, trust_remote_code=False)
    size = {"hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 4}
    config = BertConfig(**size, vocab_size=len(loaded), max_position_embeddings=LIMIT)
    BertModel(config).save_pretrained(folder)
    loaded.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_max_length": LIMIT}))
    return Transformer(str(folder))


def row(tokenizer: Path, texts: list[str], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the rates of both with a tokenizer, each with its caches as they are: the first round fills them."""
    with tempfile.TemporaryDirectory() as folder:
        module = transformer(tokenizer, Path(folder))
    zeros = Zeros(max(arguments.batch_tokens, arguments.batch))
    module.forward = lambda features, **_: {"sentence_embedding": zeros._zeros[: len(features["input_ids"])]}
    library = SentenceTransformer(modules=[module], device="cpu")
    reader = LibraryReader(module, tokenizer.name)

    def ours(texts: list[str]) -> np.ndarray:
        return embed(reader, zeros, texts, "", arguments.batch_tokens, progress=False).vectors

    def theirs(texts: list[str]) -> np.ndarray:
        return np.asarray(library.encode(texts, batch_size=arguments.batch, show_progress_bar=False))

    measured = rates(ours, theirs, texts, arguments.rounds)
    held = held_up(lambda: sum(len(reader.read(window)) for window in ahead.windows(texts)), arguments.launches)
    return {**measured, "tokens": int(reader.read(texts).lengths.sum()), "held_up": held}


def held_up(tokenize: Callable[[], object], launches: int) -> float:
    """Return how many times as long `launches` small operations take while a thread tokenizes again and again."""

    def started() -> float:
        value, start = torch.zeros(16), time.perf_counter()
        for _ in range(launches):
            value.add_(1)
        return time.perf_counter() - start

    done = threading.Event()

    def tokenizing() -> None:
        while not done.is_set():
            tokenize()

    alone = min(started() for _ in range(3))
    with ThreadPoolExecutor(1) as thread:
        tokenizing_texts = thread.submit(tokenizing)
        beside = started()
        done.set()
        tokenizing_texts.result()
    return beside / alone


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the rates with each tokenizer."""
    texts = list(itertools.islice(sentences(arguments.documents), arguments.texts))
    rows = {tokenizer.name: row(tokenizer, texts, arguments) for tokenizer in arguments.tokenizers}
    versions = {"torch": torch.__version__, "threads": torch.get_num_threads(), "rounds": arguments.rounds}
    return {"machine": machine(), **versions, "batch": arguments.batch, "rows": rows}


def table(result: dict[str, Any]) -> str:
    """Return the text that is printed."""
    figures = {
        "texts": ("texts", ","),
        "first round": ("first_texts_per_s", ",.0f"),
        "texts/s": ("texts_per_s", ",.0f"),
        "peer": ("peer_texts_per_s", ",.0f"),
        "times": ("times", ".2f"),
        "by processor": ("times_by_processor", ".2f"),
        "held up": ("held_up", ".2f"),
    }
    title = f"{result['threads']} threads, {result['machine']['cpu']}; medians of {result['rounds']} rounds"
    return f"{title}\n{tabulated('', result['rows'], figures)}"


def main() -> None:
    parser = command(__doc__, "encode_host")
    parser.add_argument("tokenizers", type=Path, nargs="+", metavar="DIR", help="folders of tokenizers")
    parser.add_argument("--documents", type=Path, required=True, metavar="FILE", help="a .jsonl file of documents")
    option(parser, "texts", 100_000, "sentences")
    option(parser, "batch", 32, "batch size of sentence-transformers, 32 being its own default")
    option(parser, "batch-tokens", 16384, "tokens of our batches")
    option(parser, "rounds", 5, "rounds")
    option(parser, "launches", 100_000, "small operations whose delay by tokenization is measured")
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
