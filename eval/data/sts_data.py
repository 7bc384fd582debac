"""Readers for sentence pairs with similarity scores: STS12-16, STS-B and SICK as in SentEval; the user's csv and tsv.

Each reader raises MissingDataError if a file does not exist, and DataError, which names the line, if it is malformed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clearspan.common.parsing import finite_number
from clearspan.common.records import DataError, csv_rows, head, read_lines
from clearspan.eval.data.senteval import joined
from clearspan.eval.files import table_rows

_SCORE_COLUMN = {"score", "similarity", "gold", "label"}


@dataclass(frozen=True)
class ScoredPairs:
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


def read_sts_subset(folder: Path, subset: str) -> ScoredPairs:
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
            rows.append((fields[0], fields[1], _score(score, gold_path, number)))
    return _pairs(rows, gold_path)


def read_stsb(path: Path) -> ScoredPairs:
    """Read a split of STSBenchmark, `sts-{train,dev,test}.csv`: TAB-separated, no header, no quotes; fields 5-7."""
    rows = table_rows(path, num_fields=7)
    return _pairs([(row[5], row[6], _score(row[4], path, number)) for number, row in rows], path)


def read_sick(path: Path) -> ScoredPairs:
    """Read a split of SICK, `SICK_{train,trial,test_annotated}.txt`: header, TAB-separated; uses fields 2-4."""
    rows = table_rows(path, num_fields=5, header="relatedness_score")
    return _pairs([(row[1], row[2], _score(row[3], path, number)) for number, row in rows], path)


def read_pairs(path: Path) -> ScoredPairs:
    """Read the pairs of a csv file, or of a tsv file if its name ends with `.tsv`: `--pairs`, other languages.

    A row holds two texts and a score, which may be any number. The first row may be a header: its third cell contains
    the word `score`, `similarity`, `gold` or `label`, in any case. Further columns are ignored, and allowed only with a
    header: otherwise they may come from unquoted commas. Empty lines are skipped. Files are UTF-8, with or without a
    byte order mark.

    In a csv, which may be separated by commas, semicolons, bars or tabs, a cell with a separator, a quote (doubled) or
    an end of line must be quoted. In a tsv, quotes enclose cells or are plain characters (`common.delimited`).

    Raises:
        MissingDataError: the file does not exist.
        DataError: a row is malformed, or the file has no row.
    """
    is_tsv = path.suffix.lower() == ".tsv"
    separator = "\t" if is_tsv else ","
    rows = []
    expected = f"two sentences and a score, separated by {'TABs' if is_tsv else 'commas'}"
    width = 3
    is_first = True
    for number, fields in csv_rows(path):
        if not any(fields) and len(fields) < 2:
            continue
        if is_first and len(fields) >= 3 and _SCORE_COLUMN & set(fields[2].lower().replace("_", " ").split()):
            width = len(fields)
            expected = f"{len(fields)} fields, as in the header"
        elif len(fields) != width:
            raise DataError(
                f"{path}:{number}: expected {expected}, found {len(fields)} fields: {head(separator.join(fields))}"
            )
        else:
            rows.append((fields[0], fields[1], _score(fields[2], path, number)))
        is_first = False
    return _pairs(rows, path)


def _pairs(rows: Sequence[tuple[str, str, float]], path: Path) -> ScoredPairs:
    """Build pairs from rows of two sentences and a score; joins the tokens of each sentence by single spaces.

    Raises:
        DataError: there is no row.
    """
    if not rows:
        raise DataError(f"{path}: holds no scored pair; restore it from the original")
    left, right, gold = zip(*rows, strict=True)
    return ScoredPairs([joined(text) for text in left], [joined(text) for text in right], np.array(gold, np.float64))


def _score(text: str, path: Path, number: int) -> float:
    """Return the score on a line of a file.

    Raises:
        DataError: the text is not a finite number, e.g. 1_0, which Python reads as 10.
    """
    try:
        return finite_number(text)
    except ValueError:
        raise DataError(f"{path}:{number}: expected a number as the pair's score, found {head(text)}") from None
