"""Your own domain on a CPU: a folder of long texts to a small encoder, trained from scratch in minutes.

    python examples/own_domain_cpu.py 'notes/*.txt' --output runs/domain

The last line is a score without labels. From each held-out document two neighboring passages are taken; the model is
right where a document's second passage is the nearest of all second passages to its first. Chance is 1 in the number of
documents.
"""

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

import clearspan

PASSAGE = 64  # tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="+", help="files, folders and globs: text, JSON lines, csv, parquet, tars")
    parser.add_argument("--output", type=Path, required=True, help="new folder for the tokenizer, shards and run")
    parser.add_argument("--min-tokens", type=int, default=512, help="shorter documents are dropped (default 512)")
    parser.add_argument("--vocabulary", type=int, default=8192, help="number of token ids (default 8192)")
    parser.add_argument("--steps", type=int, default=120, help="training steps (default 120)")
    parser.add_argument("--batch-size", type=int, default=48, help="documents of a step (default 48)")
    args = parser.parse_args()
    tokenizer, shards = args.output / "tokenizer", args.output / "shards"

    clearspan.make_tokenizer(args.corpus, tokenizer, size=args.vocabulary)
    clearspan.make_dataset(
        "documents", args.corpus, shards, tokenizer=tokenizer, min_tokens=args.min_tokens, holdout_fraction=0.1
    )

    changes = {"training.max_steps": args.steps, "data.text.batch_size": args.batch_size}
    recipe = clearspan.load_recipe("demo", {"data.text.path": shards, "output": args.output / "run", **changes})
    run = clearspan.train_model(recipe)

    # A dataset is a stream of Arrow batches; `tokens` is a column of lists of token ids.
    ids = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    tokens = [row for batch in clearspan.Dataset(shards / "validation") for row in batch["tokens"].to_pylist()]
    first, second = ([ids.decode(row[i * PASSAGE : (i + 1) * PASSAGE]) for row in tokens] for i in (0, 1))
    model = clearspan.load_model(run.model)
    queries, passages = (unit(model.encode(texts)) for texts in (first, second))
    right = (queries @ passages.T).argmax(axis=1) == np.arange(len(tokens))
    print(f"{run.model}: {right.sum()} of {len(tokens)} held-out documents have their own passage nearest")


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths: NDArray[np.float32] = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, 1e-12)


if __name__ == "__main__":
    main()
