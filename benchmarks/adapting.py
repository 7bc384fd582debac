"""`clearspan adapt` measured: held-out texts, labeled data of the domain, and what is forgotten.

    python -m benchmarks.adapting --work DIR --model all-MiniLM-L6-v2 --data DATA

    abstracts (of Cranfield, with their titles), docstrings (of the installed packages: summary and rest)
        -> each case and seed: clearspan adapt -> clearspan eval -> difference from the model, with 95 % interval

Prints the table of docs/adapt.md. The work folder keeps every case: the same command goes on after it was stopped.
"""

import argparse
import json
import resource
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.docstrings import modules, write_pairs, write_retrieval
from benchmarks.findings.verdicts import Run, Sampled, Score, compare
from benchmarks.report import command, finish, machine, option
from clearspan.common.commands import run_module, words
from clearspan.common.files import write_text
from clearspan.eval import results
from clearspan.eval.data.retrieval import smart_records
from clearspan.eval.data.senteval import find_downstream
from clearspan.eval.scores import resampled

PAIRS = 1000
HYBRID = "hybrid:"


@dataclass(frozen=True)
class Corpus:
    """Texts to adapt to.

    Attributes:
        title: what the texts are.
        write: writes texts of the data folder to a .jsonl file, and labeled data into a folder for `clearspan eval`.
        held_out: the fraction of the texts that is held out.
        judged: the figure of the labeled data, by task and metric.
    """

    title: str
    write: Callable[[Path, Path, Path], None]
    held_out: float
    judged: Score

    @property
    def figures(self) -> dict[str, Score]:
        """The figures of a case: key of the result -> task and metric."""
        return {"heldout": HELD_OUT, "judged": self.judged, "forgotten": FORGOTTEN}


@dataclass(frozen=True)
class Case:
    """A way to adapt.

    Attributes:
        title: what it makes.
        keys: keys of the recipe to change.
        model: `--model`, with {} for the given one; "": without, a static encoder from the texts alone.
    """

    corpus: str
    title: str
    keys: tuple[str, ...] = ()
    model: str = "{}"

    @property
    def is_made(self) -> bool:
        """Return whether the command makes the model that it trains, a static encoder."""
        return self.model != "{}"


def write_abstracts(data: Path, path: Path, labeled: Path) -> None:
    """An abstract begins with its title, which is left out of the text."""
    source = data / "retrieval" / "cranfield"
    link(source, labeled / "retrieval" / "cranfield")
    records = (fields for _, fields in smart_records(source / "cran.all.1400", "TABW"))
    pairs = ((fields.get("T", ""), fields.get("W", "")) for fields in records)
    rows = ({"title": title, "text": text.removeprefix(title).strip()} for title, text in pairs)
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


def write_docstrings(data: Path, path: Path, labeled: Path) -> None:
    found = modules()
    write_pairs(found, path)
    write_retrieval(found, labeled / "retrieval" / "docstrings", PAIRS)


def link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.is_symlink():
        target.symlink_to(source.resolve())


HELD_OUT, FORGOTTEN = ("heldout/texts", "mrr"), ("STSBenchmark", "spearman")
CORPORA = {
    "abstracts": Corpus("titles and abstracts of Cranfield", write_abstracts, 0.2, ("retrieval/cranfield", "ndcg@10")),
    "docstrings": Corpus("summaries and bodies of docstrings", write_docstrings, 0.1, ("retrieval/docstrings", "mrr")),
}
CASES = {
    "abstracts-pairs": Case("abstracts", "`pairs`, as the command chooses"),
    "docstrings-pairs": Case("docstrings", "`pairs`, 250 steps", ("training.max_steps=250",)),
}
for corpus in CORPORA:
    CASES[f"{corpus}-static"] = Case(corpus, "a static encoder from the texts alone", model="")
    CASES[f"{corpus}-static-from"] = Case(corpus, "a static encoder from the model", model="static:{}")


@dataclass(frozen=True)
class Study:
    """A run of the benchmark, in its work folder: `corpora/`, `data/`, `cases/` and `scores/`."""

    work: Path
    model: Path
    data: Path

    def prepare(self, name: str) -> Path:
        """Write a corpus and its labeled data; return the file of the texts."""
        path, labeled = self.work / "corpora" / f"{name}.jsonl", self.work / "data" / name
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            link(find_downstream(self.data) / "STS" / "STSBenchmark", labeled / "downstream" / "STS" / "STSBenchmark")
            CORPORA[name].write(self.data, path, labeled)
        return path

    def adapted(self, name: str, seed: int) -> Path:
        return self.work / "cases" / name / f"seed-{seed}"

    def adapt(self, name: str, seed: int) -> float:
        """Adapt the model, unless the work folder has the result; return the minutes of processor time that it took."""
        case, folder = CASES[name], self.adapted(name, seed)
        path = folder.with_suffix(".json")
        if not path.is_file():
            texts, before = self.prepare(case.corpus), processor_seconds()
            held_out = f"--holdout-fraction={CORPORA[case.corpus].held_out}"
            line = [f"--input={texts}", f"--output={folder}", held_out, "--quiet"]
            line += [f"--model={case.model.format(self.model)}"] if case.model else []
            run_module("clearspan.adapt", [*line, *case.keys, f"training.seed={seed}"], "adapt", quiet=True)
            write_text(path, json.dumps({"minutes": (processor_seconds() - before) / 60}))
        return float(json.loads(path.read_text("utf-8"))["minutes"])

    def score(self, case: str, name: str, model: Path | str, texts: Path) -> Run:
        """Return the figures of a model on a case's corpus, evaluated unless the work folder has them. What is held out
        depends on the tokenizer, so that a model that the command makes is scored on its own held-out texts.
        """
        corpus = CASES[case].corpus
        place = case if CASES[case].is_made else corpus
        folder, labeled = self.work / "scores" / place / name, self.work / "data" / place
        if not (folder / results.RESULTS).is_file():
            if place != corpus:
                for part in (self.work / "data" / corpus).iterdir():
                    if part.name != "heldout":
                        link(part, labeled / part.name)
            link(texts, labeled / "heldout" / "texts")
            ranks = str(model).startswith(HYBRID)
            tasks = "heldout,retrieval" if ranks else "heldout,sts,retrieval"
            options = {"model": model, "name": name, "tasks": tasks, "data": labeled, "output": folder}
            run_module("clearspan.eval", [*words({**options, "quiet": True})], "python -m clearspan.eval", quiet=True)
        scores, examples = (read := results.read(folder)).scores, results.read_examples(read)
        return {
            (task, metric): Sampled(scores[task][metric], resampled(examples[task][metric]))
            for task, metric in CORPORA[corpus].figures.values()
            if task in scores
        }


def verdict(low: float, high: float) -> str:
    """Return what the 95 % interval of a difference says."""
    return "better" if low > 0 else "worse" if high < 0 else "no difference"


def processor_seconds() -> float:
    """Return the processor time of all finished commands."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    study, names = Study(arguments.work, arguments.model, arguments.data), arguments.cases.split(",")
    if unknown := [name for name in names if name not in CASES]:
        raise SystemExit(f"benchmark: --cases {unknown[0]}: choose from {', '.join(CASES)}")
    rows = {name: measure_case(study, name, range(1, arguments.seeds + 1)) for name in names}
    return {"machine": machine(), "model": study.model.name, "seeds": arguments.seeds, "cases": rows}


def measure_case(study: Study, name: str, seeds: range) -> dict[str, Any]:
    """Return the minutes of a case, and its figures before and after with the interval of their difference."""
    corpus = CASES[name].corpus
    minutes = [study.adapt(name, seed) for seed in seeds]
    texts = study.adapted(name, 1) / "texts"
    start = study.adapted(name, 1) / "start" if CASES[name].is_made else study.model
    before = study.score(name, "before", start, texts)
    models = {seed: study.adapted(name, seed) / "run" / "model" for seed in seeds}
    after = [study.score(name, f"{name}-{seed}", model, texts) for seed, model in models.items()]
    hybrids = [study.score(name, f"{name}-{seed}-hybrid", f"{HYBRID}{model}", texts) for seed, model in models.items()]
    bm25 = study.score(name, "bm25", "bm25", texts)
    row: dict[str, Any] = {"corpus": corpus, "title": CASES[name].title, "minutes": round(statistics.mean(minutes), 1)}
    for key, score in CORPORA[corpus].figures.items():
        change = compare(after, [before], [score])
        assert change is not None
        figures = {"before": before[score].figure, "after": before[score].figure + change.difference}
        row[key] = {**figures, "low": change.low, "high": change.high, "verdict": verdict(change.low, change.high)}
        if score in bm25 and score in hybrids[0]:
            row[key]["bm25"] = bm25[score].figure
            row[key]["hybrid"] = statistics.mean(hybrid[score].figure for hybrid in hybrids)
    return row


def table(result: dict[str, Any]) -> str:
    """Return the rows of docs/adapt.md."""
    head = ["texts", "recipe", "minutes", "held-out texts, MRR", "labeled data of the domain", "English STS-B"]
    lines = [head, ["---"] * len(head)]
    for row in result["cases"].values():
        corpus = CORPORA[row["corpus"]]
        figures = [described(row[key]) for key in ("heldout", "judged", "forgotten")]
        figures[1] = f"{corpus.judged[0].rpartition('/')[2]}, {corpus.judged[1]}: {figures[1]}"
        lines.append([corpus.title, row["title"], f"{row['minutes']:g}", *figures])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def described(figure: dict[str, Any]) -> str:
    """Return a figure of the result as text."""
    interval = f"{figure['after'] - figure['before']:+.1f} [{figure['low']:+.1f}, {figure['high']:+.1f}]"
    word = figure["verdict"] if figure["verdict"] == "no difference" else f"**{figure['verdict']}**"
    beside = f"; BM25 {figure['bm25']:.2f}, hybrid {figure['hybrid']:.2f}" if "hybrid" in figure else ""
    return f"{figure['before']:.2f} -> {figure['after']:.2f}: {word}, {interval}{beside}"


def main() -> None:
    parser = command(__doc__, "adapting")
    for name, text in (("work", "folder of all results"), ("model", "sentence-transformers folder"), ("data", "data")):
        parser.add_argument(f"--{name}", type=Path, required=True, metavar="DIR", help=text)
    parser.add_argument("--cases", default=",".join(CASES), metavar="LIST", help="cases (default: all)")
    option(parser, "seeds", 3, "runs of each case")
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
