"""Continued pretraining of a published encoder on one GPU, by DeCLUTR's recipe, and its scores.

    python examples/one_gpu.py 'corpus/*.jsonl.zst' --model distilroberta-base --data SENTEVAL --output runs/declutr

`--model` is a local folder of a pretrained encoder: nothing is downloaded. `--data` is a folder in SentEval's layout;
its test sentences are kept out of the training data, STS-B's dev set chooses the best checkpoint, and the model is
compared with the one before training. With `--dry-run` the shards are made, and what a run needs is printed.
"""

import argparse
from pathlib import Path

import clearspan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="+", help="files, folders and globs: text, JSON lines, csv, parquet, tars")
    parser.add_argument("--model", type=Path, required=True, help="folder of a pretrained encoder")
    parser.add_argument("--data", type=Path, required=True, help="folder of evaluation data")
    parser.add_argument("--output", type=Path, required=True, help="new folder for the shards, run and scores")
    parser.add_argument("--recipe", default="declutr-small", help="recipe of documents (default declutr-small)")
    parser.add_argument("--dry-run", action="store_true", help="make the shards, print what a run needs, and end")
    args = parser.parse_args()
    shards, scores = args.output / "shards", args.output / "scores"

    tests = sorted(args.data.glob("downstream/STS/**/*test*"))
    clearspan.make_dataset("documents", args.corpus, shards, tokenizer=args.model, exclude=tests)
    if problems := clearspan.verify(shards):
        raise SystemExit("\n".join(problems))

    changes = {
        "data.text.path": shards,
        "model.path": args.model,
        "output": args.output / "run",
        "training.eval_data": args.data,
        "training.eval_steps": 500,
    }
    run = clearspan.train_model(args.recipe, changes, num_accelerators=1, dry_run=args.dry_run)
    if args.dry_run:
        return

    for name, model in (("before", args.model), ("after", run.model)):
        clearspan.evaluate(model, ["sts", "transfer"], args.data, scores / name)
    for row in clearspan.compare(scores / "before", scores / "after").rows:
        noise = "" if row.exceeds_noise else " (within noise)"
        print(f"{row.task} {row.metric}: {row.a:.2f} -> {row.b:.2f}{noise}")


if __name__ == "__main__":
    main()
