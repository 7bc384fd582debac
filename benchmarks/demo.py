"""`make demo`: the whole job, on text that every machine has, through the commands that users type.

    documentation of the installed packages -> tokenizer -> token shards (Beam) -> training (DeepSpeed) -> model folder
    -> held-out retrieval: given the summary line of a function, find the rest of its docstring among 1,000

The same encoder is scored untrained, trained with spans + MLM, and trained with MLM only for the same number of steps
and about as many tokens, beside bag of words and tf-idf. All results are printed, good or bad.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from benchmarks.docstrings import modules, write_corpus, write_retrieval
from clearspan.common import terminal
from clearspan.eval.data.retrieval import read_collection
from clearspan.eval.details import Scatter, Table
from clearspan.eval.models.library import load as load_model
from clearspan.eval.report import plots
from clearspan.eval.report.html import Section, write_report
from clearspan.eval.tasks.retrieval import search
from clearspan.pipelines.text.byte_level_bpe import learn_tokenizer
from clearspan.shards import Dataset
from clearspan.train.build import build_encoder
from clearspan.train.config.recipe import load, to_yaml
from clearspan.train.export import save_model
from clearspan.train.model.tokenizer import load_tokenizer

ROOT = Path(__file__).parents[1]
VOCABULARY = 8192
MIN_TOKENS = 512
UNIT_BYTES = "2000000"
"""Small work units: a shard holds neighboring modules, which a batch then contrasts with each other."""
PAIRS = 1000
TASK = "retrieval/docstrings"
MLM_ONLY = [
    "objectives.spans=null",
    "objectives.mlm.input=separate",
    *(
        f"objectives.mlm.sampler.{key}"
        for key in ("num_anchors=3", "min_span=8", "max_span=64", "placement=uniform", "min_distance=128")
    ),
]
METRICS = {"mrr": "MRR", "recall@1": "recall@1", "recall@10": "recall@10"}


@contextmanager
def step(text: str) -> Iterator[None]:
    """Print the name of a step, and its time at the end."""
    print(f"{text} ...", flush=True)
    start = time.perf_counter()
    yield
    print(f"{text}: {time.perf_counter() - start:.0f} s", flush=True)


def run(*command: str | Path) -> None:
    """Run a command; show its output only if it fails."""
    process = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True)
    if process.returncode:
        sys.exit(f"demo: {' '.join(map(str, command))}\n{process.stdout[-2000:]}{process.stderr[-4000:]}")


def train(out: Path, name: str, *overrides: str) -> Path:
    """Train the recipe `demo` through the deepspeed launcher; return the folder of the exported model."""
    paths = f"data.text.path={out / 'shards'}", f"output={out / 'runs' / name}"
    run("deepspeed", "train/run.py", "--recipe", "demo", *paths, *overrides, "--quiet")
    return out / "runs" / name / "model"


def untrained(out: Path) -> Path:
    """Export the recipe's encoder before training; return its folder."""
    recipe = load("demo", [f"data.text.path={out / 'shards'}", f"output={out / 'runs' / 'untrained'}"])
    tokenizer = load_tokenizer(Dataset(recipe.data["text"].path).local_tokenizer())
    encoder = build_encoder(recipe, tokenizer)
    encoder.drop_mlm_head()
    save_model(encoder, tokenizer, Path(recipe.output) / "model", to_yaml(recipe))
    return Path(recipe.output) / "model"


def score(out: Path, name: str, model: Path) -> dict[str, float]:
    """Return the retrieval scores of a model folder, in percent, by the evaluator's command."""
    scores = out / "scores" / name
    words = ["--model", model, "--tasks", "retrieval", "--data", out, "--output", scores]
    run(sys.executable, "-m", "eval", *words, "--quiet")
    return dict(json.loads((scores / "results.json").read_text())["scores"][TASK])


def word_scores(out: Path) -> dict[str, dict[str, float]]:
    """Return the same scores for bag of words and tf-idf, with unigrams fitted on all bodies and summaries."""
    collection = read_collection(out / TASK)
    scores = {}
    for name, vectorizer in (("bag of words", CountVectorizer()), ("tf-idf", TfidfVectorizer())):
        vectors = vectorizer.fit_transform([*collection.documents, *collection.queries]).toarray().astype(np.float32)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        documents, queries = np.split(vectors, [len(collection.documents)])
        scores[name] = search(queries, documents, collection).scores()
    return scores


def neighbors(model: Path, out: Path, count: int) -> list[tuple[str, str, str]]:
    """Return (summary, nearest body, its own body) of the first queries."""
    collection, encoder = read_collection(out / TASK), load_model(model)
    queries, documents = (encoder.encode(texts) for texts in (collection.queries[:count], collection.documents))
    queries, documents = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (queries, documents))
    nearest = (queries @ documents.T).argmax(1)
    own = [collection.documents[rows[0]] for rows in collection.relevant[:count]]
    return [(collection.queries[i], collection.documents[nearest[i]], own[i]) for i in range(count)]


def curves(out: Path, names: list[str]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return name -> (step, loss) of the runs' metrics."""
    loss_by_step = {}
    for name in names:
        records = [json.loads(line) for line in (out / "runs" / name / "metrics.jsonl").read_text().splitlines()]
        loss_by_step[name] = np.array([r["step"] for r in records]), np.array([r["loss"] for r in records])
    return loss_by_step


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.demo", description=__doc__)
    parser.add_argument(
        "--output", type=Path, default=Path("demo"), help="folder to write; an old demo is replaced (default demo)"
    )
    out = parser.parse_args().output.resolve()
    if out.exists() and any(out.iterdir()) and not (out / "corpus.jsonl").is_file():
        parser.error(f"--output {out}: holds something other than a demo; name another folder")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)

    with step("corpus: documentation of the installed packages"):
        documented = modules()
        num_modules = write_corpus(documented, out / "corpus.jsonl")
        num_pairs = write_retrieval(documented, out / TASK, PAIRS)
    with step(f"tokenizer: byte-level BPE of {VOCABULARY:,} ids"):
        learn_tokenizer((module.text for module in documented if not module.held_out), VOCABULARY, out / "tokenizer")
    with step("shards: python -m pipelines documents"):
        run(sys.executable, "-m", "pipelines", "documents", "--input", out / "corpus.jsonl", "--output", out / "shards",
            "--tokenizer", out / "tokenizer", "--min-tokens", str(MIN_TOKENS), "--unit-bytes", UNIT_BYTES,
            "--quiet")  # fmt: skip
    dataset = Dataset(out / "shards")
    totals = dataset.manifest.totals
    corpus = (
        f"{totals['examples']:,} of {num_modules:,} modules, {totals['tokens']:,} tokens; {num_pairs:,} held-out pairs"
    )
    print(f"  {corpus}")

    models = {"untrained": untrained(out)}
    with step("training: spans + MLM"):
        models["spans + MLM"] = train(out, "spans + MLM")
    with step("training: MLM only"):
        models["MLM only"] = train(out, "MLM only", *MLM_ONLY)
    with step("scores: python -m eval --tasks retrieval"):
        scores = {name: score(out, name, model) for name, model in models.items()} | word_scores(out)

    header = ["model", *METRICS.values()]
    rows = [[name, *(f"{figures[metric]:.1f}" for metric in METRICS)] for name, figures in scores.items()]
    shown = neighbors(models["spans + MLM"], out, 3)
    figure = plots.draw(Scatter(curves(out, ["spans + MLM", "MLM only"]), "step", "loss"))
    write_report(
        out / "report.html",
        "Clearspan demo",
        [
            Section("Summary line to docstring body", corpus, [Table(header, rows, "percent; chance MRR is 0.75")],
                    [plots.bars(list(scores), [figures["mrr"] for figures in scores.values()], "MRR, %")]),
            Section("Training loss", "Sums of different objectives: the curves are not comparable.", figures=[figure]),
            Section("Nearest neighbors", "", [Table(["summary", "nearest body", "its own body"], shown)]),
        ],
    )  # fmt: skip
    print("\n" + terminal.table(header, rows, right=range(1, len(header)), indent=0))
    for summary, nearest, own in shown:
        verdict = "correct" if nearest == own else f"correct would be: {own[:90]}"
        print(f"\n  {summary}\n  -> {nearest[:110]}\n     ({verdict})")
    print(f"\nreport: {out / 'report.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
