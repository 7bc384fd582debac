"""Shares of the trained weights, measured on titles and on questions: what training brings, and what it costs.

    python -m benchmarks.shares --work DIR --collections DIR --model all-MiniLM-L6-v2 [--names perl,foldoc] [--seeds 3]

    NAME.csv ──> clearspan adapt ──> the trained model ──> weights before it + share x (trained weights - those) ─┐
    its training again, with other seeds ────────────────────────────────────────────────────────────────────────┤
    held-out titles among the texts; NAME*.questions.csv among the titles with their texts ──────────────────────┴─> MRR

`benchmarks.titled_texts` makes the collections. Texts are ranked for titles without their titles, as in the verdict of
`clearspan adapt`, and for questions with them, as in a search. The half of the titles that picks checkpoints chooses
BM25's k1 and b and each weight with BM25, for the other half and for the questions. Of the questions, there is also a
second table, in which each half chooses k1, b, the weights and, in the row `chosen`, the share above 0, for the other
half, as with `--queries`. Differences are from share 0, the model before training, with the 95 % interval of a
bootstrap over queries; a figure is the mean over the seeds. The work folder keeps every run: the same command goes on
after it was stopped.
"""

import argparse
import csv
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.commands import run_module
from benchmarks.report import columns, command, finish, machine, option
from clearspan.common.compute import AUTO, resolve
from clearspan.eval.data import heldout_data
from clearspan.eval.data.heldout_folders import held_out_part
from clearspan.eval.models.lexical import Lexical
from clearspan.eval.models.load import load_encoder
from clearspan.eval.models.prompted import Prompted
from clearspan.eval.scores import Examples, difference, figure, interval
from clearspan.retrieval.comparison import RankedSystem, SystemComparison, combined_vectors
from clearspan.retrieval.hybrid import CombinedVectors
from clearspan.retrieval.products import Vectors
from clearspan.retrieval.ranks import ranks
from clearspan.retrieval.retrieval_set import RetrievalSet
from clearspan.train.interpolate import interpolate

NAMES = "perl,foldoc,symptoms,python,cranfield"
FIRST = 42
"""Seed of the recipes, with which `clearspan adapt` trains."""
MAX_TITLES = 500
"""Most held-out titles of a half."""
BM25 = "bm25:english"
CHOSEN = "chosen"
"""Name of the share above 0 that each half of the questions chooses for the other."""
csv.field_size_limit(1 << 30)


@dataclass(frozen=True)
class Study:
    """A collection, and the runs of `clearspan adapt` on it, in a folder of its own."""

    name: str
    work: Path
    collections: Path
    model: Path

    def folder(self, seed: int) -> Path:
        return self.work / f"{self.name}-{seed}"

    def trained(self, seed: int) -> Path:
        """Return the model that is trained with a seed; train it if the work folder does not have it."""
        model = self.folder(seed) / "run" / "model"
        if model.is_dir():
            return model
        if seed == FIRST:
            line = [f"--input={self.collections / self.name}.csv", "--fields=title,text", f"--model={self.model}"]
            run_module("clearspan.adapt", [*line, f"--output={self.folder(seed)}", "--quiet"], quiet=True)
        else:
            steps = json.loads((self.folder(FIRST) / "adapt.json").read_text("utf-8"))["steps"]
            line = [word for word in shlex.split(steps["train"])[3:] if not word.startswith("output=")]
            line += [f"output={self.folder(seed) / 'run'}", f"training.seed={seed}"]
            run_module("clearspan.train", line, quiet=True)
        return model

    def with_share(self, seed: int, share: float) -> Path:
        """Return the model with a share of the weights that were trained with a seed."""
        if share == 0:
            return self.model
        trained, model = self.trained(seed), self.folder(seed) / "shares" / f"{share:g}"
        if share == 1:
            return trained
        if not model.is_dir():
            model.parent.mkdir(exist_ok=True)
            interpolate(self.model, trained, share, model)
        return model

    def titles(self) -> SystemComparison:
        """Return the held-out titles: one half chooses k1, b and weights for the other, and for all questions."""
        held = heldout_data.read(held_out_part(self.folder(FIRST) / "texts"))
        halves = (held.collection, held.required_dev())
        test, dev = (half.select(range(min(MAX_TITLES, len(half.queries)))) for half in halves)
        return SystemComparison.of_halves(test, dev)

    def questions(self) -> dict[str, RetrievalSet]:
        """Return the questions of each file, among all titles with their texts."""
        rows = _rows(self.collections / f"{self.name}.csv")
        places = {row["id"]: place for place, row in enumerate(rows)}
        documents = [f"{row['title']} {row['text']}" for row in rows]
        found = {}
        for path in sorted(self.collections.glob(f"{self.name}*.questions.csv")):
            asked: dict[str, list[int]] = {}
            for row in _rows(path):
                if row["id"] in places:
                    asked.setdefault(row["query"], []).append(places[row["id"]])
            relevant = [np.array(sorted(each), np.int64) for each in asked.values()]
            grades = [np.ones(len(each), np.int64) for each in relevant]
            found[path.name.removesuffix(".questions.csv")] = RetrievalSet(documents, list(asked), relevant, grades)
        return found

    def vectors(self, seed: int, share: float, texts: RetrievalSet) -> tuple[Vectors, Vectors]:
        """Return the vectors of queries and documents by the model with a share of the weights of a seed."""
        encoder = load_encoder(str(self.with_share(seed, share)), precision=resolve(AUTO, AUTO).precision)
        return Prompted.of(encoder, (), self.work / "cache", None, progress=True).ranking(
            texts.queries, texts.documents
        )


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    shares = sorted({0.0, *(float(share) for share in arguments.shares.split(","))})
    seeds = range(FIRST, FIRST + arguments.seeds)
    found: dict[str, Any] = {}
    for name in arguments.names.split(","):
        study = Study(name, arguments.work, arguments.collections, arguments.model)
        study.trained(FIRST)
        if not arguments.questions_only:
            found |= by_titles(study, shares, seeds)
        for kind, texts in study.questions().items():
            found[f"{name}: questions of {kind}, chosen by themselves"] = crosswise(study, texts, shares, seeds)
    return {"machine": machine(), "model": arguments.model.name, "seeds": arguments.seeds, "found": found}


def by_titles(study: Study, shares: Sequence[float], seeds: Sequence[int]) -> dict[str, Any]:
    """Return the figures of titles and of questions, all with the k1, b and weights that other titles choose."""
    runs = [(share, seed) for share in shares for seed in (seeds if share else [FIRST])]
    comparison = study.titles()
    counts = Lexical(BM25).counts(comparison.collection.documents)
    scoring = comparison.choose_scoring(counts)
    words = comparison.words(counts, scoring)
    weights: dict[tuple[float, int], float] = {}
    ranked = Ranked()
    for share, seed in runs:
        vectors = study.vectors(seed, share, comparison.collection)
        both = comparison.combined("", "", True, combined_vectors(vectors, words))
        weights[share, seed] = both.weight or 0.0
        ranked.add(share, comparison.uncombined("", "", True, vectors).reciprocal, both.reciprocal)
    of_words = comparison.lexical("BM25", "", words).reciprocal
    titles = ranked.figures(of_words, len(comparison.collection.documents))
    found = {f"{study.name}: titles": {**titles, "k1": scoring.final.k1, "b": scoring.final.b}}
    for kind, texts in study.questions().items():
        index = Lexical(BM25).counts(texts.documents).weighted(scoring.final.k1, scoring.final.b).astype(np.float32)
        scores = index.scores(texts.queries, np.float32)
        ranked = Ranked()
        for share, seed in runs:
            vectors = study.vectors(seed, share, texts)
            combined = CombinedVectors.of(vectors, (scores, index)).vectors(weights[share, seed])
            ranked.add(share, ranks(*vectors, texts).reciprocal, ranks(*combined, texts).reciprocal)
        of_words = ranks(scores, index, texts).reciprocal
        found[f"{study.name}: questions of {kind}"] = ranked.figures(of_words, len(texts.documents))
    return found


def crosswise(study: Study, texts: RetrievalSet, shares: Sequence[float], seeds: Sequence[int]) -> dict[str, Any]:
    """Return the figures of questions whose halves choose for each other; the share `chosen` is one above 0."""
    comparison = SystemComparison.of_questions(texts)
    counts = Lexical(BM25).counts(texts.documents)
    words = comparison.words(counts, comparison.choose_scoring(counts))
    ranked = Ranked()
    for seed in seeds:
        systems: dict[float, tuple[RankedSystem, RankedSystem]] = {}
        for share in shares:
            vectors = study.vectors(seed, share, texts)
            both = comparison.combined("", "", True, combined_vectors(vectors, words))
            systems[share] = comparison.uncombined("", "", True, vectors), both
            ranked.add(share, *(system.reciprocal for system in systems[share]))
        alone, both = (
            comparison.best_share({share: each[place] for share, each in systems.items() if share}) for place in (0, 1)
        )
        ranked.add(CHOSEN, alone.reciprocal, both.reciprocal)
    return ranked.figures(comparison.lexical("BM25", "", words).reciprocal, len(texts.documents))


class Ranked:
    """Reciprocal ranks of one set of queries: share -> of each seed, alone and with BM25."""

    def __init__(self) -> None:
        self.of_shares: dict[float | str, list[tuple[NDArray[np.float64], NDArray[np.float64]]]] = {}

    def add(self, share: float | str, alone: NDArray[np.float64], both: NDArray[np.float64]) -> None:
        self.of_shares.setdefault(share, []).append((alone, both))

    def figures(self, words: NDArray[np.float64], num_texts: int) -> dict[str, Any]:
        """Return the MRR of BM25 and of each share, alone and with BM25, with the differences from share 0."""
        shares: dict[str, Any] = {}
        for share, of_seeds in self.of_shares.items():
            name = share if isinstance(share, str) else f"{share:g}"
            shares[name] = {}
            for place, system in enumerate(("alone", "with BM25")):
                mine = np.mean([each[place] for each in of_seeds], axis=0)
                base = self.of_shares[0.0][0][place]
                change = difference(Examples.of("mean", base), Examples.of("mean", mine))
                changes = {"change": change.value, "from": change.low, "to": change.high} if share else {}
                shares[name][system] = {**_described(mine), **changes}
        return {"texts": num_texts, "queries": len(words), "BM25": _described(words), "shares": shares}


def _described(reciprocal: NDArray[np.float64]) -> dict[str, float]:
    examples = Examples.of("mean", reciprocal)
    low, high = interval(examples)
    return {"mrr": figure(examples), "low": low, "high": high}


def table(result: dict[str, Any]) -> str:
    """Return a table for each kind of queries: a row for each share."""
    parts = []
    for kind, each in result["found"].items():
        rows = [("BM25", "", in_words(each["BM25"]))]
        for share, systems in each["shares"].items():
            rows.append((f"share {share}", *(in_words(systems[name]) for name in ("alone", "with BM25"))))
        heading = f"{kind}, {each['queries']} among {each['texts']:,}"
        parts.append(columns([heading, "alone", "with BM25"], rows))
    return "\n\n".join(parts)


def in_words(system: dict[str, float]) -> str:
    """Return a system's figure as text, with the difference from share 0 if there is one."""
    if "change" not in system:
        return f"{system['mrr']:.1f}"
    return f"{system['mrr']:.1f}, {system['change']:+.1f} [{system['from']:+.1f}, {system['to']:+.1f}]"


def main() -> None:
    parser = command(__doc__, "shares")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="folder of all results")
    parser.add_argument("--collections", type=Path, required=True, metavar="DIR", help="NAME.csv, NAME*.questions.csv")
    parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="sentence-transformers folder")
    parser.add_argument("--names", default=NAMES, metavar="LIST", help=f"collections (default: {NAMES})")
    parser.add_argument("--shares", default="0.25,0.5,0.75,1", metavar="LIST", help="shares of the trained weights")
    option(parser, "seeds", 1, "trainings of each collection")
    parser.add_argument("--questions-only", action="store_true", help="rank no titles: half of the time")
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
