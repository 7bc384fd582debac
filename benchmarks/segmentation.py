"""Cutting texts into sentences: speed, and how many boundaries are found, beside other segmenters, in one run.

    python -m benchmarks.segmentation --text CORPORA --sentences en=wiki1m.txt --sentences de=stsb-de.csv

Speed: a pass over the .jsonl files of CORPORA (English), one process, processor time. Boundaries: sentences of a file
(lines, or the first cell of .csv rows), of those that end as sentences do, joined to texts of 20 and of 1,000, which
each segmenter is to take apart again. Needs the extra `benchmarks`.
"""

import argparse
import csv
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import orjson

from benchmarks.report import command, finish, machine
from clearspan.pipelines.text.segmentation import segment

ENDS = (".", "!", "?", "。", "！", "？")
TOGETHER = (20, 1000)
SLOW = ("pysbd",)
Segmenter = Callable[[str, str], Iterable[str]]


def segmenters() -> dict[str, Segmenter]:
    """(text, language) -> sentences, by name."""
    import blingfire
    import nupunkt
    import pysbd

    by_language: dict[str, Any] = {}

    def pysbd_sentences(text: str, language: str) -> Iterable[str]:
        if language not in by_language:
            by_language[language] = pysbd.Segmenter(language=language, clean=False)
        return by_language[language].segment(text)

    return {
        "sentencex": lambda text, language: segment(text, language),
        "blingfire": lambda text, language: blingfire.text_to_sentences(text).split("\n"),
        "nupunkt": lambda text, language: nupunkt.sent_tokenize(text),
        "pysbd": pysbd_sentences,
    }


def texts(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.jsonl")):
        with path.open("rb") as file:
            for line in file:
                yield orjson.loads(line)["text"]


def sentences(path: Path) -> list[str]:
    """A file's sentences that end as sentences do, their inner spaces single."""
    with path.open(encoding="utf-8", newline="") as file:
        found = [row[0] for row in csv.reader(file) if row] if path.suffix == ".csv" else file.read().splitlines()
    return [" ".join(one.split()) for one in found if one.strip().endswith(ENDS)]


def ends(text: str, found: Iterable[str]) -> set[int]:
    """Where sentences end, counted in characters that are no spaces: segmenters treat spaces in their own ways."""
    places, at = set(), 0
    for one in found:
        if length := len("".join(one.split())):
            at += length
            places.add(at)
    return places


def boundaries(segmenter: Segmenter, language: str, known: Sequence[str], together: int) -> tuple[float, float]:
    """(precision, recall) of the boundaries inside and at the end of texts of so many sentences."""
    right = told = true = 0
    for first in range(0, len(known), together):
        part = known[first : first + together]
        text = ("" if language in ("zh", "ja") else " ").join(part)
        expected, found = ends(text, part), ends(text, segmenter(text, language))
        right, told, true = right + len(expected & found), told + len(found), true + len(expected)
    return round(right / told, 4), round(right / true, 4)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    every = list(texts(arguments.text))
    for name, segmenter in segmenters().items():
        size, part = 0, []
        for text in every:
            size += len(text.encode())
            part.append(text)
            if size >= 1e6 * (arguments.slow_megabytes if name in SLOW else arguments.megabytes):
                break
        start = time.process_time()
        count = sum(len(list(segmenter(text, "en"))) for text in part)
        rows[name] = {"mb_per_s": round(size / 1e6 / (time.process_time() - start), 2), "sentences": count}
        for given in arguments.sentences:
            language, _, path = given.partition("=")
            known = sentences(Path(path))[: 300 if name in SLOW else 3000]
            rows[name][language] = {number: boundaries(segmenter, language, known, number) for number in TOGETHER}
    return {
        "machine": machine(),
        "versions": {name: metadata.version(name) for name in rows},
        "rows": rows,
    }


def table(result: dict[str, Any]) -> str:
    """What is printed."""
    languages = [key for key, value in next(iter(result["rows"].values())).items() if isinstance(value, dict)]
    heads = [f"{language}, {number:,} together" for language in languages for number in TOGETHER]
    lines = [f"{'':<18} {'MB/s':>7}  " + "  ".join(f"{head:>20}" for head in heads)]
    for name, row in result["rows"].items():
        cells = [
            f"{row[language][number][0]:.3f} / {row[language][number][1]:.3f}"
            for language in languages
            for number in TOGETHER
        ]
        lines.append(
            f"{name} {result['versions'][name]:<8} {row['mb_per_s']:>7.2f}  "
            + "  ".join(f"{cell:>20}" for cell in cells)
        )
    return "\n".join([*lines, "precision / recall of sentence ends, texts of that many sentences"])


def main() -> None:
    parser = command(__doc__, "segmentation")
    parser.add_argument("--text", type=Path, required=True, help="a folder of .jsonl files with English texts")
    parser.add_argument("--sentences", action="append", default=[], metavar="LANGUAGE=FILE", help="one sentence a line")
    parser.add_argument("--megabytes", type=float, default=20, metavar="N", help="of text (default 20)")
    parser.add_argument("--slow-megabytes", type=float, default=0.2, metavar="N", help="for pysbd (default 0.2)")
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
