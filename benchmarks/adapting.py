"""`clearspan adapt` measured: held-out titles find their texts among more and more texts of a collection.

    python -m benchmarks.adapting --work DIR --input texts.csv [--model all-MiniLM-L6-v2] [--group-field source]
        [--data DATA]

    each way (no model, static:MODEL, MODEL): clearspan adapt ──> its trained model ─┐
    its training again, with other seeds ────────────────────────> others ───────────┤
    BM25, the base model, a static encoder before training ──────────────────────────┴──> ranks of the texts

A model's weight with BM25 is chosen for each number of texts by the held-out titles that pick checkpoints; figures
are of the others: means over seeds, with the 95 % interval of a bootstrap over titles, paired between systems. The
seeds of a way share the texts, the negatives and the start. Prints the tables of docs/adapt-figures.md.

With --data, prints the same for judged queries, which no training saw: BM25, and each model, with the first seed, alone
and with BM25. Its weight there is the one that held-out titles choose among all texts of the input: judged queries
choose nothing. Differences are from the base model, of the same queries. The work folder keeps every run: the same
command goes on after it was stopped.
"""

import argparse
import json
import resource
import shlex
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.commands import run_module
from benchmarks.report import command, finish, machine, option
from clearspan.cli.words import words
from clearspan.common.compute import AUTO, resolve
from clearspan.common.files import write_text
from clearspan.common.model_forms import HYBRID
from clearspan.common.plain_json import Option
from clearspan.eval import results
from clearspan.eval.data import heldout_data
from clearspan.eval.data.heldout_folders import held_out_part
from clearspan.eval.models.lexical import Lexical
from clearspan.eval.models.load import load_encoder
from clearspan.eval.models.prompted import Prompted
from clearspan.eval.request import EvalOptions
from clearspan.eval.scores import Difference, Examples, difference, figure, interval
from clearspan.retrieval.comparison import WITH_BM25, Chosen, RankedSystem, SystemComparison, Words, combined_vectors
from clearspan.retrieval.retrieval_set import RetrievalSet

WAYS = {"texts": "", "static": "static:{}", "model": "{}"}
"""Name of a way -> `--model`, with {} for the given one; "": without."""
BM25, UNTRAINED, START = "BM25", "base model", "before training"
TOKENS = 1024
"""Of a batch to embed, a CPU's caches."""
FIRST = 42
"""Seed of the recipes, with which `clearspan adapt` trains."""


@dataclass(frozen=True)
class Study:
    """A run of the benchmark: its options, and its work folder, `adapted/`, `cache/` and `judged/`."""

    work: Path
    model: Path | None
    texts: Path
    held_out: float
    keys: tuple[str, ...]
    group_field: str | None = None

    def folder(self, way: str, seed: int) -> Path:
        return self.work / "adapted" / f"{way}-{seed}"

    def adapt(self, way: str) -> float:
        """Adapt, unless the work folder has the result; return the minutes of processor time that it took."""
        folder, before = self.folder(way, FIRST), processor_seconds()
        path = folder.with_suffix(".json")
        if not path.is_file():
            line = [f"--input={self.texts}", f"--output={folder}", f"--holdout-fraction={self.held_out}", "--quiet"]
            line += [f"--model={WAYS[way].format(self.model)}"] if WAYS[way] else []
            line += [f"--group-field={self.group_field}"] if self.group_field is not None else []
            run_module("clearspan.adapt", [*line, *self.keys], quiet=True)
            write_text(path, json.dumps({"minutes": (processor_seconds() - before) / 60}))
        return float(json.loads(path.read_text("utf-8"))["minutes"])

    def train(self, way: str, seed: int) -> Path:
        """Return the model that is trained with a seed, by the command of the first one."""
        folder = self.folder(way, seed)
        model = folder / "run" / "model"
        if seed != FIRST and not model.is_dir():
            steps = json.loads((self.folder(way, FIRST) / "adapt.json").read_text("utf-8"))["steps"]
            line = [word for word in shlex.split(steps["train"])[3:] if not word.startswith("output=")]
            line += [f"output={folder / 'run'}", f"training.seed={seed}"]
            run_module("clearspan.train", line, quiet=True)
        return model

    def untrained(self, way: str) -> dict[str, Path]:
        """Return the models to compare a way with: the given one, and what a static encoder starts with."""
        start = self.folder(way, FIRST) / "start"
        given = {UNTRAINED: self.model} if self.model else {}
        return {**given, **({START: start} if start.is_dir() else {})}

    def comparisons(self, way: str, sizes: Sequence[int]) -> Iterator[tuple[int, SystemComparison]]:
        """Yield (number of texts, comparison) for each size below that of the collection, and for all texts."""
        held = heldout_data.read(held_out_part(self.folder(way, FIRST) / "texts"))
        comparison = SystemComparison.of_halves(held.collection, held.required_dev())
        total = len(comparison.collection.documents)
        for size in [*(size for size in sizes if size < total), total]:
            part = fitting(comparison, size)
            texts = of_size(part.collection, size)
            yield len(texts.documents), replace(part, collection=texts)

    def results(
        self, name: str, model: Path, comparison: SystemComparison, by_words: Chosen[Words]
    ) -> list[RankedSystem]:
        """Return what a model finds, alone and with BM25."""
        texts = comparison.collection
        encoder = load_encoder(str(model), precision=resolve(AUTO, AUTO).precision)  # as adapt embeds
        similarity = Prompted.of(encoder, (), self.work / "cache", TOKENS, progress=True)
        vectors = similarity.ranking(texts.queries, texts.documents)
        return [
            comparison.uncombined(name, "", True, vectors),
            comparison.combined(name, "", True, combined_vectors(vectors, by_words)),
        ]

    def judged(self, name: str, model: str, data: Path, weight: float | None = None) -> dict[str, Examples]:
        """Return the values of judged queries, task -> nDCG@10, or MRR where each query has its own candidates.

        Args:
            weight: that of the model with BM25; None: the model alone.
        """
        of_weight: dict[str, Option] = {} if weight is None else {"hybrid_weight": weight}
        named = f"{name}{'' if weight is None else f' {weight:g}'}".replace(" + ", "-").replace(" ", "-")
        folder = self.work / "judged" / named
        if not (folder / results.RESULTS).is_file():
            spec = model if weight is None else f"{HYBRID}{model}"
            options: dict[str, Option] = {"model": spec, "name": named, "tasks": "retrieval", "data": data}
            options |= {"output": folder, "quiet": True, "precision": AUTO, **of_weight}
            run_module("clearspan.eval", words(EvalOptions, options), quiet=True)
        tasks = results.read_examples(results.read(folder))
        return {task: values.get("ndcg@10", values["mrr"]) for task, values in tasks.items()}


def fitting(comparison: SystemComparison, size: int) -> SystemComparison:
    """Return the comparison with no more titles, in each half, than half as many as the texts that are ranked."""
    dev, test = (rows[: size // 2] for rows in comparison.rounds[0])
    collection = comparison.collection.select([*test, *dev])
    rows = np.arange(len(collection.queries))
    return SystemComparison(collection, [(rows[len(test) :], rows[: len(test)])])


def of_size(texts: RetrievalSet, size: int) -> RetrievalSet:
    """Return the collection with the texts that the queries ask for, and others, drawn with one seed, up to a size."""
    asked = np.unique(np.concatenate(texts.relevant))
    others = np.setdiff1d(np.arange(len(texts.documents)), asked)
    drawn = np.random.default_rng(0).permutation(others)[: max(0, size - len(asked))]
    return texts.select_documents(np.sort(np.concatenate([asked, drawn])))


def processor_seconds() -> float:
    """Return the processor time of all finished commands."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    sizes = [int(size) for size in arguments.sizes.split(",")]
    study = Study(
        work=arguments.work,
        model=arguments.model,
        texts=arguments.input,
        held_out=arguments.holdout_fraction,
        keys=tuple(arguments.keys),
        group_field=arguments.group_field,
    )
    ways, seeds = arguments.ways.split(","), range(FIRST, FIRST + arguments.seeds)
    if unknown := [way for way in ways if way not in WAYS]:
        raise SystemExit(f"benchmark: --ways {unknown[0]}: choose from {', '.join(WAYS)}")
    if study.model is None and (needing := [way for way in ways if WAYS[way]]):
        raise SystemExit(f"benchmark: --ways {needing[0]} needs --model; --ways texts does not")
    minutes = {way: round(study.adapt(way), 1) for way in ways}
    rows: dict[str, dict[str, Any]] = {}
    weights: dict[str, float | None] = {}
    for way in ways:  # each way holds out by its own tokenizer: BM25 and the base model are ranked anew
        trained = {f"{way}, seed {seed}": study.train(way, seed) for seed in seeds}
        for size, comparison in study.comparisons(way, sizes):
            texts = comparison.collection
            counts = Lexical("bm25").counts(texts.documents)
            by_words = comparison.words(counts, comparison.choose_scoring(counts))
            untrained = [comparison.lexical(BM25, "", by_words)]
            for name, model in study.untrained(way).items():
                untrained += study.results(name, model, comparison, by_words)
            runs = [study.results(name, model, comparison, by_words) for name, model in trained.items()]
            # The last size is that of all texts.
            weights |= {each.name: each.weight for each in untrained} | {way + WITH_BM25: runs[0][1].weight}
            rows.setdefault(way, {})[str(size)] = {**figures(untrained, runs, way), "titles": len(comparison.test)}
    found: dict[str, dict[str, Examples]] = {}
    if arguments.data:
        found[BM25] = study.judged(BM25, "bm25", arguments.data)
        given = {UNTRAINED: study.model} if study.model else {}
        for name, model in {**given, **{way: study.train(way, FIRST) for way in ways}}.items():
            beside = name + WITH_BM25
            found[name] = study.judged(name, str(model), arguments.data)
            found[beside] = study.judged(beside, str(model), arguments.data, weights[beside])
    about = {
        "machine": machine(),
        "model": study.model and study.model.name,
        "seeds": arguments.seeds,
        "minutes": minutes,
        "group_field": arguments.group_field,
    }
    return {**about, "ranked": rows, "judged": judged_figures(found, weights)}


def judged_figures(
    found: Mapping[str, Mapping[str, Examples]], weights: Mapping[str, float | None]
) -> dict[str, dict[str, Any]]:
    """Return each system's figures of judged queries, with the differences from the untrained model, alone and beside
    BM25, that have the same queries.

    Args:
        found: system -> task -> values of its queries.
        weights: with BM25, by system.
    """
    bases = [name for name in (UNTRAINED, UNTRAINED + WITH_BM25) if name in found]
    systems: dict[str, dict[str, Any]] = {}
    for name, tasks in found.items():
        systems[name] = {"weight": weights.get(name), "tasks": {}}
        for task, values in tasks.items():
            changes = {base: _change(difference(found[base][task], values)) for base in bases if base != name}
            systems[name]["tasks"][task] = {"value": figure(values), "queries": len(values), "against": changes}
    return systems


def _change(change: Difference) -> dict[str, float]:
    return {"value": change.value, "low": change.low, "high": change.high}


def figures(untrained: Sequence[RankedSystem], runs: Sequence[Sequence[RankedSystem]], way: str) -> dict[str, Any]:
    """Return each system's MRR with its interval, and the difference of the best trained from the best untrained one.

    Args:
        runs: of each seed, the trained model alone and with BM25.
    """
    of_seeds = zip(*runs, strict=True)
    trained = {
        way + end: mean([each.reciprocal for each in one]) for end, one in zip(("", WITH_BM25), of_seeds, strict=True)
    }
    before = {each.name: Examples.of("mean", each.reciprocal) for each in untrained}
    systems = {name: described(examples) for name, examples in {**before, **trained}.items()}
    for each in untrained:
        systems[each.name]["weight"] = each.weight
    systems[way + WITH_BM25]["weight"] = statistics.mean(run[1].weight or 0.0 for run in runs)
    best = max(untrained, key=lambda each: each.dev_mrr).name
    chosen = [statistics.mean(run[place].dev_mrr for run in runs) for place in (0, 1)]
    name = way + ("", WITH_BM25)[int(np.argmax(chosen))]
    change = difference(before[best], trained[name])
    gain = {"trained": name, "untrained": best, "value": change.value, "low": change.low, "high": change.high}
    return {"systems": systems, "gain": gain}


def mean(of_seeds: Sequence[NDArray[np.float64]]) -> Examples:
    return Examples.of("mean", np.mean(of_seeds, axis=0))


def described(examples: Examples) -> dict[str, Any]:
    low, high = interval(examples)
    return {"mrr": figure(examples), "low": low, "high": high}


def table(result: Mapping[str, Any]) -> str:
    """Return the tables of docs/adapt-figures.md."""
    lines: list[str] = []
    for way, by_size in result["ranked"].items():
        sizes = list(by_size)
        lines += [f"{way}: {result['minutes'][way]} CPU minutes", ""]
        lines += [
            "| MRR among | " + " | ".join(f"{int(size):,}" for size in sizes) + " |",
            "|---" * (len(sizes) + 1) + "|",
        ]
        lines.append("| held-out titles | " + " | ".join(f"{by_size[size]['titles']:,}" for size in sizes) + " |")
        for name in by_size[sizes[0]]["systems"]:
            cells = [in_words(by_size[size]["systems"][name]) for size in sizes]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        gains = [by_size[size]["gain"] for size in sizes]
        lines += [f"| best trained against best untrained | {' | '.join(map(change_in_words, gains))} |", ""]
    return "\n".join([*lines, *judged_lines(result["judged"])])


def judged_lines(systems: Mapping[str, Any]) -> list[str]:
    """Return the table of judged queries: figures, differences from the base model, and of models with BM25 from
    that model with BM25.
    """
    tasks = sorted({task for system in systems.values() for task in system["tasks"]})
    if not tasks:
        return []
    lines = ["| judged queries | " + " | ".join(tasks) + " |", "|---" * (len(tasks) + 1) + "|"]
    for name, system in systems.items():
        cells = []
        for task in tasks:
            found = system["tasks"][task]
            change = found["against"].get(UNTRAINED)
            cells.append(f"{found['value']:.2f}" + (f", {change_in_words(change)}" if change else ""))
        weight = "" if system["weight"] is None else f" (w {system['weight']:.1f})"
        lines.append(f"| {name}{weight} | {' | '.join(cells)} |")
    both = UNTRAINED + WITH_BM25
    for name, system in systems.items():
        against = [system["tasks"][task]["against"].get(both) for task in tasks]
        if name.endswith(WITH_BM25) and all(against):
            lines.append(f"| {name} against {both} | {' | '.join(map(change_in_words, against))} |")
    return lines


def change_in_words(change: Mapping[str, float]) -> str:
    """Return a difference in points, with its interval, as text."""
    return f"{change['value']:+.1f} [{change['low']:+.1f}, {change['high']:+.1f}]"


def in_words(system: Mapping[str, Any]) -> str:
    """Return a system's figure as text."""
    weight = "" if system.get("weight") is None else f" (w {system['weight']:.1f})"
    return f"{system['mrr']:.1f} [{system['low']:.1f}, {system['high']:.1f}]{weight}"


def main() -> None:
    parser = command(__doc__, "adapting")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="folder of all results")
    parser.add_argument("--model", type=Path, metavar="DIR", help="sentence-transformers folder; none: --ways texts")
    parser.add_argument("--input", type=Path, required=True, metavar="FILE", help="texts with titles, csv or jsonl")
    parser.add_argument("--data", type=Path, metavar="DIR", help="data folder with retrieval/, judged queries")
    parser.add_argument("--ways", default=",".join(WAYS), metavar="LIST", help="ways to adapt (default: all)")
    parser.add_argument("--sizes", default="1000,5000,12000", metavar="LIST", help="numbers of texts to rank")
    parser.add_argument("--holdout-fraction", type=float, default=0.05, metavar="F", help="of the texts")
    parser.add_argument("--group-field", metavar="NAME", help="hold out texts with one value of this field together")
    parser.add_argument("--keys", nargs="*", default=[], metavar="KEY=VALUE", help="keys of the recipe to change")
    option(parser, "seeds", 3, "runs of each way")
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
