"""Readers for sentence pairs with similarity scores: SentEval's STS12-16, STS-B and SICK, and a user's csv or tsv file.

Each reader raises MissingDataError if a file does not exist. It raises DataError, which names the line, if a file is
malformed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clearspan.common.parsing import finite_number
from clearspan.common.records import DataError, csv_rows, head, read_lines
from clearspan.eval.data.senteval import single_spaced
from clearspan.eval.files import table_rows

_SCORE_COLUMN = {"score", "similarity", "gold", "label"}


@dataclass(frozen=True)
class ScoredPairs:
    """Sentence pairs with their gold similarity.

    Attributes:
        left, right: the first and the second sentences of the n pairs.
        gold: the mean score of the annotators, (n,) float64, from 0 to 5, or from 1 to 5 in SICK. The scores in a
            user's file may be any numbers.
    """

    left: list[str]
    right: list[str]
    gold: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.gold)


def read_sts_subset(folder: Path, subset: str) -> ScoredPairs:
    """Read a subset of one year of the STS tasks, such as `headlines`.

    A line of `STS.input.<subset>.txt` has two sentences, separated by a TAB, and the same line of `STS.gs.<subset>.txt`
    has their score. If the line of the score is empty, the pair was not annotated; it is dropped, as in SentEval.

    Args:
        subset: the name of the subset in the names of its two files.

    Raises:
        MissingDataError: one of the files does not exist.
        DataError: a file is malformed, or the files have different numbers of lines.
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
    """Read a split of STSBenchmark, `sts-{train,dev,test}.csv`.

    The file is TAB-separated, without header or quoting. Field 5 is the score, and fields 6 and 7 are the sentences.

    Raises:
        MissingDataError: the file does not exist.
        DataError: a row is malformed, or the file has no row.
    """
    rows = table_rows(path, num_fields=7)
    return _pairs([(row[5], row[6], _score(row[4], path, number)) for number, row in rows], path)


def read_sick(path: Path) -> ScoredPairs:
    """Read the sentences and similarity scores of a split of SICK, `SICK_{train,trial,test_annotated}.txt`.

    The file is TAB-separated and has a header. Fields 2 and 3 are the sentences, and field 4 is the score.

    Raises:
        MissingDataError: the file does not exist.
        DataError: a row is malformed, or the file has no row.
    """
    rows = table_rows(path, num_fields=5, header="relatedness_score")
    return _pairs([(row[1], row[2], _score(row[3], path, number)) for number, row in rows], path)


def read_pairs(path: Path) -> ScoredPairs:
    """Read the scored pairs of a user's file (`--pairs`), or of STS-B in another language.

    The file is a tsv if its name ends with `.tsv`, and otherwise a csv. A row holds two texts and a score, which may be
    any number. The first row is a header if its third cell contains the word `score`, `similarity`, `gold` or `label`,
    in any case. If there is a header, there may be more than three columns; the additional ones are ignored. If there
    is no header, a row with more than three cells is an error, since its texts may contain commas that should have been
    quoted. Empty lines are skipped. Files are UTF-8, with or without a byte order mark.

    The columns of a csv are separated by commas, semicolons, vertical bars or tabs. A cell that contains the separator,
    a quote or a line break must be quoted, and quotes in it must be doubled. In a tsv, quotes either enclose cells or
    are plain characters; which of the two is guessed from the file (`common.delimited`).

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
    """Build pairs from rows (first sentence, second sentence, score), in single spaces; DataError if there is none."""
    if not rows:
        raise DataError(f"{path}: holds no scored pair; restore it from the original")
    left, right, gold = zip(*rows, strict=True)
    return ScoredPairs(
        [single_spaced(text) for text in left], [single_spaced(text) for text in right], np.array(gold, np.float64)
    )


def _score(text: str, path: Path, number: int) -> float:
    """Convert a score to a finite number; raise DataError for other text, also for 1_0, which `float` accepts."""
    try:
        return finite_number(text)
    except ValueError:
        raise DataError(f"{path}:{number}: expected a number as the pair's score, found {head(text)}") from None
