"""`make demo`: the whole job, on text that every machine has, through the commands that users type.

    documentation of the installed packages -> tokenizer -> token shards (Beam) -> training (DeepSpeed) -> model folders
    -> held-out retrieval: given the summary line of a function, find the rest of its docstring among 1,000

Two encoders learn from scratch: a static one (recipe `static`), and a transformer of one layer that begins with its
token vectors (recipe `demo` without masked language modeling, which costs more time than it gains here). They are
scored beside the untrained transformer, bag of words, tf-idf and BM25, and all results are printed, good or bad. The
settings were chosen on pairs of training modules that were left out for it; the 1,000 pairs come from other modules and
chose nothing.
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

from benchmarks.docstrings import modules, write_corpus, write_retrieval
from clearspan.common.files import remove_temporaries
from clearspan.eval.report import plots
from clearspan.eval.report.html import Section, write_report
from clearspan.eval.run import Request, evaluate, summary_of
from clearspan.eval.sections import report_lead, report_sections
from clearspan.eval.summary import terminal_summary
from clearspan.pipelines.text.byte_level_bpe import learn_tokenizer
from clearspan.shards import Dataset
from clearspan.train.build_encoder import build_encoder
from clearspan.train.config.recipe import load, to_yaml
from clearspan.train.export import save_model
from clearspan.train.model.tokenizer import load_tokenizer
from clearspan.train.options import DEV

ROOT = Path(__file__).parents[1]
VOCABULARY = 8192
MIN_TOKENS = 64
HOLDOUT = 0.05
"""The fraction of the training modules that the learning curves are measured on."""
UNIT_BYTES = "2000000"
"""Small work units: a shard holds neighboring modules, which a batch then contrasts with each other."""
PAIRS = 1000
TASK = "retrieval/docstrings"
TRANSFORMER = [
    "objectives.mlm=null",
    "objectives.spans.sampler.positives=adjacent",
    "training.max_steps=160",
]
BASELINES = {"bag of words": "bow", "tf-idf": "tfidf", "BM25": "bm25"}
WRITTEN = {"corpus.jsonl", "retrieval", "tokenizer", "shards", "runs", "scores", "report.html"}
"""Files and folders of a demo: a folder that holds others is not replaced."""
SHOWN = 3
"""Queries whose nearest documents are printed; the report has more."""


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


def train(out: Path, name: str, recipe: str, *overrides: str) -> Path:
    """Train a recipe through the deepspeed launcher; return the folder of the exported model."""
    shards = out / "shards"
    keys = [
        f"data.text.path={shards}",
        f"data.text.validation={shards / 'validation'}",
        f"output={out / 'runs' / name}",
    ]
    keys += ["training.eval_data=heldout", "training.eval_steps=25"]
    run("deepspeed", "train/run.py", "--recipe", recipe, *keys, *overrides, "--quiet")
    return out / "runs" / name / "model"


def untrained(out: Path) -> Path:
    """Export the transformer before training; return its folder."""
    paths = [f"data.text.path={out / 'shards'}", f"output={out / 'runs' / 'untrained'}"]
    recipe = load("demo", [*paths, *TRANSFORMER])
    tokenizer = load_tokenizer(Dataset(recipe.data["text"].path).local_tokenizer())
    encoder = build_encoder(recipe, tokenizer)
    encoder.drop_mlm_head()
    save_model(encoder, tokenizer, Path(recipe.output) / "model", to_yaml(recipe))
    return Path(recipe.output) / "model"


def learning_curve(run: Path) -> tuple[list[int], list[float]]:
    """Return (steps, scores) of a run: the MRR, in percent, of finding the other crop of a held-out training module."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    scored = [record for record in records if DEV in record]
    return [record["step"] for record in scored], [record[DEV] for record in scored]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.demo", description=__doc__)
    parser.add_argument(
        "--output", type=Path, default=Path("demo"), help="folder to write; an old demo is replaced (default demo)"
    )
    out = parser.parse_args().output.resolve()
    remove_temporaries(out)
    if out.exists() and not (out.is_dir() and {path.name for path in out.iterdir()} <= WRITTEN):
        parser.error(f"--output {out}: holds something other than a demo; name another folder")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)

    with step("corpus: documentation of the installed packages"):
        documented = modules()
        num_modules = write_corpus(documented, out / "corpus.jsonl")
        num_pairs = write_retrieval(documented, out / TASK, PAIRS)
    with step(f"tokenizer: byte-level BPE of {VOCABULARY:,} ids"):
        learn_tokenizer((module.text for module in documented if not module.held_out), VOCABULARY, out / "tokenizer")
    with step("shards: clearspan documents"):
        run(sys.executable, "-m", "pipelines", "documents", "--input", out / "corpus.jsonl", "--output", out / "shards",
            "--tokenizer", out / "tokenizer", "--min-tokens", str(MIN_TOKENS), "--unit-bytes", UNIT_BYTES,
            "--holdout-fraction", str(HOLDOUT), "--quiet")  # fmt: skip
    totals = Dataset(out / "shards").manifest.totals
    sizes = f"{totals['examples']:,} of {num_modules:,} modules, {totals['tokens']:,} tokens"
    print(f"  {sizes}; {num_pairs:,} held-out pairs")
    models = {"untrained": str(untrained(out))}
    with step("training: a static encoder"):
        models["static"] = str(train(out, "static", "static"))
    with step("training: a transformer that begins with its vectors"):
        models["transformer"] = str(train(out, "transformer", "demo", f"model.path={models['static']}", *TRANSFORMER))
    with step("scores: clearspan eval --tasks retrieval"):
        request = Request(models | BASELINES, ["retrieval"], [], out, out / "scores", quiet=True)
        summary = summary_of(evaluate(request))

    figure = plots.lines(
        {name: learning_curve(out / "runs" / name) for name in ("static", "transformer")},
        "step",
        "MRR on held-out training modules, %",
    )
    figures, *others = report_sections(summary)
    text = "Given a crop of a module that training left out, find its other crop. This score chose the checkpoints."
    sections = [figures, Section("Learning curves", text, figures=[figure]), *others]
    write_report(out / "report.html", "Clearspan demo", sections, report_lead(summary), summary.warnings)
    for table in summary.of(TASK)["static"].details.tables[:SHOWN]:
        nearest = table.rows[0][1]
        print(f"\n  {table.caption}\n  -> {nearest.value[:110]}\n     ({nearest.note})")
    print("\n" + terminal_summary(summary, shutil.get_terminal_size((100, 24)).columns))
    print(f"report: {out / 'report.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
