"""Readers for SentEval's data files, as they are.

Covers the sentence-pair files with a graded similarity: STS12-16, STS-B and SICK. Every reader gives `Pairs`. The
sentences are what a SentEval user's encoder gets: the line's tokens joined by single spaces, case kept.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eval.files import DataError, MissingDataError, head, read_lines

_DOWNSTREAM = ("STS", "SICK", "MR", "CR", "SUBJ", "MPQA", "SST", "TREC", "MRPC", "SNLI", "COCO")


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs with their gold similarity.

    Attributes:
        left, right: n sentences each.
        gold: float64 (n,), the annotators' mean, 0-5 (SICK: 1-5).
    """

    left: list[str]
    right: list[str]
    gold: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.gold)


def find_downstream(data: Path) -> Path:
    """The `downstream` folder of a SentEval data folder.

    Accepts the folder that holds `downstream/`, a folder that holds that one as `senteval/`, or `downstream` itself.

    Raises:
        MissingDataError: `data` is none of these.
    """
    return find_folder(data, "downstream", _DOWNSTREAM)


def find_folder(data: Path, name: str, holds: Sequence[str]) -> Path:
    """`data/name`, `data/senteval/name`, or `data` itself where it holds one of the files or folders `holds`.

    Raises:
        MissingDataError: `data` is none of these.
    """
    for place in (data / name, data / "senteval" / name):
        if place.is_dir():
            return place
    if any((data / one).exists() for one in holds):
        return data
    raise MissingDataError(f"{data} is no SentEval data folder: it holds neither {name}/ nor senteval/{name}/")


def read_sts_subset(folder: Path, subset: str) -> Pairs:
    """One subset of an STS year: `STS.input.<subset>.txt` (two sentences, TAB) with `STS.gs.<subset>.txt` (a score).

    Pairs whose gold line is empty were not annotated and are dropped, as in SentEval.

    Raises:
        MissingDataError: one of the two files is not there.
        DataError: they differ in length, or a line is malformed.
    """
    input_path, gold_path = folder / f"STS.input.{subset}.txt", folder / f"STS.gs.{subset}.txt"
    sentences, scores = list(read_lines(input_path)), list(read_lines(gold_path))
    if len(sentences) != len(scores):
        raise DataError(
            f"{gold_path}: {len(scores)} lines for the {len(sentences)} of {input_path.name}, and they must match line "
            "by line; an editor may have cut empty lines from the end, so restore both from the original"
        )
    rows = []
    for number, (line, score) in enumerate(zip(sentences, scores, strict=True), start=1):
        fields = line.split("\t")
        if len(fields) < 2:
            raise DataError(
                f"{input_path}:{number}: expected two sentences with a TAB between them, found {head(line)}"
            )
        if score.strip():
            rows.append((fields[0], fields[1], parsed_score(score, gold_path, number)))
    return pairs_of(rows, gold_path)


def read_stsb(path: Path) -> Pairs:
    """A split of STSBenchmark, `sts-{train,dev,test}.csv`: TAB-separated, no header or quoting; fields 5-7 are used.

    Raises:
        MissingDataError: the file is not there.
        DataError: a line is malformed.
    """
    return _read_columns(path, list(read_lines(path)), first_number=1, num_fields=7, columns=(5, 6, 4))


def read_sick(path: Path) -> Pairs:
    """A split of SICK, `SICK_{train,trial,test_annotated}.txt`: a header, TAB-separated; fields 2-4 are used.

    Raises:
        MissingDataError: the file is not there.
        DataError: the header is missing or a line is malformed.
    """
    lines = list(read_lines(path))
    header = lines[0] if lines else ""
    if "relatedness_score" not in header.split("\t"):
        raise DataError(f"{path}:1: expected SICK's header, with a field relatedness_score, found {head(header)}")
    return _read_columns(path, lines[1:], first_number=2, num_fields=5, columns=(1, 2, 3))


def _read_columns(
    path: Path, lines: Sequence[str], first_number: int, num_fields: int, columns: tuple[int, int, int]
) -> Pairs:
    left, right, score = columns
    rows = []
    for number, line in enumerate(lines, start=first_number):
        fields = line.split("\t")
        if len(fields) < num_fields:
            raise DataError(
                f"{path}:{number}: expected {num_fields} TAB-separated fields, found {len(fields)}: {head(line)}"
            )
        rows.append((fields[left], fields[right], parsed_score(fields[score], path, number)))
    return pairs_of(rows, path)


def pairs_of(rows: Sequence[tuple[str, str, float]], path: Path) -> Pairs:
    """The pairs of rows of two sentences and a score, their tokens joined by single spaces.

    Raises:
        DataError: there are none.
    """
    if not rows:
        raise DataError(f"{path}: holds no scored pair; restore it from the original")
    left, right, gold = zip(*rows, strict=True)
    return Pairs([" ".join(s.split()) for s in left], [" ".join(s.split()) for s in right], np.array(gold, np.float64))


def parsed_score(text: str, path: Path, number: int) -> float:
    """The score of a line of a file.

    Raises:
        DataError: it is no finite number.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise DataError(f"{path}:{number}: expected a number as the pair's score, found {head(text)}")
    return value
