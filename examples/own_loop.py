"""A training loop of your own on Clearspan's shards: SimCSE in a few lines of torch, read by a webdataset pipeline.

    python examples/own_loop.py 'corpus/*.txt' --model distilroberta-base --output runs/own

`--model` is a local folder of a pretrained encoder: nothing is downloaded. The pipeline yields one dict an example,
with the columns that docs/shards.md lists; all stages after it are webdataset's. The loop is for one process; under
`torchrun`, the pipeline would give each rank examples of its own.
"""

import argparse
import functools
import itertools
from pathlib import Path
from typing import Any

import torch
import webdataset as wds
from torch.nn.functional import cosine_similarity, cross_entropy
from torch.utils.data import DataLoader
from transformers import AutoModel, AutoTokenizer

import clearspan

TEMPERATURE = 0.05


def collate(tokenizer: Any, longest: int, examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Put the special tokens around the ids, which shards do not hold, and pad them."""
    before, after = [tokenizer.cls_token_id], [tokenizer.sep_token_id]
    ids = [[*before, *example["tokens"][:longest].tolist(), *after] for example in examples]
    return dict(tokenizer.pad({"input_ids": ids}, return_tensors="pt"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="+", help="files, folders and globs: text, JSON lines, csv, parquet, tars")
    parser.add_argument("--model", type=Path, required=True, help="folder of a pretrained encoder")
    parser.add_argument("--output", type=Path, required=True, help="new folder for the shards and the model")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    shards = args.output / "shards"
    clearspan.make_dataset("sentences", args.corpus, shards, tokenizer=args.model)

    tokenizer = AutoTokenizer.from_pretrained(args.model, local_files_only=True)
    model = AutoModel.from_pretrained(args.model, local_files_only=True).train()
    longest = min(tokenizer.model_max_length, 128) - 2

    sentences = clearspan.webdataset_pipeline(shards, shuffle=10_000)
    batched = wds.batched(args.batch_size, collation_fn=functools.partial(collate, tokenizer, longest), partial=False)
    batches = sentences.compose(batched)
    loader = DataLoader(batches, batch_size=None, num_workers=args.workers, persistent_workers=args.workers > 0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5)
    epochs = itertools.chain.from_iterable(itertools.repeat(loader))  # each in another order
    for step, batch in enumerate(itertools.islice(epochs, args.steps), start=1):
        first, second = (model(**batch).last_hidden_state[:, 0] for _ in range(2))  # two passes differ by dropout
        similarity = cosine_similarity(first[:, None], second[None], dim=-1) / TEMPERATURE
        loss = cross_entropy(similarity, torch.arange(len(first)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0 or step == args.steps:
            print(f"step {step}: loss {loss.item():.4f}")
    model.save_pretrained(args.output / "model")
    tokenizer.save_pretrained(args.output / "model")


if __name__ == "__main__":
    main()
