"""Readers for SentEval's sentence pairs with similarity scores: STS12-16, STS-B and SICK.

Each raises MissingDataError if a file does not exist, and DataError if it is malformed, with the line.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clearspan.common.parsing import finite_number
from clearspan.eval.data.senteval import joined
from clearspan.eval.files import DataError, head, read_lines, table_rows


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs with their gold similarity.

    Attributes:
        left, right: n sentences each.
        gold: float64 (n,), mean score of the annotators, 0-5 (SICK: 1-5).
    """

    left: list[str]
    right: list[str]
    gold: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.gold)


def read_sts_subset(folder: Path, subset: str) -> Pairs:
    """Read a subset of an STS year: `STS.input.<subset>.txt` (two sentences, TAB) and `STS.gs.<subset>.txt` (scores).

    Pairs with an empty gold line were not annotated and are dropped, as in SentEval.
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
            raise DataError(f"{input_path}:{number}: expected two sentences separated by a TAB, found {head(line)}")
        if score.strip():
            rows.append((fields[0], fields[1], parsed_score(score, gold_path, number)))
    return pairs_of(rows, gold_path)


def read_stsb(path: Path) -> Pairs:
    """Read a split of STSBenchmark, `sts-{train,dev,test}.csv`: TAB-separated, no header, no quotes; fields 5-7."""
    rows = table_rows(path, num_fields=7)
    return pairs_of([(row[5], row[6], parsed_score(row[4], path, number)) for number, row in rows], path)


def read_sick(path: Path) -> Pairs:
    """Read a split of SICK, `SICK_{train,trial,test_annotated}.txt`: header, TAB-separated; uses fields 2-4."""
    rows = table_rows(path, num_fields=5, header="relatedness_score")
    return pairs_of([(row[1], row[2], parsed_score(row[3], path, number)) for number, row in rows], path)


def pairs_of(rows: Sequence[tuple[str, str, float]], path: Path) -> Pairs:
    """Build pairs from rows of two sentences and a score; joins the tokens of each sentence by single spaces.

    Raises:
        DataError: there is no row.
    """
    if not rows:
        raise DataError(f"{path}: holds no scored pair; restore it from the original")
    left, right, gold = zip(*rows, strict=True)
    return Pairs([joined(text) for text in left], [joined(text) for text in right], np.array(gold, np.float64))


def parsed_score(text: str, path: Path, number: int) -> float:
    """Return the score on a line of a file.

    Raises:
        DataError: the text is not a finite number, e.g. 1_0, which Python reads as 10.
    """
    try:
        return finite_number(text)
    except ValueError:
        raise DataError(f"{path}:{number}: expected a number as the pair's score, found {head(text)}") from None
