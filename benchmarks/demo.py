"""`make demo`: the whole job, on text that every machine has, through the commands that users type.

    documentation of the installed packages -> tokenizer -> token shards (Beam) -> training (DeepSpeed) -> model folders
    -> held-out retrieval: given the summary line of a function, find the rest of its docstring among those of all

Two encoders learn from scratch, both static: one from spans of the texts alone (recipe `static`); one that starts from
the first and learns from pairs of summary and body of docstrings, with hard negatives: wrong bodies that the first one
ranks high (`clearspan mine`, recipe `static-pairs`). They are scored beside bag of words, tf-idf and BM25, the
second one also together with BM25, and all results are printed, good or bad. The settings were chosen on pairs of
training modules that were left out for it; the 1,000 queries come from other modules and chose nothing. Their texts are
searched for among the bodies of all modules, including those trained on, as in a real search. There is no transformer:
to embed all of these bodies by a single layer takes minutes.
"""

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.commands import run_module
from benchmarks.docstrings import modules, write_corpus, write_pairs, write_retrieval
from clearspan.cli.run import Work, run
from clearspan.cli.words import words
from clearspan.common import terminal
from clearspan.common.checksummed_folder import set_aside
from clearspan.common.encoder.cache import NO_CACHE
from clearspan.common.files import remove_temporaries
from clearspan.common.progress import duration
from clearspan.common.spawned import CommandError
from clearspan.common.terminal import UsageError
from clearspan.eval.details import cell_text, merged
from clearspan.eval.report.figures import write_svg
from clearspan.eval.report.html import write_report
from clearspan.eval.report.outcome import task_figure
from clearspan.eval.report.sections import report_lead, report_sections, terminal_summary
from clearspan.eval.report.summary import ScoreSummary
from clearspan.eval.request import EvalOptions
from clearspan.eval.results import Scored
from clearspan.eval.run import score_models, with_differences
from clearspan.pipelines.__main__ import COMMANDS
from clearspan.pipelines.text.byte_level_bpe import learn_tokenizer
from clearspan.shards import Dataset
from clearspan.shards.held_out import folder_of
from clearspan.train.curves import learning_curves
from clearspan.train.engine.ranks import name_accelerator
from clearspan.train.run_folder import METRICS

STAGES = {
    "corpus: documentation of the installed packages": 26,
    "tokenizer: byte-level BPE": 4,
    "shards: clearspan documents, clearspan pairs": 7,
    "training: a static encoder, from spans": 33,
    "hard negatives: clearspan mine": 10,
    "training: a static encoder, from pairs with hard negatives": 38,
    "scores: clearspan eval --tasks retrieval": 23,
}
"""Stage -> its seconds on two idle cores on which the two probes take PRODUCT_S and TEXT_S."""
PRODUCT_S, TEXT_S = 0.02, 0.00086
"""Seconds of a product of two fp32 matrices of 1,024 x 1,024 on one core, which training follows, and of some work on
text in Python, which all other stages follow.
"""
PROBE_S = 0.7
VOCABULARY = 8192
MIN_TOKENS = 64
HOLDOUT = 0.05
"""The fraction of the training modules that the learning curves are measured on."""
UNIT_BYTES = 2_000_000
"""Small work units: a shard holds neighboring modules, which a batch then contrasts with each other."""
PAIRS = 1000
HEADLINE = ("mrr", "recall@1", "recall@10")
SPANS, STATIC = "static from spans", "static from pairs"
TRAINED = {SPANS: "static", STATIC: "static-pairs"}
"""Model -> the folder of its run."""
TASK = "retrieval/docstrings"
PAIRED = ["model.config=null", "model.init=random", "optimizer.learning_rate=0.01", "training.max_steps=200"]
"""Keys of `static-pairs` for a model that has vectors already: it keeps its own, and moves half as fast."""
BASELINES = {"BM25": "bm25", "tf-idf": "tfidf", "bag of words": "bow"}
"""The first one is what all others are compared with."""
DATA = {"corpus.jsonl", "pairs.jsonl", "retrieval", "tokenizer", "shards", "pairs", "mined"}
WRITTEN = DATA | {"runs", "scores", "report.html", "mrr.svg"}
"""Files and folders of a demo: a folder that holds others is not replaced."""


def planned() -> list[tuple[str, float]]:
    """Return the numbered stages and about how many seconds each takes on this machine; print the sum."""
    matrix, records = torch.ones(1024, 1024), [{"text": "a line of text " * 20, "id": i} for i in range(200)]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    product_s = seconds_of(lambda: matrix @ matrix)
    torch.set_num_threads(threads)
    text_s = seconds_of(
        lambda: [hash(word) for each in json.loads(json.dumps(records)) for word in each["text"].split()]
    )
    training, reading = product_s / PRODUCT_S, text_s / TEXT_S
    stages = [
        (f"[{number}/{len(STAGES)}] {text}", seconds * (training if "training" in text else reading))
        for number, (text, seconds) in enumerate(STAGES.items(), 1)
    ]
    total = sum(seconds for _, seconds in stages)
    print(f"{len(STAGES)} stages, about {duration(total)} on this machine ({os.cpu_count()} cores)", flush=True)
    return stages


def seconds_of(work: Callable[[], object]) -> float:
    """Return the mean seconds of a call over PROBE_S seconds; other processes, which take turns, make it longer."""
    work()  # the first call starts threads and fills caches
    start, calls = time.perf_counter(), 0
    while (passed := time.perf_counter() - start) < PROBE_S:
        work()
        calls += 1
    return passed / calls


@contextmanager
def stage(name: str, seconds: float) -> Iterator[None]:
    """Print the name of a stage and its expected time, and the actual time at the end."""
    print(f"{name}: about {duration(10 * math.ceil(seconds / 10))} ...", flush=True)
    start = time.perf_counter()
    yield
    print(f"{name}: {duration(time.perf_counter() - start)}", flush=True)


def train(out: Path, name: str, recipe: str, *overrides: str, shards: str = "shards") -> Path:
    """Train a recipe; return the folder of the exported model."""
    keys = {
        "data.text.path": out / shards,
        "data.text.validation": folder_of(str(out / shards)),
        "output": out / "runs" / name,
        "training.eval_data": "heldout",
        "training.eval_steps": 25,
    }
    given = [f"{key}={value}" for key, value in keys.items()]
    run_module("clearspan.train", ["--recipe", recipe, *given, *overrides, "--quiet"])
    return out / "runs" / name / "model"


def print_hits(summary: ScoreSummary, width: int) -> None:
    """Print the nearest document of each model for a few queries."""
    for table in merged({model: scores.details.tables for model, scores in summary.of(TASK).items()}):
        rows = [[cell_text(cell) for cell in row[:3]] for row in table.rows]
        hits = terminal.table(table.header[:3], rows)
        lines = f"\n{table.caption.removeprefix(f'{TASK}: ')}\n{hits}".splitlines()
        terminal.say("\n".join(line[:width] for line in lines))


def work(out: Path) -> int:
    stages = iter(planned())
    with stage(*next(stages)):
        documented = modules()
        num_modules = write_corpus(documented, out / "corpus.jsonl")
        num_titled = write_pairs(documented, out / "pairs.jsonl")
        num_queries, num_texts = write_retrieval(documented, out / TASK, PAIRS)
    with stage(*next(stages)):
        learn_tokenizer((module.text for module in documented if not module.held_out), VOCABULARY, out / "tokenizer")
    with stage(*next(stages)):
        options = {"input": out / "corpus.jsonl", "output": out / "shards", "tokenizer": out / "tokenizer"}
        options |= {"min_tokens": MIN_TOKENS, "unit_bytes": UNIT_BYTES, "holdout_fraction": HOLDOUT, "quiet": True}
        run_module("clearspan.pipelines", ["documents", *words(COMMANDS["documents"], options)], quiet=True)
        options = {"input": out / "pairs.jsonl", "output": out / "pairs", "tokenizer": out / "tokenizer"}
        options |= {"holdout_fraction": HOLDOUT, "quiet": True}
        run_module("clearspan.pipelines", ["pairs", *words(COMMANDS["pairs"], options)], quiet=True)
    totals = Dataset(out / "shards").manifest.totals
    sizes = f"{totals['examples']:,} of {num_modules:,} modules, {totals['tokens']:,} tokens"
    held_out = f"{num_queries:,} summaries of other modules find their bodies among {num_texts:,}"
    print(f"  {sizes}, {num_titled:,} pairs; {held_out}", flush=True)
    models = {}
    with stage(*next(stages)):
        models[SPANS] = str(train(out, TRAINED[SPANS], "static"))
    with stage(*next(stages)):
        options = {"folder": out / "pairs", "model": models[SPANS], "output": out / "mined", "quiet": True}
        run_module("clearspan.pipelines", ["mine", *words(COMMANDS["mine"], options)], quiet=True)
    with stage(*next(stages)):
        start = f"model.path={models[SPANS]}"
        models[STATIC] = str(train(out, TRAINED[STATIC], "static-pairs", start, *PAIRED, shards="mined"))
    with stage(*next(stages)):
        models[f"{STATIC} + BM25"] = f"hybrid:{models[STATIC]}"
        named = BASELINES | models
        of_models = {"model": tuple(named.values()), "name": tuple(named), "cache": NO_CACHE}
        request = EvalOptions(**of_models, tasks=("retrieval",), data=out, output=out / "scores", quiet=True)
        summary = by_mrr(score_models(request))
    show(out, summary)
    return 0


def by_mrr(scored: Sequence[Scored]) -> ScoreSummary:
    """Return the summary by MRR: each query has one document to find."""
    tasks = [replace(each.tasks[TASK], main=HEADLINE[0], headline=HEADLINE) for each in scored]
    return ScoreSummary(
        with_differences([replace(s, tasks={TASK: task}) for s, task in zip(scored, tasks, strict=True)])
    )


def show(out: Path, summary: ScoreSummary) -> None:
    """Write the report and the picture that README.md shows, and print a few hits and the summary."""
    picture = task_figure(summary, TASK, "Summaries of functions find their descriptions")
    write_svg(out / "mrr.svg", picture)
    sections = report_sections(summary)
    runs = {name: out / "runs" / folder / METRICS for name, folder in TRAINED.items()}
    # Each in an area of its own: one's dev score is of crops, the other's of summaries.
    curves = [each for name, path in runs.items() for each in learning_curves({name: path}, f"While training: {name}")]
    sections[0] = replace(sections[0], figures=[*sections[0].figures, *curves])
    write_report(out / "report.html", "Clearspan demo", sections, report_lead(summary), summary.warnings)
    width = terminal.width()
    print_hits(summary, width)
    print(f"\n{terminal_summary(summary, width)}\nreport: {out / 'report.html'}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.demo", description=__doc__)
    parser.add_argument(
        "--output", type=Path, default=Path("demo"), help="folder to write; an old demo is moved aside (default demo)"
    )
    out = parser.parse_args().output.resolve()
    remove_temporaries(out)
    if out.exists() and not (out.is_dir() and {path.name for path in out.iterdir()} <= WRITTEN):
        parser.error(f"--output {out}: holds something other than a demo; name another folder")
    if out.exists() and any(out.iterdir()):
        terminal.notice(f"{out}: the old demo is moved to {set_aside(out, 'earlier')}")
    out.mkdir(parents=True, exist_ok=True)
    name_accelerator()
    return run(Work("demo", lambda: work(out), (CommandError, UsageError)))


if __name__ == "__main__":
    sys.exit(main())
