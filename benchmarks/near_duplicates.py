"""Near-duplicates: recall and precision by similarity, and speed, beside datatrove's MinHash and datasketch's LSH.

    pip install -e .[benchmarks]
    python -m benchmarks.near_duplicates --text 'DATA/text/*.jsonl'

Passages of real text are copied with other words, with cuts, or with foreign text around them, up to some similarity:
the exact Jaccard similarity of the two sets of 5-grams of words. A method finds a copy if it would drop it, in a corpus
of all originals and all copies. The peers have their own defaults: datatrove 14 bands of 8 numbers, in which one equal
band makes a duplicate; datasketch's MinHashLSH with its threshold at 0.8. Speed is that of one process from texts to
sketches, bands included.
"""

import argparse
import glob
import json
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import alternating, columns, command, finish, machine, option, timed
from clearspan.pipelines.text.minhash import sketches
from clearspan.pipelines.text.word_hashes import comparable
from clearspan.pipelines.units import near

THRESHOLD = 0.8
WORDS = (120, 600)
"""Words of a passage."""
BOILERPLATE = 8
"""The number of texts that copies are surrounded with."""
BINS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0001)
TOGETHER = 100


def passages(patterns: Sequence[str], count: int) -> list[str]:
    """Return passages of the texts of .jsonl files, without overlap, each text's first ones."""
    found: list[str] = []
    rng = random.Random(1)
    for path in sorted(Path(path) for pattern in patterns for path in glob.glob(pattern)):  # noqa: PTH207
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                words, place = json.loads(line)["text"].split(" "), 0
                for _ in range(6):
                    size = rng.randint(*WORDS)
                    if place + size > len(words):
                        break
                    passage, place = " ".join(words[place : place + size]), place + size
                    if len(ngrams(passage)) > size / 2:  # not a table, or spaces
                        found.append(passage)
    rng.shuffle(found)
    return list(dict.fromkeys(found))[:count]


def copies(originals: Sequence[str], surroundings: Sequence[str]) -> Iterator[str]:
    """Yield a changed copy of each passage: words replaced, an end cut off, or text of another around it, by turns."""
    rng = random.Random(2)
    for number, text in enumerate(originals):
        words, share = text.split(" "), rng.random()
        if number % 3 == 0:
            rate = 0.12 * share
            words = [word if rng.random() >= rate else f"{word}{rng.randrange(1000)}" for word in words]
        elif number % 3 == 1:
            words = words[int(0.5 * share * len(words)) :]
        else:
            around = rng.choice(surroundings).split(" ")
            words = [*around[: int(0.8 * share * len(words))], *words]
        yield " ".join(words)


def ngrams(text: str) -> set[tuple[str, ...]]:
    words = "".join(c if c.isalnum() else " " for c in comparable(text)).split()
    return {tuple(words[place : place + 5]) for place in range(max(1, len(words) - 4))}


def similarity(first: str, second: str) -> float:
    a, b = ngrams(first), ngrams(second)
    return len(a & b) / len(a | b)


def ours(texts: Sequence[str]) -> np.ndarray:
    """Return the sketches of texts, (n, numbers) int64."""
    return np.concatenate([sketches(texts[at : at + TOGETHER]) for at in range(0, len(texts), TOGETHER)])


def dropped_by_ours(numbers: np.ndarray) -> np.ndarray:
    """Return which documents are dropped, (n,) bool, by the functions that a run calls in its rounds."""
    banding = near.Banding(THRESHOLD)
    bands = banding.bands(numbers, 0)
    bands = bands[near.shared(bands["band"])]
    entries = np.empty(len(bands), near.CANDIDATE)
    entries["band"], entries["row"], entries["id"] = bands["band"], bands["row"], bands["row"]
    entries["code"] = near.describe(np.arange(len(numbers)), numbers)["code"][bands["row"]]
    found = near.compare(entries, banding.accepted)[0]
    dropped = np.zeros(len(numbers), bool)
    dropped[entries["row"][found]] = True
    return dropped


def datatrove() -> tuple[Callable[[Sequence[str]], Any], Callable[[Any], np.ndarray]]:
    from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupSignature

    step = MinhashDedupSignature("unused", MinhashConfig())

    def sketch(texts: Sequence[str]) -> list[list[list[int]]]:
        return [step.get_signature(step.get_shingles(text)) for text in texts]

    def dropped(signatures: list[list[list[int]]]) -> np.ndarray:
        seen: set[tuple[int, ...]] = set()
        result = np.zeros(len(signatures), bool)
        for number, signature in enumerate(signatures):
            keys = {(band, *numbers) for band, numbers in enumerate(signature)}
            result[number] = not seen.isdisjoint(keys)
            seen |= keys
        return result

    return sketch, dropped


def datasketch() -> tuple[Callable[[Sequence[str]], Any], Callable[[Any], np.ndarray]]:
    from datasketch import MinHash, MinHashLSH

    def sketch(texts: Sequence[str]) -> list[Any]:
        return list(MinHash.generator([" ".join(gram).encode() for gram in ngrams(text)] for text in texts))

    def dropped(made: list[Any]) -> np.ndarray:
        index, result = MinHashLSH(threshold=THRESHOLD, num_perm=128), np.zeros(len(made), bool)
        for number, each in enumerate(made):
            result[number] = bool(index.query(each))
            index.insert(number, each)
        return result

    return sketch, dropped


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    originals = passages(arguments.text, arguments.planted + BOILERPLATE)
    originals, surroundings = originals[BOILERPLATE:], originals[:BOILERPLATE]
    changed = list(copies(originals, surroundings))
    exact = np.array([similarity(*pair) for pair in zip(originals, changed, strict=True)])
    texts = [*originals, *changed]
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    methods = {"clearspan": (ours, dropped_by_ours), "datatrove": datatrove(), "datasketch": datasketch()}
    result: dict[str, Any] = {"machine": machine(), "planted": len(originals), "megabytes": megabytes, "methods": {}}
    part = texts[:: max(1, len(texts) // arguments.timed)]
    part_megabytes = sum(len(text.encode()) for text in part) / 1e6
    times = alternating(
        {name: lambda make=make: timed(lambda: make(part))[0] for name, (make, _) in methods.items()}, 3
    )
    bins = np.digitize(exact, BINS) - 1
    for name, (make, drops) in methods.items():
        dropped = drops(make(texts))
        found, others = dropped[len(originals) :], dropped[: len(originals)]
        result["methods"][name] = {
            "mb_per_s": part_megabytes / statistics.median(time.processor for time in times[name]),
            "found": {f"{BINS[bin]:g}": float(found[bins == bin].mean()) for bin in range(len(BINS) - 1)},
            "recall": float(found[exact >= THRESHOLD].mean()),
            "precision": float((exact[found] >= THRESHOLD).mean()),
            "originals_dropped": int(others.sum()),
        }
    result["pairs"] = {f"{BINS[bin]:g}": int((bins == bin).sum()) for bin in range(len(BINS) - 1)}
    rates = {name: method["mb_per_s"] for name, method in result["methods"].items()}
    result["ratios"] = {name: rates["clearspan"] / rate for name, rate in rates.items() if name != "clearspan"}
    return result


def table(result: dict[str, Any]) -> str:
    methods = result["methods"]
    edges = list(result["pairs"])
    rows = [
        [f"{edge} to {min(1, BINS[number + 1]):g}", f"{result['pairs'][edge]:,}"]
        + [f"{100 * method['found'][edge]:.1f} %" for method in methods.values()]
        for number, edge in enumerate(edges)
    ]
    rows.append(["recall at 0.8 or above", ""] + [f"{100 * method['recall']:.1f} %" for method in methods.values()])
    rows.append(["precision", ""] + [f"{100 * method['precision']:.1f} %" for method in methods.values()])
    rows.append(["originals dropped", ""] + [str(method["originals_dropped"]) for method in methods.values()])
    rows.append(["MB/s of one process", ""] + [f"{method['mb_per_s']:.2f}" for method in methods.values()])
    ratios = "; ".join(f"{ratio:.1f} times {name}'s" for name, ratio in result["ratios"].items())
    return columns(["similarity", "pairs", *methods], rows) + f"\nspeed: {ratios}"


def main() -> None:
    parser = command(__doc__, "near_duplicates")
    parser.add_argument("--text", nargs="+", required=True, metavar="GLOB", help=".jsonl files with a field text")
    option(parser, "planted", 5000, "passages with a copy each")
    option(parser, "timed", 1000, "texts of the timed rounds")
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
