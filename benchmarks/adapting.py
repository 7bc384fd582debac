"""Recipes that adapt a model, measured: held-out texts, labeled data of the domain, and what is forgotten.

    python -m benchmarks.adapting --work DIR --model all-MiniLM-L6-v2 --data DATA

    abstracts (Cranfield, also with their titles), docstrings (of the installed packages, also summary and rest),
    sentences (Wikipedia), german (STS-B, without scores and test part), manuals (German manual pages and their
    summaries: DATA/man/de, as in Debian's package manpages-de), long (documents of thousands of tokens)
        -> each case and seed: clearspan adapt -> clearspan eval -> difference from the model, with 95 % interval

Prints the table of docs/adapt.md. The work folder keeps every case: the same command goes on after it was stopped.
"""

import argparse
import csv
import gzip
import json
import re
import resource
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.docstrings import modules, write_corpus, write_pairs, write_retrieval
from benchmarks.findings.claims import Score
from benchmarks.findings.verdicts import Run, Sampled, compare
from benchmarks.report import command, finish, machine, option
from clearspan.common.commands import run_module, words
from clearspan.common.files import write_text
from clearspan.eval import saved
from clearspan.eval.data.retrieval import read_cranfield, smart_records
from clearspan.eval.data.senteval import find_downstream
from clearspan.eval.scores import resampled
from clearspan.train.adapt import verdict

NUM_DOCSTRINGS, LONGEST_DOCSTRINGS = 4000, 4000
"""Modules, and the characters of one: recipes for short texts read no more than a part of longer ones."""
PAIRS = 1000
LONG = 8000
"""Characters of a long document, about 2,000 tokens."""
HYBRID = "hybrid:"


@dataclass(frozen=True)
class Corpus:
    """Texts to adapt to.

    Attributes:
        title: what the texts are.
        write: writes texts of the data folder to a .jsonl file, and labeled data into a folder for `clearspan eval`.
        held_out: the fraction of the texts that is held out.
        tasks: what `clearspan eval` scores on the labeled data; judged: the figure of it, by task and metric; None:
            there is no labeled data.
    """

    title: str
    write: Callable[[Path, Path, Path], None]
    held_out: float
    tasks: str
    judged: Score | None

    @property
    def figures(self) -> dict[str, Score]:
        """The figures of a case: key of the result -> task and metric."""
        judged = {"judged": self.judged} if self.judged else {}
        return {"heldout": HELD_OUT, **judged, "forgotten": FORGOTTEN}


@dataclass(frozen=True)
class Case:
    """A way to adapt: a recipe, or None for the one that the command takes, and the keys to change in it.

    Attributes:
        first: a recipe and its keys; what it trains is adapted instead of the model.
        model: `--model`, with {} for the given one; "": without, a static encoder from the texts alone.
    """

    corpus: str
    title: str
    recipe: str | None = None
    keys: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    model: str = "{}"

    @property
    def is_made(self) -> bool:
        """Return whether the command makes the model that it trains, a static encoder."""
        return self.model != "{}"


def write_abstracts(data: Path, path: Path, labeled: Path) -> None:
    source = data / "retrieval" / "cranfield"
    write_lines(path, read_cranfield(source).documents)
    link(source, labeled / "retrieval" / "cranfield")


def write_titled_abstracts(data: Path, path: Path, labeled: Path) -> None:
    """An abstract begins with its title, which is left out of the text."""
    source = data / "retrieval" / "cranfield"
    link(source, labeled / "retrieval" / "cranfield")
    records = (fields for _, fields in smart_records(source / "cran.all.1400", "TABW"))
    pairs = ((fields.get("T", ""), fields.get("W", "")) for fields in records)
    rows = ({"title": title, "text": text.removeprefix(title).strip()} for title, text in pairs)
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


def write_docstrings(data: Path, path: Path, labeled: Path) -> None:
    found, everything = modules(), path.with_suffix(".all")
    write_corpus(found, everything)
    texts = [json.loads(line)["text"] for line in everything.read_text("utf-8").splitlines()]
    everything.unlink()
    step = max(1, len(texts) // NUM_DOCSTRINGS)
    write_lines(path, (text[:LONGEST_DOCSTRINGS] for text in texts[::step]))
    write_retrieval(found, labeled / "retrieval" / "docstrings", PAIRS)


def write_titled_docstrings(data: Path, path: Path, labeled: Path) -> None:
    found = modules()
    write_pairs(found, path)
    write_retrieval(found, labeled / "retrieval" / "docstrings", PAIRS)


def write_german(data: Path, path: Path, labeled: Path) -> None:
    texts: list[str] = []
    for part in ("train", "dev"):
        with (data / "stsb_multi_mt" / f"stsb-de-{part}.csv").open(newline="", encoding="utf-8") as file:
            texts += [text for row in csv.reader(file) for text in row[:2]]
    write_lines(path, dict.fromkeys(texts))
    link(data / "stsb_multi_mt" / "stsb-de-test.csv", labeled / "stsb_multi_mt" / "stsb-de-test.csv")


def write_sentences(data: Path, path: Path, labeled: Path) -> None:
    lines = (data / "sentences" / "wiki1m_head_11914.txt").read_text("utf-8").splitlines()
    write_lines(path, filter(str.strip, lines))
    link(find_downstream(data) / "SICK", labeled / "downstream" / "SICK")


def write_manuals(data: Path, path: Path, labeled: Path) -> None:
    pages = [gzip.decompress(file.read_bytes()).decode() for file in sorted((data / "man" / "de").rglob("*.gz"))]
    rows = [{"title": title, "text": text} for title, text in filter(None, map(manual, pages))]
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))
    link(data / "stsb_multi_mt" / "stsb-de-test.csv", labeled / "stsb_multi_mt" / "stsb-de-test.csv")


def manual(page: str) -> tuple[str, str] | None:
    """Return the summary and the description of a German manual page; None without them."""
    heads_and_bodies = re.split(r'^\.SH "?(.*?)"?$', page, flags=re.MULTILINE)[1:]
    sections = dict(zip(heads_and_bodies[::2], map(without_markup, heads_and_bodies[1::2]), strict=True))
    _, dash, summary = sections.get("BEZEICHNUNG", "").partition(" - ")
    description = sections.get("BESCHREIBUNG", "")
    return (summary, description) if dash and description else None


def without_markup(text: str) -> str:
    """Return the words of a part of a manual page in roff."""
    text = re.sub(r"^(\.\\\"|').*$|^\.[A-Za-z]{1,2}\b", "", text, flags=re.MULTILINE)
    text = re.sub(r"\\f(\(..|\[[^]]*\]|.)|\\[,/&:%|^]|\\s[+-]?\d+", "", text)
    return " ".join(re.sub(r"\\(\(..|\[[^]]*\]|[^-e ])", " ", text).replace("\\-", "-").replace("\\", "").split())


def write_long(data: Path, path: Path, labeled: Path) -> None:
    rows = (json.loads(line) for file in sorted((data / "text").glob("*.jsonl")) for line in file.open("rb"))
    write_lines(path, (row["text"] for row in rows if len(row["text"]) >= LONG))


def write_lines(path: Path, texts: Iterable[str]) -> None:
    write_text(path, "".join(json.dumps({"text": text}) + "\n" for text in texts))


def link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.is_symlink():
        target.symlink_to(source.resolve())


HELD_OUT, FORGOTTEN = ("heldout/texts", "mrr"), ("STSBenchmark", "spearman")
CORPORA = {
    "abstracts": Corpus(
        "abstracts of Cranfield", write_abstracts, 0.2, "retrieval", ("retrieval/cranfield", "ndcg@10")
    ),
    "titled-abstracts": Corpus(
        "titles and abstracts of Cranfield",
        write_titled_abstracts,
        0.2,
        "retrieval",
        ("retrieval/cranfield", "ndcg@10"),
    ),
    "titled-docstrings": Corpus(
        "summaries and bodies of docstrings", write_titled_docstrings, 0.1, "retrieval", ("retrieval/docstrings", "mrr")
    ),
    "docstrings": Corpus(
        "documentation of Python modules", write_docstrings, 0.1, "retrieval", ("retrieval/docstrings", "mrr")
    ),
    "german": Corpus("German sentences of STS-B", write_german, 0.1, "stsb-multilingual", ("stsb/de", "spearman")),
    "manuals": Corpus(
        "summaries and texts of German manual pages",
        write_manuals,
        0.2,
        "stsb-multilingual",
        ("stsb/de", "spearman"),
    ),
    "long": Corpus("documents of 2,000 tokens and more", write_long, 0.2, "sts", None),
    "sentences": Corpus("sentences of Wikipedia", write_sentences, 0.1, "sts", ("SICKRelatedness", "spearman")),
}
ONE_EPOCH, THREE_EPOCHS = ("training.epochs=1",), ("training.epochs=3",)
SPANS = ("data.text.short_documents=shrink",)
SIMCSE = ("model.pooling=mean",)
MLM = ("mlm-only", "data.text.short_documents=shrink", "training.epochs=3")
CASES = {
    "abstracts-crops": Case("abstracts", "`crops`, as the command chooses"),
    "abstracts-crops-fast": Case("abstracts", "`crops`, learning rate 2e-4", keys=("optimizer.learning_rate=2e-4",)),
    "abstracts-crops-last-2": Case(
        "abstracts", "`crops`, last two layers, learning rate 1e-4",
        keys=("model.train=last-2", "optimizer.learning_rate=1e-4"),
    ),
    "abstracts-simcse": Case("abstracts", "SimCSE", "simcse-unsup-bert-base", (*SIMCSE, *THREE_EPOCHS)),
    "abstracts-spans": Case("abstracts", "DeCLUTR's spans", "contrastive-only", (*SPANS, *THREE_EPOCHS)),
    "abstracts-mlm-crops": Case("abstracts", "MLM for 3 epochs, then `crops`", first=MLM),
    "abstracts-pairs": Case("titled-abstracts", "`pairs`, as the command chooses"),
    "abstracts-static": Case("titled-abstracts", "a static encoder from the texts alone", model=""),
    "abstracts-static-from": Case("titled-abstracts", "a static encoder from the model", model="static:{}"),
    "docstrings-pairs": Case("titled-docstrings", "`pairs`, 250 steps", keys=("training.max_steps=250",)),
    "docstrings-static": Case("titled-docstrings", "a static encoder from the texts alone", model=""),
    "docstrings-static-from": Case("titled-docstrings", "a static encoder from the model", model="static:{}"),
    "docstrings-crops": Case("docstrings", "`crops`, 1 epoch", "crops", ONE_EPOCH),
    "docstrings-simcse": Case("docstrings", "SimCSE, 1 epoch", "simcse-unsup-bert-base", (*SIMCSE, *ONE_EPOCH)),
    "manuals-pairs": Case("manuals", "`pairs`, as the command chooses"),
    "manuals-static": Case("manuals", "a static encoder from the texts alone", model=""),
    "manuals-static-from": Case("manuals", "a static encoder from the model", model="static:{}"),
    "long-static": Case("long", "a static encoder from the texts alone", model=""),
    "long-static-from": Case("long", "a static encoder from the model", model="static:{}"),
    "german-crops": Case("german", "`crops`, 1 epoch", "crops", ONE_EPOCH),
    "german-simcse": Case("german", "SimCSE, 1 epoch", "simcse-unsup-bert-base", (*SIMCSE, *ONE_EPOCH)),
    "sentences-crops": Case("sentences", "`crops`, 1 epoch", "crops", ONE_EPOCH),
    "sentences-simcse": Case("sentences", "SimCSE, 1 epoch", "simcse-unsup-bert-base", (*SIMCSE, *ONE_EPOCH)),
}  # fmt: skip


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
            model = self._trained_first(case, seed, texts, held_out) if case.first else self.model
            line = [f"--input={texts}", f"--output={folder}", held_out, "--quiet"]
            line += [f"--model={case.model.format(model)}"] if case.model else []
            line += [f"--recipe={case.recipe}"] if case.recipe else []
            run_module("clearspan.train.adapt", [*line, *case.keys, f"training.seed={seed}"], "adapt", quiet=True)
            write_text(path, json.dumps({"minutes": (processor_seconds() - before) / 60}))
        return float(json.loads(path.read_text("utf-8"))["minutes"])

    def _trained_first(self, case: Case, seed: int, texts: Path, held_out: str) -> Path:
        """Train the case's first recipe on the same texts; return the folder of the model."""
        output = self.work / "first" / case.first[0] / f"seed-{seed}"
        line = ["documents", f"--input={texts}", f"--tokenizer={self.model}", f"--output={output / 'texts'}"]
        run_module("clearspan.pipelines", [*line, "--min-tokens=16", "--dedup", held_out, "--quiet"], "pipelines", True)
        keys = [f"model.path={self.model}", f"data.text.path={output / 'texts'}", f"output={output / 'run'}"]
        line = [f"--recipe={case.first[0]}", "--resume", *keys, *case.first[1:], f"training.seed={seed}", "--quiet"]
        run_module("clearspan.train", line, "train", quiet=True)
        return output / "run" / "model"

    def score(self, case: str, name: str, model: Path | str, texts: Path) -> Run:
        """Return the figures of a model on a case's corpus, evaluated unless the work folder has them. What is held out
        depends on the tokenizer, so that a model that the command makes is scored on its own held-out texts.
        """
        corpus = CASES[case].corpus
        place = case if CASES[case].is_made else corpus
        folder, labeled = self.work / "scores" / place / name, self.work / "data" / place
        if not (folder / saved.RESULTS).is_file():
            if place != corpus:
                for part in (self.work / "data" / corpus).iterdir():
                    if part.name != "heldout":
                        link(part, labeled / part.name)
            link(texts, labeled / "heldout" / "texts")
            ranks = str(model).startswith(HYBRID)
            tasks = ",".join(dict.fromkeys(("heldout", *([] if ranks else ["sts"]), CORPORA[corpus].tasks)))
            options = {"model": model, "name": name, "tasks": tasks, "data": labeled, "output": folder}
            run_module("clearspan.eval", [*words({**options, "quiet": True})], "python -m clearspan.eval", quiet=True)
        scores, examples = saved.read(folder).scores, saved.read_examples(folder / saved.EXAMPLES)
        return {
            (task, metric): Sampled(scores[task][metric], resampled(examples[task][metric]))
            for task, metric in CORPORA[corpus].figures.values()
            if task in scores
        }


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
        figures = [described(row[key]) if key in row else "" for key in ("heldout", "judged", "forgotten")]
        if corpus.judged:
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
