"""What near-duplicates cost: trainings on a corpus without them, with 30 % of them, and with these dropped again.

    python -m benchmarks.near_training --work DIR

Documentation of the installed packages, as in `make demo`; copies of modules have up to 5 % of their words replaced.
Each corpus trains the recipe `static` for the same number of steps with several seeds. The score is the demo's: given
the summary line of a function of a held-out module, find the rest of its docstring.
"""

import argparse
import json
import random
import statistics
from pathlib import Path
from typing import Any

from benchmarks.docstrings import modules, write_corpus, write_retrieval
from benchmarks.report import columns, command, finish, machine, option
from clearspan.common.commands import run_module, words
from clearspan.eval import saved
from clearspan.pipelines.text.byte_level_bpe import learn_tokenizer
from clearspan.shards import Dataset

VOCABULARY, PAIRS = 8192, 1000
COPIES, CHANGED = 0.3, 0.05
"""Share of the corpus that copies make up, and the largest share of their words that is replaced."""
CORPORA = {"clean": ("clean.jsonl", ()), "copies": ("copies.jsonl", ()),
           "copies dropped": ("copies.jsonl", ("--near-dedup=0.8",))}  # fmt: skip


def write_copies(clean: Path, path: Path) -> None:
    """Write the texts of a .jsonl file and changed copies of some, in random order."""
    rng = random.Random(3)
    texts = [json.loads(line)["text"] for line in clean.read_text("utf-8").splitlines()]
    chosen = rng.sample(texts, min(len(texts), round(len(texts) * COPIES / (1 - COPIES))))
    for text in chosen:
        rate = rng.random() * CHANGED
        changed = [word if rng.random() >= rate else f"{word}{rng.randrange(100)}" for word in text.split(" ")]
        texts.append(" ".join(changed))
    rng.shuffle(texts)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    work: Path = arguments.work
    if not (work / "copies.jsonl").is_file():
        work.mkdir(parents=True, exist_ok=True)
        documented = modules()
        write_corpus(documented, work / "clean.jsonl")
        write_retrieval(documented, work / "data" / "retrieval" / "docstrings", PAIRS)
        learn_tokenizer((each.text for each in documented if not each.held_out), VOCABULARY, work / "tokenizer")
        write_copies(work / "clean.jsonl", work / "copies.jsonl")
    rows = {name: measure_corpus(work, name, arguments.seeds) for name in CORPORA}
    return {"machine": machine(), "seeds": arguments.seeds, "corpora": rows}


def measure_corpus(work: Path, name: str, seeds: int) -> dict[str, Any]:
    """Return the documents of a corpus, how many were dropped, and the MRR of each seed in percent."""
    corpus, switches = CORPORA[name]
    folder = work / name.replace(" ", "-")
    line = ["documents", f"--input={work / corpus}", f"--output={folder / 'shards'}", *switches]
    line += [f"--tokenizer={work / 'tokenizer'}", "--min-tokens=64", "--unit-bytes=2000000", "--quiet"]
    run_module("clearspan.pipelines", line, "pipelines", quiet=True)
    scores = []
    for seed in range(1, seeds + 1):
        run, scored = folder / f"seed-{seed}", folder / f"scores-{seed}"
        keys = [f"data.text.path={folder / 'shards'}", f"output={run}", f"training.seed={seed}"]
        run_module("clearspan.train", ["--recipe=static", "--resume", *keys, "--quiet"], "train", quiet=True)
        options = {"model": run / "model", "name": name, "tasks": "retrieval", "data": work / "data", "output": scored}
        run_module("clearspan.eval", words({**options, "quiet": True}), "python -m clearspan.eval", quiet=True)
        scores.append(saved.read(scored).scores["retrieval/docstrings"]["mrr"])
    manifest = Dataset(folder / "shards").manifest
    dropped = manifest.counts["filtered"].get("near_duplicate", 0)
    return {"documents": manifest.totals["examples"], "near_duplicates": dropped, "mrr": scores}


def table(result: dict[str, Any]) -> str:
    rows = [
        [name, f"{row['documents']:,}", f"{row['near_duplicates']:,}", f"{statistics.mean(row['mrr']):.2f}",
         ", ".join(f"{score:.2f}" for score in row["mrr"])]
        for name, row in result["corpora"].items()
    ]  # fmt: skip
    return columns(["corpus", "documents", "dropped", "MRR, mean", "each seed"], rows)


def main() -> None:
    parser = command(__doc__, "near_training")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="folder of all results")
    option(parser, "seeds", 3, "trainings of each corpus")
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
