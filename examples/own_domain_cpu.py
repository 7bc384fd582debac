"""Your own domain on a CPU: a folder of texts to a static encoder, trained from scratch in minutes.

    python examples/own_domain_cpu.py 'notes/*.txt' --output runs/domain

The last lines are scores without labels: from each held-out text two passages are taken that do not overlap, and each
model must find the second by the first. tf-idf and BM25 compare words, and learn nothing.
"""

import argparse
from pathlib import Path

import clearspan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="+", help="files, folders and globs: text, JSON lines, csv, parquet, tars")
    parser.add_argument("--output", type=Path, required=True, help="new folder for the tokenizer, shards and run")
    parser.add_argument("--min-tokens", type=int, default=64, help="shorter texts are dropped (default 64)")
    parser.add_argument("--vocabulary", type=int, default=8192, help="number of token ids (default 8192)")
    parser.add_argument("--steps", type=int, default=300, help="training steps (default 300)")
    parser.add_argument("--batch-size", type=int, default=256, help="texts of a step (default 256)")
    args = parser.parse_args()
    tokenizer, shards = args.output / "tokenizer", args.output / "shards"

    clearspan.make_tokenizer(args.corpus, tokenizer, size=args.vocabulary)
    clearspan.make_dataset(
        "documents", args.corpus, shards, tokenizer=tokenizer, min_tokens=args.min_tokens, holdout_fraction=0.1
    )

    changes = {
        "data.text.path": shards,
        "data.text.batch_size": args.batch_size,
        "training.max_steps": args.steps,
        "output": args.output / "run",
    }
    run = clearspan.train_model("static", changes)

    for model in (run.model, "tfidf", "bm25"):
        scores = clearspan.evaluate(model, "heldout", data=shards).scores["heldout"]
        print(f"{model}: the right passage is first for {scores['recall@1']:.1f} % of the held-out texts")


if __name__ == "__main__":
    main()
