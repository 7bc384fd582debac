"""Your own language: texts to a tokenizer, sentences and a small SimCSE encoder, trained from scratch.

    python examples/own_language.py 'texts/*.txt' --language de --dev dev.csv --test test.csv --output runs/german

`--dev` and `--test` are optional: a csv of two sentences and a similarity in each row. The best checkpoint is chosen by
the first, and the model is scored on the second.
"""

import argparse
from pathlib import Path

import clearspan

ENCODER = {
    "model_type": "bert",
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "max_position_embeddings": 128,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="+", help="files, folders and globs: text, JSON lines, csv, parquet, tars")
    parser.add_argument("--language", required=True, metavar="CODE", help="ISO code, for sentence boundaries: de, th")
    parser.add_argument("--dev", type=Path, help="csv of sentence, sentence, score")
    parser.add_argument("--test", type=Path, help="another such csv")
    parser.add_argument("--output", type=Path, required=True, help="new folder for the tokenizer, shards and run")
    parser.add_argument("--vocabulary", type=int, default=16384, help="number of token ids (default 16384)")
    parser.add_argument("--steps", type=int, default=2000, help="training steps (default 2000)")
    args = parser.parse_args()
    tokenizer, shards = args.output / "tokenizer", args.output / "shards"

    clearspan.make_tokenizer(args.corpus, tokenizer, size=args.vocabulary)
    clearspan.make_dataset("sentences", args.corpus, shards, tokenizer=tokenizer, language=args.language)

    # A published recipe, with a fresh encoder in place of its pretrained one.
    changes: dict[str, object] = {"data.text.path": shards, "output": args.output / "run", "model.config": ENCODER}
    changes |= {"training.max_steps": args.steps, "optimizer.learning_rate": 5e-4}
    if args.dev:
        changes |= {"training.eval_data": args.dev, "training.eval_steps": max(1, args.steps // 10)}
    run = clearspan.train_model(clearspan.load_recipe("simcse-unsup-bert-base", changes))

    if args.test:
        results = clearspan.evaluate(run.model, pairs=args.test, output=args.output / "scores")
        print(f"{run.model}: {results.scores}")


if __name__ == "__main__":
    main()
